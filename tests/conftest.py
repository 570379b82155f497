"""Puts this folder on the path, so that tests share ``keyvalue.py``, a small real environment."""

import signal

import pytest


@pytest.fixture(autouse=True, scope="session")
def _control_c_is_heard() -> None:
    """Also in the background of a script, whose shell has SIGINT ignored by all that it starts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)

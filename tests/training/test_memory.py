"""The C library keeps freed memory where it can be asked to."""

import platform

import pytest

from coevolve.training.memory import keep_freed_memory


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_glibc_takes_both_thresholds() -> None:
    assert keep_freed_memory()

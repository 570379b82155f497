"""One small taught policy for all training tests; it takes two seconds to make."""

from __future__ import annotations

from pathlib import Path

import pytest
import small


@pytest.fixture(scope="session")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the small policy; never trained in place."""
    folder = tmp_path_factory.mktemp("policy")
    small.make_policy(folder)
    return folder

"""Puts this folder on the path, and that of the agent loop's tests, whose small tokenizers are used here."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "rollout"))

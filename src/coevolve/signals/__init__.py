"""Stage 1: the three weakness signals, read off the rollouts of training (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from coevolve.config import SignalsConfig
from coevolve.errors import ConfigError
from coevolve.signals.base import Detector, Scores
from coevolve.signals.boundary import Boundary
from coevolve.signals.forgetting import Forgetting
from coevolve.signals.rare import Rare
from coevolve.signals.unseen import Unseen
from coevolve.types import ToolCall, World

__all__ = ["Boundary", "Detector", "Forgetting", "Rare", "Unseen", "build"]


def build(
    config: SignalsConfig,
    offered: Callable[[World], Collection[str]] | None = None,
    names: Callable[[ToolCall], Sequence[str]] | None = None,
    scores: Scores | None = None,
) -> list[Detector]:
    """The signals that are switched on, the paper's first.

    Args:
        config: a section that is None switches its signal off.
        offered: the names of a world's tools, for the rare and the unseen signal, which needs it.
        names: the actions within a call, for the same.
        scores: where the forgetting signal keeps what it remembers of every task.

    Raises:
        ConfigError: the unseen signal, without ``offered``.
    """
    signals: list[Detector] = []
    if config.forgetting is not None:
        signals.append(Forgetting(config.forgetting, scores))
    if config.boundary is not None:
        signals.append(Boundary(config.boundary))
    if config.rare is not None:
        signals.append(Rare(config.rare, offered, names))
    if config.unseen is not None:
        if offered is None:
            raise ConfigError("signals.unseen needs to know which tools a world offers")
        signals.append(Unseen(config.unseen, offered, names))
    return signals

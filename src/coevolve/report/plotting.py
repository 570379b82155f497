"""What all figures share: they are data for Plotly, and their colours and fonts are the page's."""

from __future__ import annotations

import html
from typing import Any

Figure = dict[str, Any]


def colour(kind: str) -> str:
    """A name that the page replaces by a colour of its theme."""
    return f"--{kind}" if kind in ("unguided", "forgetting", "boundary", "rare", "unseen") else "--official"


def said(text: str) -> str:
    """Text for a figure: Plotly reads a little HTML in names, so what others wrote is escaped."""
    return html.escape(text, quote=False)


def step_axis() -> dict[str, Any]:
    """The axis of training steps."""
    return {"title": {"text": "step"}, "rangemode": "tozero"}

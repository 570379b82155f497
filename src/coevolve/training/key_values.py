"""Keys and values of what a model has read: a prompt that only extends it goes on from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import Cache, DynamicLayer

_ROOM = 64  # slots added whenever a cache layer is full


def attends_plainly(config: Any) -> bool:
    """Whether every layer attends to all earlier tokens: no sliding window, no recurrent state."""
    return all(type(layer) is DynamicLayer for layer in DynamicCache(config=config).layers)


class RoomyLayer(DynamicLayer):  # type: ignore[misc]
    """Keys and values in a buffer with room to grow, where DynamicLayer copies all of them per token."""

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append states ``[rows, heads, new, width]``; returns views of everything so far."""
        end = self.length + key_states.shape[-2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = _room(key_states, end + _ROOM), _room(value_states, end + _ROOM)
        elif end > self.keys.shape[-2]:
            old = self.keys, self.values
            self.keys, self.values = _room(self.keys, end + _ROOM), _room(self.values, end + _ROOM)
            self.keys[:, :, : self.length] = old[0][:, :, : self.length]
            self.values[:, :, : self.length] = old[1][:, :, : self.length]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length


@dataclass(slots=True)
class Memory:
    """What one decoded batch left behind.

    A row's slots have holes where other rows were longer. ``seen`` says which slots count; positions
    are counted per row, so a hole is never attended to and shifts nothing.
    """

    cache: Any
    seen: Tensor  # [rows, slots], 1 where a slot holds a token of the row
    ids: list[tuple[int, ...]]  # per row the tokens in those slots


def recalled(
    places: list[tuple[int, int]], memories: list[Memory], device: torch.device
) -> tuple[Any, Tensor]:
    """One cache with the remembered rows ``places``, whichever batches they were decoded in.

    Args:
        places: which of ``memories``, and which row of it.

    Returns:
        The cache, and which of its slots count: ``[places, slots]``.
    """
    slots = max(memories[m].seen.shape[1] for m, _ in places)
    seen = torch.zeros((len(places), slots), dtype=torch.long, device=device)
    layers = [RoomyLayer() for _ in memories[places[0][0]].cache.layers]
    for m in sorted({m for m, _ in places}):
        here = [n for n, place in enumerate(places) if place[0] == m]
        target = torch.tensor(here, device=device)
        source = torch.tensor([places[n][1] for n in here], device=device)
        width = memories[m].seen.shape[1]
        seen[target, :width] = memories[m].seen[source]
        for layer, past in zip(layers, memories[m].cache.layers):
            if not layer.is_initialized:
                layer.lazy_initialization(past.keys, past.values)
                layer.keys = _room(past.keys, slots + _ROOM, len(places))
                layer.values = _room(past.values, slots + _ROOM, len(places))
                layer.length = slots
            layer.keys[target, :, :width] = past.keys[source, :, :width]
            layer.values[target, :, :width] = past.values[source, :, :width]
    return Cache(layers=layers), seen


def rows_of(cache: Any, rows: Tensor) -> Any:
    """A cache of its own with these rows of ``cache``."""
    copy = Cache(layers=[RoomyLayer() for _ in cache.layers])
    for new, old in zip(copy.layers, cache.layers):
        new.lazy_initialization(old.keys, old.values)
        new.keys = old.keys[rows, :, : old.length]
        new.values = old.values[rows, :, : old.length]
        new.length = old.length
    return copy


def longest_prefix(
    row: tuple[int, ...], known: dict[tuple[int, ...], tuple[int, int]], lengths: list[int]
) -> tuple[int, int] | None:
    """Where the longest remembered true prefix of ``row`` lies."""
    for length in lengths:
        if length < len(row) and (place := known.get(row[:length])) is not None:
            return place
    return None


def _room(like: Tensor, slots: int, rows: int | None = None) -> Tensor:
    """Zeros, not whatever memory held: an unattended NaN would still poison a weighted sum."""
    return like.new_zeros(rows or like.shape[0], like.shape[1], slots, like.shape[3])

"""Log-probabilities on a CPU without computing padding, nor a group's prompt K times.

TRL pads prompts to the left and completions to the right, and runs the prompt once per rollout. Here the
completions of one prompt share a row: the prompt once, then each completion behind its own copy of the
prompt's last token, so that every token has a label of its own. A completion attends to the prompt and to
itself, at the positions it would have alone; the numbers are the same up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

_ROW = 384  # tokens in a row, unless one completion is longer: attention grows with the square
_PASS = 2048  # tokens in a forward pass


@dataclass(slots=True)
class _Row:
    ids: list[int]
    positions: list[int]
    labels: list[int]
    segments: list[int]
    """0 is the prompt, then one number per completion."""
    places: list[tuple[int, int]] = field(default_factory=list)
    """Per completion: its row in the batch, and where it begins here."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The inputs of one forward pass over packed rows, each ``[rows, length]`` but the mask."""

    ids: Tensor
    positions: Tensor
    labels: Tensor
    """Of the next token, not shifted any more; -100 where none counts."""
    mask: Tensor
    """``[rows, 1, length, length]``, True where a query may attend to a key."""


def packed_logprobs(
    model: Any,
    ids: Tensor,
    attention: Tensor,
    keep: int,
    entropy: bool,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> tuple[Tensor, Tensor | None]:
    """Log-probabilities of the last ``keep`` tokens of each row, and on demand entropies, ``[batch, keep]``.

    Args:
        model: Its forward takes ``shift_labels`` and ``fused_lm_head``, as TRL patches it.
        ids: As in :func:`pack`.
    """
    passes, index = pack(ids, attention, keep)
    outputs = []
    for each in passes:
        with autocast():
            outputs.append(
                model(
                    input_ids=each.ids,
                    attention_mask=each.mask,
                    position_ids=each.positions,
                    shift_labels=each.labels,
                    fused_lm_head=True,
                )
            )
    logprobs = unpack([output.log_probs for output in outputs], index)
    return logprobs, unpack([output.entropy for output in outputs], index) if entropy else None


def pack(ids: Tensor, attention: Tensor, keep: int) -> tuple[list[Pass], Tensor]:
    """Forward passes for a padded batch, and where their results belong.

    Args:
        ids: ``[batch, prompt + keep]``, prompts padded left and completions right.
        attention: 1 where ``ids`` holds a token.

    Returns:
        The passes, and ``[batch, keep]`` indices into their concatenated, flattened per-token results;
        padding points one past their end.
    """
    rows = sorted(_rows(ids.tolist(), attention.tolist(), keep), key=lambda row: len(row.ids))
    index = torch.full((ids.shape[0], keep), -1)
    passes: list[Pass] = []
    done = 0
    for chunk in _chunks(rows):
        width = max(len(row.ids) for row in chunk)
        for n, row in enumerate(chunk):
            ends = [start for _, start in row.places[1:]] + [len(row.ids)]
            for (batch, start), end in zip(row.places, ends):
                index[batch, : end - start] = done + n * width + torch.arange(start, end)
        passes.append(_pass(chunk, width))
        done += len(chunk) * width
    index[index < 0] = done
    return passes, index


def unpack(results: Sequence[Tensor], index: Tensor) -> Tensor:
    """Per-token results of the passes as ``[batch, keep]``, 0 at padding."""
    flat = torch.cat([result.flatten() for result in results])
    return torch.cat([flat, flat.new_zeros(1)])[index]


def _rows(ids: list[list[int]], attention: list[list[int]], keep: int) -> Iterator[_Row]:
    groups: dict[tuple[int, ...], list[tuple[int, list[int]]]] = {}
    for batch, (row, mask) in enumerate(zip(ids, attention)):
        split = len(row) - keep
        prompt = tuple(token for token, real in zip(row[:split], mask) if real)
        groups.setdefault(prompt, []).append(
            (batch, [t for t, real in zip(row[split:], mask[split:]) if real])
        )
    for prompt, members in groups.items():
        packed = _begin(prompt)
        for batch, completion in sorted(members, key=lambda member: len(member[1])):
            if packed.places and len(packed.ids) + len(completion) > _ROW:
                yield packed
                packed = _begin(prompt)
            packed.places.append((batch, len(packed.ids)))
            packed.ids += [prompt[-1], *completion[:-1]]
            packed.positions += range(len(prompt) - 1, len(prompt) - 1 + len(completion))
            packed.labels += completion
            packed.segments += [len(packed.places)] * len(completion)
        yield packed


def _begin(prompt: tuple[int, ...]) -> _Row:
    shared = len(prompt) - 1
    return _Row(list(prompt[:-1]), list(range(shared)), [-100] * shared, [0] * shared)


def _chunks(rows: Sequence[_Row]) -> Iterator[list[_Row]]:
    """Rows of like length side by side; ``rows`` are sorted by length."""
    chunk: list[_Row] = []
    for row in rows:
        if chunk and (len(chunk) + 1) * len(row.ids) > _PASS:
            yield chunk
            chunk = []
        chunk.append(row)
    if chunk:
        yield chunk


def _pass(rows: Sequence[_Row], width: int) -> Pass:
    def padded(lists: Sequence[Sequence[int]], fill: int) -> Tensor:
        return torch.tensor([[*numbers, *[fill] * (width - len(numbers))] for numbers in lists])

    segments = padded([row.segments for row in rows], -1)
    keys, queries = segments[:, None, :], segments[:, :, None]
    order = torch.arange(width)
    mask = ((keys == 0) | (keys == queries)) & (order[None, :] <= order[:, None])
    return Pass(
        ids=padded([row.ids for row in rows], 0),
        positions=padded([row.positions for row in rows], 0),
        labels=padded([row.labels for row in rows], -100),
        mask=mask[:, None],
    )

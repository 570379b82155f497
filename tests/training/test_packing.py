"""Packing computes less and changes nothing: against the padded batch, values and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, LlamaForCausalLM

from coevolve.training import packing
from coevolve.training.packing import pack, unpack


@pytest.fixture(scope="module")
def model() -> Any:
    torch.manual_seed(0)
    shape = {"vocab_size": 30, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    return LlamaForCausalLM(LlamaConfig(**shape, num_attention_heads=2)).double()


def padded(rows: list[tuple[list[int], list[int]]]) -> tuple[torch.Tensor, torch.Tensor, int]:
    before, after = max(len(p) for p, _ in rows), max(len(c) for _, c in rows)
    ids = [[0] * (before - len(p)) + p + c + [0] * (after - len(c)) for p, c in rows]
    real = [[0] * (before - len(p)) + [1] * len(p + c) + [0] * (after - len(c)) for p, c in rows]
    return torch.tensor(ids), torch.tensor(real), after


def plainly(model: Any, rows: list[tuple[list[int], list[int]]], keep: int) -> torch.Tensor:
    """Row by row, without padding or batch."""
    found = torch.zeros(len(rows), keep, dtype=torch.double)
    for n, (prompt, completion) in enumerate(rows):
        each = model(input_ids=torch.tensor([prompt + completion])).logits[0].log_softmax(-1)
        wanted = torch.tensor(completion)[:, None]
        found[n, : len(completion)] = each[len(prompt) - 1 : -1].gather(1, wanted)[:, 0]
    return found


def packed(model: Any, ids: torch.Tensor, real: torch.Tensor, keep: int) -> torch.Tensor:
    passes, index = pack(ids, real, keep)
    results = []
    for each in passes:
        output = model(input_ids=each.ids, attention_mask=each.mask, position_ids=each.positions)
        labels = each.labels.clamp(min=0)[..., None]
        results.append(output.logits.log_softmax(-1).gather(2, labels)[..., 0] * (each.labels >= 0))
    return unpack(results, index)


TOKENS = st.lists(st.integers(1, 29), min_size=1, max_size=9)


@settings(max_examples=25, deadline=None)
@given(
    prompts=st.lists(TOKENS, min_size=1, max_size=3),
    completions=st.lists(st.tuples(st.integers(0, 2), TOKENS), min_size=1, max_size=9),
    row=st.integers(1, 40),
    most=st.integers(1, 60),
)
def test_log_probabilities_and_gradients_are_those_of_each_row_alone(
    model: Any, prompts: list[list[int]], completions: list[tuple[int, list[int]]], row: int, most: int
) -> None:
    rows = [(prompts[which % len(prompts)], completion) for which, completion in completions]
    ids, real, keep = padded(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packing, "_ROW", row)
        patch.setattr(packing, "_PASS", most)
        got = packed(model, ids, real, keep)
    expected = plainly(model, rows, keep)
    torch.testing.assert_close(got, expected)
    weight = torch.arange(got.numel(), dtype=torch.double).reshape(got.shape).cos()
    mine, theirs = (
        torch.autograd.grad((x * weight).sum(), list(model.parameters())) for x in (got, expected)
    )
    for one, other in zip(mine, theirs):
        torch.testing.assert_close(one, other)


def test_a_prompt_is_computed_once_for_its_group() -> None:
    rows = [([1] * 50, [2] * 5)] * 8
    passes, _ = pack(*padded(rows))
    assert sum(each.ids.numel() for each in passes) == 49 + 8 * 5

"""The loss that TRL computes for us is Equation 1: against a plain float64 computation of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import small
import torch
from hypothesis import given
from hypothesis import strategies as st

from coevolve.rollout.chat import Chat
from coevolve.training.objective import advantages, all_failed, only, teaches, weigh
from coevolve.training.trl import TrlEngine
from coevolve.types import Group, Outcome
from keyvalue import KeyValue, a_group, a_task

EPSILON, BETA = 0.2, 0.3


def apart(model: Any) -> Any:
    """A float64 model with these weights; not a deep copy, whose forward TRL has tied to the original."""
    other = type(model)(model.config).double()
    other.load_state_dict({name: weight.double() for name, weight in model.state_dict().items()})
    return other.eval()


def plain_logprobs(model: Any, group: Group) -> list[list[float]]:
    """Per rollout the float64 log-probability of each completion token: one row, no padding."""
    found = []
    for rollout in group.rollouts:
        ids = [*rollout.tokens.prompt, *rollout.tokens.ids]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids])).logits[0]
        each = logits.log_softmax(-1)
        first = len(rollout.tokens.prompt)
        found.append([float(each[at - 1, ids[at]]) for at in range(first, len(ids))])
    return found


def equation_1(groups: list[Group], old: Any, new: Any, reference: Any, normalise: str) -> tuple[float, int]:
    """The negated objective, as the paper writes it, and how many tokens were clipped."""
    group_sums, group_tokens, clipped = [], [], 0
    for group in groups:
        counted = [n for n, r in enumerate(group.rollouts) if r.outcome is not Outcome.INVALID]
        if len(counted) < 2:
            continue
        rewards = [group.rollouts[n].reward for n in counted]
        mean = math.fsum(rewards) / len(rewards)
        std = math.sqrt(math.fsum((r - mean) ** 2 for r in rewards) / (len(rewards) - 1))
        logprobs = [plain_logprobs(model, group) for model in (old, new, reference)]
        total, tokens = 0.0, 0
        for n in counted:
            advantage = (group.rollouts[n].reward - mean) / (std + 1e-4)
            for at, mask in enumerate(group.rollouts[n].tokens.mask):
                if mask == 0:
                    continue
                before, now, fixed = (lp[n][at] for lp in logprobs)
                ratio = math.exp(now - before)
                kept = min(max(ratio, 1 - EPSILON), 1 + EPSILON)
                clipped += min(ratio * advantage, kept * advantage) != ratio * advantage
                kl = math.exp(fixed - now) - (fixed - now) - 1
                total += min(ratio * advantage, kept * advantage) - BETA * kl
                tokens += 1
        group_sums.append(total)
        group_tokens.append(tokens)
    if normalise == "batch":
        return -sum(group_sums) / sum(group_tokens), clipped
    return -sum(s / n for s, n in zip(group_sums, group_tokens)) / len(group_sums), clipped


@pytest.mark.parametrize("normalise", ["group", "batch"])
def test_trl_computes_equation_1(normalise: str, policy: Path, tmp_path: Path) -> None:
    """Unequal lengths, tool and user text, invalid rollouts, clipping and KL all active."""
    model, tokenizer = small.load(policy)
    train = {"tasks_per_step": 8, "group_size": 4, "epsilon": EPSILON, "beta": BETA, "normalise": normalise}
    config = small.config(train=train)
    environment = KeyValue()
    environment.outages = 32 + 7  # every world fails once; the first seven rollouts fail twice
    engine = TrlEngine(model, tokenizer, Chat(tokenizer, config.rollout), environment, config, tmp_path)
    source = small.ListSource(small.tasks(), seed=2)
    trainer = engine._trainer(source, 1, None)
    trainer.current_gradient_accumulation_steps = 1
    model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": "-"}] * 32)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    with torch.no_grad():
        inputs["old_per_token_logps"], _, _ = trainer._get_per_token_logps_and_entropies(
            model, ids, attention, inputs["completion_ids"].size(1)
        )
        old = apart(model)
        torch.manual_seed(1)
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)
    loss = trainer.compute_loss(model, inputs)

    groups = list(source.groups[0])
    assert [len(g.valid) for g in groups] == [0, 1, 4, 4, 4, 4, 4, 4]
    assert len({sum(r.tokens.mask) for g in groups for r in g.valid}) > 3
    assert any(0 in r.tokens.mask for g in groups for r in g.valid)
    reference = apart(trainer.ref_model)
    expected, clipped = equation_1(groups, old, apart(model), reference, normalise)
    assert clipped > 5
    assert float(loss.detach()) == pytest.approx(expected, rel=2e-4)
    loss.backward()  # type: ignore[no-untyped-call]
    assert all(bool(torch.isfinite(w.grad).all()) for w in model.parameters() if w.grad is not None)


def test_the_two_normalisations_differ_where_lengths_do() -> None:
    rewards = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    valid, lengths = torch.ones(2, 2, dtype=torch.bool), torch.tensor([[1, 3], [10, 6]])
    group, batch = (weigh(rewards, valid, lengths, mode) for mode in ("group", "batch"))
    assert group.weights.tolist() == [20 / (2 * 4)] * 2 + [20 / (2 * 16)] * 2
    assert batch.weights.tolist() == [1.0] * 4
    assert group.tokens == batch.tokens == 20


def test_a_group_without_two_valid_rollouts_teaches_nothing_and_shrinks_nobody() -> None:
    rewards = torch.tensor([[1.0, 0.0], [1.0, 9.0], [1.0, 9.0]])
    valid = torch.tensor([[True, True], [True, False], [False, False]])
    lengths = torch.tensor([[5, 5], [7, 0], [3, 3]])
    got = weigh(rewards, valid, lengths, "group")
    alone = weigh(rewards[:1], valid[:1], lengths[:1], "group")
    assert got.weights.tolist() == [*alone.weights.tolist(), 0, 0, 0, 0]
    assert got.advantages.tolist() == [*alone.advantages.tolist(), 0, 0, 0, 0]
    assert (got.tokens, got.groups) == (alone.tokens, alone.groups) == (10, 1)


def test_nothing_valid_at_all_is_zero_not_nan() -> None:
    got = weigh(torch.zeros(1, 2), torch.zeros(1, 2, dtype=torch.bool), torch.ones(1, 2), "group")
    assert got.weights.tolist() == got.advantages.tolist() == [0, 0]


@given(st.floats(0, 1), st.integers(2, 9))
def test_equal_rewards_have_advantages_of_exactly_zero(reward: float, k: int) -> None:
    got = advantages(torch.full((1, k), reward), torch.ones(1, k, dtype=torch.bool))
    assert got.abs().max() == 0


@given(st.lists(st.tuples(st.floats(0, 1, width=16), st.booleans()), min_size=2, max_size=9))
def test_an_invalid_rollout_is_as_good_as_absent(rows: list[tuple[float, bool]]) -> None:
    rewards, valid = torch.tensor([[r for r, _ in rows]]), torch.tensor([[v for _, v in rows]])
    got = advantages(rewards, valid)[0]
    kept = [r for r, v in rows if v]
    assert all(float(a) == 0 for a, (_, v) in zip(got, rows) if not v)
    if len(kept) >= 2:
        alone = advantages(torch.tensor([kept]), torch.ones(1, len(kept), dtype=torch.bool))[0]
        assert torch.equal(got[valid[0]], alone)


def test_demonstrations_are_due_where_every_valid_rollout_failed() -> None:
    task = a_task()
    groups = [a_group(task, *r) for r in ((0.0, 0.0), (0.0, None), (None, None), (0.0, 1.0), (1.0, 1.0))]
    assert all_failed(groups) == groups[:2]


def test_leaving_out_rollouts_without_an_advantage_changes_no_gradient(policy: Path, tmp_path: Path) -> None:
    model, tokenizer = small.load(policy)
    config = small.config(train={"tasks_per_step": 8, "group_size": 4, "beta": 0.0})
    engine = TrlEngine(model, tokenizer, Chat(tokenizer, config.rollout), KeyValue(), config, tmp_path)
    trainer = engine._trainer(small.ListSource(small.tasks(), seed=2), 1, None)
    trainer.current_gradient_accumulation_steps = 1
    model.train()
    inputs = trainer._generate_and_score_completions([{"prompt": "-"}] * 32)
    assert 0 < int((inputs["advantages"] == 0).sum()) < 32
    assert int(teaches(inputs).sum()) == int((inputs["advantages"] != 0).sum())
    losses, gradients = [], []
    for skips in (True, False):
        assert trainer._skips
        trainer._skips = skips
        model.zero_grad()
        loss = trainer.compute_loss(model, inputs)
        loss.backward()
        losses.append(float(loss.detach()))
        gradients.append(torch.cat([w.grad.flatten() for w in model.parameters()]))
        trainer._skips = True
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert torch.allclose(*gradients, atol=1e-7)


def test_what_teaches_is_kept_in_order_and_filled_up_with_the_shortest() -> None:
    batch = {
        "advantages": torch.tensor([0.0, 0.0, -1.0, 0.5, 2.0]),
        "tool_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [0, 0, 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 1], [1, 1, 1], [1, 1, 1]]),
        "completion_ids": torch.arange(15).reshape(5, 3),
        "num_items_in_batch": torch.tensor(9),
    }
    chosen = teaches(batch)
    assert chosen.tolist() == [False, False, True, True, False]
    assert only(batch, chosen, 2)["completion_ids"].tolist() == [[6, 7, 8], [9, 10, 11]]
    three = only(batch, chosen, 3)
    assert three["completion_ids"].tolist() == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert three["advantages"].tolist() == [0.0, -1.0, 0.5] and three["num_items_in_batch"] == 9
    nothing = only(batch, torch.zeros(5, dtype=torch.bool), 1)
    assert nothing["completion_ids"].tolist() == [[3, 4, 5]], "every process has a backward pass"


@pytest.mark.parametrize(
    "more", [{"beta": 0.1}, {"extra": {"entropy_coef": 0.1}}, {"extra": {"top_entropy_quantile": 0.5}}]
)
def test_where_every_rollout_has_a_gradient_none_is_left_out(
    more: dict[str, Any], policy: Path, tmp_path: Path
) -> None:
    model, tokenizer = small.load(policy)
    config = small.config(train={"beta": 0.0, **more})
    engine = TrlEngine(model, tokenizer, Chat(tokenizer, config.rollout), KeyValue(), config, tmp_path)
    assert not engine._trainer(small.ListSource(small.tasks()), 1, None)._skips

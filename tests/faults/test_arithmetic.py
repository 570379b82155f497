"""Attack: the numbers of a training step, by the real TRL engine with a small policy.

Steps without any gradient, groups with one rollout left, completions of one token and at the limit, and a
model that answers with NaN. Nothing of that may become a NaN in the weights, a checkpoint that is worth
nothing, or a step that looks like learning (invariants 1, 2, 8 and 9).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from coevolve.config_file import parse_config
from coevolve.environments.base import Session
from coevolve.errors import ConfigError, NotANumberError, TrainingError
from coevolve.rollout.chat import Chat
from coevolve.training.trl import TrlEngine
from coevolve.types import Grade, Group, StopReason, Task
from keyvalue import KeyValue
from training import small
from training.small import records, same, weights

PLAIN = {"beta": 0.0, "tasks_per_step": 2}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("policy")
    small.make_policy(folder)
    return folder


def engine_on(
    policy: Path, run_dir: Path, environment: KeyValue | None = None, **changes: Any
) -> tuple[TrlEngine, dict[str, torch.Tensor]]:
    """An engine on a fresh copy of the policy, and its weights before training."""
    model, tokenizer = small.load(policy)
    config = small.config(**{"steps": 1, "train": PLAIN, **changes})
    chat = Chat(tokenizer, config.rollout)
    engine = TrlEngine(model, tokenizer, chat, environment or KeyValue(), config, run_dir)
    return engine, weights(engine)


def assert_taught_nothing(engine: TrlEngine, before: dict[str, torch.Tensor], run_dir: Path) -> None:
    """Weights as they were to the bit, a whole checkpoint, and a record of finite numbers."""
    assert same(before, weights(engine))
    assert engine.resume_point().step == engine.config.steps
    for line in records(run_dir):
        assert line["grad_norm"] == 0 and line["zero_variance"] == 1
        assert not [name for name in ("loss", "reward", "entropy", "learning_rate") if line[name] is None]
        assert line["loss"] == 0


class Flat(KeyValue):
    """A store in which whatever is done is worth the same."""

    worth = 0.0

    def grade(self, task: Task, session: Session) -> Grade:
        return Grade(self.worth)


# Steps without a gradient


@pytest.mark.parametrize("micro", [0, 2])
@pytest.mark.parametrize("worth", [0.0, 1 / 3, 1.0])
def test_equal_rewards_leave_every_weight_as_it_was(
    policy: Path, tmp_path: Path, worth: float, micro: int
) -> None:
    environment = Flat()
    environment.worth = worth
    train = {**PLAIN, "micro_batch": micro}
    engine, before = engine_on(policy, tmp_path, environment, steps=2, train=train)
    engine.train(small.ListSource(small.tasks()))
    assert_taught_nothing(engine, before, tmp_path)
    assert [line["reward"] for line in records(tmp_path)] == [pytest.approx(worth)] * 2


def test_a_step_without_a_gradient_does_not_spoil_the_next(policy: Path, tmp_path: Path) -> None:
    environment = Flat()

    class Awakes(small.ListSource):
        def observe(self, step: int, groups: Sequence[Group]) -> None:
            super().observe(step, groups)
            if step == 1:
                environment.grade = KeyValue().grade  # type: ignore[method-assign]

    engine, before = engine_on(policy, tmp_path, environment, steps=2)
    engine.train(Awakes(small.tasks(), seed=1))
    first, second = records(tmp_path)
    assert first["grad_norm"] == 0 and second["grad_norm"] > 0
    assert not same(before, weights(engine))
    assert all(bool(torch.isfinite(weight).all()) for weight in weights(engine).values())


@pytest.mark.parametrize("left", [1, 2, 4])
def test_of_the_only_group_few_rollouts_are_left(policy: Path, tmp_path: Path, left: int) -> None:
    """Of one group of five: with one left there is nothing to compare it with, and nothing to divide by."""
    environment = KeyValue()
    environment.outages = 5 + 5 - left  # each world fails once, these twice
    train = {"beta": 0.0, "tasks_per_step": 1, "group_size": 5}
    engine, before = engine_on(policy, tmp_path, environment, train=train)
    source = small.ListSource(small.tasks(), seed=1)
    engine.train(source)
    (line,) = records(tmp_path)
    assert line["invalid"] == 5 - left and line["solved"] + line["failed"] == left
    rewards = {r.reward for r in source.groups[0][0].valid}
    if left == 1 or len(rewards) == 1:
        assert_taught_nothing(engine, before, tmp_path)
    else:
        assert line["grad_norm"] > 0 and not same(before, weights(engine))


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_a_batch_in_which_the_policy_said_nothing_has_no_gradient(
    policy: Path, tmp_path: Path, beta: float
) -> None:
    """Every prompt is longer than the window: not one token is the policy's, so Equation 1 divides by 0."""
    long = [replace(task, turns=("Set size to red. " * 60,)) for task in small.tasks()[:4:2]]
    train = {**PLAIN, "beta": beta}
    engine, before = engine_on(policy, tmp_path, rollout={"context_tokens": 40}, train=train)
    source = small.ListSource(long)
    engine.train(source)
    assert all(sum(r.tokens.mask) == 0 for group in source.groups[0] for r in group.rollouts)
    assert_taught_nothing(engine, before, tmp_path)


def test_an_outage_of_a_whole_step_costs_that_step_and_nothing_else(policy: Path, tmp_path: Path) -> None:
    def train(name: str, outage: bool) -> TrlEngine:
        environment = KeyValue()

        class Breaks(small.ListSource):
            def observe(self, step: int, groups: Sequence[Group]) -> None:
                super().observe(step, groups)
                environment.outages = 10**6 if outage and step == 1 else 0

        settings: dict[str, Any] = {"steps": 3, "checkpoint": {"every": 1}}
        engine, _ = engine_on(policy, tmp_path / name, environment, **settings)
        source = Breaks(small.tasks(), seed=1)
        if outage:
            with pytest.raises(TrainingError, match="step 2: all 8 rollouts are invalid"):
                engine.train(source)
            assert [step for step, _, _ in source.seen] == [1], "nobody has been told of the outage"
            assert engine.resume_point().step == 1
            environment.outages, outage = 0, False
            engine, _ = engine_on(policy, tmp_path / name, environment, **settings)
            source = Breaks(small.tasks(), seed=1)
        engine.train(source)
        assert [line["step"] for line in records(tmp_path / name)] == [1, 2, 3]
        return engine

    assert same(weights(train("straight", outage=False)), weights(train("broken", outage=True)))


# The shortest and the longest


class Alternating(KeyValue):
    """Every second rollout is worth 1, whatever it did, so that the shortest has an advantage, too."""

    graded = 0

    def grade(self, task: Task, session: Session) -> Grade:
        self.graded += 1
        return Grade(float(self.graded % 2))


def test_one_token_and_a_full_window_enter_the_loss_like_any_other(policy: Path, tmp_path: Path) -> None:
    """One prompt leaves room for a single token; the others' windows end in mid-message or later."""
    short = next(task for task in small.tasks() if task.turns == ("Say color.",))
    long = replace(short, turns=("Say color. " * 3,))
    engine, before = engine_on(policy, tmp_path)
    room = len(engine.chat.prompt(long.turns[0], (), "")) + 1
    train = {"beta": 0.0, "tasks_per_step": 4}
    engine, before = engine_on(policy, tmp_path, Alternating(), rollout={"context_tokens": room}, train=train)
    source = small.ListSource([short, long], seed=1)
    engine.train(source)
    lengths, loss = set(), 0.0
    for group in source.groups[0]:
        rewards = [rollout.reward for rollout in group.rollouts]
        mean = sum(rewards) / 4
        deviation = math.sqrt(sum((reward - mean) ** 2 for reward in rewards) / 3)
        sizes = [sum(rollout.tokens.mask) for rollout in group.rollouts]
        scores = [(reward - mean) / (deviation + 1e-4) for reward in rewards]
        loss -= sum(score * size for score, size in zip(scores, sizes)) / sum(sizes) / 4
        for rollout, size in zip(group.rollouts, sizes):
            tokens, whole = rollout.tokens, len(rollout.tokens.prompt) + len(rollout.tokens.ids)
            assert len(tokens.ids) == len(tokens.mask) == len(tokens.logprobs) and whole <= room
            full = whole == room and not engine.chat.ended(tokens.ids)
            assert not full or (rollout.stop, size == 1) == (StopReason.TOKEN_LIMIT, group.task == long)
            lengths.add(size)
    assert min(lengths) == 1 and len(lengths) > 1
    (line,) = records(tmp_path)
    assert line["loss"] == pytest.approx(loss, abs=1e-4) and line["zero_variance"] == 0
    assert line["grad_norm"] > 0 and not same(before, weights(engine))
    assert all(bool(torch.isfinite(weight).all()) for weight in weights(engine).values())


@pytest.mark.parametrize("size", [1, 0, -3])
def test_a_group_of_one_is_refused_by_the_configuration(size: int) -> None:
    with pytest.raises(ConfigError, match=r"train\.group_size.*greater than or equal to 2"):
        parse_config({"train": {"group_size": size}}, "test")


# A model that answers with NaN


def poison(engine: TrlEngine, value: float = float("nan")) -> None:
    with torch.no_grad():
        engine.model.get_input_embeddings().weight.fill_(value)


class Spoiled(small.ListSource):
    """Spoils the policy in the second step: before its rollouts, or after them."""

    def __init__(self, tasks: Sequence[Task], when: str) -> None:
        super().__init__(tasks)
        self.when = when
        self.drawn: list[list[Task]] = []
        self.engine: TrlEngine | None = None

    def draw(self, n: int) -> list[Task]:
        self.drawn.append(super().draw(n))
        if self.when == "draw" and len(self.drawn) == 2:
            assert self.engine is not None
            poison(self.engine)
        return self.drawn[-1]

    def observe(self, step: int, groups: Sequence[Group]) -> None:
        super().observe(step, groups)
        if self.when == "observe" and step == 2:
            assert self.engine is not None
            poison(self.engine)


@pytest.mark.parametrize(
    ("when", "said"), [("draw", "the policy's logits are nan"), ("observe", "the loss is nan")]
)
def test_nan_stops_the_run_names_step_and_batch_and_keeps_the_checkpoint(
    policy: Path, tmp_path: Path, when: str, said: str
) -> None:
    engine, _ = engine_on(policy, tmp_path, steps=3, checkpoint={"every": 1})
    source = Spoiled(small.tasks(), when)
    source.engine = engine
    with pytest.raises(TrainingError, match=f"^step 2: {said}") as caught:
        engine.train(source)
    ids = [task.id for task in source.drawn[1]]
    assert f"tasks of the batch: {', '.join(dict.fromkeys(ids))}" in str(caught.value)
    assert [step for step, _, _ in source.seen] == ([1] if when == "draw" else [1, 2])
    kept = engine.resume_point()
    assert kept.step == 1 and kept.path is not None
    model, _ = small.load(kept.path)
    assert all(bool(torch.isfinite(weight).all()) for weight in model.state_dict().values())
    # And from there it goes on, as if nothing had been.
    again, _ = engine_on(policy, tmp_path, steps=3, checkpoint={"every": 1})
    again.train(small.ListSource(small.tasks()))
    assert [line["step"] for line in records(tmp_path)] == [1, 2, 3]


def test_an_update_that_breaks_the_weights_writes_no_checkpoint(policy: Path, tmp_path: Path) -> None:
    """Loss and gradient are finite, the learning rate is no sane one: what comes of it is never kept."""
    engine, _ = engine_on(policy, tmp_path, train={**PLAIN, "learning_rate": 1e39})
    with pytest.raises(TrainingError, match=r"^step 1: after the update .* is not finite") as caught:
        engine.train(small.ListSource(small.tasks(), seed=1))
    assert "tasks of the batch: " in str(caught.value)
    assert engine.resume_point().path is None


def test_weights_that_break_later_do_not_take_the_place_of_the_last_good_ones(
    policy: Path, tmp_path: Path
) -> None:
    engine, _ = engine_on(policy, tmp_path, steps=3, checkpoint={"every": 1, "keep": 1})
    with pytest.raises(TrainingError, match=r"^step 2: after the update .* is not finite"):
        engine.train(
            small.ListSource(small.tasks(), seed=1),
            progress=lambda step, _: poison(engine, float("inf")) if step == 2 else None,
        )
    kept = engine.resume_point()
    assert kept.step == 1 and kept.path is not None
    model, _ = small.load(kept.path)
    assert all(bool(torch.isfinite(weight).all()) for weight in model.state_dict().values())


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_score_and_no_rollout_comes_from_a_model_of_no_numbers(
    policy: Path, tmp_path: Path, temperature: float, value: float
) -> None:
    engine, _ = engine_on(policy, tmp_path)
    poison(engine, value)
    with pytest.raises(NotANumberError):
        engine.sampler(temperature).generate([[5, 6, 7]], [4])

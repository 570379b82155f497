"""Text adventures: every game can be won, explored, repeated and trained on like any other environment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("textworld", reason="TextWorld is not installed (the extra 'textworld')")

from bfcl_support import SPLITS, follow

from coevolve.config import EnvironmentConfig, ExploreConfig, RolloutConfig
from coevolve.environments import registry
from coevolve.environments.textworld import SEEDS, TextWorldEnvironment, _game, call_of
from coevolve.environments.workers import WorkerEnvironment
from coevolve.errors import UnknownEnvironmentError
from coevolve.models.loading import load_tokenizer
from coevolve.rollout.agent import run
from coevolve.rollout.chat import Chat
from coevolve.rollout.formats import render
from coevolve.rollout.sampler import Sample
from coevolve.synthesize.harvest import harvest
from coevolve.types import Outcome, StopReason, Task, ToolCall

# Of every game that is made, at its start.
pytestmark = pytest.mark.filterwarnings("ignore:Game .* is not fully supported")

FEW = {"train": range(3), "dev": range(2000, 2001), "test": range(3000, 3001)}
few = partial(TextWorldEnvironment, FEW)
TAKE = ToolCall("take", {"item": "glass"})
"""What lies in the first room of game 1."""


@pytest.fixture(scope="module")
def adventures() -> TextWorldEnvironment:
    return few()


@pytest.fixture(scope="module")
def official(adventures: TextWorldEnvironment) -> list[Task]:
    return [task for split in SPLITS for task in adventures.tasks(split)]


def test_the_reference_solution_wins_every_game_and_doing_nothing_wins_none(
    adventures: TextWorldEnvironment, official: list[Task]
) -> None:
    assert len(official) == 5
    for task in official:
        assert len(task.solution[0]) == 3 and len(task.turns[0]) > 40
        with follow(adventures, task) as session:
            assert all(observation.error is None for observation in session.record()[0].observations)
            assert adventures.grade(task, session).scores == {"strict": 1.0, "official": 1.0}
            assert "is over" in (session.call(ToolCall("look")).error or "")
        with adventures.open(task.world) as session:
            session.call(ToolCall("look"))
            session.end_turn()
            grade = adventures.grade(task, session)
            assert grade.reward == 0 and grade.findings[0].startswith("state differs in")


def test_a_game_won_by_another_way_is_won_but_not_strictly(adventures: TextWorldEnvironment) -> None:
    task = adventures.tasks("train")[1]
    with adventures.open(task.world) as session:
        session.run([TAKE, *task.solution[0]])
        session.end_turn()
        grade = adventures.grade(task, session)
    assert grade.reward == 1 and grade.scores == {"strict": 0.0, "official": 1.0}


def test_the_splits_share_no_game_and_a_game_is_made_the_same_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = [set(seeds) for seeds in SEEDS.values()]
    assert sum(map(len, every)) == len(set.union(*every))
    world = few().worlds("train")[0]
    before = without_its_day(_game(world))
    monkeypatch.setenv("COEVOLVE_CACHE", str(tmp_path))
    assert without_its_day(_game(world)) == before
    assert _game(world).is_relative_to(tmp_path) and not list(tmp_path.rglob("*/made"))


def without_its_day(game: Path) -> bytes:
    """The story but for its serial number, which is the day it was compiled, and the checksum over that."""
    story = bytearray(game.read_bytes())
    assert story[18:24].isdigit()
    story[18:24], story[28:30] = bytes(6), bytes(2)
    return bytes(story)


def test_what_the_agent_gets_wrong_is_an_error_and_one_call_is_one_command(
    adventures: TextWorldEnvironment,
) -> None:
    wrong: Sequence[ToolCall] = (
        ToolCall("dance"),
        ToolCall("take"),
        ToolCall("take", {"item": "moon"}),
        ToolCall("take", {"item": "glass. go south"}),
        ToolCall("take", {"item": "glass then go south"}),
        ToolCall("take", {"item": "glass\nquit"}),
        ToolCall("take", {"item": ""}),
        ToolCall("go", {"direction": "up"}),
        ToolCall("go", {"direction": "north"}),
        ToolCall("look", {"where": "here"}),
    )
    with adventures.open(adventures.worlds("train")[1]) as session:
        start = session.state()
        for call in wrong:
            assert session.call(call).error, call
            assert session.state() == start
        assert session.call(TAKE).error is None and session.state() != start


def test_equal_calls_have_equal_answers_whatever_was_done_before(adventures: TextWorldEnvironment) -> None:
    look = ToolCall("look")
    with adventures.open(adventures.worlds("train")[1]) as session:
        first = session.call(look)
        session.run([TAKE, ToolCall("drop", {"item": "glass"})])
        assert session.call(look) == first and first.text.startswith("-= Cookhouse =-")


def test_sessions_share_nothing_and_workers_give_the_same(adventures: TextWorldEnvironment) -> None:
    world = adventures.worlds("train")[1]
    with adventures.open(world) as one, adventures.open(world) as other:
        mark = other.fingerprint()
        answer = one.call(TAKE)
        assert other.fingerprint() == mark != one.fingerprint()
        with WorkerEnvironment(few, 1) as pooled, pooled.open(world) as third:
            assert third.step(TAKE) == (answer, one.fingerprint())


def test_the_scripted_explorer_makes_verified_tasks_and_the_same_ones_again(
    adventures: TextWorldEnvironment,
) -> None:
    def made() -> list[Task]:
        return harvest(adventures, 8, 5, ExploreConfig(calls=8))

    tasks = made()
    assert len(tasks) == 8 and [task.id for task in tasks] == [task.id for task in made()]
    used = {call.name for task in tasks for call in task.solution[0]}
    assert len(used) >= 4 and used - {"look", "inventory", "examine"}
    for task in tasks:
        assert task.world.split == "train"
        with follow(adventures, task) as session:
            assert adventures.grade(task, session).reward == 1


def test_commands_of_the_game_are_calls() -> None:
    assert call_of("take iron from old shelf") == ToolCall("take", {"item": "iron"})
    assert call_of("unlock type A box with type A key") == ToolCall(
        "unlock", {"container_or_door": "type A box", "key": "type A key"}
    )
    assert call_of("look") == ToolCall("look")


@dataclass
class Says:
    """A policy that says one thing for ever, or its script."""

    chat: Chat
    script: list[str]

    def generate(self, prompts: Sequence[Sequence[int]], max_new_tokens: Sequence[int]) -> list[Sample]:
        text = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        ids = [*self.chat.tokenizer.encode(text, add_special_tokens=False), self.chat.end_id]
        return [Sample(tuple(ids[:room]), (-0.5,) * len(ids[:room])) for room in max_new_tokens]


def test_a_rollout_ends_whatever_the_policy_says(
    adventures: TextWorldEnvironment, official: list[Task]
) -> None:
    limits = RolloutConfig(steps_per_turn=4, context_tokens=1024)
    chat = Chat(load_tokenizer("tiny"), limits)
    solution = official[0].solution[0]
    wins = [*(render(chat.format.name, [call]) for call in solution), "Done."]
    won = run(official[:1], adventures, chat, Says(chat, wins), limits)[0]
    assert won.outcome is Outcome.SOLVED and won.stop is StopReason.FINISHED
    for text, why in (("Done.", StopReason.FINISHED), ("[look()]", StopReason.STEP_LIMIT)):
        rollout = run(official[:1], adventures, chat, Says(chat, [text]), limits)[0]
        assert rollout.outcome is Outcome.FAILED and rollout.stop is why


def test_it_is_registered_and_names_its_extra_where_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = EnvironmentConfig(name="textworld")
    assert isinstance(registry.make(config), TextWorldEnvironment)
    assert registry.known()["textworld"] == "ready" and registry.install("textworld") == "textworld: ready"
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    with pytest.raises(UnknownEnvironmentError, match=r"pip install 'coevolve\[textworld\]'"):
        registry.make(config)
    assert "not installed" in registry.known()["textworld"]

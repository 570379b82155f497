"""The only door to the pool: each thing that must be refused is refused, with reason and evidence."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from coevolve.config import VerifyConfig
from coevolve.environments.base import Environment
from coevolve.environments.bfcl import BfclEnvironment
from coevolve.errors import InfrastructureError
from coevolve.synthesize.screen import Screen
from coevolve.synthesize.verify import ReplayVerifier
from coevolve.types import Candidate, Grade, Observation, Origin, Task, ToolCall, Verdict, World
from keyvalue import KeyValue, KeyValueSession, a_task, delete, get, put


def verdict(task: Task, environment: Environment | None = None, **keys: object) -> Verdict:
    verifier = ReplayVerifier(environment or KeyValue(), VerifyConfig(**keys))
    return verifier.verify(Candidate(task))


def test_an_effect_is_admitted_with_what_the_replay_showed() -> None:
    found = verdict(a_task(put("shape")))
    assert found.admitted and found.reason == "admitted"
    assert found.evidence["observations"] == ["stored shape"]
    states = found.evidence["states"]
    assert isinstance(states, list) and states[0] != states[1]


def test_an_answer_is_admitted_though_nothing_changes() -> None:
    assert verdict(a_task(get("color"))).admitted


def test_a_call_that_fails_is_refused() -> None:
    found = verdict(a_task(get("nothing")))
    assert (found.admitted, found.reason) == (False, "replay_error")
    assert found.evidence["observations"] == ["no key nothing"]


def test_what_the_empty_rollout_solves_is_refused() -> None:
    class Generous(KeyValue):
        def grade(self, task: Task, session: object) -> Grade:
            return Grade(1.0)

    assert verdict(a_task(put("a")), Generous()).reason == "solved_by_nothing"


def test_a_solution_that_its_own_environment_does_not_reward_is_refused() -> None:
    class Stingy(KeyValue):
        def grade(self, task: Task, session: object) -> Grade:
            return Grade(0.0)

    assert verdict(a_task(put("a")), Stingy()).reason == "reference_not_rewarded"


def test_what_changes_nothing_and_says_nothing_is_refused() -> None:
    class Silent(KeyValue):
        def open(self, world: World) -> KeyValueSession:
            session = super().open(world)
            session._do = lambda call: Observation("None")  # type: ignore[method-assign]
            return session

    assert verdict(a_task(get("color")), Silent()).reason == "no_effect"


def test_what_ends_differently_the_second_time_is_refused() -> None:
    class Random(KeyValue):
        def open(self, world: World) -> KeyValueSession:
            session = super().open(world)
            session._store["seed"] = str(len(self.opened))
            return session

    found = verdict(a_task(put("a")), Random())
    assert found.reason == "not_repeatable"
    assert found.evidence["again"]


@pytest.mark.parametrize(
    "calls",
    [
        (put("a"), put("a")),  # the second changes nothing more
        (get("color"), get("color")),  # the same answer twice
        (put("a", "red"), put("a", "blue")),  # the first is overwritten
    ],
)
def test_a_call_that_can_be_left_out_is_refused(calls: tuple[ToolCall, ...]) -> None:
    class Quiet(KeyValue):
        """Answers nothing when it stores, so that only the effect counts."""

        def open(self, world: World) -> KeyValueSession:
            session = super().open(world)
            plain = session._do

            def quiet(call: ToolCall) -> Observation:
                seen = plain(call)
                return Observation("None") if call.name == "put" else seen

            session._do = quiet  # type: ignore[method-assign]
            return session

    found = verdict(a_task(*calls), Quiet())
    assert found.reason == "superfluous_call"
    assert "call" in found.evidence


def test_a_call_that_a_later_one_needs_stays() -> None:
    assert verdict(a_task(put("a"), get("a"))).admitted
    assert verdict(a_task(put("a"), delete("a"), put("b"))).admitted


def test_a_task_of_a_held_out_world_is_refused_before_its_world_is_opened() -> None:
    environment = KeyValue()
    task = a_task(put("a"), world=environment.worlds("test")[0])
    assert verdict(task, environment).reason == "wrong_split"
    assert not environment.opened


def test_a_task_without_calls_is_refused() -> None:
    assert verdict(replace(a_task(put("a")), solution=((),))).reason == "no_solution"


def test_an_outage_is_not_a_verdict() -> None:
    environment = KeyValue()
    environment.outages = 1
    with pytest.raises(InfrastructureError):
        verdict(a_task(put("a")), environment)


def test_what_was_admitted_once_is_a_duplicate_the_second_time() -> None:
    verifier = ReplayVerifier(KeyValue())
    assert verifier.verify(Candidate(a_task(put("a")))).admitted
    assert verifier.verify(Candidate(a_task(put("a"), text="Other words."))).reason == "duplicate"


def test_the_papers_rule_takes_what_replay_refuses() -> None:
    class Loophole(KeyValue):
        def grade(self, task: Task, session: object) -> Grade:
            return Grade(0.5)

    failing = a_task(get("nothing"))
    assert verdict(failing, Loophole()).reason == "replay_error"
    assert verdict(failing, Loophole(), rule="paper").admitted
    assert verdict(a_task(put("a"), put("a")), rule="paper").admitted

    class Stingy(KeyValue):
        def grade(self, task: Task, session: object) -> Grade:
            return Grade(0.0)

    assert not verdict(failing, Stingy(), rule="paper").admitted


def test_an_admitted_task_is_solved_by_its_solution_and_by_nothing_less(
    bfcl: BfclEnvironment, harvested: list[Task]
) -> None:
    for task in harvested[::10]:
        for solution, reward in ((task.solution, 1.0), (tuple(() for _ in task.turns), 0.0)):
            with bfcl.open(task.world) as session:
                for calls in solution:
                    for call in calls:
                        session.call(call)
                    session.end_turn()
                assert bfcl.grade(task, session).reward == reward, task.turns


def test_a_harvest_counts_what_it_refuses(harvested: list[Task], refusals: Counter[str]) -> None:
    assert len(harvested) == 500
    assert refusals["admitted"] >= 500
    assert set(refusals) <= {
        "admitted",
        "explorations",
        "near_duplicate",
        "duplicate",
        "superfluous_call",
        "spells_out_calls",
        "replay_error",
        "no_effect",
        "not_repeatable",
    }


def test_a_harvest_is_made_of_train_worlds_and_its_origin_says_so(harvested: list[Task]) -> None:
    assert {task.world.split for task in harvested} == {"train"}
    assert {task.origin for task in harvested} == {Origin("unguided", explorer="scripted")}
    assert len({task.id for task in harvested}) == len(harvested)


def test_an_evaluation_overlap_is_refused() -> None:
    held = a_task(put("a"), text="Put a.")
    verifier = ReplayVerifier(KeyValue(), screen=Screen(evaluation=[held]))
    for twin in (
        held,
        a_task(put("a"), text="Something else."),  # same solution, same world
        a_task(put("b"), text="PUT a!"),  # same text
    ):
        found = verifier.verify(Candidate(twin))
        assert found.reason == "eval_overlap", found
    assert verifier.verify(Candidate(a_task(put("c"), text="Put c."))).admitted


def test_what_needs_a_value_that_the_agent_is_never_shown_is_refused() -> None:
    environment = BfclEnvironment(["MessageAPI", "GorillaFileSystem"])
    world = next(
        world
        for world in environment.worlds("train")
        if "get_user_id" in {tool.name for tool in environment.offered(world)}
    )
    with environment.open(world) as session:
        users = session.call(ToolCall("list_users", {})).value
    assert isinstance(users, dict) and isinstance(users["user_list"], list)
    name = users["user_list"][0]
    with environment.open(world) as session:
        found = session.call(ToolCall("get_user_id", {"user": name})).value
    assert isinstance(found, dict)
    calls = (
        ToolCall("get_user_id", {"user": name}),
        ToolCall("message_login", {"user_id": found["user_id"]}),
    )
    task = Task(
        environment=environment.name,
        version=environment.version,
        world=world,
        turns=(f"Look up the user id of '{name}' and log in with it.",),
        solution=(calls,),
        origin=Origin("unguided"),
    )

    def judged(shown: int) -> Verdict:
        verifier = ReplayVerifier(environment, shown=lambda text: text[:shown])
        return verifier.verify(Candidate(task))

    assert judged(1000).admitted
    refused = judged(8)
    assert (refused.admitted, refused.reason) == (False, "hidden_value")
    assert refused.evidence["value"] == found["user_id"]

"""What each weakness signal promises."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coevolve.config import BoundaryConfig, ForgettingConfig, RareConfig, SignalsConfig, UnseenConfig
from coevolve.signals import Boundary, Detector, Forgetting, Rare, Unseen, build
from coevolve.types import Group, Task, Tokens, ToolCall
from keyvalue import a_group, a_rollout, a_task, delete, get, put

TASK = a_task(put("a"), get("a"))
OTHER = a_task(put("b"))


def forgetting(window: int = 5) -> Forgetting:
    return Forgetting(ForgettingConfig(window=window))


def rare(theta: float = 5, window: int = 20) -> Rare:
    return Rare(RareConfig(theta=theta, window=window))


# Forgetting


def test_a_task_that_was_solved_and_fails_now_is_forgotten() -> None:
    signal = forgetting()
    assert signal.observe(1, [a_group(TASK, 1, 1)]) == []
    (found,) = signal.observe(2, [a_group(TASK, 0, 0)])
    assert (found.kind, found.step, found.task, found.scores) == ("forgetting", 2, TASK, (1.0, 0.0))
    assert [rollout.reward for rollout in found.failed] == [0]


def test_a_task_that_was_never_solved_is_not_forgotten() -> None:
    signal = forgetting()
    assert [signal.observe(step, [a_group(TASK, 0, 0.4)]) for step in (1, 2, 3)] == [[], [], []]


def test_a_success_is_remembered_for_the_window_and_no_longer() -> None:
    for window in (1, 2, 5):
        signal = forgetting(window)
        signal.observe(1, [a_group(TASK, 1)])
        fired = [bool(signal.observe(step, [a_group(TASK, 0)])) for step in range(2, window + 4)]
        assert fired == [True] * window + [False] * 2


def test_the_window_counts_a_tasks_own_groups_not_the_steps() -> None:
    signal = forgetting(1)
    signal.observe(1, [a_group(TASK, 1)])
    for step in range(2, 50):
        signal.observe(step, [a_group(OTHER, 0)])
    assert len(signal.observe(50, [a_group(TASK, 0)])) == 1


def test_mixed_outcomes_of_one_group_are_no_forgetting() -> None:
    assert forgetting().observe(1, [a_group(TASK, 1, 0, 1, 0, 0, 0)]) == []


def test_a_task_drawn_twice_in_a_step_counts_once() -> None:
    signal = forgetting()
    assert signal.observe(1, [a_group(TASK, 1), a_group(TASK, 0, 0)]) == []
    found = signal.observe(2, [a_group(TASK, 1), a_group(TASK, 0, 0)])
    assert found == [], "the first step's score is 1/3, not a success"
    signal.observe(3, [a_group(TASK, 1, 1)])
    assert len(signal.observe(4, [a_group(TASK, 0), a_group(TASK, 0)])) == 1


def test_exactly_one_half_is_a_success() -> None:
    signal = forgetting()
    signal.observe(1, [a_group(TASK, 0.5)])
    assert signal.observe(2, [a_group(TASK, 0.5)]) == []
    assert len(signal.observe(3, [a_group(TASK, 0.49)])) == 1


@given(st.lists(st.lists(st.sampled_from([0.0, 0.3, 0.5, 1.0]), min_size=1, max_size=4), max_size=20))
@settings(max_examples=60, deadline=None)
def test_forgetting_agrees_with_the_papers_formula(rewards: list[list[float]]) -> None:
    signal, means = forgetting(3), [sum(group) / len(group) for group in rewards]
    for at, group in enumerate(rewards):
        fired = bool(signal.observe(at + 1, [a_group(TASK, *group)]))
        assert fired == (means[at] < 0.5 and any(mean >= 0.5 for mean in means[max(0, at - 3) : at]))


# Boundary


@given(st.lists(st.sampled_from([0.0, 0.49, 0.5, 1.0, None]), max_size=8))
@settings(max_examples=80, deadline=None)
def test_boundary_fires_exactly_where_valid_rollouts_disagree(rewards: list[float | None]) -> None:
    found = Boundary(BoundaryConfig()).observe(1, [a_group(TASK, *rewards)])
    scores = [reward for reward in rewards if reward is not None]
    assert bool(found) == (len({score >= 0.5 for score in scores}) == 2)
    for signal in found:
        assert signal.scores == tuple(scores)
        assert len(signal.solved) == 1 and signal.solved[0].reward >= 0.5
        assert signal.failed and all(rollout.reward < 0.5 for rollout in signal.failed)


# Rare


def many(task: Task, reward: float, calls: list[ToolCall], times: int) -> Group:
    return Group(task, tuple(a_rollout(task, reward, *calls) for _ in range(times)))


def test_a_seldom_pattern_that_fails_is_rare() -> None:
    groups = [many(TASK, 1, [get("a")], 30), many(OTHER, 0, [delete("a")], 1)]
    (found,) = rare().observe(1, groups)
    assert (found.pattern, found.scores, found.task) == (("delete",), (1.0, 31.0), OTHER)
    assert [rollout.calls for rollout in found.failed] == [(delete("a"),)]


def test_a_seldom_pattern_that_succeeds_is_no_weakness() -> None:
    assert rare().observe(1, [many(TASK, 1, [get("a")], 30), many(OTHER, 1, [delete("a")], 1)]) == []


def test_a_frequent_pattern_is_not_rare_however_often_it_fails() -> None:
    assert rare().observe(1, [many(TASK, 1, [get("a")], 30), many(OTHER, 0, [delete("a")], 2)]) == []


def test_exactly_theta_percent_is_not_rare() -> None:
    assert rare(theta=5).observe(1, [many(TASK, 1, [get("a")], 19), many(OTHER, 0, [delete("a")], 1)]) == []


def test_pairs_of_successive_calls_are_patterns_too() -> None:
    usual = [many(TASK, 1, [get("a"), get("b"), put("c"), put("d")], 20)]
    (found,) = rare().observe(1, [*usual, many(OTHER, 0, [put("a"), get("a")], 1)])
    assert (found.pattern, found.scores) == (("put", "get"), (1.0, 61.0))


def test_the_last_call_of_one_rollout_and_the_first_of_the_next_are_no_pair() -> None:
    found = rare(theta=100).observe(1, [many(TASK, 0, [put("a")], 3), many(OTHER, 0, [get("a")], 3)])
    assert {signal.pattern for signal in found} == {("put",), ("get",)}


def test_a_pattern_fires_once_per_step_and_shows_who_failed_with_it() -> None:
    usual = many(TASK, 1, [get("a")], 100)
    failing = [many(OTHER, 0, [delete("a")], 1), many(TASK, 0, [delete("b")], 2)]
    (found,) = rare().observe(1, [usual, *failing])
    assert found.task == TASK, "re-exploration begins where it failed most"
    assert [rollout.task for rollout in found.failed] == [TASK.id, OTHER.id]


def test_patterns_are_counted_over_the_window_of_steps() -> None:
    signal = rare(window=3)
    signal.observe(1, [many(TASK, 1, [get("a")], 100)])
    odd = [many(OTHER, 0, [delete("a")], 1)]
    assert len(signal.observe(2, odd)) == 1
    assert len(signal.observe(3, odd)) == 1
    assert signal.observe(4, odd) == [], "step 1 has left the window: delete is all there is"


def test_a_rare_pattern_fires_only_in_steps_that_show_it_failing() -> None:
    signal = rare()
    assert len(signal.observe(1, [many(TASK, 1, [get("a")], 100), many(OTHER, 0, [delete("a")], 1)])) == 1
    assert signal.observe(2, [many(TASK, 1, [get("a")], 8)]) == []
    assert signal.metrics()["signals/rare/rare"] == 1


def test_a_pattern_is_counted_only_where_the_world_offers_its_tools() -> None:
    worlds = [replace(TASK.world, id=name) for name in ("with", "without")]
    signal = Rare(RareConfig(), lambda world: {"get", "delete"} if world.id == "with" else {"get"})
    able, unable = a_task(world=worlds[0]), a_task(world=worlds[1])
    groups = [
        many(unable, 1, [get("a")], 1000),
        many(able, 0, [delete("a")], 5),
        many(able, 1, [get("a")], 5),
    ]
    assert signal.observe(1, groups) == [], "half of the calls where it can be called at all"
    assert signal.observe(2, [many(unable, 0, [delete("a")], 1)]) == [], "not offered there: no pattern"


def test_how_many_patterns_fire_is_a_metric() -> None:
    signal = rare()
    signal.observe(1, [many(TASK, 1, [get("a")], 100), many(OTHER, 0, [delete("a"), put("b")], 1)])
    metrics = signal.metrics()
    assert metrics["signals/rare/fired"] == 2 and metrics["signals/rare/patterns"] == 3


# What all promise


def detectors() -> list[Detector]:
    return build(SignalsConfig())


groups = st.lists(
    st.builds(
        lambda task, rows: Group(
            task, tuple(a_rollout(task, r or 0.0, *calls, invalid=r is None) for r, calls in rows)
        ),
        st.sampled_from([TASK, OTHER]),
        st.lists(
            st.tuples(
                st.sampled_from([0.0, 1.0, None]),
                st.lists(st.sampled_from([get("a"), put("a"), delete("a")]), max_size=4),
            ),
            max_size=4,
        ),
    ),
    max_size=3,
)


@given(st.lists(groups, max_size=6))
@settings(max_examples=40, deadline=None)
def test_invalid_rollouts_feed_nothing(steps: list[list[Group]]) -> None:
    whole, clean = detectors(), detectors()
    for step, handed in enumerate(steps, 1):
        without = [Group(group.task, group.valid) for group in handed]
        for one, other in zip(whole, clean):
            assert one.observe(step, handed) == other.observe(step, without)
            assert one.state_dict() == other.state_dict()
            assert one.metrics() == other.metrics()


def test_an_outage_is_never_forgetting() -> None:
    signal = forgetting()
    signal.observe(1, [a_group(TASK, 1, 1)])
    assert signal.observe(2, [a_group(TASK, None, None)]) == []
    assert signal.state_dict() == {"tasks": 1, "scores": {TASK.id: [1.0]}}


@given(st.lists(groups, max_size=6), st.lists(groups, max_size=4))
@settings(max_examples=40, deadline=None)
def test_saved_and_loaded_they_go_on_as_if_nothing_had_happened(
    before: list[list[Group]], after: list[list[Group]]
) -> None:
    lived, resumed = detectors(), detectors()
    for one, other in zip(lived, resumed):
        for step, handed in enumerate(before, 1):
            one.observe(step, handed)
        other.load_state_dict(json.loads(json.dumps(one.state_dict())))
        for step, handed in enumerate(after, len(before) + 1):
            assert one.observe(step, handed) == other.observe(step, handed)
        assert one.state_dict() == other.state_dict()


def test_evidence_is_small_and_carries_no_tokens() -> None:
    tokens = Tokens((1,), (2,), (1,), (-0.1,))
    failed = [replace(a_rollout(TASK, 0, put(str(n % 5))), tokens=tokens) for n in range(20)]
    (found,) = Boundary(BoundaryConfig()).observe(1, [Group(TASK, (*failed, a_rollout(TASK, 1)))])
    assert [rollout.calls for rollout in found.failed] == [(put("0"),), (put("1"),), (put("2"),)]
    assert all(rollout.tokens == Tokens() for rollout in found.failed)


@pytest.mark.parametrize("off", ["forgetting", "boundary", "rare"])
def test_each_can_be_switched_off(off: str) -> None:
    kinds = [detector.kind for detector in build(SignalsConfig.model_validate({off: None}))]
    assert kinds == [kind for kind in ("forgetting", "boundary", "rare") if kind != off]


# Unseen


def unseen(window: int = 3) -> Unseen:
    return Unseen(UnseenConfig(window=window), lambda world: ("put", "get", "delete"))


def test_a_tool_that_nobody_uses_is_unseen_once_the_window_is_full() -> None:
    signal = unseen(3)
    groups = [a_group(TASK, 1, calls=[put("a")]), a_group(TASK, 0, calls=[get("a")])]
    assert [signal.observe(step, groups) for step in (1, 2)] == [[], []]
    (found,) = signal.observe(3, groups)
    assert (found.kind, found.pattern, found.task, found.scores) == ("unseen", ("delete",), TASK, (0.0, 6.0))
    assert [rollout.reward for rollout in found.failed] == [0.0]
    assert signal.metrics() == {"signals/unseen/fired": 1.0, "signals/unseen/tools": 3.0}


def test_one_use_in_the_window_is_enough_and_one_before_it_is_not() -> None:
    signal = unseen(2)
    signal.observe(1, [a_group(TASK, 1, calls=[put("a"), get("a"), delete("a")])])
    used = [a_group(TASK, 1, calls=[put("a"), get("a")])]
    assert signal.observe(2, used) == []
    assert [found.pattern for found in signal.observe(3, used)] == [("delete",)]


def test_an_unseen_tool_is_looked_for_where_the_policy_is_worst() -> None:
    signal = unseen(1)
    found = signal.observe(1, [a_group(TASK, 1, 1), a_group(OTHER, 0, 1)])
    assert {one.task.id for one in found} == {OTHER.id}


def test_unseen_goes_on_from_its_state() -> None:
    groups = [a_group(TASK, 1, calls=[put("a")])]
    signal, other = unseen(3), unseen(3)
    signal.observe(1, groups)
    signal.observe(2, groups)
    other.load_state_dict(json.loads(json.dumps(signal.state_dict())))
    assert [signal.observe(step, groups) for step in (3, 4)] == [
        other.observe(step, groups) for step in (3, 4)
    ]


def test_unseen_is_off_unless_asked_for() -> None:
    names = [signal.kind for signal in build(SignalsConfig(), lambda world: ())]
    assert "unseen" not in names
    more = build(SignalsConfig(unseen=UnseenConfig()), lambda world: ())
    assert [signal.kind for signal in more] == [*names, "unseen"]

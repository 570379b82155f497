"""Strict replay: the only door to the pool (invariant 3)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import accumulate, count

from coevolve.config import VerifyConfig
from coevolve.environments.base import Environment
from coevolve.errors import InfrastructureError
from coevolve.explore.found import answer_data
from coevolve.explore.judge import empty
from coevolve.llm.base import Ledger
from coevolve.synthesize.gates import Gate
from coevolve.synthesize.replay import Replayer, Run
from coevolve.synthesize.screen import Screen
from coevolve.types import Candidate, Json, Observation, Split, Task, ToolCall, Verdict
from coevolve.values import leaves, occurs, taken


class ReplayVerifier:
    """Judges candidates by running them, with no hint, in fresh worlds.

    Args:
        environment: where to replay.
        config: ``rule: replay`` is invariant 3; ``rule: paper`` also lets in what merely earns a reward;
            ``rule: none`` executes nothing.
        screen: duplicates, leaks and overlap with the evaluation split; one that knows nothing by default.
        split: the only split that tasks may come from, for the default screen.
        replayer: shared with the abstractor, so that a run is paid for once.
        shown: what the agent gets to see of an observation's text; all of it by default. A task whose
            solution needs a value that this cuts away cannot be solved, and is refused.
        gates: asked in this order by :meth:`consult`.
    """

    def __init__(
        self,
        environment: Environment,
        config: VerifyConfig | None = None,
        screen: Screen | None = None,
        split: Split = "train",
        replayer: Replayer | None = None,
        shown: Callable[[str], str] | None = None,
        gates: Sequence[Gate] = (),
    ) -> None:
        self._environment = environment
        self._config = config or VerifyConfig()
        self._screen = Screen(split=split, names=environment.names) if screen is None else screen
        self._replayer = replayer or Replayer(environment)
        self._shown = shown
        self._gates = tuple(gates)

    def consult(self, candidate: Candidate, ledger: Ledger) -> Verdict | None:
        """The refusal of the first gate that refuses, or None; may run beside others, remembers nothing.

        No gate is asked about what :meth:`verify` will refuse whatever the pool holds. Counted in the
        ledger: ``gates.<name>.passed``, ``.refused`` and ``.not_judged``, and ``gates.not_needed``.

        Raises:
            InfrastructureError: the world broke, or whoever is asked is out: the candidate is not judged.
        """
        if not self._gates:
            return None
        started = time.perf_counter()
        task = candidate.task
        refused = self._screen.outright(task)
        if refused is not None or self._replayed(task, Replayer(self._environment))[0] != "admitted":
            ledger.counts["gates.not_needed"] += 1
            return None
        for gate in self._gates:
            try:
                refusal = gate.refusal(task, ledger)
            except InfrastructureError:
                ledger.counts[f"gates.{gate.name}.not_judged"] += 1
                raise
            ledger.counts[f"gates.{gate.name}.{'passed' if refusal is None else 'refused'}"] += 1
            if refusal is not None:
                reason, evidence = refusal
                spent = time.perf_counter() - started
                return Verdict(False, reason, {"gate": gate.name, **evidence}, spent)
        return None

    def verify(self, candidate: Candidate) -> Verdict:
        """One verdict with reason and evidence; never raises for a bad candidate.

        Raises:
            InfrastructureError: the world broke; the candidate is not judged.
        """
        started = time.perf_counter()
        reason, evidence = self._judge(candidate.task)
        admitted = reason == "admitted"
        if admitted:
            self._screen.add(candidate.task)
        return Verdict(admitted, reason, evidence, time.perf_counter() - started)

    def _judge(self, task: Task) -> tuple[str, dict[str, Json]]:
        return self._screen.refusal(task) or self._replayed(task, self._replayer)

    def _replayed(self, task: Task, replayer: Replayer) -> tuple[str, dict[str, Json]]:
        calls = [call for turn in task.solution for call in turn]
        if not calls or len(task.turns) != len(task.solution):
            return "no_solution", {"turns": len(task.turns), "solution": len(task.solution)}
        if self._config.rule == "none":
            return "admitted", {"rule": "none"}
        if self._config.rule == "paper":
            return self._paper(task, replayer)
        if not all(task.solution):
            return "empty_turn", {"turn": [bool(turn) for turn in task.solution].index(False)}
        told = told_answer(task, self._environment.closing())
        if told is not None:
            return "answer_in_text", {"answer": told}
        run = replayer.fresh(task.world, calls)
        evidence = _evidence(run, calls)
        if run.broken:
            return "broken_world", evidence
        if not run.clean:
            return "replay_error", evidence
        again = replayer.run(task.world, calls)
        if not _same(again, run):
            return "not_repeatable", {**evidence, "again": _evidence(again, calls)}
        if run.marks[0] == run.marks[-1] and all(empty(answer_data(o)) for o in run.observations):
            return "no_effect", evidence
        nothing = self._reward(task, ())
        if nothing > 0:
            return "solved_by_nothing", {**evidence, "reward": nothing}
        reward = self._reward(task, task.solution)
        if reward < 1:
            again = replayer.fresh(task.world, calls)  # what looked alike twice may be chance all the same
            if not _same(again, run):
                return "not_repeatable", {**evidence, "again": _evidence(again, calls)}
            return "reference_not_rewarded", {**evidence, "reward": reward}
        index = self._superfluous(task, calls, run, replayer)
        if index is not None:
            return "superfluous_call", {**evidence, "call": index, "name": calls[index].name}
        index = self._unrewarded(task, calls, run)
        if index is not None:
            return "unrewarded_answer", {**evidence, "call": index, "name": calls[index].name}
        hidden = self._shown and hidden_value(task, run.observations, self._shown)
        if hidden is not None:
            return "hidden_value", {**evidence, "value": hidden}
        return "admitted", evidence

    def _paper(self, task: Task, replayer: Replayer) -> tuple[str, dict[str, Json]]:
        """The paper's rule: the objective is reached, or the environment pays something all the same."""
        calls = [call for turn in task.solution for call in turn]
        run = replayer.fresh(task.world, calls)
        evidence = _evidence(run, calls)
        if run.clean:
            return "admitted", evidence
        reward = self._reward(task, task.solution)
        evidence["reward"] = reward
        return ("admitted" if reward > 0 else "replay_error"), evidence

    def _reward(self, task: Task, solution: Sequence[Sequence[ToolCall]]) -> float:
        with self._environment.open(task.world) as session:
            for index in range(len(task.turns)):
                for call in solution[index] if solution else ():
                    session.call(call)
                session.end_turn()
            return self._environment.grade(task, session).reward

    def _unrewarded(self, task: Task, calls: Sequence[ToolCall], run: Run) -> int | None:
        """The first call that is there for its answer, and without which the environment pays all the same.

        An answer that an earlier call gave has been got, with this call or without. Where tasks are handed
        in, what is handed in is the answer, and how it was found is nobody's business.
        """
        if len(calls) == 1 or self._environment.closing() is not None:
            return None
        known = "\n".join(task.turns)
        for index, observation in enumerate(run.observations):
            used = taken(observation.text, known, [call.arguments for call in calls[index + 1 :]])
            known += "\n" + observation.text
            had = any(o.text == observation.text for o in run.observations[:index])
            if run.marks[index] != run.marks[index + 1] or used or had:
                continue
            if self._reward(task, _without(task.solution, index)) >= 1:
                return index
        return None

    def _superfluous(self, task: Task, calls: Sequence[ToolCall], run: Run, replayer: Replayer) -> int | None:
        """The first call that could be left out: no effect, no answer, and no later call needs it."""
        if len(calls) == 1:
            return None
        for index in range(len(calls)):
            answer = answer_data(run.observations[index])
            changed = run.marks[index] != run.marks[index + 1]
            same_before = any(
                calls[j] == calls[index] and run.observations[j].text == run.observations[index].text
                for j in range(index)
            )
            if not changed and not empty(answer) and not same_before:
                continue  # an answer that the text asks for
            rest = [call for j, call in enumerate(calls) if j != index]
            without = replayer.run(task.world, rest)
            texts = [o.text for j, o in enumerate(run.observations) if j != index]
            if (
                without.clean
                and without.marks[-1] == run.marks[-1]
                and [o.text for o in without.observations] == texts
            ):
                return index
        return None


def _without(solution: Sequence[Sequence[ToolCall]], index: int) -> list[list[ToolCall]]:
    """The solution but for its call number ``index``, turn by turn."""
    numbers = count()
    return [[call for call in turn if next(numbers) != index] for turn in solution]


def told_answer(task: Task, closing: ToolCall | None) -> str | None:
    """The answer that the task is handed in with, where its own text tells it; None where it does not.

    Whoever reads it there can hand the task in without having looked. Where answers are observations, there
    is no such thing: they have to be got, whoever knows them.

    Args:
        closing: what hands tasks in in this environment (:meth:`Environment.closing`).
    """
    if closing is None:
        return None
    for turn, text in zip(task.solution, accumulate(task.turns, "{}\n{}".format)):
        for call in turn:
            answers = list(leaves(call.arguments)) if call.name == closing.name else []
            if answers and all(occurs(value, text) for value in answers):
                return ", ".join(map(str, answers))
    return None


def hidden_value(task: Task, observations: Sequence[Observation], shown: Callable[[str], str]) -> str | None:
    """The first value of the solution that stands only in a part of an answer that the agent is not shown.

    Args:
        observations: what each call of the solution answered, in order.
        shown: what the agent gets to see of an observation's text.
    """
    calls = [call for turn in task.solution for call in turn]
    whole = visible = "\n".join(task.turns)
    for call, observation in zip(calls, observations, strict=True):
        for value in leaves(call.arguments):
            if occurs(value, whole) and not occurs(value, visible):
                return str(value)
        whole += "\n" + observation.text
        visible += "\n" + shown(observation.text)
    return None


def _same(one: Run, other: Run) -> bool:
    return one.marks == other.marks and [o.text for o in one.observations] == [
        o.text for o in other.observations
    ]


def _evidence(run: Run, calls: Sequence[ToolCall]) -> dict[str, Json]:
    return {
        "observations": [o.text[:300] for o in run.observations],
        "states": list(run.marks),
        "calls": len(calls),
        **({"broken": run.broken} if run.broken else {}),
    }

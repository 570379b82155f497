"""What a run came to: ``summary.json`` for programs, a table for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from coevolve.config import Config
from coevolve.environments.base import Environment
from coevolve.evaluation.between import evaluations
from coevolve.evaluation.heldout import TESTS, HeldOut
from coevolve.evaluation.scores import Score
from coevolve.explorers import asks_llm
from coevolve.guidance import KINDS
from coevolve.pool import Pool
from coevolve.prompting import versions
from coevolve.rundir import RunDirectory, write_atomic
from coevolve.transcript import usage_in, usage_line

_CUT_SHORT = {
    "given_up": "given up, for the explorer or the environment was down",
    "budget_spent": "ended by evolve.budget",
    "nothing_to_explore": "without a signal to explore from",
    "unused": "still under way at the end of training",
}
"""Why evolutions end early, as the pool counts it, in words."""
_LABELS = (("benchmark turns", "heldout"), ("unguided tasks", "heldout_unguided"))


def summarise(
    config: Config,
    environment: Environment,
    run: RunDirectory,
    pool: Pool,
    tests: Sequence[HeldOut],
    after: Mapping[str, Score],
    seconds: Mapping[str, float],
) -> dict[str, Any]:
    """Everything that a run came to, as JSON data."""
    before = run.stages()["before"]
    log = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    admitted = dict.fromkeys(("unguided", *KINDS), 0) | pool.admitted()
    training: Counter[str] = Counter()
    for line in log:
        training.update(line.get("seconds", {}))
    return {
        "environment": environment.name,
        "environment_version": environment.version,
        "model": config.model,
        "seed": config.seed,
        "steps": config.steps,
        **dict.fromkeys(TESTS.values()),  # null: the environment has nothing to make that test of
        **{TESTS[test.name]: _entry(test, before[test.name], after[test.name]) for test in tests},
        "evaluations": evaluations(run.evaluations),
        "pool": {"initial": config.pool.initial, "final": len(pool)},
        "admitted": admitted,
        "refused": pool.refused(),
        "evolutions": _evolutions(pool),
        "rollouts": {name: sum(line[name] for line in log) for name in ("solved", "failed", "invalid")},
        "llm": _asked(config, pool),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "seconds_training": {name: round(value, 1) for name, value in training.items()},
    }


def _evolutions(pool: Pool) -> dict[str, int]:
    """How many there were, and how many of them ended early, by cause."""
    counters = pool.counters()
    return {
        "made": int(counters.get("evolutions", 0)),
        **{cause: int(counters.get(f"evolutions.{cause}", 0)) for cause in _CUT_SHORT},
    }


def _asked(config: Config, pool: Pool) -> dict[str, Any] | None:
    """What a language model was asked for in stages 2 and 3; None where none was."""
    usage = usage_in(pool.counters())
    if not usage["calls"] and not usage["faults"]:
        return None
    asked = config.llm.model if asks_llm(config) else f"the policy ({config.model})"
    prompts = versions("coevolve.explore") | versions("coevolve.synthesize")
    return {"explorer": config.explore.kind, "model": asked, "prompts": prompts, **usage}


def _entry(test: HeldOut, before: Mapping[str, Any], after: Score) -> dict[str, Any]:
    """One held-out test: success before and after, with what invariant 10 asks for."""
    return {
        "before": before["mean"],
        "after": after.mean,
        "n": after.n,
        "interval_before": list(before["interval"]),
        "interval_after": list(after.interval),
        "invalid": after.invalid,
        "split": test.split,
        "seal": test.seal,
        "solved_before": list(before["solved"]),
        "solved_after": list(after.solved),
    }


def show(summary: Mapping[str, Any], console: Console) -> None:
    """The table that ``coevolve run`` ends with."""
    console.print(f"\n{_title(summary)}", highlight=False, soft_wrap=True)
    table = Table("held-out test", "tasks", "before", "after", "change", "95 % of after")
    for label, key in _LABELS:
        test = summary[key]
        if test is None:
            continue
        low, high = test["interval_after"]
        table.add_row(
            f"{label}, {test['split']}",
            str(test["n"]),
            f"{test['before']:.1%}",
            f"{test['after']:.1%}",
            f"{100 * (test['after'] - test['before']):+.1f} points",
            f"{low:.1%} to {high:.1%}",
        )
    if table.row_count:
        console.print(table)
    for line in lines(summary):
        console.print(line, highlight=False, soft_wrap=True)


def lines(summary: Mapping[str, Any]) -> list[str]:
    """The rest of the summary in sentences."""
    pool, rollouts = summary["pool"], summary["rollouts"]
    between = [
        f"after step {e['step']}, {e['test']} tasks of the {e['split']} split: "
        + (f"{e['success']:.1%} of {e['n']} solved" if e["n"] else "no valid episode")
        for e in summary["evaluations"]
    ]
    return [
        *between,
        f"pool: {pool['initial']} tasks at the start, {pool['final']} at the end",
        f"admitted: {_counts(summary['admitted'])}",
        f"refused candidates: {_counts(summary['refused'])}",
        *_shortfalls(summary.get("evolutions", {})),
        f"rollouts: {rollouts['solved']} solved, {rollouts['failed']} failed, {rollouts['invalid']} invalid",
        *([f"asked {summary['llm']['model']}: {usage_line(summary['llm'])}"] if summary.get("llm") else []),
        "seconds: " + ", ".join(f"{name} {value:.0f}" for name, value in summary["seconds"].items()),
    ]


def _shortfalls(evolutions: Mapping[str, int]) -> list[str]:
    """One sentence on evolutions that ended early; none where all went well."""
    causes = [f"{evolutions[cause]} {words}" for cause, words in _CUT_SHORT.items() if evolutions.get(cause)]
    return [f"evolutions: {evolutions['made']}, {', '.join(causes)}"] if causes else []


def markdown(summary: Mapping[str, Any]) -> str:
    """The same as :func:`show`, for a file."""
    rows = ["| held-out test | tasks | before | after | 95 % interval of after |", "|---|---|---|---|---|"]
    for label, key in _LABELS:
        test = summary[key]
        if test is not None:
            low, high = test["interval_after"]
            rows.append(
                f"| {label} ({test['split']} split) | {test['n']} | {test['before']:.1%} "
                f"| {test['after']:.1%} | {low:.1%} to {high:.1%} |"
            )
    return "\n".join([_title(summary), "", *rows, "", *(f"- {line}" for line in lines(summary))]) + "\n"


def _title(summary: Mapping[str, Any]) -> str:
    name = f"{summary['environment']} ({summary['environment_version']}), model {summary['model']}"
    return f"{name}, seed {summary['seed']}, {summary['steps']} steps"


def write(summary: Mapping[str, Any], run: RunDirectory) -> None:
    """``summary.md``, then ``summary.json``, whose presence says that the run is finished."""
    write_atomic(run.path / "summary.md", markdown(summary))
    write_atomic(run.summary, json.dumps(summary, indent=2) + "\n")


def _counts(counts: Mapping[str, int]) -> str:
    parts: Sequence[str] = [f"{name} {number}" for name, number in sorted(counts.items()) if number]
    return ", ".join(parts) or "none"

"""Several runs side by side: which belong to one arm, and how the arms differ."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from coevolve.errors import RunError
from coevolve.evaluation.comparison import (
    by_name,
    differences,
    mean,
    over_seeds,
    paired_difference,
    run_result,
    solved,
)
from coevolve.evaluation.heldout import TESTS
from coevolve.report.plotting import Figure, colour, said
from coevolve.rundir import FREE

_OWN = ("seed", *FREE)
"""Keys in which runs of one arm may differ."""
_NAMED = 3  # keys that an arm's name tells at most
_PAINTS = ("--accent", "--forgetting", "--rare", "--unseen", "--boundary", "--ink")


@dataclass
class Arm:
    """Runs that differ in their seed alone."""

    name: str
    runs: dict[int, Path] = field(default_factory=dict)
    """By seed."""


def run_directories(paths: Sequence[Path]) -> list[Path]:
    """The runs among ``paths``: each a run's directory, or an experiment's, which stands for all its runs.

    Raises:
        RunError: neither of the two.
    """
    found: list[Path] = []
    for path in paths:
        runs = [path] if (path / "pool.db").exists() else sorted(p.parent for p in path.glob("*/*/pool.db"))
        if not runs:
            raise RunError(
                f"{path} is neither a run nor an experiment (no pool.db in it, nor two folders down)"
            )
        found += [run for run in runs if run not in found]
    return found


def arms_of(runs: Sequence[Path]) -> list[Arm]:
    """Runs sorted into arms, in the order in which they were given."""
    configs = {run: _flat(_read(run)) for run in runs}
    groups: dict[str, list[Path]] = defaultdict(list)
    for run, config in configs.items():
        plain = {key: value for key, value in config.items() if key not in _OWN}
        groups[json.dumps([plain, _experiment(run)], sort_keys=True)].append(run)
    parted: list[list[Path]] = []
    for group in groups.values():
        seeds = [configs[run].get("seed", 0) for run in group]
        if len(set(seeds)) == len(seeds):
            parted.append(group)
            continue
        folders: dict[Path, list[Path]] = defaultdict(list)
        for run in group:
            folders[run.resolve().parent].append(run)
        parted += folders.values()
    names = _names(parted, configs)
    return [
        Arm(name, {int(configs[run].get("seed", n)): run for n, run in enumerate(group)})
        for name, group in zip(names, parted)
    ]


def _names(groups: Sequence[Sequence[Path]], configs: Mapping[Path, Mapping[str, Any]]) -> list[str]:
    """What sets each arm apart: its folder in an experiment, else the keys that differ, else its folder."""
    if all(_experiment(group[0]) for group in groups):
        names = [_experiment(group[0]).replace("-", " ") for group in groups]
    elif len(groups) == 1:
        names = ["all runs"]
    else:
        firsts = [configs[group[0]] for group in groups]
        keys = list(dict.fromkeys(key for config in firsts for key in config))
        apart = [
            key
            for key in keys
            if key not in _OWN and len({json.dumps(c.get(key), sort_keys=True) for c in firsts}) > 1
        ]
        names = [
            ", ".join(f"{key}: {json.dumps(config.get(key))}" for key in apart[:_NAMED]) for config in firsts
        ]
    if len(set(names)) == len(names) and all(names):
        return names
    return [f"{name} ({group[0].resolve().parent})".strip() for name, group in zip(names, groups)]


def _experiment(run: Path) -> str:
    """The arm's folder, if the run lies in an experiment's directory."""
    own = run.resolve()
    return own.parent.name if own.name.startswith("seed-") else ""


def _read(run: Path) -> dict[str, Any]:
    file = run / "config.yaml"
    found = yaml.safe_load(file.read_text()) if file.exists() else None
    return found if isinstance(found, dict) else {}


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def compare_arms(arms: Sequence[Arm]) -> dict[str, Any]:
    """Arms in order, the first one (or an experiment's own) as reference; differences are paired.

    Runs that are not finished are listed, not hidden.
    """
    arms = list(arms)
    stated = _results(arms)
    if stated is not None:
        order = [_folder(name) for name in stated["arms"]]
        reference = _folder(stated["reference"])
        arms.sort(key=lambda arm: (arm.name != reference, _place(order, arm.name)))
    results = {
        arm.name: {s: run_result(p) for s, p in arm.runs.items() if (p / "summary.json").exists()}
        for arm in arms
    }
    rows: list[dict[str, Any]] = []
    for arm in arms:
        found = results[arm.name]
        runs = list(found.values())
        rows.append(
            {
                "name": arm.name,
                "seeds": sorted(found),
                "unfinished": [str(arm.runs[seed]) for seed in sorted(set(arm.runs) - set(found))],
                "tests": {test: over_seeds(test, runs) for test in TESTS},
                "changes": {test: _change(test, found) for test in TESTS},
                "differences": differences(found, results[arms[0].name]) if arm is not arms[0] else {},
                "rollouts": mean([run["rollouts"] for run in runs]),
                "tasks_added": mean([run["tasks_added"] for run in runs]),
                "seconds": mean([run["seconds"] for run in runs]),
                "admitted": by_name([run["admitted"] for run in runs]),
                "refused": by_name([run["refused"] for run in runs]),
            }
        )
    shown = [test for test in TESTS if any(row["tests"][test] for row in rows)]
    return {"arms": rows, "tests": shown, "reference": arms[0].name}


def _change(test: str, runs: Mapping[int, Mapping[str, Any]]) -> dict[str, Any] | None:
    """After minus before on one sealed test, paired by seed and task."""
    tests = [run["tests"][test] for run in runs.values() if test in run["tests"]]
    if not tests or len({one["seal"] for one in tests}) > 1:
        return None
    return paired_difference(np.array([solved(one, "after") - solved(one, "before") for one in tests]))


def change(test: str, run: Path) -> dict[str, Any] | None:
    """The same for one finished run."""
    return _change(test, {0: run_result(run)})


def _results(arms: Sequence[Arm]) -> dict[str, Any] | None:
    """The experiment that all runs belong to, if it is finished."""
    homes = {run.resolve().parent.parent for arm in arms for run in arm.runs.values()}
    file = next(iter(homes)) / "results.json"
    if len(homes) > 1 or not file.exists() or not all(_experiment(p) for a in arms for p in a.runs.values()):
        return None
    found = json.loads(file.read_text())
    return found if isinstance(found, dict) and {"arms", "reference"} <= set(found) else None


def _folder(name: str) -> str:
    from coevolve.evaluation.arms import folder_name

    return folder_name(name).replace("-", " ")


def _place(order: Sequence[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def arm_figures(arms: Sequence[Arm], compared: Mapping[str, Any]) -> dict[str, Figure]:
    """The figures of a comparison."""
    made: dict[str, Figure] = {}
    if compared["tests"]:
        made["arms"] = _intervals(compared)
    made["curves"] = _curves(arms, [row["name"] for row in compared["arms"]])
    made["added"] = _added(compared)
    return {name: figure for name, figure in made.items() if figure["data"]}


def _intervals(compared: Mapping[str, Any]) -> Figure:
    """Each arm's change since the warm start, with its interval; the reference at the top."""
    traces = []
    for number, test in enumerate(compared["tests"]):
        rows = [row for row in compared["arms"][::-1] if row["changes"][test]]
        found = [row["changes"][test] for row in rows]
        spans = [one["interval"] or [one["mean"], one["mean"]] for one in found]
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "orientation": "h",
                "offsetgroup": test,
                "name": f"{test} test",
                "y": [said(row["name"]) for row in rows],
                "x": [one["mean"] for one in found],
                "error_x": {
                    "type": "data",
                    "symmetric": False,
                    "array": [span[1] - one["mean"] for one, span in zip(found, spans)],
                    "arrayminus": [one["mean"] - span[0] for one, span in zip(found, spans)],
                },
                "marker": {"size": 10, "color": _PAINTS[number]},
                "hovertemplate": "%{y}: %{x:+.1%}",
            }
        )
    axis = {
        "title": {"text": "change since the warm start"},
        "tickformat": "+.0%",
        "zeroline": True,
    }
    side = {"automargin": True, "type": "category"}
    return {"data": traces, "layout": {"scattermode": "group", "xaxis": axis, "yaxis": side}}


def _curves(arms: Sequence[Arm], order: Sequence[str]) -> Figure:
    """Training success by step: the mean over seeds, smoothed over five steps, and the range of the seeds."""
    traces: list[dict[str, Any]] = []
    for arm in sorted(arms, key=lambda one: order.index(one.name)):
        paint = _PAINTS[order.index(arm.name) % len(_PAINTS)]
        seeds = [curve for curve in map(_curve, arm.runs.values()) if curve]
        if not seeds:
            continue
        length = min(map(len, seeds))
        steps = list(range(1, length + 1))
        columns = [[curve[n] for curve in seeds] for n in range(length)]
        if len(seeds) > 1:
            band = [max(column) for column in columns] + [min(column) for column in columns[::-1]]
            traces.append(
                {
                    "type": "scatter", "x": steps + steps[::-1], "y": band, "fill": "toself", "opacity": 0.18,
                    "mode": "none", "fillcolor": paint, "hoverinfo": "skip", "showlegend": False,
                }
            )  # fmt: skip
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": said(arm.name),
                "x": steps,
                "y": [sum(column) / len(column) for column in columns],
                "line": {"color": paint},
                "hovertemplate": "step %{x}: %{y:.0%}",
            }
        )
    axis = {"title": {"text": "rollouts solved"}, "tickformat": ".0%", "rangemode": "tozero"}
    return {"data": traces, "layout": {"xaxis": {"title": {"text": "step"}}, "yaxis": axis}}


def _curve(run: Path) -> list[float]:
    log = run / "metrics.jsonl"
    whole = log.read_text().rpartition("\n")[0] if log.exists() else ""
    lines = [json.loads(line) for line in whole.splitlines()]
    shares = [line["solved"] / max(1, line["solved"] + line["failed"]) for line in lines]
    return [sum(shares[max(0, n - 4) : n + 1]) / min(n + 1, 5) for n in range(len(shares))]


def _added(compared: Mapping[str, Any]) -> Figure:
    """Tasks in the final pool by origin, a mean per run."""
    kinds = list(dict.fromkeys(kind for row in compared["arms"] for kind in row["admitted"]))
    rows = compared["arms"][::-1]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": [said(row["name"]) for row in rows],
            "x": [row["admitted"].get(kind, 0) for row in rows],
            "marker": {"color": colour(kind)},
            "hovertemplate": "%{y}: %{x:.0f}",
        }
        for kind in kinds
        if any(row["admitted"].get(kind) for row in rows)
    ]
    axis = {"title": {"text": "tasks, mean of seeds"}}
    return {
        "data": traces,
        "layout": {"barmode": "stack", "xaxis": axis, "yaxis": {"automargin": True, "type": "category"}},
    }

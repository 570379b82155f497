"""The figures of one run: what it trained on, what was added, what was refused, and what came of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from coevolve.evaluation.growth import means
from coevolve.evaluation.heldout import TESTS
from coevolve.report.material import Material
from coevolve.report.plotting import Figure, colour, said, step_axis
from coevolve.report.timing import time_by_stage

_SMOOTH = 5  # steps of the running mean
_BARS = 60  # at most, along the steps


def figures(run: Material) -> dict[str, Figure]:
    """Every figure that the run has data for, by name."""
    made = {
        "success": success(run),
        "pool": pool_size(run),
        "signals": signals_over_time(run),
        "refused": refusals(run),
        "origins": success_by_origin(run),
        "lengths": lengths(run),
        "similarity": similarity(run),
        "time": time_by_stage(run),
    }
    return {name: figure for name, figure in made.items() if figure is not None}


def success(run: Material) -> Figure | None:
    """Training success by step, and the held-out tests where they were taken."""
    traces: list[dict[str, Any]] = []
    steps, shares = [], []
    for line in run.metrics:
        valid = line.get("solved", 0) + line.get("failed", 0)
        if valid:
            steps.append(line["step"])
            shares.append(line["solved"] / valid)
    if steps:
        smooth = [
            sum(shares[max(0, n - _SMOOTH + 1) : n + 1]) / min(n + 1, _SMOOTH) for n in range(len(shares))
        ]
        plain = {"type": "scatter", "mode": "lines", "x": steps, "hovertemplate": "step %{x}: %{y:.0%}"}
        traces += [
            {**plain, "y": shares, "name": "training, each step", "line": {"color": "--faint", "width": 1}},
            {**plain, "y": smooth, "name": f"training, mean of {_SMOOTH} steps", "line": {"color": "--ink"}},
        ]
    colours = {"benchmark": "--accent", "unguided": "--rare"}
    for test, points in _scores(run).items():
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": said(test),
                "x": [p[0] for p in points],
                "y": [p[1] for p in points],
                "error_y": {
                    "type": "data",
                    "symmetric": False,
                    "array": [p[2][1] - p[1] for p in points],
                    "arrayminus": [p[1] - p[2][0] for p in points],
                    "thickness": 1.2,
                },
                "line": {"color": colours.get(test.split()[0], "--boundary"), "dash": "dot", "width": 1.5},
                "marker": {"size": 8},
                "cliponaxis": False,
                "hovertemplate": "step %{x}: %{y:.1%}",
            }
        )
    if not traces:
        return None
    grown = [line["step"] for line in run.metrics if line.get("source", {}).get("evolve/admitted")]
    marks = [
        {
            "type": "line", "x0": step, "x1": step, "y0": 0, "y1": 1, "yref": "paper",
            "line": {"color": "--faint", "width": 1, "dash": "dot"}, "layer": "below",
        }
        for step in grown
    ]  # fmt: skip
    axis = {"title": {"text": "solved"}, "tickformat": ".0%", "rangemode": "tozero"}
    end = max(run.step, run.summary["steps"] if run.summary else 0, 1)
    along = step_axis() | {"showgrid": False, "range": [-0.015 * end, 1.02 * end]}
    return {"data": traces, "layout": {"xaxis": along, "yaxis": axis, "shapes": marks}}


def _scores(run: Material) -> dict[str, list[tuple[int, float, Sequence[float]]]]:
    """By test and split: (step, success, interval), in order of step."""
    found: dict[str, list[tuple[int, float, Sequence[float]]]] = defaultdict(list)
    split = run.config.get("evaluate", {}).get("split", "test")
    for test, score in run.stages.get("before", {}).items():
        if score["n"]:
            found[f"{test} test, {split} split"].append((0, score["mean"], score["interval"]))
    for line in run.evaluations:
        if line["success"] is not None:
            name = f"{line['test']} test, {line['split']} split"
            found[name].append((line["step"], line["success"], line["interval"]))
    for test, key in TESTS.items():
        last = (run.summary or {}).get(key)
        if last and last["n"]:
            name = f"{test} test, {last['split']} split"
            found[name].append((run.summary["steps"], last["after"], last["interval_after"]))  # type: ignore[index]
    return found


def pool_size(run: Material) -> Figure | None:
    """Tasks in the pool by origin, stacked."""
    admitted = run.admitted
    if not admitted:
        return None
    kinds = run.kinds(one.kind for one in admitted)
    last = max(run.step, *(one.step for one in admitted))
    steps = sorted({one.step for one in admitted} | {0, last + max(1, last // 30)})  # the last step is seen
    traces = []
    for kind in kinds:
        mine = [one.step for one in admitted if one.kind == kind]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines",
                "stackgroup": "pool",
                "name": kind,
                "x": steps,
                "y": [sum(at <= step for at in mine) for step in steps],
                "line": {"shape": "hv", "width": 0.5, "color": colour(kind)},
                "hovertemplate": "step %{x}: %{y}",
            }
        )
    return {"data": traces, "layout": {"xaxis": step_axis(), "yaxis": {"title": {"text": "tasks"}}}}


def signals_over_time(run: Material) -> Figure | None:
    """Signals that fired, by step and kind."""
    if not run.signals:
        return None
    width = -(-max(run.step, 1) // _BARS)
    counts: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for one in run.signals:
        counts[one.kind][(one.step - 1) // width * width + 1] += 1
    traces = [
        {
            "type": "bar",
            "name": kind,
            "x": list(counts[kind]),
            "y": list(counts[kind].values()),
            "width": width * 0.9,
            "marker": {"color": colour(kind)},
            "hovertemplate": "step %{x}: %{y}",
        }
        for kind in run.kinds(counts)
    ]
    title = "signals a step" if width == 1 else f"signals in {width} steps"
    layout = {"barmode": "stack", "xaxis": step_axis(), "yaxis": {"title": {"text": title}}}
    return {"data": traces, "layout": layout}


def refusals(run: Material) -> Figure | None:
    """Refused candidates by reason, and by origin within."""
    reasons = list(run.refused)[::-1]
    if not reasons:
        return None
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in run.candidates:
        if not one.admitted:
            counts[one.kind][one.reason] += 1
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "name": kind,
            "y": [said(reason.replace("_", " ")) for reason in reasons],
            "x": [counts[kind][reason] for reason in reasons],
            "marker": {"color": colour(kind)},
            "hovertemplate": "%{y}: %{x}",
        }
        for kind in run.kinds(counts)
    ]
    layout = {"barmode": "stack", "xaxis": {"title": {"text": "candidates"}}, "yaxis": {"automargin": True}}
    return {"data": traces, "layout": layout}


def success_by_origin(run: Material) -> Figure | None:
    """How often the policy solved tasks of each origin, between one evolution and the next."""
    kinds = {one.id: one.kind for one in run.admitted}
    every = int(run.config.get("evolve", {}).get("every") or 0) or max(1, run.step // 8)
    counts: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for one in run.attempts:
        if one.outcome != "invalid" and one.task in kinds:
            count = counts[kinds[one.task]][(one.step - 1) // every * every + every]
            count[0] += one.rollouts if one.outcome == "solved" else 0
            count[1] += one.rollouts
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": kind,
            "x": sorted(counts[kind]),
            "y": [counts[kind][step][0] / counts[kind][step][1] for step in sorted(counts[kind])],
            "customdata": [counts[kind][step][1] for step in sorted(counts[kind])],
            "line": {"color": colour(kind)},
            "cliponaxis": False,
            "hovertemplate": "up to step %{x}: %{y:.0%} of %{customdata} rollouts",
        }
        for kind in run.kinds(counts)
    ]
    axis = {"title": {"text": "solved"}, "tickformat": ".0%", "rangemode": "tozero"}
    return {"data": traces, "layout": {"xaxis": step_axis(), "yaxis": axis}} if traces else None


def lengths(run: Material) -> Figure | None:
    """Figures 6 to 8 of the paper: mean solution length, distinct tools and dependence of tasks added."""
    if not run.added:
        return None
    steps = sorted({row.step for row in run.added})
    rows = [means([row for row in run.added if row.step == step]) for step in steps]
    shown = (
        ("calls in the solution", "calls", "--accent"),
        ("distinct tools", "tools", "--rare"),
        ("arguments read from an earlier answer", "dependent", "--forgetting"),
    )
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": steps,
            "y": [row[key] for row in rows],
            "line": {"color": paint},
            "cliponaxis": False,
            "hovertemplate": "added at step %{x}: %{y:.2f}",
        }
        for name, key, paint in shown
    ]
    axis = {"title": {"text": "mean per task"}, "rangemode": "tozero"}
    return {"data": traces, "layout": {"xaxis": step_axis(), "yaxis": axis}}


def similarity(run: Material) -> Figure | None:
    """How near the added tasks come to the sealed tests."""
    near: dict[str, list[float]] = defaultdict(list)
    for row in run.added:
        if row.similarity is not None:
            near[row.origin].append(row.similarity)
    if not near:
        return None
    bins = [n / 20 for n in range(20)]
    traces = []
    for kind in run.kinds(near):
        heights = [0] * len(bins)
        for value in near[kind]:
            heights[min(int(value * 20), 19)] += 1
        traces.append(
            {
                "type": "bar",
                "name": kind,
                "x": [left + 0.025 for left in bins],
                "y": heights,
                "width": 0.046,
                "marker": {"color": colour(kind)},
                "hovertemplate": "similarity about %{x:.2f}: %{y} tasks",
            }
        )
    axis = {"title": {"text": "similarity to the nearest sealed test"}, "range": [0, 1]}
    return {
        "data": traces,
        "layout": {"barmode": "stack", "xaxis": axis, "yaxis": {"title": {"text": "tasks"}}},
    }

"""An experiment's results as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coevolve.evaluation.comparison import RESAMPLES, points
from coevolve.evaluation.growth import GUARD
from coevolve.evaluation.heldout import TESTS


def markdown(results: Mapping[str, Any]) -> str:
    """Scores with what they cost, what the data became, and where the time went."""
    parts = [_scores(results), _data(results), _time(results)]
    return "\n".join([f"# {results['title']}", "", *parts])


def _scores(results: Mapping[str, Any]) -> str:
    tests = {t: next((a["tests"][t] for a in results["arms"].values() if a["tests"][t]), None) for t in TESTS}
    shown = {name: test for name, test in tests.items() if test is not None}
    labels = [f"{name} ({test['tasks']} tasks, {test['split']})" for name, test in shown.items()]
    head = [
        "arm",
        *(x for label in labels for x in (label, "difference (95 %)")),
        "rollouts",
        "mixed groups",
        "tasks added",
        "seconds",
    ]
    rows = [head, ["---"] * len(head)]
    if shown:
        start = [f"{test['before']:.1%}" for test in shown.values()]
        rows.append(["*warm start*", *(x for value in start for x in (value, "")), "0", "", "0", ""])
    for arm, found in results["arms"].items():
        if not found["runs"]:
            rows.append([arm, *["no run"] * (len(head) - 1)])
            continue
        cells = [f"{arm} (reference)" if arm == results["reference"] else arm]
        for name in shown:
            test, difference = found["tests"][name], found["differences"].get(name)
            spread = f" ± {test['deviation']:.1%}" if test["deviation"] is not None else ""
            cells += [f"{test['after']:.1%}{spread}", "" if difference is None else points(difference)]
        cells += [f"{found['rollouts']:.0f}", f"{found['mixed']:.0%}"]
        cells += [f"{found['tasks_added']:.0f}", f"{found['seconds']:.0f}"]
        rows.append(cells)
    notes = [
        f"{', '.join(results['environment'])}; model {', '.join(results['model'])}; "
        f"seeds {', '.join(map(str, results['seeds']))}; greedy, one episode a task.",
        "± is the standard deviation between seeds; *mixed groups* have rewards that differ, and so a "
        "gradient. Differences are paired by seed and task; their interval is a bootstrap over both "
        f"({RESAMPLES:,} resamples).",
        *(
            f"{pair['arm']} over {pair['over']}, {name}: {points(difference)}."
            for pair in results["pairs"]
            for name, difference in pair["differences"].items()
        ),
        *(f"Not alike: {text}." for text in results["unlike"]),
        *([f"Missing: {'; '.join(results['missing'])}."] if results["missing"] else []),
        *(f"Failed: {name} {words}." for name, words in results["failed"].items()),
    ]
    return "\n".join([*_lines(rows), "", *(f"- {note}" for note in notes)]) + "\n"


def _data(results: Mapping[str, Any]) -> str:
    """Figures 6 to 8 of the paper, and how near the added tasks come to the sealed test."""
    names = [
        "calls",
        "turns",
        "tools",
        "tools reached",
        "dependent",
        "first to last evolution: calls",
        "nearest test",
        "refused",
    ]
    rows = [["arm", *names, "origins"], ["---"] * (len(names) + 2)]
    for arm, found in results["arms"].items():
        added = found["added"]
        if added is None:
            continue
        steps = list(added["by_step"].values())
        near = added["similarity"]
        rows.append(
            [
                arm,
                f"{added['calls']:.2f}",
                f"{added['turns']:.2f}",
                f"{added['tools']:.2f}",
                f"{added['tools_reached']:.0f}",
                f"{added['with_dependence']:.0%}",
                f"{steps[0]['calls']:.2f} → {steps[-1]['calls']:.2f}",
                "" if near is None else f"{near['median']:.2f}, {near['decile']:.2f}, {near['largest']:.2f}",
                f"{found['refused'].get(GUARD, 0):.0f}",
                ", ".join(f"{origin} {share:.0%}" for origin, share in added["share"].items()),
            ]
        )
    if len(rows) == 2:
        return ""
    notes = [
        "Means over the tasks that evolutions added, all seeds. *tools reached*: different ones in the whole "
        "pool of a run. *dependent*: solutions with an argument read from an earlier answer.",
        "*nearest test*: Jaccard similarity of shingles to the nearest task of the sealed benchmark-shaped "
        "test: median, ninth decile, largest. *refused*: candidates a run that overlapped with it.",
    ]
    return (
        "\n".join(["## What the data became", "", *_lines(rows), "", *(f"- {note}" for note in notes)]) + "\n"
    )


def _time(results: Mapping[str, Any]) -> str:
    """Table 7 of the paper: what signals, exploration and verification add to training."""
    rows = [["arm", "rollouts", "update", "signals, exploration, verification", "share"], ["---"] * 5]
    for arm, found in results["arms"].items():
        spent = found["seconds_training"]
        if not spent:
            continue
        grown = spent.get("observe", 0.0)
        rest = sum(spent.values()) - grown
        figures = [spent.get("rollout", 0.0), spent.get("update", 0.0), grown]
        rows.append([arm, *(f"{value:.0f} s" for value in figures), f"{grown / rest:.1%}" if rest else ""])
    note = "- Seconds of training, means over seeds; the share is of its rest (the paper: 9.67 to 12.76 %)."
    return "\n".join(["## Where the time went", "", *_lines(rows), "", note]) + "\n"


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]

"""Where a run's time went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from coevolve.report.material import Material
from coevolve.report.plotting import Figure, said


def time_by_stage(run: Material) -> Figure | None:
    """Seconds by stage; training by what it did."""
    seconds = spent(run)
    if not seconds:
        return None
    names = sorted(seconds, key=lambda name: seconds[name])
    bar = {
        "type": "bar",
        "orientation": "h",
        "y": [said(name) for name in names],
        "x": [seconds[name] for name in names],
        "marker": {"color": ["--accent" if n.startswith("training: ") else "--unguided" for n in names]},
        "text": [f"{seconds[name]:,.{0 if seconds[name] >= 10 else 1}f} s" for name in names],
        "textposition": "outside",
        "cliponaxis": False,
        "hovertemplate": "%{y}: %{x:.1f} s",
        "showlegend": False,
    }
    axis = {"title": {"text": "seconds"}, "range": [0, 1.3 * max(seconds.values())]}
    layout = {"xaxis": axis, "yaxis": {"automargin": True}}
    return {"data": [bar], "layout": layout}


def spent(run: Material) -> dict[str, float]:
    """Seconds by stage; those of training by part, as far as they were measured."""
    stages: Mapping[str, float] = run.stages.get("seconds", {})
    parts: dict[str, float] = defaultdict(float)
    for line in run.metrics:
        for name, value in line.get("seconds", {}).items():
            parts[name] += value
    evolving = (run.metrics[-1].get("source", {}) if run.metrics else {}).get("total/seconds.evolve", 0.0)
    if evolving and evolving <= parts.get("observe", 0.0):
        parts["observe"] -= evolving
        parts["explore and verify"] = evolving
    reporting = run.stages.get("report", {}).get("seconds", 0.0)
    if reporting and run.summary is None:  # at the end the last report comes after training
        parts["report"] = reporting
    found = {name: value for name, value in stages.items() if name != "training"}
    found |= {f"training: {name}": value for name, value in parts.items()}
    rest = stages.get("training", 0.0) - sum(parts.values())
    if rest > 1:
        found["training: other"] = rest
    return {name: round(value, 2) for name, value in found.items() if value >= 0.005}

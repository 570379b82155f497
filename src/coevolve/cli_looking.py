"""The commands that look at what runs have done: their pool, their signals, their report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from coevolve.cli_options import AsJson, Overrides
from coevolve.errors import ConfigError


def tasks(
    run_dir: Annotated[Path, typer.Argument(metavar="RUN")],
    as_json: AsJson = False,
    export: Annotated[
        Path | None,
        typer.Option(
            "--export",
            metavar="FILE",
            help="Write every task with its lineage and evidence: .jsonl, .parquet.",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE",
            help="Judge the tasks of a file (.jsonl, .parquet) by replay and screens and add those that pass "
            "to the pool in RUN, a new directory or one that no run made. Every refusal is listed by its "
            "reason, and the exit code is then 1. A run of its own begins with such a file by --set "
            "pool.tasks=FILE.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="With --import: whose environment and verification judge; by default RUN's own."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """The pool of a run: every task with its lineage and verdict; also to a file, and from one."""
    from coevolve.pool import Pool
    from coevolve.pool.listing import task_rows
    from coevolve.rundir import RunDirectory

    if file is not None:
        _import(run_dir, file, config, overrides or (), as_json)
        return
    if config is not None or overrides:
        raise ConfigError("--config and --set belong to --import: a pool is listed and exported as it is")
    if export is not None:
        from coevolve.transfer import export_tasks

        count = export_tasks(RunDirectory.existing(run_dir), export)
        typer.echo(f"{count} tasks written to {export}")
        return
    with Pool.read_only(RunDirectory.existing(run_dir).pool) as pool:
        rows = task_rows(pool)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_tasks(rows)


def _import(run_dir: Path, file: Path, config: Path | None, overrides: Sequence[str], as_json: bool) -> None:
    from coevolve.config_file import load_config
    from coevolve.transfer import import_tasks

    own = run_dir / "config.yaml"
    resolved = load_config(config or (own if own.exists() else None), overrides)
    found = import_tasks(run_dir, file, resolved, Console(stderr=True))
    typer.echo(json.dumps(found.as_json(), indent=2) if as_json else "\n".join(found.lines()))
    if found.refused:
        raise typer.Exit(1)


def signals(run_dir: Annotated[Path, typer.Argument(metavar="RUN")], as_json: AsJson = False) -> None:
    """The weaknesses that a run found, with the evidence."""
    from coevolve.pool import Pool
    from coevolve.pool.listing import signal_rows
    from coevolve.rundir import RunDirectory

    with Pool.read_only(RunDirectory.existing(run_dir).pool) as pool:
        rows = signal_rows(pool)
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("step", "kind", "pattern", "scores", "task")
    for row in rows:
        scores = " ".join(f"{score:.2g}" for score in row["scores"])
        table.add_row(
            str(row["step"]), row["kind"], " → ".join(row["pattern"]), scores, " / ".join(row["turns"])
        )
    Console().print(table)


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs, or experiments, which stand for theirs.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(help="The HTML file; by default report.html in the run, or beside several runs."),
    ] = None,
) -> None:
    """Write one HTML file that opens offline: figures and lineage of a run, or several runs side by side."""
    from coevolve.report.page import write_report

    typer.echo(str(write_report(runs, out)))


def print_tasks(rows: list[dict[str, Any]]) -> None:
    """Tasks for people."""
    table = Table("id", "origin", "step", "task", "solution")
    for row in rows:
        table.add_row(
            row["id"][:8],
            row["origin"]["kind"],
            str(row["origin"]["step"]),
            "\n".join(row["turns"]),
            "\n".join(_spelled(call) for turn in row["solution"] for call in turn),
        )
    Console().print(table)
    typer.echo(f"{len(rows)} tasks")


def _spelled(call: dict[str, Any]) -> str:
    arguments = ", ".join(f"{name}={value!r}" for name, value in call["arguments"].items())
    return f"{call['name']}({arguments})"

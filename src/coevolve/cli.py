"""The command line. Errors that a user can act on are one sentence and exit code 2; a traceback is a bug."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from coevolve import cli_looking
from coevolve.cli_eval import evaluate
from coevolve.cli_looking import print_tasks
from coevolve.cli_options import AsJson, Overrides, Stopped
from coevolve.config_file import load_config
from coevolve.disk import told
from coevolve.errors import CoEvolveError, ConfigError, RunError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Train a tool-using agent, and grow its training set where the agent is weak.",
)
environments = typer.Typer(no_args_is_help=True, help="Environments: list them, fetch what one needs.")
app.add_typer(environments, name="env")


@app.command()
def run(
    config: Annotated[Path, typer.Argument(help="A YAML file; recipes/ has some.")],
    out: Annotated[
        Path | None, typer.Option(help="Run directory; the same one goes on where it stopped.")
    ] = None,
    overrides: Overrides = None,
    processes: Annotated[
        int, typer.Option(min=1, help="Processes of this machine that train in step, e.g. one for each core.")
    ] = 1,
    check: Annotated[
        bool,
        typer.Option("--check", help="Validate all that can be known without weights or a GPU, and stop."),
    ] = False,
) -> None:
    """Train: rollouts, signals, exploration, verification, and round again."""
    resolved = load_config(config, overrides or ())
    if check:
        from coevolve.checks import check_recipe

        for line in check_recipe(resolved):
            typer.echo(line)
        typer.echo(f"{config}: nothing wrong found")
        return
    where = out or Path("runs") / config.stem
    try:
        from coevolve.launch import together
        from coevolve.run import execute

        with together(processes, sys.argv[1:], where):
            execute(resolved, where, Console())
    except KeyboardInterrupt:
        raise Stopped(f"stopped; the same command goes on from the last checkpoint in {where}") from None


app.command("eval")(evaluate)


@app.command()
def explore(
    config: Annotated[
        Path | None,
        typer.Argument(help="A YAML file; without one the configuration of --signals, or default settings."),
    ] = None,
    n: Annotated[int, typer.Option("--tasks", "-n", min=1, help="Verified tasks to make.")] = 20,
    out: Annotated[Path | None, typer.Option(help="Write the tasks here, a JSON object a line.")] = None,
    env: Annotated[str | None, typer.Option(help="The environment: as --set environment.name.")] = None,
    llm: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An OpenAI-compatible endpoint explores: as llm.base_url."),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="The endpoint's model, or without --llm one to load here: as llm.model."),
    ] = None,
    signals: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Explore from the weaknesses that this run found.")
    ] = None,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Synthesis alone: explore train worlds, abstract, verify, and show all that was done."""
    from coevolve.alone import explore_alone, unfinished
    from coevolve.rundir import RunDirectory

    run = None if signals is None else RunDirectory.existing(signals)
    if config is None and run is not None and (run.path / "config.yaml").exists():
        config = run.path / "config.yaml"
    resolved = load_config(config, [*_explorer(env, llm, model), *(overrides or ())])
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"cannot write {out}: there is no directory {out.parent}")
    found = explore_alone(resolved, n, Console(stderr=True), run)
    if out is not None:
        try:
            out.write_text("".join(json.dumps(row) + "\n" for row in found.tasks))
        except OSError as error:
            raise ConfigError(f"cannot write {out}: {error.strerror}") from None
    if as_json:
        typer.echo(json.dumps(found.as_json(), indent=2))
    else:
        found.tell(Console())
        print_tasks(found.tasks)
        typer.echo("refused: " + (", ".join(f"{k} {v}" for k, v in sorted(found.refused.items())) or "none"))
    if short := unfinished(found, n):
        raise RunError(short)


def _explorer(env: str | None, llm: str | None, model: str | None) -> list[str]:
    """The shorthand options of ``explore`` as overrides, quoted so that YAML takes them as they are."""
    wanted = {"environment.name": env, "llm.base_url": llm, "llm.model": model}
    given = [f"{key}={json.dumps(value)}" for key, value in wanted.items() if value is not None]
    if model is not None and llm is None:
        given.append("llm.base_url=null")
    return [*given, "explore.kind=llm"] if llm is not None or model is not None else given


@app.command()
def experiment(
    file: Annotated[Path, typer.Argument(metavar="EXPERIMENT", help="A YAML file; experiments/ has some.")],
    out: Annotated[
        Path | None, typer.Option(help="Directory of its runs; the same one goes on where it stopped.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=0, help="Runs at a time; 0 takes as many as the cores hold.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Arms x seeds from one base, compared in pairs: results.json and results.md."""
    from coevolve.evaluation.experiment import load_experiment, run_experiment

    where = out or Path("runs") / file.stem
    try:
        results, table = run_experiment(load_experiment(file), where, jobs, Console(stderr=True))
    except KeyboardInterrupt:
        raise Stopped(f"stopped; the same command goes on with the runs in {where}") from None
    typer.echo(json.dumps(results, indent=2) if as_json else table)
    if results["failed"]:
        raise RunError(f"runs failed: {'; '.join(results['failed'])}; their logs lie in {where}")


for _command in (cli_looking.tasks, cli_looking.signals, cli_looking.report):
    app.command()(_command)


@environments.command("list")
def list_environments() -> None:
    """The environments that come with CoEvolve, and whether each is ready to use."""
    from coevolve.environments.registry import known

    for name, state in known().items():
        typer.echo(f"{name:12} {state}")


@environments.command("add")
def add_environment(
    name: str,
    data: Annotated[
        bool, typer.Option("--data", help="The benchmark's data, too, where the package comes without.")
    ] = False,
    release: Annotated[
        str | None, typer.Option(help="A release of the benchmark's package other than the pinned one.")
    ] = None,
) -> None:
    """Fetch what an environment needs into the user's cache; nothing is fetched twice."""
    from coevolve.environments.registry import install

    typer.echo(install(name, data, release))


@app.command()
def doctor(
    llm: Annotated[
        str | None, typer.Option(metavar="URL", help="Ask this endpoint too; else no network is used.")
    ] = None,
    model: Annotated[str, typer.Option(help="The model that the endpoint should have.")] = "",
    run_dir: Annotated[
        Path | None,
        typer.Option(
            "--run",
            metavar="RUN",
            help="Check this run directory instead: hashes, content addresses, lineage, metrics, seals, and "
            "every task by replay; exit code 1 if anything is wrong.",
        ),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """What this machine has and lacks, and what follows from it; or whether a run directory is sound."""
    if run_dir is not None:
        _examine_run(run_dir)
        return
    from coevolve.checks import ask_endpoint, consequences, examine

    config = load_config(None, [*_explorer(None, llm, model), *(overrides or ())])
    findings = examine()
    asked = [ask_endpoint(config.llm)] if llm is not None else []
    for finding in [*findings, *asked]:
        typer.echo(str(finding))
    for sentence in consequences(findings):
        typer.echo(f"so: {sentence}")
    if any(finding.needed and not finding.ok for finding in findings) or not all(f.ok for f in asked):
        raise typer.Exit(1)


def _examine_run(path: Path) -> None:
    from coevolve.inspection import inspect
    from coevolve.rundir import RunDirectory

    wrong = 0
    for checked in inspect(RunDirectory.existing(path), Console(stderr=True)):
        typer.echo(str(checked))
        wrong += checked.count
    if wrong:
        raise typer.Exit(1)


def main() -> None:
    """Entry point of the ``coevolve`` command."""
    from coevolve.launch import follow_leader

    # TRL and vLLM tell their makers of each run (model, size, hardware): nobody asked ours to.
    os.environ.setdefault("DO_NOT_TRACK", "1")
    follow_leader()
    here = str(Path.cwd())
    if here not in sys.path:  # where a user's own 'module:Class' lies; last, so that it hides nothing
        sys.path.append(here)
    try:
        app()
    except CoEvolveError as error:
        _say(f"error: {' '.join(str(error).split())}")
        sys.exit(2)
    except Stopped as stopped:
        _say(str(stopped))
        sys.exit(130)
    except Exception as error:
        if (sentence := told(error)) is None:
            raise
        _say(f"error: {sentence}")
        sys.exit(2)


def _say(text: str) -> None:
    """To standard error, on one line however long."""
    Console(stderr=True, soft_wrap=True, highlight=False, markup=False).print(text)

"""Tasks out of a run and into another: ``coevolve tasks --export`` and ``--import``, and ``pool.tasks``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from coevolve.admission import Admission, admit
from coevolve.config import Config
from coevolve.errors import ConfigError, RunError
from coevolve.pool import Pool
from coevolve.pool.portable import TaskFile, write_tasks
from coevolve.progress import stage
from coevolve.rundir import RunDirectory

if TYPE_CHECKING:
    from coevolve.loop import CoEvolution


def export_tasks(run: RunDirectory, file: Path) -> int:
    """Write the pool of a run to ``file``, as it is now, also while the run trains; returns how many tasks.

    Raises:
        ConfigError: a name that says no format.
        RunError: the pool cannot be read, or the file cannot be written.
    """
    with Pool.read_only(run.pool) as pool, pool.snapshot():
        return write_tasks(pool, file)


def import_tasks(path: Path, file: Path, config: Config, console: Console) -> Admission:
    """Admit the tasks of ``file`` into the pool of the directory ``path``, which is made where it is missing.

    The directory is bound to ``config``, whose environment, ``verify`` section and held-out split judge.
    Sealed tests in its ``heldout/`` guard it, too.

    Raises:
        ConfigError: no such file, or tasks of another environment than the configuration's.
        RunError: a run made this directory, or another process has it.
        InfrastructureError: the environment is down; what was judged before is in the pool.
    """
    from coevolve.building import judge, load_weights
    from coevolve.checks import insist_on_worlds
    from coevolve.environments.registry import pooled
    from coevolve.evaluation.heldout import sealed_tests
    from coevolve.explorers import asks_policy, hired

    rows, run = TaskFile(file), RunDirectory(path)
    if run.begun:
        raise RunError(
            f"{path} is a run, and its pool belongs to its weights and checkpoints: import into another "
            f"directory, or start a new run with --set pool.tasks={file}"
        )
    with pooled(config.environment) as environment:
        insist_on_worlds(environment, config.environment)
        first = next((row.candidate.task.environment for row in rows if row.candidate), environment.name)
        if first != environment.name:
            raise ConfigError(
                f"{file} has tasks of {first!r:.60}, the environment here is {environment.name!r}: "
                "name theirs with --set environment.name=…"
            )
        if run.pool.exists():
            with Pool.read_only(run.pool) as pool:
                held = next((task.environment for task in pool), environment.name)
            if held != environment.name:
                raise ConfigError(
                    f"{path} holds tasks of {held!r:.60}, not of {environment.name!r}: "
                    "import into another directory"
                )
        run.claim(config)
        try:
            policy = load_weights(config) if asks_policy(config) else None
            with Pool.open(run.pool) as pool, hired(config, environment, policy) as staff:
                verifier = judge(config, environment, staff, sealed_tests(run.heldout), pool)
                with stage("importing", len(rows), console) as bar:
                    return admit(
                        rows,
                        environment,
                        pool,
                        verifier,
                        source=file.name,
                        progress=lambda done: bar.update(done, f"{len(pool)} tasks"),
                    )
        finally:
            run.release()


def begin_with(rows: TaskFile, loop: CoEvolution, console: Console) -> None:
    """The tasks that D_0 begins with, and how they fared at the door.

    Raises:
        RunError: not one of them may enter.
    """
    with stage("pool.tasks", len(rows), console) as bar:
        found = loop.admit(rows, rows.path.name, lambda done: bar.update(done, ""))
    for line in found.lines():
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if not found.admitted:
        raise RunError(f"pool.tasks: not one task of {rows.path} may enter the pool; see the reasons above")

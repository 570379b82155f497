"""``coevolve doctor --run``: whether a run directory is what it says, one line for each thing looked at.

Nothing is written, and nothing is repaired. The first culprits are named; how many there are is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from rich.console import Console

from coevolve.environments.registry import pooled
from coevolve.errors import CoEvolveError
from coevolve.inspection.checked import Checked, readable
from coevolve.inspection.files import checkpoints, configuration, metrics
from coevolve.inspection.tasks import held_out, replay
from coevolve.pool.audit import audit
from coevolve.pool.seal import seal_fault
from coevolve.rundir import RunDirectory

__all__ = ["Checked", "inspect"]


def inspect(run: RunDirectory, console: Console) -> Iterator[Checked]:
    """Look at all of a run directory, also while the run is at work; each line comes when it is known.

    Args:
        console: shows how far the replay is.
    """
    settings, config = configuration(run)
    yield settings
    yield checkpoints(run)
    opened = Checked("pool file")
    try:
        found = audit(run.pool)
    except CoEvolveError as error:
        opened.blame([str(error)])
        yield opened
        return
    with closing(found) as pool:
        if why := seal_fault(run.pool):
            opened.blame([why])
        opened.blame(readable(pool.file()))
        opened.detail = "its pages, its indexes, rows and ranks without gaps"
        yield opened
        addresses = Checked("content addresses", "of every task, refused candidate and signal")
        addresses.blame(readable(pool.addresses()))
        yield addresses
        lineage = Checked("lineage", "every parent, signal, exploration, rollout and verdict named is there")
        lineage.blame(readable(pool.lineage()))
        yield lineage
        yield metrics(run, config, pool)
    if config is None:
        yield Checked("replay", "without the configuration no environment is known", skipped=True)
        return
    try:
        with pooled(config.environment) as environment:
            yield held_out(run, config, environment)
            yield replay(run, config, environment, console)
    except CoEvolveError as error:
        broken = Checked("environment")
        broken.blame([f"nothing was replayed: {error}"])
        yield broken

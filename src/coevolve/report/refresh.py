"""The report of a run under way: written again as the pool grows, and never in the way of training."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from coevolve.rundir import RunDirectory

SHARE = 0.02
"""Of training's time that refreshing may take; a refresh that would take more is put off to a later one."""
LARGEST = 128 * 2**20
"""Bytes of a pool from which the report waits for the end: writing it takes ten times that in memory, which
the process that trains does not have to spare."""
_GUESS = 1.0  # seconds, for the first


@dataclass
class Tally:
    """What became of the reports of one run, in ``stages.json`` under ``report``."""

    written: int = 0
    put_off: int = 0
    failed: int = 0
    seconds: float = 0.0
    complete: bool = False
    """The report of the finished run is there."""


class Refresher:
    """Writes ``report.html`` into a run's directory.

    A report that cannot be written is counted and said, and the run goes on: it can be written at any time
    by ``coevolve report``.

    Args:
        every: steps from one evolution to the next; 0 writes at the end only.
        say: told where the report lies, or why it could not be written.
        clock: seconds, rising.
    """

    def __init__(
        self,
        run: RunDirectory,
        every: int,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._run, self._every, self._say, self._clock = run, every, say, clock
        self._tally = Tally(**run.stages().get("report", {}))
        self._cost = _GUESS
        self._since = clock()

    def after(self, step: int, steps: int) -> None:
        """Refresh after this step, if the pool has grown and the time for it has been earned."""
        if not self._every or step % self._every or step >= steps:
            return
        early = self._cost > SHARE * (self._clock() - self._since)
        if early or self._run.pool.stat().st_size > LARGEST:
            self._tally.put_off += 1
            return
        self._write()

    @property
    def complete(self) -> bool:
        """Whether the report of the finished run has been written."""
        return self._tally.complete

    def reopen(self) -> None:
        """The run goes on: a report of its end, if there is one, is of an earlier end."""
        if self._tally.complete:
            self._tally.complete = False
            self._note()

    def finish(self) -> None:
        """The report of the finished run."""
        if self._write(last=True):
            self._say(f"report: {self._run.path / 'report.html'}")

    def _write(self, last: bool = False) -> bool:
        began = self._clock()
        try:
            from coevolve.report.page import write_report

            write_report([self._run.path])
            self._tally.written += 1
            self._tally.complete = last
            return True
        except Exception as error:  # whatever it is, training is worth more
            self._tally.failed += 1
            reason = " ".join(str(error).split()) or type(error).__name__
            self._say(f"the report could not be written ({reason}); the run goes on without it")
            return False
        finally:
            self._since = self._clock()
            self._cost = self._since - began
            self._tally.seconds = round(self._tally.seconds + self._cost, 3)
            self._note()

    def _note(self) -> None:
        try:
            self._run.finish_stage("report", asdict(self._tally))
        except OSError:  # the disk that could not take the report; the next note has this one's counts too
            self._say("and the run directory cannot be written at the moment")

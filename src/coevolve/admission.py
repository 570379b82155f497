"""Tasks from a file at the door of the pool: the screens and the replay of every candidate, and more.

An imported task is somebody's word: its world must be one of the environment's own train worlds
(invariant 4), its id that of its content, and it is judged by the pool's own verifier (invariant 3). Each
row stands alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from coevolve.environments.base import Environment
from coevolve.errors import InfrastructureError
from coevolve.evolution import PATIENCE, count_usage
from coevolve.llm.base import Ledger
from coevolve.pool import Pool
from coevolve.pool.portable import IMPORTED, Incoming
from coevolve.synthesize.base import Verifier
from coevolve.types import Candidate, Json, Split, Task, Verdict

SHOWN = 10
"""Refused rows of each reason that are kept for people; the pool has all that could be read."""
_SPLITS: tuple[Split, ...] = ("train", "dev", "test")
"""The last one wins: a world that stands in two of them is held out."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """One row that did not become a task."""

    place: str
    """``line 3``, or ``row 3`` of a Parquet file."""
    task: str
    """The task's id; '' where the row could not be read."""
    reason: str
    """As in :class:`Verdict`, or ``unreadable``, ``too_long``, ``altered``, ``wrong_environment``,
    ``unknown_world``."""
    detail: str


@dataclass(slots=True)
class Admission:
    """What came of an import."""

    admitted: int = 0
    known: int = 0
    """Rows whose very task the pool held already: neither admitted nor refused."""
    refused: Counter[str] = field(default_factory=Counter)
    """By reason."""
    shown: list[Refusal] = field(default_factory=list)
    """The first :data:`SHOWN` of each reason."""

    def refuse(self, row: Incoming, reason: str, detail: str) -> None:
        """Count a row that was refused."""
        self.refused[reason] += 1
        if self.refused[reason] <= SHOWN:
            task = row.candidate.task.id if row.candidate else ""
            self.shown.append(Refusal(row.place, task, reason, detail))

    def as_json(self) -> dict[str, Any]:
        """For a program."""
        rows = [asdict(one) for one in self.shown]
        return {"admitted": self.admitted, "known": self.known, "refused": dict(self.refused), "rows": rows}

    def lines(self) -> list[str]:
        """For people: the counts, then every reason with its first rows."""
        total = self.refused.total()
        told = [f"{self.admitted} tasks admitted, {self.known} already there, {total} refused"]
        for reason, count in sorted(self.refused.items()):
            told.append(f"refused: {reason} {count}")
            for one in self.shown:
                if one.reason == reason:
                    told.append(f"  {one.place}{f' (task {one.task})' if one.task else ''}: {one.detail}")
            if count > SHOWN:
                told.append(f"  and {count - SHOWN} more")
        return told


def admit(
    rows: Iterable[Incoming],
    environment: Environment,
    pool: Pool,
    verifier: Verifier,
    step: int = 0,
    source: str = "",
    progress: Callable[[int], None] | None = None,
) -> Admission:
    """Judge ``rows`` in order and write them into ``pool``, one transaction each.

    A task keeps its id, origin and exploration. Its verdict is a new one; where it came from, and the signal
    that its lineage names, are evidence under ``imported`` and fire nothing here. Counted in the pool:
    ``imports.admitted``, ``imports.known``, ``imports.refused.<reason>``.

    Args:
        step: at which they are admitted.
        source: a name for where they come from.
        progress: told the number of rows judged.

    Raises:
        InfrastructureError: the world, or whoever is asked, broke for :data:`PATIENCE` rows in a row; what
            was judged before is in the pool.
    """
    door, failures = _Door(environment, pool, verifier, step, source), 0
    for number, row in enumerate(rows, 1):
        with pool.transaction():
            reason = door.judge(row)
        failures = failures + 1 if reason == "infrastructure" else 0
        if failures == PATIENCE:
            raise InfrastructureError(
                f"the import stopped at {row.place}, where the world or whoever is asked was down for the "
                f"{PATIENCE}th time in a row ({door.last}); what was judged before is in the pool, and "
                "importing the file again goes on"
            )
        if progress is not None:
            progress(number)
    return door.found


class _Door:
    """One import under way."""

    def __init__(
        self, environment: Environment, pool: Pool, verifier: Verifier, step: int, source: str
    ) -> None:
        self.found = Admission()
        self.last = ""
        """What speaks against the row refused last."""
        self._environment = environment
        self._pool = pool
        self._verifier = verifier
        self._step = step
        self._source = source
        self._worlds = {world.key: split for split in _SPLITS for world in environment.worlds(split)}

    def judge(self, row: Incoming) -> str:
        """Judge one row and write it down; returns the reason it was refused for, or ''."""
        if row.candidate is None:
            return self._refuse(row, row.reason, row.detail)
        candidate = row.candidate
        if not row.reason and candidate.task in self._pool:
            self.found.known += 1
            self._pool.count("imports.known")
            return ""
        verdict = self._outright(row, candidate.task)
        told: dict[str, Json] = {"from": self._source, "signal": row.signal}
        if verdict is None:
            before = candidate.task.version
            if before not in ("", self._environment.version):
                told["version"] = before
            candidate = replace(candidate, task=replace(candidate.task, version=self._environment.version))
            verdict = self._verdict(candidate)
        detail = _told(verdict.evidence)
        verdict = replace(verdict, evidence={**verdict.evidence, IMPORTED: told})
        if not verdict.admitted:
            self._pool.refuse(candidate, verdict, self._step)
            return self._refuse(row, verdict.reason, detail)
        self._pool.add(candidate, verdict, self._step)
        self.found.admitted += 1
        self._pool.count("imports.admitted")
        return ""

    def _refuse(self, row: Incoming, reason: str, detail: str) -> str:
        self.found.refuse(row, reason, detail)
        self._pool.count(f"imports.refused.{reason}")
        self.last = detail
        return reason

    def _outright(self, row: Incoming, task: Task) -> Verdict | None:
        """What is refused without running anything of it."""
        if row.reason:
            return Verdict(False, row.reason, {"why": row.detail})
        here, world = self._environment.name, task.world
        if not task.environment == world.environment == here:
            there = ", ".join(sorted({task.environment, world.environment} - {here}))
            return Verdict(False, "wrong_environment", {"why": f"it is of {there:.60}, not of {here}"})
        split = self._worlds.get(replace(world, prefix=()).key)
        if split is None:
            why = f"{here} has no world {world.id!r:.60} with that start"
            return Verdict(False, "unknown_world", {"why": why})
        if split != "train" or world.split != "train":
            why = f"world {world.id!r:.60} is of the {split} split, the row says {world.split}"
            return Verdict(False, "wrong_split", {"why": why})
        return None

    def _verdict(self, candidate: Candidate) -> Verdict:
        """Replay and screens decide, and whoever else the verifier asks."""
        ledger = Ledger()
        try:
            return self._verifier.consult(candidate, ledger) or self._verifier.verify(candidate)
        except InfrastructureError as error:
            return Verdict(False, "infrastructure", {"why": str(error)})
        finally:
            count_usage(ledger, self._pool)


def _told(evidence: dict[str, Json]) -> str:
    """The evidence in a line, without the states of a whole replay."""
    if "why" in evidence:
        return str(evidence["why"])
    left = {key: value for key, value in evidence.items() if key != "states"}
    return ", ".join(f"{key} {value}" for key, value in left.items())[:300]

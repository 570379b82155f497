"""Kills a run at many moments and compares how it ends with a run that nobody killed (invariant 8).

``python tests/faults/kill.py --moments 50`` does so at full size; ``test_kill.py`` at a few moments.

The moments are spread by construction. Half of them are times: in turn over the stages, into one occurrence
of the stage, at a random share of the time that it took in the undisturbed run. The other half are ahead of
changes to the run's files, evenly over all that the undisturbed run made: every opened file, rename and
removal is a point at which something could be left half-done. With ``--workers`` the environment's worker
processes are killed instead, and the run must go on by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

sys.path.append(str(Path(__file__).parent.parent))
from small_run import (
    Shelf,
    assert_same_pool_and_weights,
    lines,
    make_policy,
    steps_of,
    surroundings,
    without_times,
    write_config,
)

STEPS = 6
SHAPE: dict[str, Any] = {
    "steps": STEPS,
    "evaluate": {"every": 4, "episodes": 8, "batch": 4},
    "evolve": {"every": 2, "tasks": 2},
    "checkpoint": {"every": 2, "keep": 2},
}
"""Three evolutions, three checkpoints, scores before, in between and after, one report."""

STAGES = (
    *("load", "tests", "D_0", "scores", "prepare", "rollout"),
    *("evolution", "update", "checkpoint", "summary", "report"),
)


@dataclass(frozen=True)
class Moment:
    """When to kill: at a share of the n-th occurrence of a stage, or ahead of the n-th change to a file."""

    stage: str
    number: int
    share: float = 0.0

    def __str__(self) -> str:
        where = f"{self.stage} {self.number}"
        return where if self.stage == "file" else f"{where} at {self.share:.0%}"


@dataclass
class Timeline:
    """What an undisturbed run announced: seconds of each occurrence of each stage, and changes to files."""

    stages: dict[str, list[float]] = field(default_factory=dict)
    files: int = 0


@dataclass
class Ended:
    """How one process ended, and the stage that it was in."""

    status: int
    stage: str
    said: str


class Nursery:
    """Runs from ``nursery.py``, one at a time."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "said.txt"
        self._read, write = os.pipe()
        self._server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py")), str(write)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=(write,),
            env=surroundings(),
        )
        os.close(write)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server.stdin is not None and self._server.stdout is not None
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()
        os.close(self._read)

    def run(
        self,
        *words: object,
        timeline: Timeline | None = None,
        kill: tuple[Moment, float] | None = None,
        on: Callable[[int, str, int], None] | None = None,
    ) -> Ended:
        """One command to its end.

        Args:
            timeline: filled with what it announces.
            kill: a moment and how many seconds the stage takes.
            on: told the process, a stage and its number whenever one begins.
        """
        assert self._server.stdin is not None and self._server.stdout is not None
        self._log.write_bytes(b"")
        moment, seconds = kill if kill is not None else (None, 0.0)
        at_file = moment.number if moment is not None and moment.stage == "file" else None
        print(
            json.dumps([str(self._log), [str(word) for word in words], at_file]),
            file=self._server.stdin,
            flush=True,
        )
        process = int(self._server.stdout.readline())
        open_stages, seen, began = ["between stages"], Counter[str](), dict[str, float]()
        due: float | None = None
        rest = b""
        deadline = time.monotonic() + 600
        while True:
            now = time.monotonic()
            if due is not None and now >= due:
                os.kill(process, signal.SIGKILL)
                due = None
            wait = 0.2 if due is None else max(0.0, min(0.2, due - now))
            ready, _, _ = select.select([self._read, self._server.stdout], [], [], wait)
            if self._read in ready:
                *texts, rest = (rest + os.read(self._read, 65536)).split(b"\n")
                for text in map(bytes.decode, texts):
                    stage = text[1:]
                    if text == ".":
                        if timeline is not None:
                            timeline.files += 1
                    elif text[0] == "+":
                        open_stages.append(stage)
                        seen[stage] += 1
                        began[stage] = time.monotonic()
                        if moment is not None and (stage, seen[stage]) == (moment.stage, moment.number):
                            due = began[stage] + moment.share * seconds
                        if on is not None:
                            on(process, stage, seen[stage])
                    elif stage in open_stages:
                        open_stages.remove(stage)
                        if timeline is not None:
                            spent = time.monotonic() - began[stage]
                            timeline.stages.setdefault(stage, []).append(spent)
            elif self._server.stdout in ready:
                status = int(self._server.stdout.readline())
                return Ended(status, open_stages[-1], self._log.read_text(errors="replace"))
            if time.monotonic() > deadline:
                os.kill(process, signal.SIGKILL)
                raise AssertionError(f"the run did not end: {self._log.read_text(errors='replace')[-2000:]}")


def make_config(folder: Path, **changes: Any) -> Path:
    """A taught policy and the configuration of the small run."""
    from coevolve.environments.toolbox import ToolboxEnvironment

    make_policy(folder / "policy", ToolboxEnvironment(Shelf), taught=100)
    return write_config(folder / "shelf.yaml", folder / "policy", **{**SHAPE, **changes})


def moments(timeline: Timeline, number: int, seed: int = 0) -> list[tuple[Moment, float]]:
    """Half of them times, in turn over the stages; half of them evenly over the changes to files."""
    rng = random.Random(f"{seed}/moments")
    by_time = number - number // 2
    found: list[tuple[Moment, float]] = []
    order = list(STAGES)
    rng.shuffle(order)
    for at in range(by_time):
        stage = order[at % len(order)]
        spans = timeline.stages[stage]
        occurrence = rng.randrange(len(spans))
        found.append((Moment(stage, occurrence + 1, rng.random()), spans[occurrence]))
    for at in range(number // 2):
        low, high = (timeline.files * part // (number // 2) for part in (at, at + 1))
        found.append((Moment("file", rng.randrange(low, high) + 1), 0.0))
    return found


def assert_same_end(one: Path, two: Path) -> None:
    """Pool, counters, weights, logs, sealed tests and summary are equal, apart from times."""
    from coevolve.pool import Pool

    assert_same_pool_and_weights(one, two, STEPS)
    with Pool.read_only(one / "pool.db") as first, Pool.read_only(two / "pool.db") as second:
        assert without_times(first.counters()) == without_times(second.counters())
    assert steps_of(one) == steps_of(two)
    scores = [without_times(lines(run / "evaluations.jsonl")) for run in (one, two)]
    assert scores[0] == scores[1]
    summaries = [json.loads((run / "summary.json").read_text()) for run in (one, two)]
    assert without_times(summaries[0]) == without_times(summaries[1])
    stages = [json.loads((run / "stages.json").read_text()) for run in (one, two)]
    for name in ("sealed", "before"):
        assert stages[0][name] == stages[1][name], name
    assert (two / "report.html").read_text().count("</html>") == 1
    assert not list(two.rglob("*.part")) and not list(two.rglob("*.partial"))
    assert [path.name for path in sorted((two / "checkpoints").iterdir())] == [
        path.name for path in sorted((one / "checkpoints").iterdir())
    ]


def kill_and_go_on(
    nursery: Nursery, config: Path, straight: Path, out: Path, kill: tuple[Moment, float]
) -> tuple[str, bool]:
    """Kill a run at a moment, start it again with the same command, and compare.

    Returns:
        the stage in which it was killed, and whether it was killed at all before it had ended.
    """
    ended = nursery.run("run", config, "--out", out, kill=kill)
    killed = ended.status == -signal.SIGKILL
    assert killed or ended.status == 0, f"{kill[0]}: {ended.said[-3000:]}"
    if killed:
        again = nursery.run("run", config, "--out", out)
        assert again.status == 0, f"{kill[0]}, in {ended.stage}: {again.said[-3000:]}"
    assert_same_end(straight, out)
    return ended.stage, killed


def workers_of(process: int) -> list[int]:
    """Process ids of the environment workers of a run."""
    found = []
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        command = Path(f"/proc/{child}/cmdline").read_bytes()
        if b"worker_process" in command:
            found.append(int(child))
    return found


def kill_workers(
    nursery: Nursery, config: Path, straight: Path, out: Path, places: Sequence[tuple[str, int]], workers: int
) -> int:
    """One run in which workers are killed, in turn, as the stages of ``places`` begin; how many were."""
    killed = 0

    def on(process: int, stage: str, number: int) -> None:
        nonlocal killed
        there = workers_of(process)
        if (stage, number) in places and there:
            os.kill(there[killed % len(there)], signal.SIGKILL)
            killed += 1

    ended = nursery.run("run", config, "--out", out, "--set", f"environment.workers={workers}", on=on)
    assert ended.status == 0, ended.said[-3000:]
    assert_same_end(straight, out)
    return killed


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--workers", type=int, default=2, help="environment workers; 0 kills none")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="write the figures here")
    chosen = parser.parse_args(words)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name, Nursery(Path(name)) as nursery:
        folder = Path(name)
        config, straight, timeline = make_config(folder), folder / "straight", Timeline()
        undisturbed = nursery.run("run", config, "--out", straight, timeline=timeline)
        assert undisturbed.status == 0, undisturbed.said[-3000:]
        stages, equal, late, broken = Counter[str](), 0, 0, list[str]()
        for kill in moments(timeline, chosen.moments, chosen.seed):
            out = folder / "run"
            try:
                stage, killed = kill_and_go_on(nursery, config, straight, out, kill)
                stages[stage] += 1
                equal += killed
                late += not killed
                print(f"{kill[0]}: killed in {stage}" if killed else f"{kill[0]}: had ended", flush=True)
            except AssertionError as error:
                broken.append(f"{kill[0]}: {str(error)[:500]}")
                print(f"BROKEN {broken[-1]}", flush=True)
                shutil.copytree(out, Path.cwd() / f"broken-{len(broken)}", dirs_exist_ok=True)
            shutil.rmtree(out, ignore_errors=True)
        workers = 0
        if chosen.workers:
            # Each stage with sessions in it, early and late.
            spread = ("D_0", "scores", "rollout", "evolution")
            places = [(s, n) for s in spread for n in {1, len(timeline.stages[s])}]
            workers = kill_workers(nursery, config, straight, folder / "run", places, chosen.workers)
    figures = {
        "moments": chosen.moments,
        "killed": equal + len(broken),
        "ended_before": late,
        "equal": equal,
        "broken": broken,
        "by_stage": dict(sorted(stages.items())),
        "files": timeline.files,
        "worker_kills": workers,
        "seconds": round(time.monotonic() - began),
    }
    print(json.dumps(figures, indent=2))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())

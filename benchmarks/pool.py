"""What a rollout costs to record, and a draw, as the pool grows. To reach: flat.

    python benchmarks/pool.py [--attempts 1000000] [--tasks 100000]

A rollout is recorded as in training: groups of eight are stored as attempts, the three signals look
at them, and what fires is stored with its evidence. Rollouts are made by hand, two to four calls
long, half of them failed, one in fifty invalid: no policy and no world is timed here. Times are
processor time of this process, user and system, so that a busy machine does not blur them; the last
column is the wall time of recording as a whole, waits for the disk included.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from coevolve.config import SignalsConfig
from coevolve.pool import Pool, Uniform
from coevolve.signals import build
from coevolve.types import (
    Group,
    Observation,
    Origin,
    Outcome,
    Rollout,
    Step,
    StopReason,
    Task,
    ToolCall,
    Verdict,
    World,
)

TOOLS = [f"tool_{n}" for n in range(128)]
OFFERED = 28  # tools of a world, as in BFCL
GROUP, GROUPS = 8, 32  # rollouts of a task, tasks of a step
WINDOW = 12_800  # rollouts timed at each size


def a_task(n: int) -> Task:
    rng = random.Random(f"task/{n}")
    first = rng.randrange(len(TOOLS) - OFFERED)
    calls = tuple(ToolCall(rng.choice(TOOLS[first : first + OFFERED]), {"a": n, "b": "x"}) for _ in range(3))
    world = World("bench", str(first), "train", {"number": first})
    return Task("bench", "1", world, (f"Please do number {n}.",), (calls,), Origin("unguided"))


def offered(world: World) -> list[str]:
    first = int(world.id)
    return TOOLS[first : first + OFFERED]


def a_rollout(task: Task, rng: random.Random) -> Rollout:
    names = offered(task.world)
    calls = tuple(ToolCall(rng.choice(names), {"a": rng.randrange(99)}) for _ in range(rng.randint(2, 4)))
    seen = tuple(Observation('{"status": "done, as asked"}', {"status": "done, as asked"}) for _ in calls)
    solved, invalid = rng.random() < 0.5, rng.random() < 0.02
    outcome = Outcome.INVALID if invalid else Outcome.SOLVED if solved else Outcome.FAILED
    steps = (Step(0, "calls", calls, seen),)
    return Rollout(task.id, steps, outcome, float(solved and not invalid), StopReason.FINISHED)


def filled(path: Path, tasks: int) -> Pool:
    pool = Pool.open(path)
    with pool.transaction():
        for n in range(tasks):
            pool.add(a_task(n), Verdict(True, "admitted"), 0)
    return pool


def recording(path: Path, sizes: list[int]) -> Iterator[tuple[int, float, float, float, float, float]]:
    """(attempts, µs per rollout of pool and of signals, signals per rollout, MB, wall µs), by size."""
    pool, detectors, rng = filled(path, 1000), build(SignalsConfig(), offered), random.Random(0)
    done = step = 0
    times: list[tuple[int, float, float, int, float]] = []
    for size in sizes:
        while done < size:
            step += 1
            drawn = Uniform().draw(pool, min(GROUPS, -(-(size - done) // GROUP)), rng, step)
            groups = [Group(task, tuple(a_rollout(task, rng) for _ in range(GROUP))) for task in drawn]
            clock, begun = time.perf_counter(), time.process_time()
            signals = [signal for detector in detectors for signal in detector.observe(step, groups)]
            watched = time.process_time()
            with pool.transaction():
                pool.record_groups(step, groups)
                pool.record_signals(step, signals)
            ended = time.process_time()
            wall = time.perf_counter() - clock
            rollouts = len(groups) * GROUP
            times.append((rollouts, ended - watched, watched - begun, len(signals), wall))
            done += rollouts
        last = times[-(WINDOW // (GROUP * GROUPS)) :]
        counts, stored, watching, fired, walls = (sum(column) for column in zip(*last))
        megabytes = path.stat().st_size / 1e6
        yield (
            done,
            1e6 * stored / counts,
            1e6 * watching / counts,
            fired / counts,
            megabytes,
            1e6 * walls / counts,
        )
    pool.close()


def drawing(folder: Path, sizes: list[int]) -> Iterator[tuple[int, float]]:
    """(tasks in the pool, µs per drawn task)."""
    for size in sizes:
        with filled(folder / f"draw-{size}.db", size) as pool:
            rounds = 200
            begun = time.process_time()
            for n in range(rounds):
                Uniform().draw(pool, GROUPS, random.Random(f"0/draw/{n}"), 0)
            yield size, 1e6 * (time.process_time() - begun) / rounds / GROUPS


def powers(first: int, last: int, factor: int) -> list[int]:
    sizes = [first]
    while sizes[-1] * factor <= last:
        sizes.append(sizes[-1] * factor)
    return sizes if sizes[-1] == last else [*sizes, last]


def main() -> None:
    parser = argparse.ArgumentParser(description="Cost per recorded rollout and per draw as the pool grows.")
    parser.add_argument("--attempts", type=int, default=1_000_000, help="Attempts recorded, at most.")
    parser.add_argument("--tasks", type=int, default=100_000, help="Tasks in the pool, at most.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print("| tasks in the pool | draw, µs per task |\n|---|---|")
        for size, each in drawing(Path(folder), powers(100, options.tasks, 10)):
            print(f"| {size:,} | {each:.0f} |", flush=True)
        print(f"\nRecording, mean of the last {WINDOW:,} rollouts at most, 1,000 tasks in the pool")
        print("(the rare signal's window of 20 steps is full from 5,120 rollouts on):\n")
        columns = (
            "attempts",
            "pool, µs per rollout",
            "signals, µs per rollout",
            "fired per rollout",
            "MB",
            "wall, µs",
        )
        print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
        sizes = powers(1000, options.attempts, 10)
        for done, stored, watched, fired, size_mb, wall in recording(Path(folder) / "record.db", sizes):
            figures = f"{stored:.0f} | {watched:.0f} | {fired:.2f} | {size_mb:.1f} | {wall:.0f}"
            print(f"| {done:,} | {figures} |", flush=True)


if __name__ == "__main__":
    main()

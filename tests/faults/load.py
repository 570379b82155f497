"""Attack 8, load: a pool of many tasks and attempts, many sessions, many steps. With figures.

``python tests/faults/load.py pool --tasks 1000000 --attempts 10000000`` builds such a pool, takes it up again
in a fresh process, and tells what a step then costs: instructions of SQLite's machine, bytes, seconds.
``python tests/faults/load.py train --steps 500`` trains the smallest policy and watches its process from
outside. The tests run the same at sizes that take seconds.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent.parent))
from shelf_run import acted

from coevolve.config import EvolveConfig, ExploreConfig, SignalsConfig
from coevolve.environments.base import Environment
from coevolve.environments.toolbox import ToolboxEnvironment
from coevolve.explore.scripted import ScriptedExplorer
from coevolve.loop import CoEvolution
from coevolve.pool import Pool
from coevolve.types import Candidate, Observation, Origin, Task, ToolCall, Triplet, Verdict
from small_run import Shelf, command, make_policy, surroundings, write_config

COLOURS = ("red", "green", "blue", "white")
EVERY = 5
"""Steps between evolutions."""
DRAWN = 16
"""Tasks of a step; four rollouts of each."""


# A large pool


def a_loop(pool: Pool, environment: Environment) -> CoEvolution:
    """As a trainer of one's own has it, with every signal of the paper."""
    return CoEvolution(
        environment,
        pool,
        SignalsConfig(),
        ScriptedExplorer(environment, ExploreConfig(calls=4)),
        evolve=EvolveConfig(every=EVERY, tasks=3, attempts=2),
    )


def tasks(environment: Environment, count: int) -> Iterator[Task]:
    """Different tasks in the shelf's train worlds; they need not replay, for nobody asks them to here."""
    worlds = environment.worlds("train")
    for n in range(count):
        rng = random.Random(n)
        calls = tuple(
            ToolCall(rng.choice(("add_box", "write_label")), {"kind": rng.choice(COLOURS)}) for _ in "ab"
        )
        text = f"Order {n} of {n * 7919 % 10007}: " + " ".join(rng.choices(WORDS, k=12))
        origin = Origin("unguided", explorer="scripted")
        yield Task(environment.name, environment.version, worlds[n % len(worlds)], (text,), (calls,), origin)


WORDS = (*"abcdefghij", "box", "colour", "order", "shelf", "label", "count", "please", "then")


def build(folder: Path, count: int, attempts: int) -> dict[str, Any]:
    """The loop's part of a checkpoint: a pool of so many tasks and attempts, and the state with it."""
    begun = time.perf_counter()
    environment = ToolboxEnvironment(Shelf)
    seen = (Triplet("0", ToolCall("add_box", {"kind": "red"}), Observation("4 red"), "1"),)
    verdict = Verdict(True, "admitted", {"observations": ["4 red"], "states": ["0", "1"]}, 0.01)
    with Pool.open(folder / "work.db") as pool:
        with pool.transaction():
            for task in tasks(environment, count):
                pool.add(Candidate(task, seen), verdict, 0)
            rows = (
                (n % count + 1, n // 64 + 1, ("solved", "failed")[n % 3 == 0], n % 3 > 0)
                for n in range(attempts)
            )
            pool._db.executemany(
                "INSERT INTO attempts(task, step, outcome, reward) VALUES (?, ?, ?, ?)", rows
            )
            pool._db.execute("UPDATE tasks SET groups = 3, last = 0.5, scores = '[1.0,0.5,0.75]'")
        loop = a_loop(pool, environment)
        state = loop.state_dict()
        state["step"] = attempts // 64 + 1
        loop.save_state(folder)
    (folder / "work.db").unlink()
    (folder / "state.json").write_text(json.dumps(state))
    return {"build_seconds": time.perf_counter() - begun, "pool_bytes": (folder / "pool.db").stat().st_size}


def resume(folder: Path, steps: int) -> dict[str, Any]:
    """Take the checkpoint up in this process, go on for ``steps``, and say what that cost."""
    environment = ToolboxEnvironment(Shelf)
    with Pool.open(":memory:") as pool:  # everything is imported and warm before the first measurement
        warm = a_loop(pool, environment)
        warm.populate(4)
        warm.observe(1, [acted(environment, task, random.Random(0)) for task in warm.draw(4)])
    before, begun = resident(), time.perf_counter()
    with Pool.open(folder / "live.db") as pool:
        loop = a_loop(pool, environment)
        loop.load_state(folder)
        state = json.loads((folder / "state.json").read_text())
        loop.load_state_dict(state)
        told: dict[str, Any] = {
            "resume_seconds": time.perf_counter() - begun,
            "resume_bytes": resident() - before,
        }
        costs: dict[str, list[Cost]] = {"draw": [], "observe": [], "evolve": [], "metrics": []}
        rng = random.Random("load")
        for step in range(state["step"] + 1, state["step"] + 1 + steps):
            with cost(pool, costs["draw"]):
                drawn = loop.draw(DRAWN)
            groups = [acted(environment, task, rng) for task in drawn]
            with cost(pool, costs["evolve" if step % EVERY == 0 else "observe"]):
                loop.observe(step, groups)
            with cost(pool, costs["metrics"]):
                loop.metrics()
        told["state_bytes"] = len(json.dumps(loop.state_dict()))
        told["tasks"], told["live_bytes"] = len(pool), resident() - before
    for name, found in costs.items():
        told[f"{name}_instructions"] = statistics.median(one.instructions for one in found)
        told[f"{name}_seconds"] = statistics.median(one.seconds for one in found)
    return told


@dataclass(frozen=True, slots=True)
class Cost:
    """Of one call."""

    instructions: int
    """Of SQLite's virtual machine: what a query costs, whatever the machine and whoever else is on it."""
    seconds: float


@contextmanager
def cost(pool: Pool, into: list[Cost]) -> Iterator[None]:
    ticks = 0

    def tick() -> int:
        nonlocal ticks
        ticks += 1
        return 0

    pool._db.set_progress_handler(tick, 10)
    begun = time.perf_counter()
    try:
        yield
    finally:
        pool._db.set_progress_handler(None, 0)
    into.append(Cost(10 * ticks, time.perf_counter() - begun))


def in_a_process(*words: object) -> dict[str, Any]:
    """One of this file's commands in a fresh process; its figures."""
    line = [sys.executable, __file__, *map(str, words)]
    done = subprocess.run(line, capture_output=True, text=True, check=True, env=surroundings())
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def large_pool(count: int, attempts: int, steps: int, folder: Path) -> dict[str, Any]:
    """Build it here, and resume in a fresh process, whose memory holds nothing else."""
    told = {"tasks": count, "attempts": attempts, **build(folder, count, attempts)}
    return told | in_a_process("resume", "--folder", folder, "--steps", steps)


# A long run


@dataclass(frozen=True, slots=True)
class Seen:
    """A process, and all that it started, at one moment."""

    step: int
    bytes: int
    """Resident, of the process itself."""
    handles: int
    threads: int
    processes: int
    """Its descendants."""


def train(folder: Path, steps: int, workers: int = 1, **changes: Any) -> list[Seen]:
    """A run of the smallest policy, seen from outside at every step that it has measured."""
    policy, out = folder / "policy", folder / "run"
    make_policy(policy, ToolboxEnvironment(Shelf), taught=40)
    sections = {"evolve": {"every": 5, "tasks": 2}, "checkpoint": {"every": 5}, "pool": {"initial": 8}}
    environment = {"environment": {"workers": workers}}
    config = write_config(folder / "run.yaml", policy, steps=steps, **{**sections, **environment, **changes})
    process = subprocess.Popen(
        command("run", config, "--out", out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=surroundings(),
        text=True,
    )
    found: list[Seen] = []
    log, done = out / "metrics.jsonl", 0
    while process.poll() is None:
        lines = log.read_bytes().count(b"\n") if log.exists() else 0
        if lines > done:
            done = lines
            if (now := seen(process.pid, lines)) is not None:
                found.append(now)
        time.sleep(0.02)
    assert process.stderr is not None
    said = process.stderr.read()
    assert process.returncode == 0, said
    return found


def seen(pid: int, step: int) -> Seen | None:
    """None if it has just ended."""
    home = Path("/proc") / str(pid)
    try:
        return Seen(
            step,
            resident(pid),
            len(list((home / "fd").iterdir())),
            len(list((home / "task").iterdir())),
            len(descendants(pid)),
        )
    except (FileNotFoundError, ProcessLookupError):
        return None


def resident(pid: int | str = "self") -> int:
    """Bytes of memory in use by a process."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(pid)


def handles(pid: int | str = "self") -> int:
    """Open files of a process."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def descendants(pid: int) -> list[int]:
    """Processes that it started, and those that they started."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


def growth(found: Sequence[Seen], warm: int) -> dict[str, float]:
    """What has come to a process between step ``warm`` and its end, each by the medians of as many steps."""
    late = [one for one in found if one.step > warm]
    quarter = max(3, len(late) // 4)
    early, last = late[:quarter], late[-quarter:]

    def more(name: str) -> float:
        return statistics.median(getattr(s, name) for s in last) - statistics.median(
            getattr(s, name) for s in early
        )

    steps = more("step")
    told = {f"{name}_more": more(name) for name in ("bytes", "handles", "threads", "processes")}
    return {"steps": steps, **told, "bytes_a_step": told["bytes_more"] / max(1, steps)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["pool", "train", "resume"])
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--steps", type=int, default=0, help="after resuming (20), or of training (500)")
    parser.add_argument("--folder", type=Path, help="where the pool is kept; a temporary one by default")
    given = parser.parse_args()
    if given.what == "resume":
        told: Any = resume(given.folder, given.steps or 20)
    else:
        with tempfile.TemporaryDirectory(prefix="coevolve-load-", dir=given.folder) as folder:
            if given.what == "pool":
                told = large_pool(given.tasks, given.attempts, given.steps or 20, Path(folder))
            else:
                found = train(Path(folder), given.steps or 500)
                told = growth(found, warm=len(found) // 10)
    print(json.dumps(told, indent=None if given.what == "resume" else 2))


if __name__ == "__main__":
    main()

"""Several training processes on this machine from one command: this one leads, the others follow it.

On several machines, or with DeepSpeed, a launcher such as ``accelerate launch`` starts them instead.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from coevolve.disk import insist_on_disk
from coevolve.errors import CoEvolveError, ConfigError, TrainingError
from coevolve.rundir import make_folder

_FOLLOWS = "COEVOLVE_FOLLOWS"
"""Set in a follower: its standard input is a pipe that closes when its leader is gone, however it went."""


@contextmanager
def together(processes: int, arguments: Sequence[str], logs: Path) -> Iterator[None]:
    """Make this process the first of ``processes``, each running the same command line.

    Args:
        arguments: The command line without the program.
        logs: What follower ``n`` prints goes to ``process-n.log`` in this folder.

    Raises:
        ConfigError: another launcher has started this process already.
        RunError: ``logs`` cannot be written.
        TrainingError: training broke off because a follower ended.
    """
    if processes == 1 or (_FOLLOWS in os.environ and "RANK" in os.environ):
        yield
        return
    if "WORLD_SIZE" in os.environ:
        raise ConfigError("a launcher has started this process already; leave --processes out")
    shared = {
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        # More threads than cores are far slower, not faster; train.threads has the last word on torch's own.
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // processes))),
    }
    make_folder(logs)
    before = dict(os.environ)
    followers: list[subprocess.Popen[bytes]] = []
    with ExitStack() as files:
        try:
            for rank in range(1, processes):
                with insist_on_disk(logs):
                    log = files.enter_context((logs / f"process-{rank}.log").open("ab"))
                place = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
                followers.append(follower(arguments, log, place))
            os.environ.update(shared, RANK="0", LOCAL_RANK="0")
            yield
            for one in followers:
                one.wait()
        except (CoEvolveError, KeyboardInterrupt):
            raise
        except Exception as error:
            raise _explained(error, followers, logs) from error
        finally:
            os.environ.clear()
            os.environ.update(before)
            for one in followers:
                one.kill()
                one.communicate()


def follower(arguments: Sequence[str], log: IO[bytes], changes: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start ``coevolve`` once more; it ends when this process does, however that may happen.

    Args:
        log: takes what it prints.
        changes: to its environment variables.
    """
    return subprocess.Popen(
        [sys.executable, "-m", "coevolve", *arguments],
        env={**os.environ, **changes, _FOLLOWS: "1"},
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
    )


def follow_leader() -> None:
    """In a follower: end with the leader, even if that was killed. Elsewhere nothing."""
    if _FOLLOWS in os.environ:
        threading.Thread(target=_wait_for_leader, daemon=True).start()


def _wait_for_leader() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)


def _explained(error: Exception, followers: Sequence[subprocess.Popen[bytes]], logs: Path) -> Exception:
    """What a broken connection means, if a follower is gone; else the error as it is."""
    for rank, one in enumerate(followers, 1):
        try:
            code = one.wait(timeout=5)
        except subprocess.TimeoutExpired:
            continue
        return TrainingError(
            f"training process {rank} ended with code {code} ({logs / f'process-{rank}.log'} has what it "
            "said); the same command goes on from the last checkpoint"
        )
    return error


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

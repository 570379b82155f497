"""Starts runs that can be killed, and says through a pipe which stage each one has come to.

``python nursery.py PIPE`` loads the libraries once and then forks one process per run: every run is a
process of its own that SIGKILL ends like any other, without the seconds that loading takes. Each line on
standard input is a JSON list: a log file and the words of a ``coevolve`` command; the answers are the
process id, and in the end the exit status.

The run's own functions are the marks: one announces itself as it begins and as it ends, and does what it
always does in between.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"})


class Marks:
    """Writes to the pipe: ``+stage``, ``-stage``, and ``.`` before each change to a file of the run."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe
        self.kill_at: int | None = None
        """The process kills itself ahead of this change to its files, the first being 1."""
        self._changes = 0

    def say(self, text: str) -> None:
        os.write(self._pipe, f"{text}\n".encode())

    def around(self, place: Any, name: str, stage: str) -> None:
        """Have a function announce when it begins and when it is done."""
        inner: Callable[..., Any] = getattr(place, name)

        @functools.wraps(inner)
        def announced(*values: Any, **named: Any) -> Any:
            self.say(f"+{stage}")
            try:
                return inner(*values, **named)
            finally:
                self.say(f"-{stage}")

        setattr(place, name, announced)

    def between(self, place: Any, first: str, last: str, stage: str) -> None:
        """The stage from the end of one method to the beginning of another."""
        one, other = getattr(place, first), getattr(place, last)

        @functools.wraps(one)
        def opened(*values: Any, **named: Any) -> Any:
            result = one(*values, **named)
            self.say(f"+{stage}")
            return result

        @functools.wraps(other)
        def closed(*values: Any, **named: Any) -> Any:
            self.say(f"-{stage}")
            return other(*values, **named)

        setattr(place, first, opened)
        setattr(place, last, closed)

    def watch_files(self, folder: str) -> None:
        """Count the changes that this process is about to make below ``folder``."""

        def hook(event: str, values: tuple[Any, ...]) -> None:
            if event == "open":
                changes = isinstance(values[2], int) and bool(
                    values[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
                )
            else:
                changes = event in CHANGES
            if changes and str(values[0]).startswith(folder):
                self._changes += 1
                if self._changes == self.kill_at:
                    os.kill(os.getpid(), 9)
                self.say(".")

        sys.addaudithook(hook)


def announce_stages(marks: Marks) -> None:
    import coevolve.run
    from coevolve.growing import Grower
    from coevolve.loop import CoEvolution
    from coevolve.report.refresh import Refresher
    from coevolve.training.trl import TrlEngine
    from coevolve.training.trl_trainer import LoopTrainer

    marks.around(coevolve.run, "load_engine", "load")
    marks.around(coevolve.run, "seal", "tests")
    marks.around(CoEvolution, "populate", "D_0")
    marks.around(coevolve.run, "_score", "scores")
    marks.around(TrlEngine, "_prepare", "prepare")
    marks.around(LoopTrainer, "sample_step", "rollout")
    marks.around(Grower, "evolve", "evolution")
    marks.between(LoopTrainer, "_generate_and_score_completions", "log", "update")
    marks.around(LoopTrainer, "_save_checkpoint", "checkpoint")
    marks.around(coevolve.run, "summarise", "summary")
    marks.around(Refresher, "finish", "report")


def run(marks: Marks, log: str, words: list[str], kill_at: int | None) -> None:
    """In the forked process: the command, its output in a file, and the end."""
    from coevolve.cli import main

    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = ["coevolve", *words]
    marks.kill_at = kill_at
    marks.watch_files(words[words.index("--out") + 1])
    status = 0
    try:
        main()
    except SystemExit as ended:
        status = int(ended.code or 0)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def serve(pipe: int) -> None:
    marks = Marks(pipe)
    import trl.trainer.grpo_trainer  # noqa: F401

    import coevolve.report.page  # noqa: F401

    announce_stages(marks)
    for line in sys.stdin:
        log, words, kill_at = json.loads(line)
        process = os.fork()
        if not process:
            run(marks, log, words, kill_at)
        print(process, flush=True)
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve(int(sys.argv[1]))

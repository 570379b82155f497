"""An environment as a user would write it, in one file, whose tools do to their process what none should."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

MEGABYTE = 1 << 20
COUNTED = itertools.count()


class Corner:
    """A counter, a list of notes, and one tool for each kind of harm."""

    worlds = {  # noqa: RUF012
        "train": {"one": 1, "two": 2, "three": 3, "four": 4},
        "test": {"five": 5},
        "dev": {"six": 6},
    }

    def __init__(self, start: int) -> None:
        self.value = start
        self.notes: list[str] = []
        self._held: list[bytes] = []

    # what is as it should be

    def add(self, number: int) -> int:
        """Add a number to the counter.

        Args:
            number: What to add.
        """
        self.value += number
        return self.value

    def note(self, text: str) -> str:
        """Write something down."""
        self.notes.append(text)
        return f"{len(self.notes)} notes"

    def read(self) -> dict[str, int]:
        """Read the counter."""
        return {"value": self.value}

    # what is not

    def sleep(self) -> None:
        """Sleep for ever."""
        time.sleep(3600)

    def swallow(self) -> None:
        """Take all memory there is."""
        while True:
            self._held.append(b"." * (8 * MEGABYTE))

    def fail(self) -> None:
        """Raise an error."""
        raise ValueError("it did not work")

    def recite(self) -> str:
        """Answer a megabyte."""
        return "la " * 350_000

    def exit(self) -> None:
        """End the process."""
        print("last words", flush=True)
        os._exit(3)


class Rehearsal(Corner):
    """The same tools and none that harms: where a policy learns to call them."""

    def sleep(self) -> None:
        """Sleep for ever."""

    def swallow(self) -> None:
        """Take all memory there is."""

    def fail(self) -> None:
        """Raise an error."""

    def exit(self) -> None:
        """End the process."""


class Workshop(Corner):
    """The same, and all the other tools that break things."""

    # calls that never return

    def freeze(self) -> None:
        """Stop the whole process."""
        os.kill(os.getpid(), signal.SIGSTOP)

    def delegate(self, file: str) -> None:
        """Wait for ever for a process of its own, whose number it writes down."""
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3600)"]) as child:
            Path(file).write_text(str(child.pid))

    # calls that eat memory

    def crumble(self) -> int:
        """Take all memory there is, in many small pieces."""
        pieces: list[object] = []
        while True:
            pieces.append([len(pieces)] * 1000)

    def hold(self, megabytes: int) -> int:
        """Take some memory and keep it."""
        self._held.append(b"." * (megabytes * MEGABYTE))
        return len(self._held)

    def borrow(self, megabytes: int) -> int:
        """Take some memory for the time of the call."""
        return len(b"." * (megabytes * MEGABYTE))

    # calls that raise

    def fail_at_length(self) -> None:
        """Raise an error of a megabyte."""
        raise ValueError("sorry " * 200_000)

    def fail_oddly(self) -> None:
        """Raise an error that cannot say what it is and cannot be copied."""
        raise OddError("one", threading.Lock())

    def give_up(self) -> None:
        """Raise what is no ordinary error."""
        raise asyncio.CancelledError

    def leave(self) -> None:
        """Leave the program."""
        sys.exit("good bye")

    # calls that print, and answer, too much

    def shout(self) -> str:
        """Print a megabyte, three ways."""
        print("A" * MEGABYTE)
        print("B" * MEGABYTE, file=sys.stderr)
        os.write(1, b"C" * MEGABYTE)
        return "quiet now"

    def drown(self) -> dict[str, list[str]]:
        """Answer four megabytes of data."""
        return {"lines": ["0123456789abcdef" * 64] * 4_000}

    def mumble(self) -> str:
        """Answer half a character and control characters."""
        return "a\ud800b\x00\x1b[2J"

    def dig(self) -> object:
        """Answer something that contains itself ten thousand times over."""
        deep: list[object] = []
        for _ in range(10_000):
            deep = [deep]
        return deep

    # calls that end their process

    def crash(self) -> None:
        """Crash the process."""
        os.kill(os.getpid(), signal.SIGSEGV)

    def be_killed(self) -> None:
        """Have the process killed, as a machine without memory does."""
        os.kill(os.getpid(), signal.SIGKILL)

    def split(self) -> int:
        """Come back twice, in two processes."""
        return os.fork()

    def hang_up(self) -> None:
        """Close every file of the process."""
        os.closerange(3, 256)


class OddError(Exception):
    def __init__(self, first: str, second: object) -> None:
        super().__init__(f"{first}{second}")
        self.second = second

    def __str__(self) -> str:
        raise RuntimeError("no words")


class Lottery:
    """A world in which nothing happens twice."""

    worlds = {"train": {"one": 1, "two": 2, "three": 3}, "test": {"four": 4}, "dev": {"five": 5}}  # noqa: RUF012

    def __init__(self, start: int) -> None:
        self.value = start
        self.drawn = 0.0

    def draw(self) -> str:
        """Draw a number that nobody has seeded."""
        self.drawn = random.random()
        return "drawn"

    def clock(self) -> dict[str, int]:
        """Tell the time."""
        return {"time": time.time_ns()}

    def ticket(self) -> dict[str, int]:
        """Take the next number of this process."""
        return {"number": next(COUNTED)}

    def whereabouts(self) -> dict[str, int]:
        """Tell the process: the same every time, as long as it is asked in one process."""
        return {"process": os.getpid()}


class Chance(Lottery):
    """The same, next to what does happen twice."""

    def add(self, number: int) -> int:
        """Add a number to the counter."""
        self.value += number
        return self.value

    def colours(self) -> list[str]:
        """Tell the colours as a set has them: in another order in every process, unless it is told."""
        return list({"red", "green", "blue", "white", "black", "yellow"})


class Moody(Workshop):
    """A world that may not open in the same state, may not close, and may end its process instead."""

    worlds = {"train": {"one": 1}}  # noqa: RUF012

    def __init__(self, start: int) -> None:
        super().__init__(start)
        if start == 7:
            self.value = time.time_ns()
        if start == 8:
            sys.exit("not today")
        if start == 9:
            self._held = [b"." * MEGABYTE for _ in range(100_000)]

    def close(self) -> None:
        if self.value == 13:
            time.sleep(3600)

"""Our end of the sockets to AppWorld's processes: start one, fork worlds from it, talk within a deadline."""

from __future__ import annotations

import json
import select
import shutil
import socket
import struct
import subprocess
import tempfile
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from coevolve.environments.appworld import package
from coevolve.environments.worker_pipe import Died, Overrun
from coevolve.errors import CoEvolveError, InfrastructureError

START_SECONDS = 120.0
"""For the first process, which imports the package and loads a world."""
FORK_SECONDS = 30.0
MEMORY_BYTES = 4 << 30
"""Address space of one process. It holds some 300 MB and the databases; more is code that ran wild."""
_SERVER = Path(__file__).parent / "inside" / "server.py"


class World:
    """One process with one world."""

    def __init__(self, connection: socket.socket, number: int) -> None:
        self.number = number
        self._socket = connection

    def ask(self, seconds: float, name: str, *arguments: Any) -> Any:
        """One request.

        Raises:
            Overrun: no answer in time; the process must be killed.
            Died: the process is gone.
            InfrastructureError: the request failed there, with the reason.
        """
        until = time.monotonic() + seconds
        data = json.dumps([name, arguments]).encode()
        try:
            self._socket.settimeout(seconds)
            self._socket.sendall(struct.pack("!I", len(data)) + data)
            (size,) = struct.unpack("!I", self._exactly(4, until))
            answer = json.loads(self._exactly(size, until))
        except TimeoutError:
            raise Overrun from None
        except (OSError, ValueError) as error:
            raise Died(str(error)) from None
        if "error" in answer:
            raise InfrastructureError(f"AppWorld cannot {name}: {answer['error']}")
        return answer["ok"]

    def close(self) -> None:
        """Close the socket, upon which an idle process ends."""
        self._socket.close()

    def _exactly(self, size: int, until: float) -> bytes:
        parts = []
        while size:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            part = self._socket.recv(min(size, 1 << 20))
            if not part:
                raise Died("the process has ended")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


class Nursery:
    """The process that worlds' processes are forked from; started by :meth:`start`, again if it has died.

    Args:
        data: the folder with AppWorld's data; it is only read.
        task: a task whose world is loaded first, to warm up.
        seconds: AppWorld's own deadline for one block of code.
        memory_bytes: address space of one process; 0 is no limit.

    Worlds' processes end with it, and it ends with this process: its socket closes.
    """

    def __init__(self, data: Path, task: str, seconds: float, memory_bytes: int = MEMORY_BYTES) -> None:
        self.started = 0
        """How often it has been started."""
        self._data = data
        self._task = task
        self._seconds = max(1, int(seconds))
        self._memory = memory_bytes
        self._lock = threading.RLock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._ready = False
        self._scratch: Path | None = None
        self._finalizer: weakref.finalize[Any, Nursery] | None = None

    @property
    def log(self) -> Path | None:
        """What AppWorld's processes have printed; gone after :meth:`close`."""
        return self._scratch / "server.log" if self._scratch else None

    def start(self) -> None:
        """Begin to start the process, without waiting for it.

        Raises:
            CoEvolveError: the package cannot be fetched.
        """
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return
            interpreter = package.ensure()
            self._stop()
            if self._scratch is None:
                self._scratch = Path(tempfile.mkdtemp(prefix="coevolve-appworld-"))
                self._finalizer = weakref.finalize(self, shutil.rmtree, self._scratch, ignore_errors=True)
                # The package writes beside its data: so it is shown the data from a folder of ours.
                (self._scratch / "data").symlink_to(self._data.resolve(), target_is_directory=True)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            arguments = [theirs.fileno(), self._scratch, self._memory, self._seconds, self._task]
            with theirs, (self._scratch / "server.log").open("ab") as log:
                self._process = subprocess.Popen(
                    [str(interpreter), "-s", "-P", str(_SERVER), *map(str, arguments)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(theirs.fileno(),),
                    cwd=self._scratch,
                    env=package.bare_environment(self._scratch),
                )
            self._control, self._ready = ours, False
            self.started += 1

    def fork(self) -> World:
        """A process for one world, after waiting for the first process where it is still starting.

        Raises:
            Died: the first process is gone.
            CoEvolveError: AppWorld does not start: its reason.
            InfrastructureError: it does not start in time.
        """
        with self._lock:
            self.start()
            if not self._ready:
                answer = self._packet(START_SECONDS)
                if "error" in answer:
                    self._stop()
                    raise CoEvolveError(
                        f"AppWorld does not start with the data in {self._data}: {answer['error']}"
                    )
                self._ready = True
            assert self._control is not None
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    socket.send_fds(self._control, [b"fork"], [theirs.fileno()])
                    number = int(self._packet(FORK_SECONDS)["ok"])
                except OSError as error:
                    ours.close()
                    raise Died(str(error)) from None
                except BaseException:
                    ours.close()
                    raise
            return World(ours, number)

    def kill(self, world: World) -> None:
        """End a world's process, whatever it is doing."""
        world.close()
        with self._lock:
            if self._control is not None:
                with suppress(OSError):  # then its processes are gone, too
                    self._control.send(str(world.number).encode())

    def close(self) -> None:
        """End all processes; idempotent."""
        with self._lock:
            self._stop()
            if self._finalizer is not None:
                self._finalizer()
                self._finalizer = self._scratch = None

    def _packet(self, seconds: float) -> dict[str, Any]:
        assert self._control is not None
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        if not poll.poll(seconds * 1000):
            self._stop()
            raise InfrastructureError(
                f"AppWorld did not answer within {seconds:g} s; its output was: {self._said()}"
            )
        data = self._control.recv(1 << 16)
        if not data:
            said = self._said()
            self._stop()
            raise Died(f"AppWorld's process ended; its output was: {said}")
        answer: dict[str, Any] = json.loads(data)
        return answer

    def _said(self) -> str:
        if self.log is None or not self.log.is_file():
            return "nothing"
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:]) or "nothing"

    def _stop(self) -> None:
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        self._ready = False

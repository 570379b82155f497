"""AppWorld's side: a script for AppWorld's own virtual environment.

Started as ``python -P server.py DESCRIPTOR ROOT MEMORY SECONDS TASK``, it loads the package and one world,
so that all that is slow is done once, and then forks a process for every live world: AppWorld keeps one
world a process, and what an agent's code does to the modules of its process ends with it. Requests are JSON
with a length before it, over inherited sockets: there is no port that anyone could take or connect to.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
import socket
import struct
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coevolve.environments.appworld.inside.host import Host

_encode = json.JSONEncoder().encode
_decode = json.JSONDecoder().decode
"""Ours, whatever an agent's code makes of the module."""


class Link:
    """Messages of JSON over one socket."""

    def __init__(self, descriptor: int) -> None:
        self.socket = socket.socket(fileno=descriptor)

    def receive(self) -> Any:
        """The next message; raises EOFError when the other side is gone."""
        (size,) = struct.unpack("!I", self._exactly(4))
        return _decode(self._exactly(size).decode())

    def send(self, message: Any) -> None:
        data = _encode(message).encode()
        self.socket.sendall(struct.pack("!I", len(data)) + data)

    def _exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.socket.recv(min(size, 1 << 20))
            if not part:
                raise EOFError
            parts.append(part)
            size -= len(part)
        return b"".join(parts)


def answer_requests(link: Link, host: Host) -> None:
    """Answer until the other side is gone."""
    while True:
        try:
            name, arguments = link.receive()
        except (EOFError, OSError):
            return
        try:
            link.send({"ok": getattr(host, name)(*arguments)})
        except MemoryError:
            os._exit(3)  # nothing can be said about such a world any more
        except Exception as error:
            traceback.print_exc()
            link.send({"error": f"{type(error).__name__}: {error}"})


def die_with_parent() -> None:
    """The kernel kills this process when the one that forked it ends, however that ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


def fork(descriptor: int, control: socket.socket, host: Host) -> int:
    """A process for one world; returns its number to the parent."""
    parent = os.getpid()
    number = os.fork()
    if number:
        os.close(descriptor)
        return number
    try:
        die_with_parent()
        control.close()
        if os.getppid() != parent:
            os._exit(4)
        answer_requests(Link(descriptor), host)
    except BaseException:
        traceback.print_exc()
    os._exit(0)


def beside(name: str) -> ModuleType:
    """The module in a file beside this one, entered nowhere: no ``import`` of an agent's code finds it."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(descriptor: int, root: str, memory: int, seconds: int, task: str) -> None:
    """Serve until the parent closes the socket, a packet a request: a socket to serve a world on (answered
    with its process's number), or the number of a process to kill."""
    control = socket.socket(fileno=descriptor)
    os.environ["APPWORLD_ROOT"] = root
    os.chdir(root)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    children: set[int] = set()
    try:
        guard, worlds = beside("guard"), beside("host")
        host: Host = worlds.Host(guard.guarded(), seconds)
        worlds.warm(task, host)
    except Exception as error:
        traceback.print_exc()
        control.send(json.dumps({"error": f"{type(error).__name__}: {error}"[:4000]}).encode())
        return
    control.send(json.dumps({"ok": os.getpid()}).encode())
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 64, 1)
        except OSError:
            return
        for child in list(children):
            if os.waitpid(child, os.WNOHANG)[0]:
                children.discard(child)
        if not data:
            return
        if descriptors:
            children.add(number := fork(descriptors[0], control, host))
            control.send(json.dumps({"ok": number}).encode())
        elif (number := int(data)) in children:
            os.kill(number, signal.SIGKILL)
            os.waitpid(number, 0)
            children.discard(number)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])

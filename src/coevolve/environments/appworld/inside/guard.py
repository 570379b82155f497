"""What an agent's code has no business with, refused while it runs.

The package's own guard is a list of forbidden names. While an agent's code runs, an audit hook also
refuses files that are not Python's own, above all the tasks' ground truth, other processes, and the
network. Neither is a sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

FORBIDDEN = (
    "ctypes.", "fcntl.", "ftplib.", "gc.", "http.client.", "os.add_dll_directory", "os.chmod", "os.chown",
    "os.exec", "os.fork", "os.kill", "os.link", "os.mkdir", "os.posix_spawn", "os.putenv", "os.remove",
    "os.rename", "os.rmdir", "os.spawn", "os.symlink", "os.system", "os.truncate", "os.unsetenv", "pty.",
    "shutil.", "signal.pthread_kill", "smtplib.", "socket.bind", "socket.connect", "socket.getaddrinfo",
    "socket.gethostby", "socket.sendto", "sqlite3.enable_load_extension", "subprocess.", "sys.setprofile",
    "sys.settrace", "tempfile.", "urllib.",
)  # fmt: skip
"""Audit events refused to an agent's code, by how their names begin."""
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def guarded() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Install the audit hook; returns a wrapper for what runs an agent's code."""
    readable = tuple(
        str(Path(path).resolve()) + os.sep
        for path in (sys.prefix, sys.base_prefix, "/usr/share/zoneinfo", "/usr/lib/python3")
    )
    running: list[bool] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if not running:
            return
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, int) or path is None:
                return
            real = os.path.realpath(os.fsdecode(path))
            if (isinstance(flags, int) and flags & _WRITES) or not real.startswith(readable):
                raise PermissionError("this file is not for an agent's code")
        elif event.startswith(FORBIDDEN):
            raise PermissionError(f"{event} is not for an agent's code")

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            running.append(True)
            try:
                return function(*arguments, **named)
            finally:
                running.clear()

        return run

    sys.addaudithook(hook)
    return wrap

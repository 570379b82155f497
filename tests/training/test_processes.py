"""Processes that trained in step part in order: none of them is aborted while Python shuts down."""

from __future__ import annotations

import subprocess
import sys

import pytest

from coevolve.launch import free_port
from small_run import surroundings

SCRIPT = """
import atexit, sys
import torch
atexit.register(lambda: print("connected at the end:", torch.distributed.is_initialized()))
from coevolve.training.processes import Processes
processes = Processes()
print(processes.share(lambda: "said by one"))
if "end" in sys.argv:
    processes.end()
    processes.end()
sys.exit(3)
"""


@pytest.mark.parametrize("word", ["end", "break off"])
def test_a_process_leaves_the_others_before_python_shuts_down(word: str) -> None:
    """Threads that are connected then abort the process now and then, and its exit code is lost."""
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    shared["MASTER_PORT"] = str(free_port())
    both = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, word],
            env=surroundings(**shared, RANK=rank, LOCAL_RANK=rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    for one in both:
        out, err = one.communicate(timeout=120)
        assert (out, one.returncode) == ("said by one\nconnected at the end: False\n", 3), err

"""Several processes training in step: what the main one has is shared, what breaks in one ends all."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object

from coevolve.errors import TrainingError

T = TypeVar("T")

_PATIENCE = timedelta(hours=4)
"""How long processes wait for each other: the main one explores and scores meanwhile."""


class Processes:
    """The processes of this training; one is the normal case and costs nothing."""

    def __init__(self) -> None:
        state = PartialState(cpu=not torch.cuda.is_available(), timeout=_PATIENCE)
        self.device: torch.device = state.device
        self.rank: int = state.process_index
        self.count: int = state.num_processes
        self.main: bool = state.is_main_process
        if self.count > 1 and torch.distributed.get_backend() == "gloo":
            # Its threads end at once, also after an error; NCCL's could hang where another process is gone.
            atexit.register(self.end)

    def end(self) -> None:
        """Leave the others, at the end of all work in step; idempotent.

        Without it the threads of the connection go on while Python shuts down, and now and then abort the
        process ("terminate called without an active exception"), whatever it had to say or to return.
        """
        if self.count > 1 and torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()

    def share(self, work: Callable[[], T]) -> T:
        """Do ``work`` on the main process; every process gets the result, or the error."""
        result = self.together(lambda: work() if self.main else None)
        if self.count > 1:
            box: list[Any] = [result]
            broadcast_object_list(box, from_process=0)
            result = box[0]
        return result  # type: ignore[return-value]

    def gather(self, items: Sequence[T]) -> list[T]:
        """The items of all processes, in the order of ranks, on every process."""
        if self.count == 1:
            return list(items)
        found: list[T] = gather_object(list(items))
        return found

    def together(self, work: Callable[[], T]) -> T:
        """Do ``work`` on each process; if it fails on one, it fails on all instead of hanging there."""
        if self.count == 1:
            return work()
        error: Exception | None = None
        result: Any = None
        try:
            result = work()
        except Exception as caught:
            error = caught
        said = self.gather([None if error is None else f"{type(error).__name__}: {error}"])
        if error is not None:
            raise error
        for rank, text in enumerate(said):
            if text is not None:
                raise TrainingError(f"process {rank} stopped with {text}")
        return result  # type: ignore[no-any-return]

"""What may not enter the pool whatever it replays to: duplicates, leaks, and what the evaluation holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

import numpy as np
from datasketch import MinHash, MinHashLSH

from coevolve.synthesize.code import lines_of
from coevolve.synthesize.twins import Sketch, Twins
from coevolve.types import Json, Split, Task, ToolCall, canonical, fingerprint

THRESHOLD = 0.85
"""Estimated Jaccard similarity of shingles from which two tasks are near duplicates."""
_PERMUTATIONS = 64
_BLANK = MinHash(num_perm=_PERMUTATIONS, seed=1)
_CALL_SYNTAX = re.compile(
    r"\b[A-Za-z_][A-Za-z0-9_]*\s?\((?=[^)]*[=\[{'\"])|\b[a-z]+_[a-z_]+\(|[{\[]\s*[\"']\w+[\"']\s*:"
)
_WORD = re.compile(r"\w+")


def solution_key(task: Task) -> str:
    """Same world and same calls, however worded and however cut into turns."""
    calls = [[call.name, call.arguments] for turn in task.solution for call in turn]
    return fingerprint([task.world.environment, task.world.key, calls])


def text_key(task: Task) -> str:
    """The words alone, without case, spaces and punctuation."""
    return fingerprint([" ".join(_WORD.findall(turn.lower())) for turn in task.turns])


def shingles(task: Task) -> set[str]:
    """Language-neutral: every word of the text in pairs, and every call with its arguments."""
    words = _WORD.findall(" ".join(task.turns).lower())
    found = {f"{a} {b}" for a, b in pairwise(words)}
    for turn in task.solution:
        for call in turn:
            found.add(f"call {call.name}")
            found |= {f"{call.name} {name} {canonical(value)}" for name, value in call.arguments.items()}
    return found


class Screen:
    """Grows with the pool, on disk; rebuilt from it on resume.

    Args:
        tasks: what the pool holds already.
        evaluation: the evaluation split's tasks; their ids, texts and solutions are kept, nothing else.
        split: the only split whose worlds may enter.
        threshold: similarity from which two tasks are near duplicates.
        names: the actions within a call (:meth:`Environment.names`); by default its own name.
    """

    def __init__(
        self,
        tasks: Iterable[Task] = (),
        evaluation: Iterable[Task] = (),
        split: Split = "train",
        threshold: float = THRESHOLD,
        names: Callable[[ToolCall], Sequence[str]] | None = None,
    ) -> None:
        self._split = split
        self._names = names or _own_name
        shape = MinHashLSH(threshold=threshold, num_perm=_PERMUTATIONS)  # only asked how to cut sketches
        self._twins = Twins(shape.b, shape.r, threshold)
        self._held: dict[str, str] = {}
        for task in evaluation:
            for key in (task.id, text_key(task), solution_key(task)):
                self._held[key] = task.name or task.id
        for task in tasks:
            self.add(task)

    def __len__(self) -> int:
        return len(self._twins)

    def add(self, task: Task) -> None:
        """Remember an admitted task; adding it again changes nothing."""
        if task.id not in self._twins:
            self._twins.add(task.id, solution_key(task), _sketch(task))

    def outright(self, task: Task) -> tuple[str, dict[str, Json]] | None:
        """What speaks against it whatever the pool holds: reason and evidence, or None. Thread-safe."""
        if task.world.split != self._split:
            return "wrong_split", {"world": task.world.id, "split": task.world.split}
        for key in (task.id, text_key(task), solution_key(task)):
            if key in self._held:
                return "eval_overlap", {"with": self._held[key]}
        calls = [call for turn in task.solution for call in turn]
        named = [name for call in calls for name in (call.name, *self._names(call))]
        lines = [line for call in calls if call.name not in self._names(call) for line in lines_of(call)]
        arguments = [name for call in calls for name in call.arguments]
        leak = spelled_out(task.turns, named, lines, arguments)
        if leak:
            return "spells_out_calls", {"text": leak}
        return None

    def refusal(self, task: Task) -> tuple[str, dict[str, Json]] | None:
        """Reason and evidence, or None if nothing speaks against it."""
        refused = self.outright(task)
        if refused is not None:
            return refused
        twin = self._twins.same(solution_key(task))
        if twin is not None:
            return "duplicate", {"of": twin}
        near = self._twins.near(_sketch(task))
        if near is not None:
            other, similarity = near
            return "near_duplicate", {"of": other, "similarity": round(similarity, 3)}
        return None


def spelled_out(
    turns: Sequence[str], names: Sequence[str], lines: Sequence[str] = (), arguments: Sequence[str] = ()
) -> str:
    """The piece of text that gives calls away: call syntax, JSON or Python's data, a tool's own compound
    name, or an argument with its value, as ``key='size'``.

    Args:
        lines: of the solution's code, none of which may stand in the text.
        arguments: names of the solution's arguments.
    """
    names = [*names, *(name.rpartition(".")[2] for name in names if "." in name)]
    for turn in turns:
        for line in lines:
            if line in turn:
                return line
        found = _CALL_SYNTAX.search(turn)
        if found:
            return found.group(0)
        for name in names:
            compound = "_" in name or re.search(r"[a-z][A-Z]", name)
            if compound and re.search(rf"\b{re.escape(name)}\b", turn):
                return name
            if re.search(rf"\b{re.escape(name)}\s?\(", turn):
                return f"{name}("
        for name in arguments:
            given = re.search(rf"\b{re.escape(name)}\s?=\s?[^\s=]", turn)
            if given and len(name) > 1:  # x = 5 is how one says it
                return given.group(0)
    return ""


def _own_name(call: ToolCall) -> Sequence[str]:
    return (call.name,)


def _sketch(task: Task) -> Sketch:
    # Drawing the permutations anew for every task would take as long as the rest of it.
    sketch = _BLANK.copy()
    sketch.update_batch([s.encode() for s in sorted(shingles(task))])
    return sketch.hashvalues.astype(np.uint32)  # type: ignore[no-any-return]

"""The public state of a back-end instance as JSON data, in time and depth that are bounded.

Agents can copy a directory into itself, after which the tree contains itself; they can also share
subtrees until the unfolded tree has millions of nodes. Both are broken worlds, found here.
"""

from __future__ import annotations

from typing import Any

from coevolve.errors import BrokenWorldError
from coevolve.types import Json

MAX_DEPTH = 120
MAX_NODES = 200_000


def public_state(instance: Any) -> dict[str, Json]:
    """Every attribute not starting with ``_``: the set that the official checker compares.

    Directories and files become what their own equality looks at: name and contents.

    Raises:
        BrokenWorldError: the state contains itself, or is too deep or too large to compare.
    """
    walk = _Walk()
    return {name: walk.plain(value, 0) for name, value in vars(instance).items() if not name.startswith("_")}


class _Walk:
    def __init__(self) -> None:
        self.nodes = 0
        self.above: set[int] = set()

    def plain(self, value: Any, depth: int) -> Json:
        if value is None or isinstance(value, (str, int, float)):
            return value
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise BrokenWorldError(f"the world nests more than {MAX_DEPTH} levels deep")
        if self.nodes > MAX_NODES:
            raise BrokenWorldError(f"the world has more than {MAX_NODES} parts")
        if id(value) in self.above:
            raise BrokenWorldError("the world contains itself, e.g. a directory copied into itself")
        self.above.add(id(value))
        try:
            return self._inside(value, depth + 1)
        finally:
            self.above.discard(id(value))

    def _inside(self, value: Any, depth: int) -> Json:
        if isinstance(value, dict):
            return self._mapping(value, depth)
        if isinstance(value, (list, tuple)):
            self.nodes += len(value)
            return [self.plain(item, depth) for item in value]
        if isinstance(value, (set, frozenset)):
            return sorted((self.plain(item, depth) for item in value), key=repr)
        if hasattr(value, "contents"):
            return {"directory": value.name, "contents": self._mapping(value.contents, depth)}
        if hasattr(value, "content"):
            return {"file": value.name, "content": value.content}
        return repr(value)

    def _mapping(self, value: dict[Any, Any], depth: int) -> Json:
        self.nodes += len(value)
        if all(isinstance(key, str) for key in value):
            return {key: self.plain(item, depth) for key, item in value.items()}
        # 1 and "1" are different keys to the official checker: told apart where both types occur.
        mixed = any(isinstance(key, str) for key in value)
        return {
            key if isinstance(key, str) else f"{type(key).__name__}:{key}" if mixed else str(key): self.plain(
                item, depth
            )
            for key, item in value.items()
        }

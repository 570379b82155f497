"""From a model's answer to checked data: real JSON inside prose or code fences, never a mended one."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from coevolve.explore.trim import shorten
from coevolve.llm.base import LLM, Ledger, Message, Reply
from coevolve.prompting import render
from coevolve.types import Json

PACKAGE = "coevolve.explore"
"""Whose prompts are rendered here."""
M = TypeVar("M", bound=BaseModel)
_FENCE = re.compile(r"^[ \t]*```[\w-]*[ \t]*\n(.*?)\n[ \t]*```[ \t]*$", re.DOTALL | re.MULTILINE)
_SHOWN = 2000
"""Characters of an invalid answer that are shown again when asking once more."""


class InvalidAnswerError(Exception):
    """An answer that cannot be used; ``kind`` is what the ledger counts it as."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def without_thinking(text: str) -> str:
    """The answer after its thinking; thinking that never ends leaves nothing."""
    _, closed, after = text.rpartition("</think>")
    if closed:
        return after
    return text.partition("<think>")[0]


def objects(text: str) -> list[dict[str, Json]]:
    """Every JSON object of an answer, outermost ones only, in order.

    Read from the whole answer if it is JSON, else from its code fences, else from its prose. A list
    counts as its objects. What begins like an object and never ends is no object, and neither is
    anything inside it: half an answer must not pass for another one.
    """
    said = without_thinking(text).strip()
    for pieces in ([said], _FENCE.findall(said)):
        found = [item for piece in pieces for item in _members(_decoded(piece))]
        if found:
            return found
    return _scan(said)


def _decoded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _members(value: Any) -> list[dict[str, Json]]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, dict)]


def _scan(text: str) -> list[dict[str, Json]]:
    found: list[dict[str, Json]] = []
    at = text.find("{")
    while at >= 0:
        end = _closing(text, at)
        if end < 0:
            break
        found += _members(_decoded(text[at:end]))
        at = text.find("{", end)
    return found


def _closing(text: str, start: int) -> int:
    """The position after the brace that closes the one at ``start``; -1 if none does."""
    depth, quoted, escaped = 0, False, False
    for at in range(start, len(text)):
        letter = text[at]
        if quoted:
            quoted = escaped or letter != '"'
            escaped = letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if not depth:
                return at + 1
    return -1


def read(reply: Reply, kind: type[M]) -> M:
    """The first object of the answer that is a valid ``kind``.

    Raises:
        InvalidAnswerError: ``empty``, ``invalid_json`` or ``invalid_schema``, with what is wrong.
    """
    if not reply.text.strip():
        raise InvalidAnswerError("empty_answer", "the answer was empty")
    wrong = None
    for found in objects(reply.text):
        try:
            return kind.model_validate_json(_whole(found), strict=True)
        except ValidationError as error:
            wrong = InvalidAnswerError("invalid_schema", _explain(error))
    if wrong is not None:
        raise wrong
    cut = ": it was cut off, so be shorter" if reply.finish == "length" else ""
    raise InvalidAnswerError("invalid_json", f"there was no complete JSON object in the answer{cut}")


def _whole(found: dict[str, Json]) -> str:
    """As JSON text with U+FFFD for half characters: one of them must not make the whole unreadable."""
    text = json.dumps(found, ensure_ascii=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _explain(error: ValidationError) -> str:
    parts = []
    for item in error.errors()[:8]:
        where = ".".join(str(part)[:40] for part in item["loc"])
        parts.append(f"{where}: {item['msg']}" if where else item["msg"])
    return "; ".join(parts)


def ask(
    llm: LLM,
    messages: Sequence[Message],
    kind: type[M],
    *,
    stage: str,
    ledger: Ledger,
    reasks: int,
    rng: random.Random,
    schema: Mapping[str, Json] | None = None,
) -> M:
    """An answer of shape ``kind``; an invalid one is asked for again, with what was wrong with it.

    Each invalid answer is counted under its kind of fault, and giving up as ``<stage>.given_up``.

    Args:
        reasks: how often, at most, an answer is asked for again.
        schema: what the endpoint is told; the schema of ``kind`` by default.

    Raises:
        InvalidAnswerError: the last answer was invalid too.
        OutageError, SpentError: as :meth:`LLM.complete`.
    """
    said: list[Message] = list(messages)
    for left in reversed(range(reasks + 1)):
        reply = llm.complete(
            said,
            stage=stage,
            ledger=ledger,
            schema=schema if schema is not None else kind.model_json_schema(),
            seed=rng.getrandbits(31),
        )
        try:
            return read(reply, kind)
        except InvalidAnswerError as error:
            ledger.fault(error.kind)
            if not left:
                ledger.counts[f"{stage}.given_up"] += 1
                raise
            again = render(PACKAGE, "reask", error=str(error))
            said = [
                *messages,
                {"role": "assistant", "content": shorten(reply.text, _SHOWN) or "(no answer)"},
                {"role": "user", "content": again},
            ]
    raise AssertionError("unreachable")

"""Tool-call formats: the agent's text in, validated calls out, and back.

The text is data (invariant 6): it is parsed by a JSON decoder or into a syntax tree of literals, every
name is looked up among the tools offered, every call is checked against its tool's schema. A piece that
looks like a call and is none becomes an entry of ``malformed`` with its reason; the others still run.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, get_args

from coevolve.errors import ConfigError
from coevolve.rollout.schema import MalformedCallError, bind
from coevolve.types import Json, ToolCall, ToolSpec

FormatName = Literal["hermes", "llama", "python", "code"]
THINK, UNTHINK = "<think>", "</think>"
LONGEST = 200_000
"""Characters of a message that is read at all; a longer one is malformed as a whole."""
MOST_PIECES = 256
"""Pieces of one message that are read one by one; what follows them is malformed as one."""
_REASON = 300
"""Characters of the reason of one malformed piece."""

_THINKING = re.compile(rf"\s*{THINK}")

MARKER = re.compile(r"\{#-?\s*coevolve:(?P<pairs>[^#]*?)-?#\}")
"""A comment in a chat template that says how it is meant, e.g.
``{#- coevolve: tools=none calls=python -#}``. Keys: ``calls`` (hermes, llama, python, code) and ``tools``
(``template``: it documents the tools itself; ``system``: we do, in a system message; ``none``: nobody
does, the model knows them)."""


@dataclass(frozen=True, slots=True)
class ParsedMessage:
    """One message of the agent, taken apart."""

    text: str
    """What it said beside calls and thinking."""
    calls: tuple[ToolCall, ...] = ()
    malformed: tuple[str, ...] = ()
    """One ``reason: piece`` for each piece that cannot be executed."""

    @property
    def ends_turn(self) -> bool:
        """No call and no attempt at one: the agent has finished answering."""
        return not self.calls and not self.malformed


@dataclass(frozen=True, slots=True)
class Piece:
    """A span that looks like a call: decoded, or not (``reason`` set)."""

    source: str
    name: str = ""
    positional: tuple[Json, ...] = ()
    keyword: dict[str, Json] = field(default_factory=dict)
    reason: str = ""


class Format(ABC):
    """One way to write calls."""

    name: ClassVar[FormatName]
    calls_per_message: ClassVar[int | None] = None
    """How many calls one message can hold; None is any number."""
    answered_by_user: ClassVar[bool] = False
    """Whether answers come as the user's message, even where the template has a role for tools."""

    @abstractmethod
    def scan(self, text: str) -> tuple[str, list[Piece]]:
        """Plain text and pieces of a message whose leading thinking is already gone.

        At most :data:`MOST_PIECES` and one more, so that its time is bounded whatever the text.
        """

    @abstractmethod
    def spans(self, calls: Sequence[ToolCall]) -> list[tuple[str, bool]]:
        """The written calls as (text, is syntax); only syntax may hold control tokens."""

    @abstractmethod
    def instructions(self) -> str:
        """How to write calls, in words, for models whose template does not say."""

    def manual(self, documents: Sequence[str]) -> str:
        """The system message's part about tools.

        Args:
            documents: one JSON object per tool: name, description, parameters.
        """
        return (
            "You solve the user's request by calling functions. Call only functions listed below, and "
            f"call none if none fits.\n{self.instructions()}\n\nFunctions:\n" + "\n".join(documents)
        )

    def render(self, calls: Sequence[ToolCall]) -> str:
        """``calls`` as the policy should have written them; '' for none.

        ``parse(render(calls), tools).calls == calls`` for every valid call.
        """
        return "".join(text for text, _ in self.spans(calls))

    def parse(self, text: str, tools: Sequence[ToolSpec], thinking: bool = False) -> ParsedMessage:
        """Take a message apart; never raises, whatever the text.

        Args:
            tools: The allow-list.
            thinking: The prompt itself has opened a thinking block, so the message begins inside it.
        """
        said = without_thinking(text, thinking)
        try:
            if len(said) > LONGEST:
                plain, pieces = "", [Piece(said, reason=f"longer than {LONGEST} characters")]
            else:
                plain, pieces = self.scan(said)
        except (RecursionError, MemoryError):
            plain, pieces = said, [Piece(said, reason="nested too deep")]
        offered = {tool.name: tool for tool in tools}
        calls: list[ToolCall] = []
        malformed: list[str] = []
        for piece in pieces:
            try:
                if piece.reason:
                    raise MalformedCallError(piece.reason)
                calls.append(bind(piece.name, piece.positional, piece.keyword, offered))
            except MalformedCallError as error:
                malformed.append(f"{excerpt(str(error), _REASON)}: {excerpt(piece.source)}")
        return ParsedMessage(plain.strip(), tuple(calls), tuple(malformed))


def without_thinking(text: str, opened: bool = False) -> str:
    """``text`` after its leading thinking blocks; one that never closes swallows the rest."""
    at = _past_thinking(text, 0) if opened else 0
    while (begun := _THINKING.match(text, at)) is not None:
        at = _past_thinking(text, begun.end())
    return text[at:]


def _past_thinking(text: str, at: int) -> int:
    closed = text.find(UNTHINK, at)
    return len(text) if closed < 0 else closed + len(UNTHINK)


def too_many(rest: str) -> Piece:
    """What stands behind the last piece that is read on its own."""
    return Piece(rest, reason=f"more than {MOST_PIECES} calls in one message")


def excerpt(source: str, most: int = 80) -> str:
    """At most ``most`` characters of a piece, on one line."""
    line = " ".join(source[: 20 * most].split())
    return line if len(line) <= most and len(source) <= 20 * most else line[: most - 3] + "..."


def get_format(name: FormatName) -> Format:
    """The format of that name."""
    from coevolve.rollout.code_format import CodeFormat
    from coevolve.rollout.json_formats import HermesFormat, LlamaFormat
    from coevolve.rollout.python_format import PythonFormat

    kinds: dict[FormatName, type[Format]] = {
        "hermes": HermesFormat,
        "llama": LlamaFormat,
        "python": PythonFormat,
        "code": CodeFormat,
    }
    return kinds[name]()


def parse(name: FormatName, text: str, tools: Sequence[ToolSpec]) -> ParsedMessage:
    """:meth:`Format.parse` by the format's name."""
    return get_format(name).parse(text, tools)


def render(name: FormatName, calls: Sequence[ToolCall]) -> str:
    """:meth:`Format.render` by the format's name."""
    return get_format(name).render(calls)


def marker(template: str) -> dict[str, str]:
    """What the template's :data:`MARKER` says; empty without one."""
    found = MARKER.search(template)
    return dict(re.findall(r"(\w+)=(\w+)", found["pairs"])) if found else {}


def knows_tools(template: str) -> bool:
    """Whether the template's code reads the variable ``tools``."""
    code = " ".join(re.findall(r"\{[{%](.*?)[}%]\}", template, flags=re.DOTALL))
    return re.search(r"\btools\b", re.sub(r"'[^']*'|\"[^\"]*\"", "", code)) is not None


def detect(template: str | None) -> FormatName:
    """The format that a chat template asks for.

    A template that knows nothing of tools gets ``python``, BFCL's prompting style, with the tools in a
    system message of ours.

    Raises:
        ConfigError: no chat template, or tools in a format that is none of ours.
    """
    if not template:
        raise ConfigError(
            "the model has no chat template, so it cannot hold a conversation with tools; use an instruct "
            "model or add chat_template.jinja to its folder"
        )
    named = marker(template).get("calls")
    known: dict[str | None, FormatName] = {name: name for name in get_args(FormatName)}
    if named in known:
        return known[named]
    if named is not None:
        raise ConfigError(
            f"the chat template's marker asks for calls={named}; known are {', '.join(get_args(FormatName))}"
        )
    if not knows_tools(template):
        return "python"
    if "<function=" not in template:
        if "<tool_call>" in template and re.search(r'arguments\\*":', template):
            return "hermes"
        if "ipython" in template and re.search(r'parameters\\*":', template):
            return "llama"
    raise ConfigError(
        "the chat template describes tools in a format that cannot be told; set rollout.format to hermes, "
        "llama, python or code (then the calls are explained in a system message)"
    )

"""A chat template taken apart into the pieces that an append-only conversation needs.

Templates are rendered with slots instead of contents, once per shape of conversation: the prompt, what
follows the agent's message when tools answer, what follows it when the user speaks again. Contents go
into the slots as tokens (:mod:`coevolve.rollout.encoding`), so nothing is rendered twice and no content
can disturb the template.

**Policy on history.** What the agent wrote stays in its context exactly as it was sampled. Templates
that rewrite earlier messages by thinking text only (Qwen3 drops it from history) are used all the same:
the thinking stays. Templates that rewrite anything else are refused when they are loaded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from coevolve.errors import ConfigError
from coevolve.rollout.encoding import ChatTokenizer, Encoder
from coevolve.rollout.formats import THINK, UNTHINK
from coevolve.types import Json

Role = Literal["system", "user", "tool"]
Pieces = tuple[str, ...]
"""Template text around slots: one more piece than slots."""

_DATE = "26 Jul 2024"  # Llama's templates print today's date: a prompt must not depend on the day
_DUMMY_TOOL = {
    "type": "function",
    "function": {
        "name": "coevolve_probe",
        "description": "A probe.",
        "parameters": {"type": "object", "properties": {}, "required": []},
    },
}
_PROBE = '  a "probe"\n\\ of é  '
_SHAPES: tuple[Callable[[str], str], ...] = (
    lambda text: text,
    str.strip,
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    lambda text: json.dumps(text.strip(), ensure_ascii=False)[1:-1],
)


def slot(name: str) -> str:
    """A text that no template changes, standing for a content."""
    return f"[[coevolve:{name}]]"


def template_text(tokenizer: ChatTokenizer) -> str | None:
    """The tokenizer's chat template; of several named ones the one for tools."""
    given = tokenizer.chat_template
    if isinstance(given, Mapping):
        given = given.get("tool_use") or given.get("default")
    return given if isinstance(given, str) and given else None


class Template:
    """What one chat template does with prompts, tool results and user messages.

    Raises:
        ConfigError: a template that fails, drops the task, rewrites history, or never ends a message.
    """

    def __init__(
        self, tokenizer: ChatTokenizer, text: str, encoder: Encoder, options: Mapping[str, Json] | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._text = text
        self._encoder = encoder
        self._options: dict[str, Any] = {"date_string": _DATE, **(options or {})}
        self.system_role = self._accepts([_message("system", "s"), _message("user", "u")], slot("s"))
        self.documents_tools = _DUMMY_TOOL["function"]["name"] in self.render(  # type: ignore[index]
            [_message("user", "u")], [_DUMMY_TOOL], True
        )
        self._probe_tools = [_DUMMY_TOOL] if self.documents_tools else []
        self.result_role: Role = (
            "tool" if self._accepts([*self._opening(), _message("tool", "t0")], slot("t0")) else "user"
        )
        self._tails: dict[tuple[Role, int], Pieces] = {}
        self.shapes: dict[Role, Callable[[str], str]] = {
            "user": self._shape("user", []),
            "tool": self._shape(self.result_role, self._opening()),
        }
        if self.system_role:
            self.shapes["system"] = self._shape("system", [], [_message("user", "u")])
        self.closing = self._closing()
        """The template's text from the end of a message's content through its end token."""
        prompt = self.prompt([])[-1]
        self.opens_thinking = prompt.rfind(THINK) > prompt.rfind(UNTHINK)
        self.keeps_history = self._check_history()
        """False where the template itself would drop or add thinking text in earlier messages."""

    def render(self, messages: Sequence[Mapping[str, str]], tools: Sequence[Any], generation: bool) -> str:
        """The template's own rendering, as text."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    [dict(message) for message in messages],
                    tools=list(tools) or None,
                    chat_template=self._text,
                    add_generation_prompt=generation,
                    tokenize=False,
                    **self._options,
                )
            )
        except Exception as error:
            raise ConfigError(
                f"the chat template cannot render a conversation of {_roles(messages)}: {error}"
            ) from None

    def prompt(self, tools: Sequence[Any], system: bool = False) -> Pieces:
        """Pieces of the prompt; slots: the system text if ``system``, then the user's."""
        messages = [_message("user", "u")]
        names = ["u"]
        if system:
            messages.insert(0, _message("system", "s"))
            names.insert(0, "s")
        return _split(self.render(messages, tools, True), names)

    def tail(self, role: Role, count: int = 1) -> Pieces:
        """Pieces of what follows the agent's content: end of message, ``count`` messages, new prompt.

        Results for a template without a tool role come as one user message.
        """
        if (role, count) not in self._tails:
            names = [f"t{number}" for number in range(count)]
            messages = [*self._opening(), *(_message(role, name) for name in names)]
            rendered = self.render(messages, self._probe_tools, True)
            self._tails[role, count] = _split(_after(rendered, slot("a")), names)
        return self._tails[role, count]

    def _opening(self) -> list[dict[str, str]]:
        return [_message("user", "u"), _message("assistant", "a")]

    def _accepts(self, messages: list[dict[str, str]], wanted: str) -> bool:
        try:
            return wanted in self.render(messages, [], True)
        except ConfigError:
            return False

    def _shape(
        self, role: Role, before: list[dict[str, str]], after: Sequence[dict[str, str]] = ()
    ) -> Callable[[str], str]:
        """How the template changes a content of this role before printing it."""
        with_slot = self.render([*before, _message(role, "p"), *after], self._probe_tools, True)
        with_probe = self.render(
            [*before, {"role": role, "content": _PROBE}, *after], self._probe_tools, True
        )
        for shape in _SHAPES:
            if with_slot.replace(slot("p"), shape(_PROBE)) == with_probe:
                return shape
        raise ConfigError(f"the chat template rewrites the content of {role} messages in an unknown way")

    def _closing(self) -> str:
        closings = [self._through_control(self.tail(role)[0]) for role in (self.result_role, "user")]
        if closings[0] is None or closings[0] != closings[1]:
            raise ConfigError(
                "the chat template ends the assistant's message with no control token of the tokenizer, so "
                "the model cannot end a message; add its end-of-message token to the tokenizer"
            )
        return closings[0]

    def _through_control(self, text: str) -> str | None:
        ends = [
            (at, -len(token), at + len(token))
            for token in self._encoder.control.values()
            if (at := text.find(token)) >= 0
        ]
        return text[: min(ends)[2]] if ends else None

    def _check_history(self) -> bool:
        """Compare what we append with what the template renders as a whole (three agent messages)."""
        system = self.system_role
        results = _join(self.tail(self.result_role), ["t0"])
        again = _join(self.tail("user"), ["t1"])
        head = _join(self.prompt(self._probe_tools, system), ["s", "u"] if system else ["u"])
        ours = f"{head}{slot('a')}{results}{slot('b')}{again}{slot('c')}{self.closing}"
        messages = [
            *([_message("system", "s")] if system else []),
            *self._opening(),
            _message(self.result_role, "t0"),
            _message("assistant", "b"),
            _message("user", "t1"),
            _message("assistant", "c"),
        ]
        whole = self.render(messages, self._probe_tools, False)
        if whole.startswith(ours):
            return True
        ours, whole = _unthought(ours), _unthought(whole)
        if whole.startswith(ours):
            return False
        at = next((n for n, (a, b) in enumerate(zip(ours, whole)) if a != b), min(len(ours), len(whole)))
        raise ConfigError(
            "the chat template rewrites earlier messages when later ones are added, so token ids cannot "
            f"only be appended: it renders {whole[max(0, at - 20) : at + 40]!r} in place of "
            f"{ours[max(0, at - 20) : at + 40]!r}; "
            "use a template that is prefix-preserving"
        )


def _message(role: str, name: str) -> dict[str, str]:
    return {"role": role, "content": slot(name)}


def _roles(messages: Sequence[Mapping[str, str]]) -> str:
    return ", ".join(message["role"] for message in messages)


def _after(text: str, mark: str) -> str:
    _, found, rest = text.rpartition(mark)
    if not found:
        raise ConfigError("the chat template drops what the assistant said")
    return rest


def _split(text: str, names: Sequence[str]) -> Pieces:
    """Template text cut at its slots, each of which must occur exactly once and in order."""
    pieces: list[str] = []
    for name in names:
        before, found, text = text.partition(slot(name))
        if not found or slot(name) in text:
            raise ConfigError(
                "the chat template does not print every message exactly once and in order "
                f"(message {name!r} of {', '.join(names)}); the agent would not see its task"
            )
        pieces.append(before)
    return (*pieces, text)


def _join(pieces: Pieces, names: Sequence[str]) -> str:
    return "".join(part for pair in zip(pieces, [*map(slot, names), ""]) for part in pair)


def _unthought(text: str) -> str:
    """Without thinking tags and without spaces, which come and go with them."""
    return re.sub(rf"{THINK}|{UNTHINK}|\s", "", text)

"""Text to ids such that nothing said by a tool or a user ever becomes a control token.

Only the template's own text may hold control tokens. Ordinary text is tokenised in one piece with the
template's, exactly as the model knows it; where foreign text spells a control token, that token is
broken up.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from coevolve.errors import ConfigError


class ChatTokenizer(Protocol):
    """What is used of a Hugging Face tokenizer."""

    chat_template: Any
    eos_token_id: int | None

    @property
    def added_tokens_decoder(self) -> Mapping[int, Any]: ...

    def encode(self, text: str, *, add_special_tokens: bool = ...) -> list[int]: ...

    def decode(self, token_ids: Any, *, skip_special_tokens: bool = ...) -> Any: ...

    def apply_chat_template(self, conversation: Any, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Text:
    """A span of a conversation; ``trusted`` if the template (or our own syntax) wrote it."""

    text: str
    trusted: bool = False


class Encoder:
    """A tokenizer that tells control tokens from text that spells them."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.tokenizer = tokenizer
        added = {
            int(number): str(getattr(token, "content", token))
            for number, token in tokenizer.added_tokens_decoder.items()
        }
        # An added token of one character or of spaces (Gemma's newlines) is vocabulary, not control; the
        # token for unknown characters is what some texts are made of.
        unknown = getattr(tokenizer, "unk_token_id", None)
        self.control = {
            number: text
            for number, text in added.items()
            if len(text) > 1 and text.strip() and number != unknown
        }
        longest_first = sorted(self.control.values(), key=lambda text: (-len(text), text))
        self._spelled = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._known: dict[str, list[int]] = {}

    def plain(self, text: str) -> list[int]:
        """Ids of text from outside: no control token, whatever it spells."""
        return self.ids([Text(text)])

    def ids(self, spans: Sequence[Text]) -> list[int]:
        """Ids of the spans in a row; control tokens come from trusted spans only."""
        wanted = [number for span in spans if span.trusted for number in self._controls_of(span.text)]
        ids = self._encode("".join(span.text for span in spans))
        if self.controls(ids) == wanted:
            return ids
        for split in (self._around_spelled, list):
            ids = [number for part in _parts(spans, split) for number in self._encode(part)]
            if self.controls(ids) == wanted:
                return ids
        raise ConfigError(
            "the tokenizer turns plain text into control tokens even one character at a time; "
            "such a tokenizer cannot be used, since tools and users could write control tokens"
        )

    def controls(self, ids: Iterable[int]) -> list[int]:
        """The control tokens among ``ids``, in order."""
        return [number for number in ids if number in self.control]

    def harmless(self, text: str) -> str:
        """``text`` with a space inside whatever spells a control token: for documentation of tools,
        which passes through the template as a whole."""
        while (found := self._spelled.search(text)) is not None:
            text = f"{text[: found.start() + 1]} {text[found.start() + 1 :]}"
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _controls_of(self, text: str) -> list[int]:
        if text not in self._known:
            if len(self._known) > 1024:
                self._known.clear()
            self._known[text] = self.controls(self._encode(text))
        return self._known[text]

    def _around_spelled(self, text: str) -> list[str]:
        """``text`` cut inside every spelled control token, so that no part holds a whole one."""
        parts: list[str] = []
        while (found := self._spelled.search(text)) is not None:
            parts.append(text[: found.start() + 1])
            text = text[found.start() + 1 :]
        return [*parts, text]


def _parts(spans: Sequence[Text], split: Any) -> list[str]:
    """Stretches to encode one by one: as long as can be, but never across a cut."""
    parts = [""]
    for span in spans:
        first, *rest = [span.text] if span.trusted else (split(span.text) or [""])
        parts[-1] += first
        parts += rest
    return parts

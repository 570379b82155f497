"""Whether the words of a task, and the answers on the way, tell the agent every value that it needs.

A text need not be repeated letter by letter: case, white space and punctuation between words may differ,
a number may be spelled or rounded (``three``, ``5 %``, ``1,500``), a date may have its month in words, and
of an option one word or its stem is enough. Flags, blanks, optional arguments at their default, the number
one (what a singular says) and a choice among few options need no word. A value that is computed from others
counts as not told.
"""

# ruff: noqa: SIM905 - word lists read better as text

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from coevolve.explore.schema import Parameter, read_tool
from coevolve.types import Json, ToolCall, ToolSpec, canonical
from coevolve.values import leaves

_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(
    r"(?<!\w)(-?)(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*(%|k\b|thousand\b|million\b)?",
    re.I,
)
_PLAIN = re.compile(r"(?<![\w.])\d+(?:\.\d+)?")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_SCALES = {"%": 0.01, "k": 1e3, "thousand": 1e3, "million": 1e6}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_ORDINALS = "first second third fourth fifth sixth seventh eighth ninth tenth".split()
_SPELLED = {
    **{word: float(n) for n, word in enumerate(_UNITS)},
    **{word: 10.0 * n for n, word in enumerate(_TENS, 2)},
    **{word: float(n) for n, word in enumerate(_ORDINALS, 1)},
    **{"single": 1.0, "once": 1.0, "both": 2.0, "pair": 2.0, "twice": 2.0, "half": 0.5, "dozen": 12.0},
    **{"hundred": 100.0, "thousand": 1000.0, "million": 1e6},
}
_STEM = 4
"""Letters by which two words of an option are taken for the same: park, parking."""
_FEW = 4
"""Options among which an agent that tries several times finds the right one, if nothing else says it."""


class Told:
    """What has been said so far."""

    def __init__(self) -> None:
        self._text = ""
        self._words = " "
        self._numbers: set[float] = set()

    def add(self, text: str) -> None:
        """Hear one more text."""
        self._text += "\n" + text.casefold()
        words = [word.casefold() for word in _WORD.findall(text)]
        self._words += " ".join(words) + " "
        self._numbers |= _numbers(text, words)

    def tells(self, value: str | float, options: Sequence[Json] = ()) -> bool:
        """Whether someone who has heard all this knows ``value``, which is one of ``options`` if any."""
        if not isinstance(value, str):
            return self._tells_number(value)
        words = [word.casefold() for word in _WORD.findall(value)]
        if not words or not value.isascii():
            # Signs alone, and scripts that put no space between words.
            return value.strip().casefold() in self._text or (bool(words) and self._tells_words(words))
        if self._tells_words(words) or self._tells_date(value):
            return True
        if re.fullmatch(r"-?\d+(\.\d+)?", value) and self._tells_number(float(value)):
            return True
        return value in options and any(self._tells_stem(word) for word in words)

    def _tells_words(self, words: Sequence[str]) -> bool:
        return f" {' '.join(words)} " in self._words

    def _tells_number(self, number: float) -> bool:
        try:
            value = float(number)
        except OverflowError:
            return self._tells_words([str(abs(number))])
        return any(_close(value, said) for said in self._numbers)

    def _tells_date(self, value: str) -> bool:
        found = _DATE.match(value)
        if found is None or not 1 <= int(found[2]) <= 12:
            return False
        month = re.search(rf" {_MONTHS[int(found[2]) - 1]}[a-z]*\b", self._words)
        day = re.search(rf" 0?{int(found[3])}(st|nd|rd|th)?\b", self._words)
        return month is not None and day is not None

    def _tells_stem(self, word: str) -> bool:
        start = word[:_STEM]
        return f" {word} " in self._words or (len(word) >= _STEM and f" {start}" in self._words)


def unstated(
    turns: Sequence[str],
    solution: Sequence[Sequence[ToolCall]],
    answers: Sequence[str],
    tools: Mapping[str, ToolSpec],
) -> tuple[str, str] | None:
    """Parameter and value of the first argument that nothing told the agent before it had to be given.

    Args:
        turns: what the user says, turn by turn.
        solution: calls, turn by turn.
        answers: what each call of the solution answered, in order.
        tools: specifications by name, for defaults and options.
    """
    told = Told()
    known: set[str] = set()
    answer = iter(answers)
    for text, calls in zip(turns, solution, strict=True):
        told.add(text)
        for call in calls:
            spec = tools.get(call.name)
            parameters = {p.name: p for p in read_tool(spec).parameters} if spec else {}
            for name, argument in call.arguments.items():
                parameter = parameters.get(name)
                if _needs_no_word(argument, parameter):
                    continue
                options = _options(parameter)
                for value in leaves(argument):
                    if value == 1 or (value in options and len(options) <= _FEW):
                        continue
                    if canonical(value) not in known and not told.tells(value, options):
                        return name, str(value)
                    known.add(canonical(value))
            told.add(next(answer))
    return None


def _needs_no_word(argument: Json, parameter: Parameter | None) -> bool:
    if argument is None or isinstance(argument, bool):
        return True
    if parameter is None or parameter.required:
        return False
    return canonical(argument) == canonical(parameter.default)


def _options(parameter: Parameter | None) -> tuple[Json, ...]:
    if parameter is None:
        return ()
    return parameter.options or (parameter.items.options if parameter.items else ())


def _close(value: float, said: float) -> bool:
    """Equal, or ``value`` is a fraction: what was told, rounded to its decimals."""
    if abs(value - said) <= 1e-9 * max(1.0, abs(value)):
        return True
    decimals = len(repr(value).partition(".")[2].rstrip("0"))
    return decimals > 0 and abs(value - said) <= 0.5 * 10.0**-decimals


def _numbers(text: str, words: Sequence[str]) -> set[float]:
    found: set[float] = {float(plain) for plain in _PLAIN.findall(text)}
    for sign, digits, scale in _NUMBER.findall(text):
        value = float(digits.replace(",", ""))
        found |= {value, -value} if sign else {value}
        if scale:
            found.add(value * _SCALES[scale.lower()])
    for at, word in enumerate(words):
        if word not in _SPELLED:
            continue
        value = _SPELLED[word]
        found.add(value)
        following = _SPELLED.get(words[at + 1]) if at + 1 < len(words) else None
        if following is not None and word in _TENS and following < 10:
            found.add(value + following)
        if following is not None and following >= 100:
            found.add(value * following)
    return found

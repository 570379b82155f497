"""Instructions for reference calls, worded from the tools' own descriptions (section 3.3).

One clause per call, joined into one message. Arguments appear verbatim beside the human name of
their parameter; a value that the agent must read from an earlier answer is referred to instead.
No call syntax, no tool names.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping, Sequence

from coevolve.explore.schema import Parameter, Tool, read_tool
from coevolve.explore.words import split_name
from coevolve.synthesize.links import Link, links
from coevolve.synthesize.phrases import field_phrase, parameter_phrase, verb_phrase
from coevolve.types import Json, Observation, ToolCall, ToolSpec, canonical

_OPENERS = ("", "", "please ", "could you ", "I want you to ", "I need you to ")
_CONNECTORS = ("then ", "after that, ", "next, ", "also ")
_ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


def instruction(
    calls: Sequence[ToolCall],
    tools: Mapping[str, ToolSpec],
    observations: Sequence[Observation],
    rng: random.Random,
    earlier: Sequence[tuple[ToolCall, Observation]] = (),
) -> str:
    """One user message that asks for exactly ``calls``, in order.

    Args:
        calls: reference calls of one turn, at least one.
        tools: specifications by name; a call of an unknown tool is worded from its name.
        observations: what each call answered, in order.
        rng: the only source of variation.
        earlier: calls and answers of earlier turns of the same task, which may be referred to.
    """
    every = [call for call, _ in earlier] + list(calls)
    seen = [observation for _, observation in earlier] + list(observations)
    read = [read_tool(tools[call.name]) if call.name in tools else None for call in every]
    known = [read_tool(spec) for spec in tools.values()]
    found = links(every, seen, read)
    clauses = []
    for i in range(len(earlier), len(every)):
        references = {x.parameter: _reference(x) for x in found if x.user == i}
        clauses.append(_clause(every[i], read[i], known, references, rng))
    return _join(clauses, rng)


def _join(clauses: Sequence[str], rng: random.Random) -> str:
    sentences: list[str] = []
    question = False
    for index, clause in enumerate(clauses):
        opener = rng.choice(_OPENERS) if index == 0 else rng.choice(_CONNECTORS)
        if index and rng.random() < 0.5 and not question and len(sentences[-1]) < 160:
            link = rng.choice((" and then ", ", then ", " and "))
            sentences[-1] += link + clause
            continue
        question = opener == "could you "
        sentences.append(opener + clause)
    ended = []
    for sentence in sentences:
        ended.append(sentence[0].upper() + sentence[1:] + ("?" if sentence.startswith("could you ") else "."))
    return " ".join(ended)


def _clause(
    call: ToolCall,
    tool: Tool | None,
    known: Sequence[Tool],
    references: Mapping[str, str],
    rng: random.Random,
) -> str:
    phrase = verb_phrase(tool) if tool else " ".join(split_name(call.name))
    if tool and any(t.name != tool.name and verb_phrase(t) == phrase for t in known):
        phrase += f" ({' '.join(split_name(tool.name))})"
    parameters = {p.name: p for p in tool.parameters} if tool else {}
    parts: list[tuple[Parameter | None, str, str]] = []
    for name in [
        *(n for n in parameters if n in call.arguments),
        *(n for n in call.arguments if n not in parameters),
    ]:
        parameter, value = parameters.get(name), call.arguments[name]
        if parameter and not parameter.required and canonical(value) == canonical(parameter.default):
            continue
        parts.append((parameter, _label(name, parameter), references.get(name) or render(value, parameter)))
    phrase = _alternative(phrase, [label for _, label, _ in parts])
    frame = rng.randrange(3)
    if frame == 0:
        phrase, parts = _fill(phrase, parts)
    if not parts:
        return phrase
    given = _listed([_with(*part) for part in parts])
    if frame == 1 and len(parts) > 1:
        return f"{phrase}: {', '.join(_with(*part) for part in parts)}"
    if frame == 2:
        return f"{phrase} using {given}"
    return f"{phrase} with {given}"


def _alternative(phrase: str, labels: Sequence[str]) -> str:
    """Of 'write to a file or display it …' the half that is meant: is a file given or not?"""
    found = re.match(r"(.*\b(?:a|the) (\w+)) or (\w+ (?:it|them|content) .+)$", phrase)
    if not found:
        return phrase
    return found[1] if any(label.split()[0] == found[2] for label in labels) else found[3]


def _with(parameter: Parameter | None, label: str, value: str) -> str:
    if parameter is not None and parameter.type == "boolean" and value == "true" and len(label.split()) > 3:
        return f"the option to {label}"
    if parameter is not None and parameter.type == "boolean":
        return f"{label} set to {value}"
    return f"{label} {value}"


def _label(name: str, parameter: Parameter | None) -> str:
    return parameter_phrase(parameter) if parameter else field_phrase(name)


def _fill(
    phrase: str, parts: list[tuple[Parameter | None, str, str]]
) -> tuple[str, list[tuple[Parameter | None, str, str]]]:
    """Put the first argument beside the noun it names: 'the file "x"' instead of 'a file with …'."""
    for index, (parameter, label, value) in enumerate(parts):
        if parameter is None or parameter.type == "boolean":
            continue
        noun = re.sub(r" (name|ID|number)$", "", label)
        pattern = re.compile(
            r"\b(a|an|the)( specific| specified| given| new| existing)? "
            rf"((?:\w+ or )?{re.escape(noun)}(?: or \w+(?=$| (?:to|from|in|of|at)\b))?)\b"
        )
        found = list(pattern.finditer(phrase))
        if len(found) == 1 and "ID" not in label:
            match = found[0]
            article = "the new" if match[2] == " new" else "the"
            filled = f"{phrase[: match.start()]}{article} {match[3]} {value}{phrase[match.end() :]}"
            return filled, parts[:index] + parts[index + 1 :]
    return phrase, parts


def _listed(items: Sequence[str]) -> str:
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + " and " + items[-1]


def render(value: Json, parameter: Parameter | None = None) -> str:
    """A value as a reader sees it: texts quoted, numbers bare, lists spoken."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return f'"{value}"' if "'" in value else f"'{value}'"
    if isinstance(value, list):
        return _listed([render(item) for item in value]) if value else "empty"
    if isinstance(value, dict):
        inner = {p.name: p for p in parameter.properties} if parameter else {}
        return (
            _listed([f"{_label(name, inner.get(name))} {render(v)}" for name, v in value.items()])
            or "nothing"
        )
    return json.dumps(value)


def _reference(link: Link) -> str:
    """'the booking ID you get'; with an ordinal where several answers brought different ones."""
    words = field_phrase(link.field)
    if link.among > 1:
        last = link.place == link.among - 1
        words = f"{'last' if last else _ORDINALS[min(link.place, len(_ORDINALS) - 1)]} {words}"
    return f"equal to the {words} you get"

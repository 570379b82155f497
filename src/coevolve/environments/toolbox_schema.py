"""Tool schemas from a class's methods: type hints by pydantic, words from the docstring."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticSchemaGenerationError, TypeAdapter, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from coevolve.errors import UnknownEnvironmentError
from coevolve.types import Json, ToolSpec

_RESERVED = frozenset({"state", "worlds", "close"})
_SECTION = re.compile(r"^\s*(Args|Arguments|Returns|Raises|Example|Examples):\s*$", re.MULTILINE)
_ARGUMENT = re.compile(r"^(\s+)(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")


@dataclass(frozen=True, slots=True)
class Method:
    """One method as a tool."""

    spec: ToolSpec
    model: type[BaseModel]

    def arguments(self, given: dict[str, Any]) -> dict[str, Any]:
        """Validated, typed keyword arguments; strict: nothing that JSON can say is coerced.

        Raises:
            pydantic.ValidationError: unknown, missing or ill-typed arguments.
        """
        model = self.model.model_validate_json(json.dumps(given), strict=True)
        return {name: getattr(model, name) for name in model.model_fields_set}


def methods(kind: type[Any]) -> dict[str, Method]:
    """The tools of a class, in the order of definition, base classes first.

    Raises:
        UnknownEnvironmentError: no tool, or one without a docstring or a type.
    """
    found: dict[str, Method] = {}
    for base in reversed(kind.__mro__[:-1]):
        for name, value in vars(base).items():
            if inspect.isfunction(value) and not name.startswith("_") and name not in _RESERVED:
                found[name] = _method(kind, name, value)
    if not found:
        raise UnknownEnvironmentError(f"{kind.__name__} has no public method to be a tool")
    return found


def _method(kind: type[Any], name: str, function: Callable[..., Any]) -> Method:
    where = f"{kind.__name__}.{name}"
    if not function.__doc__:
        raise UnknownEnvironmentError(f"{where} needs a docstring: it is what the agent reads")
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UnknownEnvironmentError(f"{where}: a type cannot be resolved: {error}") from None
    description, words = _words(inspect.cleandoc(function.__doc__))
    fields: dict[str, Any] = {}
    for parameter in list(inspect.signature(function).parameters.values())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise UnknownEnvironmentError(f"{where}: parameter {parameter.name!r} must be a plain named one")
        if parameter.name not in hints:
            raise UnknownEnvironmentError(f"{where}: parameter {parameter.name!r} needs a type")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (
            hints[parameter.name],
            Field(default, description=words.get(parameter.name)),
        )
    try:
        model: type[BaseModel] = create_model(name, __config__=ConfigDict(extra="forbid"), **fields)
        parameters = _untitled(model.model_json_schema())
    except (
        PydanticUserError,
        PydanticSchemaGenerationError,
        PydanticInvalidForJsonSchema,
        NameError,
    ) as error:
        raise UnknownEnvironmentError(
            f"{where}: its parameters cannot be described: {str(error).splitlines()[0]}"
        ) from None
    spec = ToolSpec(name, description, parameters, _returns(hints.get("return", Any)), kind.__name__)
    return Method(spec, model)


def _returns(hint: Any) -> dict[str, Json]:
    if hint is Any or hint is None or hint is type(None):
        return {}
    try:
        schema: dict[str, Json] = _untitled(TypeAdapter(hint).json_schema(mode="serialization"))
    except (PydanticUserError, PydanticSchemaGenerationError, PydanticInvalidForJsonSchema):
        return {}  # an answer may be anything that can be turned into text
    return schema


def _untitled(schema: Any, names: bool = False) -> Any:
    """Without pydantic's titles, which repeat the names; ``names`` marks a level of user's names."""
    if isinstance(schema, list):
        return [_untitled(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: _untitled(value, not names and key in ("properties", "$defs"))
        for key, value in schema.items()
        if names or key not in ("title", "additionalProperties") or not isinstance(value, (str, bool))
    }


def _words(text: str) -> tuple[str, dict[str, str]]:
    """The description, and one text per parameter of an ``Args:`` section."""
    heads = list(_SECTION.finditer(text))
    description = text[: heads[0].start()] if heads else text
    words: dict[str, str] = {}
    for head, following in zip(heads, [*heads[1:], None]):
        if head[1] not in ("Args", "Arguments"):
            continue
        last, indent = "", 0
        for line in text[head.end() : following.start() if following else None].splitlines():
            match = _ARGUMENT.match(line)
            if match and (not last or len(match[1]) <= indent):
                last, indent = match[2], len(match[1])
                words[last] = match[3].strip()
            elif last and line.strip():
                words[last] += f" {line.strip()}"
    return " ".join(description.split()), words

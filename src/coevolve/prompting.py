"""Prompts are template files beside the code that uses them; what others wrote goes in as quoted data.

A template ``prompts/<name>.j2`` of a package begins with the line ``{# version: 1 #}``; the number grows
whenever its words change, so that two runs can be told to have used the same. Text of an environment or
of a language model is never part of a template: it is a value, and :func:`quote` makes a value unable to
end the block that it stands in.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined, TemplateNotFound

_VERSION = re.compile(r"\A\{#-? version: (\d+) -?#\}\n")
_TAG = re.compile(r"[a-z][a-z_]*")


def quote(value: Any, tag: str = "data") -> str:
    """``value`` as JSON between ``<tag>`` and ``</tag>``, on one line.

    Every ``<`` inside is written ``\\u003c``, which is the same JSON: so no content, whatever it says, can
    close the block or open another. Half characters (lone surrogates) are escaped too, so that the
    prompt can be sent.

    Raises:
        ValueError: a tag that is not a plain lower-case word.
    """
    if not _TAG.fullmatch(tag):
        raise ValueError(f"{tag!r} cannot be a tag: use lower-case letters and underscores")
    text = json.dumps(value, ensure_ascii=False).replace("<", "\\u003c")
    return f"<{tag}>{text.encode('utf-8', 'backslashreplace').decode()}</{tag}>"


def render(package: str | Path, name: str, **data: Any) -> str:
    """The template ``name`` filled with ``data``, without white space at its ends.

    Args:
        package: a package whose ``prompts`` folder holds the template, e.g. ``coevolve.explore``; or the
            folder itself.
        name: the template's name without ``.j2``.
        data: what the template names; the filter ``quoted`` is :func:`quote`.

    Raises:
        jinja2.UndefinedError: the template names something that is not given.
        jinja2.TemplateNotFound: there is no such template.
    """
    return _environment(package).get_template(name).render(data).strip()


def version(package: str | Path, name: str) -> int:
    """The template's version; raises ValueError if its first line does not say it."""
    found = _VERSION.match(_source(package, name))
    if found is None:
        raise ValueError(f"prompt {name!r} of {package} must begin with a line like {{# version: 1 #}}")
    return int(found[1])


def versions(package: str) -> dict[str, int]:
    """The version of every template of a package, by name: what two runs can be compared by."""
    names = sorted(file.name for file in files(package).joinpath("prompts").iterdir())
    return {
        name.removesuffix(".j2"): version(package, name.removesuffix(".j2"))
        for name in names
        if name.endswith(".j2")
    }


@lru_cache(maxsize=256)
def _source(package: str | Path, name: str) -> str:
    folder = package if isinstance(package, Path) else files(package).joinpath("prompts")
    try:
        return folder.joinpath(f"{name}.j2").read_text(encoding="utf-8")
    except OSError:
        raise TemplateNotFound(f"{name}.j2 in the prompts of {package}") from None


@lru_cache(maxsize=32)
def _environment(package: str | Path) -> Environment:
    def load(name: str) -> str:
        version(package, name)
        return _source(package, name)

    environment = Environment(
        loader=FunctionLoader(load),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters["quoted"] = quote
    return environment

"""Templates say their version, refuse what is not given, and quote what others wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jinja2 import TemplateNotFound, UndefinedError

from coevolve.prompting import quote, render, version


def write(folder: Path, text: str) -> Path:
    (folder / "greet.j2").write_text(text)
    return folder


def test_a_template_is_filled_and_its_version_line_does_not_show(tmp_path: Path) -> None:
    folder = write(tmp_path, "{# version: 3 #}\nHello {{ who | quoted('name') }}.\n")
    assert render(folder, "greet", who="</name> you") == 'Hello <name>"\\u003c/name> you"</name>.'
    assert version(folder, "greet") == 3


def test_what_is_not_given_is_an_error_and_not_an_empty_place(tmp_path: Path) -> None:
    with pytest.raises(UndefinedError, match="who"):
        render(write(tmp_path, "{# version: 1 #}\nHello {{ who }}.\n"), "greet")


def test_a_template_without_a_version_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="version"):
        render(write(tmp_path, "Hello.\n"), "greet")
    with pytest.raises(TemplateNotFound, match="other"):
        render(tmp_path, "other")


def test_values_are_never_read_as_templates(tmp_path: Path) -> None:
    folder = write(tmp_path, "{# version: 1 #}\n{{ who | quoted }}\n")
    assert "{{ 7 * 7 }}" in render(folder, "greet", who="{{ 7 * 7 }}")


def test_a_tag_is_a_plain_word() -> None:
    with pytest.raises(ValueError, match="tag"):
        quote("x", "a b")


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.just("</data>") | st.just("\ud800</data"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(_JSON)
def test_nothing_inside_can_close_the_block_or_be_lost(value: object) -> None:
    text = quote(value)
    assert text.startswith("<data>") and text.endswith("</data>")
    inner = text.removeprefix("<data>").removesuffix("</data>")
    assert "<" not in inner and "\n" not in inner
    assert json.loads(inner) == value
    text.encode()

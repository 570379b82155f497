"""Made-up values come from an open vocabulary: a policy can only copy them."""

import random
import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coevolve.environments.bfcl import BfclEnvironment
from coevolve.explore.coinage import like
from coevolve.explore.corpus import Corpus

OPEN = ("file", "folder", "text", "title", "username", "address", "person", "password", "tag", "mention")


@pytest.fixture(scope="module")
def corpus(bfcl: BfclEnvironment) -> Corpus:
    return Corpus(bfcl, "train")


@pytest.mark.parametrize("kind", OPEN)
def test_a_made_value_seldom_returns(corpus: Corpus, kind: str) -> None:
    rng = random.Random(0)
    made = [corpus.invent(kind, rng) for _ in range(1000)]
    assert len(set(made)) >= 500, f"{kind}: only {len(set(made))} of 1000 differ"


@pytest.mark.parametrize("kind", OPEN)
def test_words_that_no_list_holds_are_among_them(corpus: Corpus, kind: str) -> None:
    rng = random.Random(1)
    early, late = (
        {word.lower() for text in texts for word in re.findall("[A-Za-z]+", text)}
        for texts in ([corpus.invent(kind, rng) or "" for _ in range(2000)] for _ in range(2))
    )
    assert len(late - early) > 100, "the second half of the values teaches hardly a new word"


@pytest.mark.parametrize("kind", OPEN)
def test_made_values_hold_no_quotes_or_line_breaks(corpus: Corpus, kind: str) -> None:
    rng = random.Random(2)
    assert not any(set(corpus.invent(kind, rng) or "") & set("\n\r'\"\\") for _ in range(1000))


@given(st.text(string.ascii_letters + string.digits + " _-.,:;!?#@$%/'", min_size=1, max_size=80))
def test_a_text_like_another_has_its_form(text: str) -> None:
    other = like(text, random.Random(0))
    between = re.compile(r"[A-Za-z0-9]+")
    assert between.split(other) == between.split(text)
    assert [len(re.findall(r"\d", t)) for t in (other, text)] == [len(re.findall(r"\d", text))] * 2
    assert len(re.findall("[A-Za-z]+", other)) == len(re.findall("[A-Za-z]+", text))


def test_a_text_like_another_is_seldom_the_same_and_keeps_a_file_a_file() -> None:
    made = [like("Annual_Report_2023.docx", random.Random(seed)) for seed in range(200)]
    assert len(set(made)) > 190
    assert all(name.endswith(".docx") for name in made)

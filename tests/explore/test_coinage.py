"""Made-up values come from an open vocabulary: a policy can only copy them."""

import random
import re

import pytest

from coevolve.environments.bfcl import BfclEnvironment
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

"""Made-up words, names and phrases: an open vocabulary, so that a value can only be copied, never recalled.

With a closed word list a small policy learns the words instead of copying: it wrote
'Annual_Report.docx' where 'Annual_Report_2023.docx' was asked for, and nothing that it sampled was
ever right.
"""
# ruff: noqa: SIM905 - letter groups read better as text

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_ONSETS = (
    "b br c ch cl cr d dr f fl g gl gr h j k l m n p ph pl pr qu r s sc sh sl sp st t th tr v w y z".split()
)
_VOWELS = "a e i o u a e i o ai ea ee oo ou ia io".split()
_CODAS = "n r l s t m d ck nd ng nt rk rt st ss x p lt".split()


def word(rng: random.Random) -> str:
    """A pronounceable lower-case word of one to three syllables that no list holds."""
    parts: list[str] = []
    for _ in range(rng.choice((1, 2, 2, 2, 3))):
        parts += (rng.choice(_ONSETS), rng.choice(_VOWELS))
        if rng.random() < 0.45:
            parts.append(rng.choice(_CODAS))
    return "".join(parts)


def name(nouns: Callable[[], str], rng: random.Random) -> str:
    """A name as people give to files and folders: one to three words, joined and cased in one manner."""
    words = [nouns() for _ in range(rng.choice((1, 1, 2, 2, 2, 2, 3)))]
    style = rng.random()
    if style < 0.2:
        words = [w.title() for w in words]
    elif style < 0.3:
        words = [w.title() if i else w for i, w in enumerate(words)]
    joint = "" if 0.1 < style < 0.3 else rng.choice("____-")
    if rng.random() < 0.35:
        words.append(
            rng.choice(
                (
                    str(rng.randint(1, 12)),
                    str(rng.randint(1990, 2035)),
                    f"v{rng.randint(1, 9)}",
                    str(rng.randint(100, 9999)),
                )
            )
        )
        if rng.random() < 0.3:
            words[-2:] = [words[-2] + words[-1]]
    return joint.join(words)


def figure(rng: random.Random) -> str:
    """A number as texts hold it: plain, with decimals, as money, as a share or with a unit."""
    plain = str(rng.randint(1, 10 ** rng.randint(1, 5)))
    return rng.choice(
        (
            plain,
            plain,
            f"${plain}",
            f"{rng.randint(0, 999)}.{rng.randint(0, 99):02d}",
            f"{rng.randint(1, 100)}%",
            f"#{plain}",
            f"{plain} {rng.choice(('km', 'PSI', 'kg', 'units', 'USD'))}",
        )
    )


def phrase(words: Sequence[str], nouns: Callable[[], str], rng: random.Random) -> str:
    """Two to twelve words in no order that a grammar would foretell, punctuated as notes are."""
    style = rng.random()
    if style < 0.3:  # a list of labelled figures
        joint = rng.choice((", ", "; ", " | ", " "))
        sign = rng.choice((": ", ": ", " = ", " - "))
        items = [
            f"{' '.join(nouns().title() for _ in range(rng.choice((1, 1, 2, 3))))}{sign}{figure(rng)}"
            for _ in range(rng.choice((1, 2, 3, 4)))
        ]
        return joint.join(items)
    drawn: list[str] = []
    for _ in range(rng.randint(2, 7) if style < 0.9 else rng.randint(8, 12)):
        kind = rng.random()
        drawn.append(nouns() if kind < 0.35 else figure(rng) if kind < 0.42 else rng.choice(words))
        if rng.random() < 0.08:
            drawn[-1] += rng.choice((",", ",", ":", " -", "!", "?"))
    if style < 0.45:
        drawn = [w.title() for w in drawn]
    elif style < 0.9:
        drawn[0] = drawn[0][0].upper() + drawn[0][1:]
    return " ".join(drawn) + rng.choice(("", ".", ".", "!", "?"))

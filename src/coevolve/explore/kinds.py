"""Kinds of values: a person, a file, a symbol, an id. A value is offered only where its kind fits.

One table of English serves parameters (name, then description) and places in data (key, then the
key above it), so that both sides of an offer are judged alike.
"""
# ruff: noqa: SIM905 - word lists read better as text

from __future__ import annotations

import re
from functools import lru_cache

from coevolve.explore.words import singular, split_name

CONTAINERS = frozenset(
    "list map record queue history lookup table collection info data details dictionary ids status new all "
    "available existing latest last registered my".split()
)
_VERBS = frozenset(
    "get set add create delete remove edit close resolve cancel place post purchase register retrieve book "
    "list view search find send update make fetch show open start stop".split()
)

# (pattern over the words of the name, kind); the first that matches wins. Types are checked apart.
_NAMES: tuple[tuple[str, str], ...] = (
    (r"\b(password|passphrase|pin)$", "password"),
    (r"\brefresh token$|\bapi key$", "credential"),
    (r"\btoken$", "token"),
    (r"\b(client|app) id$", "credential"),
    (r"\bsecret$", "credential"),
    (r"\bfirst name$", "first_name"),
    (r"\b(last|family) name$|\bsurname$", "last_name"),
    (r"\b(cardholder|full|person|customer|traveler|holder) name$", "person"),
    (r"\b(user ?name|user name)\b|\busernames?\b|^users?$|\bmentioned usernames$", "username"),
    (r"\b(file ?name|file)( \d)?$", "file"),
    (r"\b(dir|directory|folder)( name)?$", "folder"),
    (r"\bpath$", "path"),
    (r"\bcard (number)$", "card_number"),
    (r"\bpassport\b", "passport"),
    (r"\bcard verification\b|\bcvv\b", "security_code"),
    (r"\b(expiration|expiry) date$", "month"),
    (r"\bbirth\b", "birth_date"),
    (r"\bdate$", "date"),
    (r"\b(timestamp|datetime|time|modified after)$", "datetime"),
    (r"\bcurrency$", "currency"),
    (r"\bunit (in|out)$|\bunits?$", "unit"),
    (r"\b(zip ?code|postal code|zip)$", "zip"),
    (r"\bsector$", "sector"),
    (r"\bstocks?$|\bsymbols?$|\bticker$|\bwatch ?list$|\bstock list$|\bwatch list$", "symbol"),
    (r"\bcompany( name)?$", "company"),
    (r"\bairports?$", "airport"),
    (r"\bcity$|\bcities$", "city"),
    (r"\b(following|followers?)( list)?$", "username"),
    (r"\b(tags?|hashtags?)$", "tag"),
    (r"\bmentions?$", "mention"),
    (r"\b(keyword|query|pattern)s?$", "keyword"),
    (r"\b(title|subject|label)$", "title"),
    (r"\b(content|message|comment|description|resolution|body|text|note|messages|results?)$", "text"),
    (r"\b(priority|level)$", "priority"),
    (r"\bid$", "id"),
)
# The same for descriptions, where the name says nothing.
_DESCRIPTIONS: tuple[tuple[str, str], ...] = (
    (r"\buser id\b", "id:user"),
    (r"\bfile or directory\b|\bfile or folder\b", "entry"),
    (r"\bzip ?code\b", "zip"),
    (r"\bairport\b", "airport"),
    (r"\bstock symbol|symbol of the stock\b", "symbol"),
    (r"\bname of the company\b|\bcompany name\b", "company"),
    (r"\bstreet\b", "address"),
    (r"\buser ?name\b|\bname of (the |a )?user\b", "username"),
    (r"\b(location|city)\b", "place"),
    (r"\bsearch for\b", "keyword"),
)
_BY_ENTITY = re.compile(r"\b([a-z]+) id$")
_NAME = [(re.compile(p), k) for p, k in _NAMES]
_DESCRIPTION = [(re.compile(p), k) for p, k in _DESCRIPTIONS]
# Kinds that numbers can have, and the words that say so.
_NUMERIC = re.compile(
    r"\b(price|cost|amount|balance|budget|limit|threshold|temperature|speed|distance|percentage|volume|"
    r"fuel|gallons?|liters?|pressure|number|numbers|count|lines|precision|base|exponent|value|part|whole|"
    r"position|shares|level|places|a|b)\b"
)


def entity(name: str) -> str:
    """What a name speaks of: ``ticket_queue`` → ``ticket``, ``create_ticket`` → ``ticket``."""
    words = [singular(w) for w in split_name(name)]
    kept = [w for w in words if w not in CONTAINERS and w not in _VERBS and not w.isdigit()]
    return (kept or words or ["thing"])[-1]


@lru_cache(maxsize=65536)
def parameter_kind(name: str, description: str, type_name: str) -> str:
    """The kind of a parameter or of a place in data.

    Numbers are ``number:<word>`` unless they are ids; texts fall back to ``word:<name>``, which
    matches only places of the same name: an insurance type is no token type.
    """
    words = " ".join(split_name(name))
    lowered = description.lower()
    if type_name == "boolean":
        return "bool"
    if type_name in ("integer", "number"):
        if re.search(r"\bid$", words):
            return _id_kind(words, lowered)
        found = next((k for p, k in _NAME if k in ("priority", "security_code") and p.search(words)), None)
        if found:
            return found
        match = [m.group(1) for m in _NUMERIC.finditer(words)]
        telling = [m for m in match if m not in ("amount", "number", "level", "limit", "value")] or match
        return f"number:{singular(telling[-1])}" if telling else f"number:{entity(name)}"
    for pattern, kind in _NAME:
        if pattern.search(words):
            return _id_kind(words, lowered) if kind == "id" else kind
    for pattern, kind in _DESCRIPTION:
        if pattern.search(lowered):
            return kind
    return f"word:{words}"


def _id_kind(words: str, description: str) -> str:
    found = _BY_ENTITY.search(words)
    if "user id" in description:
        return "id:user"
    return f"id:{singular(found.group(1))}" if found else "id"


def family(kind: str) -> str:
    """``word:insurance type`` belongs to ``word:type``; other kinds are their own family."""
    return f"word:{kind.rpartition(' ')[2]}" if kind.startswith("word:") and " " in kind else kind


SAME: dict[str, tuple[str, ...]] = {
    # A parameter of the first kind also takes values of these.
    "entry": ("file", "folder"),
    "path": ("folder",),
    "place": ("airport", "city"),
    "mention": ("username",),
    "title": (),
    "person": (),
}


def accepted(kind: str) -> tuple[str, ...]:
    """Kinds of values that fit a parameter of this kind, best first."""
    return (kind, *SAME.get(kind, ()))

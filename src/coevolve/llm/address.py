"""The address of an endpoint: whether it is one, and how it may be written down."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def is_address(url: str) -> bool:
    """Whether requests could be sent to ``url``."""
    try:
        parts = urlsplit(url)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port or an IPv6 address that cannot be
        return False
    return whole and url.isprintable() and " " not in url


def plain_url(url: str) -> str:
    """``url`` without user, password and query, which may be secrets."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))

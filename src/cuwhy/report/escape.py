"""Strings from outside, made safe for a terminal."""

from __future__ import annotations

_MAX_TEXT = 4000


def safe(text: str, limit: int = _MAX_TEXT) -> str:
    """Return ``text`` with every character that is not printable shown as an escape.

    Control characters, terminal escapes, bidirectional overrides and surrogates come
    from names that strangers chose; none of them reaches the terminal.
    """
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)

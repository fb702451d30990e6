"""Elements of HTML and SVG; every text and attribute is escaped here and nowhere else."""

from __future__ import annotations

from html import escape

from cuwhy.report.escape import safe

#: Elements that have no end tag in HTML.
_VOID = frozenset({"meta", "br", "hr", "col", "link"})
_MAX_TEXT = 4000


class Markup(str):
    """Text that is markup already."""

    __slots__ = ()


#: What an element can hold; None holds nothing.
Child = Markup | str | int | None


def text(value: str, limit: int = _MAX_TEXT) -> Markup:
    """Return a string from outside as text: no markup, no control characters, no overrides of direction."""
    return Markup(escape(safe(value, limit), quote=True))


def el(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """Return an element.

    Args:
        name: of the element.
        children: markup as it is, anything else as text.
        attributes: ``class_`` is ``class``, ``_`` is ``-``; True has no value, None and False are left out.
    """
    parts = [f"<{name}"]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        if isinstance(value, float):
            value = f"{value:.2f}".rstrip("0").rstrip(".")
        parts.append(f" {key}" if value is True else f' {key}="{text(str(value))}"')
    parts.append(">")
    if name in _VOID:
        return Markup("".join(parts))
    parts += [
        child if isinstance(child, Markup) else text(str(child)) for child in children if child is not None
    ]
    parts.append(f"</{name}>")
    return Markup("".join(parts))


def join(*pieces: Markup) -> Markup:
    """Return pieces one after another."""
    return Markup("".join(pieces))

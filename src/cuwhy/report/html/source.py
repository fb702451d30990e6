"""Source lines around the places that a finding names, each place marked in words and colour."""

from __future__ import annotations

from cuwhy.model.diagnosis import Diagnosis, Finding, Listing
from cuwhy.model.place import Frame, Place
from cuwhy.report.html.markup import Markup, el, join


def marks_of(finding: Finding) -> dict[tuple[str, int], tuple[str, str]]:
    """Return (file, line) -> (class, words) of every line that a finding names."""
    marks: dict[tuple[str, int], tuple[str, str]] = {}

    def mark(frame: Frame | None, kind: str, words: str) -> None:
        if frame is not None and frame.file is not None and frame.line is not None:
            marks.setdefault((frame.file, frame.line), (kind, words))

    for place, words in ((finding.place, "here"), (finding.other, "and here")):
        if place is None:
            continue
        mark(place.user, "bad", words)
        for frame in place.frames:
            mark(frame, "step", "inlined" if frame is not place.user else words)
    mark(finding.host, "step", "host line")
    return marks


def source_tables(diagnosis: Diagnosis, finding: Finding) -> Markup | None:
    """Return the listings of a finding's places, None when no source was handed over."""
    marks = marks_of(finding)
    tables = []
    for listing in diagnosis.listings:
        last = listing.first + len(listing.lines) - 1
        named = [line for file, line in marks if file == listing.file and listing.first <= line <= last]
        if named:
            tables.append(_table(listing, marks))
    return join(*tables) if tables else None


def _table(listing: Listing, marks: dict[tuple[str, int], tuple[str, str]]) -> Markup:
    rows = []
    for number, line in enumerate(listing.lines, listing.first):
        kind, words = marks.get((listing.file, number), (None, ""))
        rows.append(
            el(
                "tr",
                el("td", str(number), class_="num"),
                el("td", line or " ", class_="code"),
                el("td", words, class_="say"),
                class_=kind,
            )
        )
    return el(
        "div",
        el("table", el("caption", listing.file), el("tbody", *rows), class_="source"),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=f"source of {listing.file}",
    )


def chain(place: Place) -> Markup:
    """Return the inline and call chain, innermost first."""
    user = place.user
    items = []
    for frame in place.frames:
        where = f"{frame.file}:{frame.line}" if frame.file is not None else "no line table"
        items.append(
            el(
                "li",
                el("span", where, class_="code"),
                f" in {frame.function}" if frame.function else None,
                el("span", " — your code", class_="soft")
                if frame is user and len(place.frames) > 1
                else None,
            )
        )
    return el("ol", *items, class_="chain")

#!/usr/bin/env python3
"""Write docs/catalogue.md from the READMEs of the causes; ``--check`` says whether it is current."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from cuwhy.causes.catalogue import UNKNOWN, Entry, catalogue
from cuwhy.causes.confidence import confidence_of

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "catalogue.md"

_INTRODUCTION = """\
# Catalogue of causes

Every kind of failure that cuwhy can name. `cuwhy explain NAME` prints one of these pages in a terminal.
Confidence says how often the rule was right over the [corpus](../corpus/README.md), out of all cases where it
decided or should have.

<!-- Written by scripts/catalogue.py; do not edit. -->
"""


def page() -> str:
    """Return the text that docs/catalogue.md should have."""
    entries = catalogue()
    rows = "".join(f"{row}\n" for row in _table(entries))
    pages = "".join(f"\n{demoted(entry.text)}" for entry in entries)
    return f"{_INTRODUCTION}\n{rows}{pages}"


def _table(entries: tuple[Entry, ...]) -> Iterator[str]:
    yield "| cause | what it is | severity | confidence |"
    yield "|---|---|---|---|"
    for entry in entries:
        cause = entry.cause
        confidence = confidence_of(cause.name)
        share = f"{confidence.hits} of {confidence.hits + confidence.misses}"
        if cause.name.startswith(UNKNOWN):
            share = "–"
        yield f"| [{cause.name}](#{anchor(cause.name)}) | {cause.title} | {cause.severity.value} | {share} |"


def anchor(heading: str) -> str:
    """Return the fragment that GitHub gives to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def demoted(text: str) -> str:
    """Return Markdown with every heading one level lower; a ``#`` inside a code block is no heading."""
    lines, fence = [], ""
    for line in text.strip().splitlines():
        mark = line.strip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
        lines.append(f"#{line}" if line.startswith("#") and not fence else line)
    return "\n".join(lines) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Write or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/catalogue.md from the causes' READMEs.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when it is not current")
    check: bool = parser.parse_args(argv).check
    wanted = page()
    if PAGE.exists() and PAGE.read_text("utf-8") == wanted:
        return 0
    if check:
        print("docs/catalogue.md is not current: run `python scripts/catalogue.py`", file=sys.stderr)
        return 1
    PAGE.write_text(wanted, "utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

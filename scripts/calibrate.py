#!/usr/bin/env python3
"""Count how often each rule is right over the corpus and write src/cuwhy/causes/confidence.json.

A case is decided by its first primary finding. A rule *hits* when the truth names it, it comes first, and it
points at the right line. It *misses* when it comes first on a case that is about something else or about
nothing, when the truth names it and it does not come first, or when it comes first and points elsewhere.
Causes of the class ``unknown`` are not counted: they claim nothing.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuwhy import diagnose
from cuwhy.causes.catalogue import UNKNOWN
from cuwhy.causes.confidence import TABLE
from cuwhy.model.diagnosis import Diagnosis, Finding, Role
from cuwhy.model.errors import CuwhyError
from cuwhy.model.place import Frame

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT / "corpus"
EVIDENCE = "evidence.cuwhy"

#: Causes whose line to change is on the host; there the truth's ``wrong_line`` is a right answer as well.
HOST_CAUSES = frozenset({"memory/host-index-out-of-range"})


@dataclass(frozen=True, slots=True)
class Verdict:
    """How a diagnosis compares with the truth of its case.

    Attributes:
        expected: the cause that the truth names, empty in an ``ok_`` case.
        first: the cause of the first primary finding, empty when there is none.
        right: True when the diagnosis is what the truth asks for.
        hit: the rule that hit, empty when none did.
        misses: the rules that missed.
        why: one phrase for the table.
    """

    expected: str
    first: str
    right: bool
    hit: str
    misses: tuple[str, ...]
    why: str


def judge(truth: Mapping[str, Any], diagnosis: Diagnosis | None) -> Verdict:
    """Compare a diagnosis with the truth of its case; None stands for evidence that could not be read."""
    expected = str(truth.get("cause", ""))
    finding = _first_primary(diagnosis)
    first = finding.cause.name if finding is not None else ""
    if first == expected:
        if finding is None:
            return Verdict(expected, first, True, "", (), "clean")
        if _is_placed(truth, finding):
            return Verdict(expected, first, True, first, (), "hit")
        return Verdict(expected, first, False, "", (first,), f"wrong line: {_places(finding)}")
    # The rule that spoke out of turn and the one that should have spoken both miss.
    misses = tuple(name for name in (first, expected) if name and not name.startswith(UNKNOWN))
    why = "false alarm" if not expected else "another cause" if first else "nothing found"
    return Verdict(expected, first, False, "", misses, why)


def _first_primary(diagnosis: Diagnosis | None) -> Finding | None:
    findings = diagnosis.findings if diagnosis is not None else ()
    return next((f for f in findings if f.role is Role.PRIMARY), None)


def _is_placed(truth: Mapping[str, Any], finding: Finding) -> bool:
    if truth.get("unplaced"):
        # The evidence holds no line of the user's at all; naming one would be a guess.
        return finding.host is None and (finding.place is None or not finding.place.frames)
    keys = ["line", "lines", "call_line"]
    if finding.cause.name in HOST_CAUSES:
        keys.append("wrong_line")
        if "earlier one" in finding.misleading:
            # The line an asynchronous error surfaced at is right when it is said to be only that.
            keys.append("blamed_line")
    lines: set[int] = set()
    for key in keys:
        value = truth.get(key, [])
        lines.update(value if isinstance(value, list) else [value])
    if not lines or "file" not in truth:
        return True
    return any(_base(frame) == truth["file"] and frame.line in lines for frame in _frames(finding))


def _frames(finding: Finding) -> Iterator[Frame]:
    for place in (finding.place, finding.other):
        if place is not None:
            yield from place.frames
    if finding.host is not None:
        yield finding.host


def _base(frame: Frame) -> str:
    return (frame.file or "").replace("\\", "/").rpartition("/")[2]


def _places(finding: Finding) -> str:
    return ", ".join(dict.fromkeys(frame.short for frame in _frames(finding))) or "no place"


def cases(corpus: Path) -> list[Path]:
    """Return the folder of every case, by name."""
    return sorted(truth.parent for truth in corpus.glob("*/*/*/truth.toml"))


def load_truth(case: Path) -> dict[str, Any]:
    """Return the truth of a case."""
    return tomllib.loads((case / "truth.toml").read_text("utf-8"))


def examine(case: Path) -> Verdict:
    """Diagnose one case from its evidence and compare."""
    try:
        diagnosis = diagnose([case / EVIDENCE], sources=[case])
    except CuwhyError as error:
        verdict = judge(load_truth(case), None)
        # Silence of a reader that failed is no clean bill of health.
        return Verdict(verdict.expected, "", False, "", verdict.misses, f"unreadable: {error}")
    return judge(load_truth(case), diagnosis)


def count(verdicts: Iterable[Verdict]) -> str:
    """Return the content of confidence.json."""
    hits: Counter[str] = Counter()
    misses: Counter[str] = Counter()
    for verdict in verdicts:
        if verdict.hit:
            hits[verdict.hit] += 1
        misses.update(verdict.misses)
    causes = {name: {"hits": hits[name], "misses": misses[name]} for name in sorted({*hits, *misses})}
    return json.dumps({"version": 1, "causes": causes}, indent=2, sort_keys=True) + "\n"


def main(argv: list[str] | None = None) -> int:
    """Judge every case and write or check the table; returns the exit code."""
    parser = argparse.ArgumentParser(description="Count each rule's hits and misses over the corpus.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when it is not current")
    parser.add_argument(
        "--corpus", type=Path, default=CORPUS, metavar="DIR", help="the cases (default: corpus)"
    )
    parser.add_argument(
        "--table", type=Path, default=TABLE, metavar="FILE", help="the table to write or check"
    )
    arguments = parser.parse_args(argv)
    folders = cases(arguments.corpus)
    bare = [folder for folder in folders if not (folder / EVIDENCE).is_file()]
    if bare or not folders:
        # A part of the corpus would give numbers that look like all of it.
        print(
            f"calibrate: {len(bare)} of {len(folders)} cases have no {EVIDENCE}"
            + (f", first {bare[0]}" if bare else ""),
            file=sys.stderr,
        )
        return 2
    verdicts = []
    width = max(len(str(folder.relative_to(arguments.corpus))) for folder in folders)
    for folder in folders:
        verdict = examine(folder)
        verdicts.append(verdict)
        name = str(folder.relative_to(arguments.corpus))
        mark = "ok  " if verdict.right else "MISS"
        found = f"  (found {verdict.first})" if verdict.first and verdict.first != verdict.expected else ""
        print(f"{mark}  {name:<{width}}  {verdict.why}{found}", flush=True)
    wanted = count(verdicts)
    print(f"\n{sum(v.right for v in verdicts)} of {len(verdicts)} cases right")
    for name, row in json.loads(wanted)["causes"].items():
        print(f"  {name:<{width}}  {row['hits']} hits, {row['misses']} misses")
    if arguments.table.is_file() and arguments.table.read_text("utf-8") == wanted:
        return 0
    if arguments.check:
        print(f"{arguments.table.name} is not current: run `python scripts/calibrate.py`", file=sys.stderr)
        return 1
    arguments.table.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

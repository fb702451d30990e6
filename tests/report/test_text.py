"""The terminal text: narrow, plain, short first, and free of what strangers put into names."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

import pytest

from cuwhy import diagnose
from cuwhy.model.diagnosis import Artefact, Cause, Diagnosis, Excerpt, Finding, Fix, Next, Severity
from cuwhy.model.facts import Argument, ErrorReport, Launch, Machine, Origin, Threads
from cuwhy.model.place import Frame, Place
from cuwhy.report.text import render

ROOT = Path(__file__).parent.parent.parent
CASES = sorted(ROOT.glob("corpus/*/*/*/evidence.cuwhy"))
EVIL = "a\x1b[31mred\x1b]0;title\x07\r\nb\u202egnp\u2066c\x00\x9b\u200d\ud800 " + "x" * 9000


def printable(text: str) -> bool:
    return all(
        c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp") for c in text
    )


@pytest.mark.parametrize("case", CASES, ids=lambda path: "/".join(path.parts[-4:-1]))
def test_fits_80_columns(case: Path) -> None:
    diagnosis = diagnose(case, sources=[case.parent])
    for verbose in (False, True):
        text = render(diagnosis, verbose=verbose)
        assert max(map(len, text.splitlines())) <= 80
        assert printable(text)
        assert text.endswith("\n")
    if diagnosis.primary is not None:
        first = render(diagnosis).splitlines()[0]
        assert first.startswith(diagnosis.primary.cause.name)
        # Short first: cause, place, fix within one screen.
        assert len(render(Diagnosis(findings=diagnosis.findings[:1])).splitlines()) <= 26
        assert re.search(r"\[\S+: .+\]", re.sub(r"\s+", " ", render(diagnosis, verbose=True))), (
            "no provenance"
        )


def hostile() -> Diagnosis:
    frame = Frame(EVIL, f"/{EVIL}.cu", 7)
    place = Place(EVIL, 16, 4096, (frame,), EVIL, EVIL, EVIL)
    launch = Launch(
        EVIL, EVIL, EVIL, 1, 0, grid=(1, 1, 1), block=(1, 1, 1),
        arguments=(Argument(0, 0, 8, EVIL, EVIL, 1, "00", True),), origin=Origin(EVIL, EVIL),
    )  # fmt: skip
    finding = Finding(
        Cause("memory/x", "x", Severity.CRASH), EVIL, why=(EVIL,), place=place, other=place, launch=launch,
        kernel=EVIL, threads=Threads(1, 1, 1, (0, 0, 0), (0, 0, 0), EVIL), host=frame, misleading=EVIL,
        details=((EVIL, EVIL),), fixes=(Fix(EVIL, caution=EVIL),),
    )  # fmt: skip
    return Diagnosis(
        findings=(finding,),
        facts=(Machine(EVIL, EVIL, 1, EVIL, EVIL, Origin(EVIL, EVIL)), launch, ErrorReport(700, EVIL, EVIL)),
        artefacts=(Artefact(EVIL, "log", 1, "0" * 64),),
        open=(Next(EVIL, EVIL, EVIL),),
        notes=(EVIL,),
        excerpts=(Excerpt(f"/{EVIL}.cu", 7, EVIL),),
    )


@pytest.mark.parametrize("verbose", [False, True])
def test_no_control_character_passes(verbose: bool) -> None:
    text = render(hostile(), verbose=verbose)
    assert printable(text)
    assert r"\x1b[31m" in text
    assert max(map(len, text.splitlines())) <= 80
    assert len(text) < 400_000


def test_colour_only_when_asked() -> None:
    case = ROOT / "corpus/memory/global-out-of-bounds/bad_starter_oob/evidence.cuwhy"
    diagnosis = diagnose(case)
    assert "\x1b" not in render(diagnosis, verbose=True)
    assert "\x1b[1m" in render(diagnosis, colour=True)


@pytest.mark.parametrize("width", [-5, 0, 1, 40, 10**6])
def test_any_width(width: int) -> None:
    assert render(hostile(), width=width, verbose=True)


def test_nothing_found_says_what_was_read() -> None:
    case = ROOT / "corpus/synchronization/shared-memory-race/ok_block_sum/evidence.cuwhy"
    text = render(diagnose(case))
    assert text.startswith("nothing found")
    assert "racecheck ran to its end with 0 errors" in text

"""Every corpus case, found by itself, is diagnosed from its recorded evidence and judged by its truth."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuwhy import diagnose
from cuwhy.case import open_case
from cuwhy.model.diagnosis import Diagnosis, Finding
from cuwhy.model.facts import Fault, Launch, SanitizerFault, Wait
from cuwhy.report.text import render

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
CORPUS = ROOT / "corpus"
CASES = sorted(path.parent for path in CORPUS.glob("*/*/*/truth.toml"))
BAD = [case for case in CASES if case.name.startswith("bad_")]
OK = [case for case in CASES if case.name.startswith("ok_")]

#: Keys of [expect] that describe the program, for people and later checks, not this diagnosis.
DESCRIPTIVE = {
    "array",
    "array_bytes",
    "direction",
    "missing_blocks",
    "grid_blocks",
    "waiting_blocks",
    "message",
}

#: Kinds of artefacts that may say nothing when they are read alone.
ABSTAINING = {"log", "launchlog", "reruns", "tensors"}


def ident(case: Path) -> str:
    return "/".join(case.relative_to(CORPUS).parts)


def truth_of(case: Path) -> dict[str, Any]:
    return tomllib.loads((case / "truth.toml").read_text("utf-8"))


def load_judge() -> Callable[[dict[str, Any], Diagnosis], Any]:
    spec = importlib.util.spec_from_file_location("calibrate", ROOT / "scripts" / "calibrate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["calibrate"] = module
    spec.loader.exec_module(module)
    return module.judge  # type: ignore[no-any-return]


def diagnosed(case: Path) -> Diagnosis:
    return diagnose([case / "evidence.cuwhy"], sources=[case])


def lines_of(finding: Finding) -> set[tuple[str, int]]:
    frames = [f for place in (finding.place, finding.other) if place is not None for f in place.frames]
    frames += [f for fact in finding.facts if isinstance(fact, Fault) for p in fact.stack for f in p.frames]
    if finding.host is not None:
        frames.append(finding.host)
    return {(f.file.rsplit("/", 1)[-1], f.line) for f in frames if f.file and f.line}


def wanted_lines(truth: dict[str, Any]) -> set[int]:
    return {truth[key] for key in ("line", "call_line") if key in truth} | set(truth.get("lines", ()))


def test_corpus_is_there() -> None:
    assert len(BAD) >= 40
    assert len(OK) >= 30


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_case_is_complete(case: Path) -> None:
    truth = truth_of(case)
    evidence = case / "evidence.cuwhy"
    assert evidence.is_file(), "record it (scripts/record_corpus.py) and pack it (scripts/pack_corpus.py)"
    assert evidence.stat().st_size <= 400 << 10
    assert (case / truth["file"]).is_file()
    assert truth["note"] or not truth["cause"]
    assert truth["cause"] == (
        "" if case.name.startswith("ok_") else "/".join(case.relative_to(CORPUS).parts[:2])
    )


@pytest.mark.parametrize("case", BAD, ids=ident)
def test_bad_case_names_cause_and_line(case: Path) -> None:
    truth = truth_of(case)
    diagnosis = diagnosed(case)
    finding = diagnosis.primary
    assert finding is not None
    assert finding.cause.name == truth["cause"], finding.sentence
    # racecheck's reports hold the functions of the two accesses, never the kernel.
    if truth["kernel"] and truth["cause"] != "synchronization/shared-memory-race":
        assert finding.kernel == truth["kernel"]
    found = lines_of(finding)
    if truth["cause"] == "memory/host-index-out-of-range" and "blamed_line" in truth:
        # The traceback of an asynchronous error ends too late; the finding must say so.
        assert (truth["file"], truth["blamed_line"]) in found
        assert "or at an earlier one" in finding.misleading
        assert any("CUDA_LAUNCH_BLOCKING=1" in question.step for question in diagnosis.open)
    elif "unplaced" in truth:
        assert not found
    else:
        assert {(truth["file"], line) for line in wanted_lines(truth)} & found
    assert finding.fixes
    assert finding.facts
    assert finding.confidence is not None


@pytest.mark.parametrize("case", OK, ids=ident)
def test_ok_twin_gives_no_finding(case: Path) -> None:
    diagnosis = diagnosed(case)
    assert diagnosis.findings == (), diagnosis.findings[0].sentence


@pytest.mark.parametrize("case", BAD, ids=ident)
def test_each_artefact_alone_agrees_or_abstains(case: Path, tmp_path: Path) -> None:
    """A dump or report read alone names the same cause; what is one half of a proof may say that it does not know."""
    truth = truth_of(case)
    with open_case(case / "evidence.cuwhy") as opened:
        for entry in opened.artefacts:
            if entry.kind in ("sass", "source"):
                continue
            path = tmp_path / Path(entry.path).name
            path.write_bytes(opened.read(entry.path))
            diagnosis = diagnose([path], sources=[case])
            named = [f.cause.name for f in diagnosis.findings if not f.cause.name.startswith("unknown/")]
            reports = [fact for fact in diagnosis.facts if isinstance(fact, SanitizerFault)]
            blind = bool(reports) and all(report.kind == "api-error" for report in reports)
            right = [[truth["cause"]], [truth.get("alone", truth["cause"])]]
            if entry.kind in ABSTAINING or blind:
                assert named in ([], *right), entry.path
            else:
                assert named[:1] in right, entry.path


@pytest.mark.parametrize("case", CASES, ids=ident)
def test_case_counts_as_the_calibration_says(case: Path) -> None:
    verdict = load_judge()(truth_of(case), diagnosed(case))
    assert verdict.right, verdict


def said(diagnosis: Diagnosis) -> str:
    """What the terminal shows with -v, in one line."""
    return re.sub(r"\s+", " ", render(diagnosis, width=100_000, verbose=True))


def faults_of(finding: Finding) -> list[Fault]:
    return [fact for fact in finding.facts if isinstance(fact, Fault)]


def reports_of(finding: Finding) -> list[SanitizerFault]:
    return [fact for fact in finding.facts if isinstance(fact, SanitizerFault)]


@pytest.mark.parametrize("case", [c for c in BAD if "expect" in truth_of(c)], ids=ident)
def test_values_are_stated(case: Path) -> None:
    """The values under [expect] of the truth stand in the finding and in its text."""
    expect = dict(truth_of(case)["expect"])
    diagnosis = diagnosed(case)
    finding = diagnosis.primary
    assert finding is not None
    text = said(diagnosis)
    faults, reports = faults_of(finding), reports_of(finding)
    waits = [fact for fact in finding.facts if isinstance(fact, Wait)]
    for key in DESCRIPTIVE:
        expect.pop(key, None)
    if "exception" in expect:
        wanted = expect.pop("exception")
        assert any(wanted in (f.exception, *f.alternatives) for f in faults)
    if "access" in expect:
        wanted = expect.pop("access")
        words = {"load": "read", "store": "write", "reduction": "atomic"}
        assert wanted in {words.get(f.access, f.access) for f in faults} | {r.access for r in reports}
    if "access_bytes" in expect:
        wanted = expect.pop("access_bytes")
        assert wanted in {f.address.width for f in faults if f.address} | {r.width for r in reports}
    if "allocation_bytes" in expect:
        wanted = expect.pop("allocation_bytes")
        allocations = [r.allocation for r in reports if r.allocation is not None]
        assert wanted in {a.size for a in allocations} or not allocations
    if "argument" in expect:
        wanted = expect.pop("argument")
        if faults or waits:
            assert f"`{wanted}`" in text
    if "first_block" in expect:
        wanted = tuple(expect.pop("first_block"))
        assert finding.threads is not None
        assert finding.threads.first_block == wanted
    if "thread" in expect:
        wanted = tuple(expect.pop("thread"))
        assert finding.threads is not None
        assert finding.threads.first_thread == wanted
    if "function" in expect:
        wanted = expect.pop("function")
        assert finding.place is not None
        assert wanted in {f.function for f in finding.place.frames} | {finding.place.function}
    if "remainder" in expect:
        wanted = expect.pop("remainder")
        assert wanted in {f.address.misaligned_by for f in faults if f.address}
    if "address" in expect:
        wanted = expect.pop("address")
        assert wanted in {r.address for r in reports} | {r.low for r in reports} | {
            f.address.value for f in faults if f.address
        }
    for key in ("expected_threads", "waiting_threads", "missing_threads", "block_threads"):
        if key in expect:
            assert re.search(rf"\b{expect.pop(key):,}\b", text), key
    for key in ("requested", "limit"):
        if key in expect:
            assert (key, f"{expect.pop(key):,}") in finding.details
    for wanted in expect.pop("says", ()):
        assert wanted in text, wanted
    assert not expect, f"keys that nothing checks: {sorted(expect)}"


@pytest.mark.parametrize("case", BAD, ids=ident)
def test_launch_is_complete(case: Path) -> None:
    """Kernel, shape, grid id, device and every argument are there when a dump is."""
    diagnosis = diagnosed(case)
    launches = [fact for fact in diagnosis.facts if isinstance(fact, Launch)]
    kinds = {artefact.kind for artefact in diagnosis.artefacts}
    assert bool(launches) == ("coredump" in kinds)
    for launch in launches:
        assert launch.kernel
        assert launch.short
        assert launch.grid_id > 0
        assert launch.device == 0
        assert min(launch.grid) >= 1
        assert min(launch.block) >= 1
        assert launch.arguments
        for argument in launch.arguments:
            assert len(argument.raw) == 2 * min(argument.size, 64)


def test_hidden_nvdisasm_changes_no_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case carries the SASS it needs: a machine without NVIDIA's tools says the same."""
    case = CORPUS / "memory" / "global-out-of-bounds" / "bad_starter_oob"
    full = diagnosed(case).primary
    monkeypatch.setenv("CUWHY_NVDISASM", "/nonexistent/nvdisasm")
    bare = diagnosed(case).primary
    assert full is not None
    assert bare is not None
    assert (full.sentence, full.place, full.details) == (bare.sentence, bare.place, bare.details)

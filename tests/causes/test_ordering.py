"""Ordering faults from reruns and launch records that follow from a program's text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuwhy.causes.reruns import narrow
from cuwhy.diagnosing import conclude
from cuwhy.model.facts import DriverAllocation, Fact, LaunchRecord, Rerun, Setting
from cuwhy.model.place import Frame

BLOCKING = (Setting("launch-blocking"),)


def record(number: int, kernel: str, line: int, stream: int, **more: object) -> LaunchRecord:
    frames = (
        Frame("cudaLaunchKernel", "/usr/local/cuda/include/x.hpp", 3),
        Frame("main", "/demo/app.cu", line),
    )
    return LaunchRecord(
        number, "kernel", kernel, 0, stream=stream, frames=frames, microseconds=number * 100, **more
    )  # type: ignore[arg-type]


def reruns(earlier: int, later: int, launches: int) -> list[Fact]:
    """What the plan leaves of a program with one unordered pair that fails every time."""
    facts: list[Fact] = [Rerun((), False, 1, 0.5, launches=launches) for _ in range(3)]
    facts += [Rerun(BLOCKING, True, 0, 0.5) for _ in range(3)]
    known: dict[tuple[tuple[int, int], ...], bool] = {}
    while (ask := narrow(known, launches).ask) is not None:
        known[ask] = any(max(a, earlier + 1) <= min(b, later) for a, b in ask)
        settings = tuple(Setting("synchronized", a, b) for a, b in ask)
        facts += [Rerun(settings, known[ask], 0 if known[ask] else 1, 0.5) for _ in range(3)]
    return facts


PAIR = reruns(2, 4, 6)
SMOOTH, THRESHOLD = record(2, "_Z6smoothPf", 36, 0x5000), record(4, "_Z9thresholdPf", 38, 0x6000)


def test_two_streams() -> None:
    (finding,) = conclude([*PAIR, SMOOTH, THRESHOLD]).findings
    assert finding.cause.name == "synchronization/missing-stream-order"
    assert "`threshold` (launch 4, app.cu:38, stream 0x6000)" in finding.sentence
    assert "`smooth` (launch 2, app.cu:36, stream 0x5000)" in finding.sentence
    assert finding.host is not None
    assert finding.host.line == 38
    assert finding.other is not None
    assert finding.other.user is not None
    assert finding.other.user.line == 36
    assert len(finding.fixes) == 1


def test_the_legacy_stream_is_named() -> None:
    (finding,) = conclude([*PAIR, replace(SMOOTH, stream=0), THRESHOLD]).findings
    assert "the legacy default stream" in finding.sentence
    assert any("cudaStreamNonBlocking" in fix.text for fix in finding.fixes)


def test_early_start() -> None:
    later = replace(THRESHOLD, stream=SMOOTH.stream, flags=("early start",))
    (finding,) = conclude([*PAIR, SMOOTH, later]).findings
    assert finding.cause.name == "synchronization/missing-stream-order"
    assert "cudaGridDependencySynchronize" in finding.fixes[0].text


def test_the_host_is_early() -> None:
    later = replace(THRESHOLD, stream=SMOOTH.stream)
    (finding,) = conclude([*PAIR, SMOOTH, later]).findings
    assert finding.cause.name == "synchronization/host-buffer-reused"


@pytest.mark.parametrize("freed", [150, 250, 450])
def test_recycled_only_when_freed_and_taken_between(freed: int) -> None:
    old = DriverAllocation(0x7000, 4096, microseconds=50, freed=freed)
    new = DriverAllocation(0x7800, 8192, microseconds=freed + 10)
    (finding,) = conclude([*PAIR, SMOOTH, THRESHOLD, old, new]).findings
    wanted = (
        "memory/buffer-recycled-across-streams" if freed == 250 else "synchronization/missing-stream-order"
    )
    assert finding.cause.name == wanted
    elsewhere = replace(new, address=0x9000)
    (finding,) = conclude([*PAIR, SMOOTH, THRESHOLD, old, elsewhere]).findings
    assert finding.cause.name == "synchronization/missing-stream-order"


def test_abstains_without_a_pair_or_its_launches() -> None:
    def names(*facts: Fact) -> list[str]:
        return [f.cause.name for f in conclude(facts).findings]

    always = [replace(r, passed=False, code=1) for r in PAIR if isinstance(r, Rerun)]
    assert names(*always, SMOOTH, THRESHOLD) == ["unknown/unexplained"]
    assert names(*PAIR) == ["unknown/unexplained"]
    assert names(*PAIR, SMOOTH) == ["unknown/unexplained"]
    assert names(*[r for r in PAIR if isinstance(r, Rerun) and r.passed], SMOOTH, THRESHOLD) == []

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
    old = DriverAllocation(0x7000, 4096, stream=0x6000, microseconds=50, freed=freed)
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


def named(*facts: Fact) -> list[str]:
    return [finding.cause.name for finding in conclude([*PAIR, *facts]).findings]


def test_default_streams_of_two_contexts_are_two_streams() -> None:
    one, two = replace(SMOOTH, stream=0, context=0xA), replace(THRESHOLD, stream=0, context=0xB)
    assert named(one, two) == ["synchronization/missing-stream-order"]
    assert named(one, replace(two, context=0xA)) == ["synchronization/host-buffer-reused"]
    (finding,) = conclude([*PAIR, one, two]).findings
    # Neither waits for the other however they were made: that advice is for one context.
    assert not any("cudaStreamNonBlocking" in fix.text for fix in finding.fixes)


@pytest.mark.parametrize("own", [(0, ("per-thread stream",)), (2, ())], ids=["ptsz", "handle"])
def test_each_thread_has_a_default_stream_of_its_own(own: tuple[int, tuple[str, ...]]) -> None:
    stream, flags = own
    one = replace(SMOOTH, stream=stream, flags=flags, thread=11)
    two = replace(THRESHOLD, stream=stream, flags=flags, thread=12)
    assert named(one, two) == ["synchronization/missing-stream-order"]
    assert named(one, replace(two, thread=11)) == ["synchronization/host-buffer-reused"]
    (finding,) = conclude([*PAIR, one, two]).findings
    assert "default stream of thread 11" in finding.sentence
    assert "default stream of thread 12" in finding.sentence


def test_the_legacy_handle_is_the_legacy_stream_whatever_the_entry_point() -> None:
    one = replace(SMOOTH, stream=1, flags=("per-thread stream",), thread=11)
    assert named(one, replace(THRESHOLD, stream=0)) == ["synchronization/host-buffer-reused"]


def test_one_stream_may_also_mean_a_copy_in_another() -> None:
    """Launch logs hold no copies, so a late upload in a third stream gives the same pattern."""
    (finding,) = conclude([*PAIR, SMOOTH, replace(THRESHOLD, stream=SMOOTH.stream)]).findings
    assert any("another stream" in line for line in finding.why)
    assert any("cudaStreamWaitEvent" in fix.text for fix in finding.fixes)


def test_memory_that_cudafree_gave_back_is_not_recycled() -> None:
    """A plain free waits for the device; only stream-ordered memory comes back early."""
    old = DriverAllocation(0x7000, 4096, microseconds=50, freed=250)
    new = DriverAllocation(0x7000, 4096, microseconds=260)
    assert named(SMOOTH, THRESHOLD, old, new) == ["synchronization/missing-stream-order"]
    # Without a pair, the same memory alone must not make a finding either.
    unfinished = [r for r in PAIR if isinstance(r, Rerun) and not any(s.first for s in r.settings)]
    found = conclude([*unfinished, SMOOTH, THRESHOLD, old, new]).findings
    assert [finding.cause.name for finding in found] == ["unknown/unexplained"]
    ordered = replace(old, stream=THRESHOLD.stream)
    found = conclude([*unfinished, SMOOTH, THRESHOLD, ordered, new]).findings
    assert [finding.cause.name for finding in found] == ["memory/buffer-recycled-across-streams"]

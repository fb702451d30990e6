"""A barrier waits for more threads than will ever come."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import Wait, WaitKind

CAUSE = Cause(
    "synchronization/barrier-count-mismatch",
    "a barrier expects more threads than can arrive",
    Severity.HANG,
)

_FIXES = (
    Fix("make the count of the barrier equal to the threads that take part in it (a multiple of 32), on every side"),
    Fix("move early returns behind the barrier, so that all threads that are counted arrive"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match warps at a block barrier whose count cannot be met, and synccheck's reports."""
    groups: dict[tuple[int, int], list[Wait]] = {}
    for wait in evidence.waits:
        if wait.kind is WaitKind.BLOCK_BARRIER and wait.barrier is not None:
            grid = wait.launch.grid_id if wait.launch is not None else 0
            groups.setdefault((grid, wait.barrier), []).append(wait)
    for (_, number), waits in groups.items():
        yield from _barrier(evidence, number, waits)
    for report in evidence.reports_of("barrier-mismatch", "invalid-barrier"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}`: {report.message}",
            fixes=_FIXES,
            weight=75,
        )


def _barrier(evidence: Evidence, number: int, waits: list[Wait]) -> Iterator[Finding]:
    waits = sorted(waits, key=_line)
    first = waits[0]
    size, gone = first.block_threads, first.exited_per_block
    counts = {w.expected for w in waits if w.expected is not None}
    # Counts are those of one block: the first one that waits here.
    arrived = sum(w.arrived_per_block for w in waits if w.threads.first_block == first.threads.first_block)
    elsewhere = size - gone - arrived
    launch = first.launch
    name = launch.short if launch is not None else "the kernel"
    if not counts:
        # A barrier for the whole block needs no count; exited threads count as arrived.
        return
    expected = max(counts)
    role = Role.PRIMARY
    if expected > size:
        sentence = f"barrier {number} expects {expected} threads, the block has {size}"
    elif arrived + elsewhere < expected:
        sentence = (
            f"barrier {number} expects {expected} threads, {arrived} wait there, {expected - arrived} are missing: "
            f"{gone} of the block's {size} threads have left the kernel"
        )
    elif any(w.kind in (WaitKind.RUNNING, WaitKind.MEMORY) for w in evidence.waits):
        # Somebody still runs and may yet arrive: one dump cannot tell a slow kernel from a hung one.
        return
    elif len(counts) > 1:
        text = " and ".join(str(c) for c in sorted(counts))
        sentence = f"barrier {number} is waited on with different counts: {text} threads"
    elif arrived < expected:
        sentence = (
            f"barrier {number} expects {expected} threads, {arrived} wait there, {expected - arrived} are missing: "
            f"{elsewhere} of the block's threads wait elsewhere"
        )
        if any(w.kind in (WaitKind.SPIN, WaitKind.GRID_BARRIER) for w in evidence.waits):
            role = Role.CASCADE
    else:
        return
    why = []
    for wait in waits:
        if wait.place is not None:
            count = f", expecting {wait.expected}" if wait.expected is not None else ""
            why.append(f"{words.counts(wait.threads)} wait at {wait.place.short} for barrier {number}{count}")
    if gone:
        why.append(f"{gone} of {size} threads of the block have left the kernel")
    yield build.from_wait(
        evidence,
        CAUSE,
        first,
        f"`{name}` hangs: {sentence}",
        why=tuple(why),
        other=waits[1].place if len(waits) > 1 else None,
        details=(
            ("barrier", str(number)),
            ("expected", f"{expected} threads"),
            ("arrived", f"{arrived} threads"),
            ("left the kernel", f"{gone} threads"),
            ("block", f"{size} threads"),
        ),
        fixes=_FIXES,
        facts=tuple(waits),
        role=role,
        weight=88,
    )


def _line(wait: Wait) -> tuple[int, int]:
    """Order of lines in the source, else of instructions."""
    if wait.place is None:
        return 0, 0
    frame = wait.place.user
    return (frame.line or 0) if frame is not None else 0, wait.place.pc

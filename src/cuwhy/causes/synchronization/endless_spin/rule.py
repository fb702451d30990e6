"""Threads poll a value that no running thread will change."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.locate.threads import dim
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Wait, WaitKind

CAUSE = Cause(
    "synchronization/endless-spin",
    "threads spin on a value that no running thread will write",
    Severity.HANG,
)

_FIXES = (
    Fix("see that the flag is set on every path, by a thread that can run while the others wait"),
    Fix("use a cooperative launch when blocks wait for each other: without it nothing makes all of them resident",
        caution="a cooperative grid must fit on the chip at once"),
)  # fmt: skip
_GRID_FIXES = (
    Fix("let every block reach the grid barrier the same number of times: no early return before the last one, "
        "and loop bounds that are equal in all blocks"),
)  # fmt: skip
_WAITING = (
    WaitKind.SPIN,
    WaitKind.GRID_BARRIER,
    WaitKind.BLOCK_BARRIER,
    WaitKind.WARP_BARRIER,
    WaitKind.CLUSTER_BARRIER,
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match spin loops in a hang where every other resident thread, of any kernel, waits as well.

    While a thread still runs, it may write what the others wait for: then one dump proves nothing.
    """
    if any(wait.kind not in _WAITING for wait in evidence.waits):
        return
    loops: dict[tuple[object, str], list[Wait]] = {}
    for wait in evidence.waits:
        if wait.kind in (WaitKind.SPIN, WaitKind.GRID_BARRIER):
            # One loop inlined at several places is one cause.
            grid = wait.launch.grid_id if wait.launch is not None else 0
            loops.setdefault((grid, wait.place.short if wait.place is not None else ""), []).append(wait)
    for waits in loops.values():
        yield _finding(evidence, waits[0], waits[1:])


def _finding(evidence: Evidence, wait: Wait, more: list[Wait]) -> Finding:
    launch = wait.launch
    name = launch.short if launch is not None else "the kernel"
    others = [w for w in evidence.waits if w is not wait and w not in more]
    residency = next((r for r in evidence.residencies if r.launch == launch), None)
    blocks = (
        f"block {dim(wait.threads.first_block)}"
        if wait.threads.blocks == 1 and wait.threads.first_block is not None
        else words.plural(wait.threads.blocks, "block")
    )
    singular = wait.threads.blocks == 1
    what = "waits at a grid barrier" if wait.kind is WaitKind.GRID_BARRIER else "spins on a value"
    if not singular:
        what = what.replace("waits", "wait").replace("spins", "spin")
    end = "that no running thread will write"
    if wait.kind is WaitKind.GRID_BARRIER:
        end = "that the other blocks will not reach"
    why = [f"{words.counts(wait.threads)} stand in the loop at {wait.place.short if wait.place else '?'}"]
    why.append("every other resident thread waits too" if others or more else "no other thread is running")
    if wait.writers:
        lines = ", ".join(p.short for p in wait.writers)
        why.append(
            f"the kernel writes through the same pointer at {lines}, which no waiting thread can reach"
        )
    elif wait.address is not None and wait.address.base is not None:
        why.append(
            "no store of this kernel outside the loop whose pointer could be told goes there (the host or another GPU "
            "may write it: then it is they who do not)"
        )
    if residency is not None and residency.finished_or_pending:
        room = any(residency.resident < m.sm_count for m in evidence.machines)
        why.append(
            f"{words.plural(residency.finished_or_pending, 'block')} of {residency.total:,} are not on the chip: "
            + (
                "fewer blocks than SMs are on the chip, so nothing keeps them off it: they have most likely ended"
                if room
                else "they have ended, or wait for room that the spinning blocks hold"
            )
        )
    elif wait.kind is WaitKind.GRID_BARRIER:
        why.append(
            "blocks that are not on the chip have left the kernel before this barrier, or never started"
        )
    for other in more:
        chain = " in ".join(f.short for f in other.place.frames[1:]) if other.place is not None else ""
        why.append(
            f"{words.counts(other.threads)} stand in the same loop, reached from {chain or 'elsewhere'}"
        )
    rows = []
    if wait.address is not None:
        label = words.offset_from_base(wait.address, launch)
        rows.append(("polled address", f"{wait.address.value:#x}" + (f", {label}" if label else "")))
    return build.from_wait(
        evidence,
        CAUSE,
        wait,
        f"`{name}` hangs: {blocks} {what} {end}",
        why=tuple(why),
        details=tuple(rows),
        fixes=_GRID_FIXES if wait.kind is WaitKind.GRID_BARRIER else _FIXES,
        other=more[0].place if more else None,
        facts=(wait, *more),
        weight=86,
    )

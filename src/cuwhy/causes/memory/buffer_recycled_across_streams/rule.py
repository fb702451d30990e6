"""Memory that one stream still reads is freed, handed out again and overwritten in another."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_line, host_place
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import DriverAllocation, LaunchRecord

CAUSE = Cause(
    "memory/buffer-recycled-across-streams",
    "a buffer is freed while another stream still uses it, and its memory is handed out again",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "free it where its last user is done: in that stream, or after an event of it "
        "(`cudaStreamWaitEvent` before `cudaFreeAsync`; PyTorch: `tensor.record_stream(stream)`)"
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match a bisected pair between which memory was handed out again, else the only such memory there is."""
    found = ordering.unordered(evidence)
    old = found.recycled(evidence) if found is not None else None
    if found is not None and found.earlier is not None and old is not None:
        yield _finding(found.earlier, found.later, old, ordering.reasons(found), 76)
        return
    alone = ordering.recycled_while_read(evidence)
    if alone is not None:
        pattern, earlier, later, old = alone
        why = (
            *pattern.sentences,
            "no other memory was freed behind another stream's work and handed out again",
        )
        yield _finding(earlier, later, old, why, 68)


def _finding(
    earlier: LaunchRecord, later: LaunchRecord, old: DriverAllocation, why: tuple[str, ...], weight: int
) -> Finding:
    freed = next((f for f in old.freed_frames if f.line is not None and not f.is_library), None)
    where = f" at {freed.short}" if freed is not None else ""
    return Finding(
        CAUSE,
        f"{old.size:,} bytes that {ordering.described(earlier)} may still use are freed{where}, handed out again, and "
        f"{ordering.described(later)} comes next",
        why=(
            *why,
            f"after the launch of `{ordering.short(earlier)}` {old.size:,} bytes at {old.address:#x} were freed{where} "
            "and the same addresses allocated again; a free waits for its own stream only",
        ),
        place=host_place(later),
        other=host_place(earlier),
        kernel=ordering.short(later),
        host=freed or host_line(later),
        fixes=_FIXES,
        facts=(earlier, later, old),
        weight=weight,
    )

"""Memory that one stream still reads is freed, handed out again and overwritten in another."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

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
    """Match a bisected pair between which memory was given back and handed out again."""
    found = ordering.unordered(evidence)
    old = found.recycled(evidence) if found is not None else None
    if found is None or found.earlier is None or old is None:
        return
    earlier, later = found.earlier, found.later
    freed = next((f for f in old.freed_frames if f.file is not None and not f.is_library), None)
    where = f" at {freed.short}" if freed is not None else ""
    yield Finding(
        CAUSE,
        f"{old.size:,} bytes that {ordering.described(earlier)} still uses are freed{where}, handed out again and "
        f"overwritten by {ordering.described(later)}",
        why=(
            *ordering.reasons(found),
            f"between the two launches {old.size:,} bytes at {old.address:#x} were freed{where} and the same addresses "
            "allocated again; a free waits for its own stream only",
        ),
        place=ordering.host_place(later),
        other=ordering.host_place(earlier),
        kernel=ordering.short(later),
        host=freed or ordering.host_line(later),
        fixes=_FIXES,
        facts=(*found.facts, old),
        weight=76,
    )

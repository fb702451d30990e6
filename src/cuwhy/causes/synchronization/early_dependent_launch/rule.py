"""A kernel that may start before the one in front of it has ended, and reads before it waits."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/early-dependent-launch",
    "a kernel launched early (programmatic dependent launch) uses data before it waits for the kernel in front",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "call `cudaGridDependencySynchronize()` (PTX `griddepcontrol.wait`) before the first access to what the "
        "kernel in front writes, in every thread that makes one"
    ),
    Fix(
        "launch without cudaLaunchAttributeProgrammaticStreamSerialization",
        safe=True,
        caution="the kernel then starts a few microseconds later",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match a bisected pair in one stream, of which the later was launched with early start."""
    found = ordering.unordered(evidence)
    if found is None or found.earlier is None or not (found.early_start and found.same_stream):
        return
    earlier, later = found.earlier, found.later
    yield Finding(
        CAUSE,
        f"{ordering.described(later)} may start before {ordering.described(earlier)} has ended, and uses its results "
        "before it waits",
        why=(
            *ordering.reasons(found),
            "it was launched with programmatic stream serialisation, which lets it start as soon as the kernel in "
            "front triggers; only a grid dependency synchronisation in the kernel waits for its memory",
        ),
        place=ordering.host_place(later),
        other=ordering.host_place(earlier),
        kernel=ordering.short(later),
        host=ordering.host_line(later),
        fixes=_FIXES,
        facts=found.facts,
        weight=74,
    )

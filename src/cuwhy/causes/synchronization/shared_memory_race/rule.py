"""Two threads of a block access one shared address without a barrier between."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/shared-memory-race",
    "two threads access the same shared memory, one of them writes, and no barrier stands between",
    Severity.WRONG,
)

_FIXES = (
    Fix("put `__syncthreads()` (or `__syncwarp()` within one warp) between the two lines",
        caution="it must not stand in a branch that only some threads take"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match racecheck's hazards."""
    for report in evidence.reports_of("race"):
        first = report.place.short if report.place is not None else "?"
        second = report.other.short if report.other is not None else "?"
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}`: the {report.access or 'access'} at {first} races with the "
            f"{report.other_access or 'access'} at {second}, with no barrier between",
            # racecheck names the function of each access, not the kernel it was inlined into.
            kernel="",
            threads=report.threads if report.threads.count else None,
            details=(("hazards", f"{report.hazards:,}"),) if report.hazards else (),
            fixes=_FIXES,
            weight=75,
        )

"""Threads of one block meet at different barriers, or some never reach one."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/divergent-barrier",
    "a block barrier stands in code that only some threads of the block reach",
    Severity.LATENT,
    misleads="nothing: on Volta and later the barrier completes with whichever threads come",
)

_FIXES = (
    Fix("move the barrier out of the branch: close the branch, synchronise with all threads, branch again",
        caution="values kept across the barrier must live in both halves"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match synccheck's reports; a dump cannot show it, as such a barrier completes (Volta and later)."""
    for report in evidence.reports_of("divergent-barrier"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` has a block barrier that not all threads of the block reach together",
            fixes=_FIXES,
            weight=65,
        )

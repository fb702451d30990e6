"""A kernel reads memory that nothing has written."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "memory/uninitialized-read",
    "a kernel reads memory that nothing has written",
    Severity.WRONG,
)

_FIXES = (
    Fix("write the buffer before it is read: cudaMemset or torch.zeros instead of cudaMalloc or torch.empty",
        safe=True, caution="costs one pass over the buffer"),
    Fix("find the kernel or copy that should have written it, and see that it covers every element"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match initcheck's reports."""
    for report in evidence.reports_of("uninitialized-read", "uninitialized-shared-read"):
        space = report.space or "global"
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` reads {words.plural(report.width, 'byte') + ' of ' if report.width else ''}{space} memory"
            + (f" at {report.address:#x}" if report.address is not None else "")
            + " that nothing has written",
            fixes=_FIXES,
            weight=60,
        )

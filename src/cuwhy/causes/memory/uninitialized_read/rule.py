"""A kernel reads memory that nothing has written."""

from __future__ import annotations

import re
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

#: Runs of either kind without which nothing is claimed.
_FEW = 2
_NAN = re.compile(r"(?<![A-Za-z])nan(?![A-Za-z])", re.IGNORECASE)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match initcheck's reports, else results that become NaN when fresh PyTorch memory is filled with it."""
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
    if not evidence.reports_of("uninitialized-read", "uninitialized-shared-read"):
        yield from _filled(evidence)


def _filled(evidence: Evidence) -> Iterator[Finding]:
    """The last line of output holds NaN in every run with NaN in fresh memory, and in none without."""
    plain = [r for r in evidence.reruns if r.said and {s.kind for s in r.settings} <= {"core-dumps"}]
    filled = [r for r in evidence.reruns if r.said and {s.kind for s in r.settings} == {"nan-filled"}]
    if min(len(plain), len(filled)) < _FEW or any(_NAN.search(r.said) for r in plain):
        return
    if not all(_NAN.search(r.said) for r in filled):
        return
    yield Finding(
        CAUSE,
        "memory that nothing has written reaches the result: it turns to NaN when fresh PyTorch memory is filled with NaN",
        (
            f"the last line of output holds NaN in {len(filled)} of {len(filled)} runs with fresh memory filled, and in 0 of "
            f"{len(plain)} without",
            f"without: {plain[0].said!r}; with: {filled[0].said!r}",
            "which kernel reads it this does not say; initcheck with PYTORCH_NO_CUDA_MEMORY_CACHING=1 does",
        ),
        fixes=_FIXES,
        facts=(*plain[:4], *filled[:4]),
        weight=55,
    )

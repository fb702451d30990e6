"""A kernel stopped itself with a trap."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "execution/trap",
    "a kernel executed a trap instruction",
    Severity.CRASH,
    misleads="719 'unspecified launch failure', which says nothing",
)

_FIXES = (
    Fix("see what leads to `__trap()` at this line: an unsupported mode, a failed check, or code compiled for another "
        "architecture; give it what it needs or handle the case on the host"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match warps that stand behind a BPT.TRAP, and memcheck's reports of one."""
    seen = False
    for fault in evidence.faults:
        if fault.access != "trap":
            continue
        seen = True
        if fault.only_traps:
            # No body was compiled at all: launch/wrong-architecture.
            continue
        launch = fault.launch
        name = launch.short if launch is not None else "the kernel"
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{name}` executed a trap in {words.plural(fault.threads.count, 'thread')}, first in {words.who(fault.threads)}",
            why=(
                f"{words.counts(fault.threads)} stand behind {fault.place.sass if fault.place and fault.place.sass else 'a trap'}",
                "a trap leaves no exception code in the dump; the stopped warp tells",
            ),
            misleading=words.misleading(evidence, fault, "the kernel stopped itself on purpose, with a trap"),
            fixes=_FIXES,
            weight=86,
        )
    for report in evidence.reports_of("trap"):
        if not seen:
            yield build.from_report(
                evidence,
                CAUSE,
                report,
                f"`{report.short}` executed a trap, first seen in {words.who(report.threads)}",
                "memcheck's pc is imprecise here: the trap stands at this line or shortly before",
                fixes=_FIXES,
                weight=70,
            )

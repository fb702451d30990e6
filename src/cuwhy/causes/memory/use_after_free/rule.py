"""A kernel uses memory that was freed before it was launched."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.freed import freed_before
from cuwhy.locate.recorded import describe
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "memory/use-after-free",
    "a kernel uses memory that was freed before it was launched",
    Severity.CRASH,
)

_FIXES = (
    Fix("keep the buffer until the last kernel that uses it has been launched and, with cudaFreeAsync, ordered before the free",
        safe=True, caution="memory is held longer"),
    Fix("in Python keep the tensor, not its `data_ptr()`: the memory goes back to the allocator with the last reference"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match faults in memory whose free the launch recorder saw before the launch, and memcheck's reports."""
    kernels: set[str] = set()
    for fault in evidence.faults:
        block = freed_before(evidence, fault)
        launch, address = fault.launch, fault.address
        if block is None or launch is None or address is None or launch.kernel in kernels:
            continue
        kernels.add(launch.kernel)
        label = words.argument_label(launch, address.base)
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{launch.short}` {words.verb(fault.access)} {label} at {address.value:#x}, which had been freed before the launch",
            why=(
                words.raised(fault),
                f"the launch recorder: the address is {describe(block, address.value)}, and the launch came after that",
            ),
            facts=(fault, block),
            fixes=_FIXES,
            weight=87,
        )
    for report in evidence.reports_of("use-after-free"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` {words.verb(report.access)} {words.plural(report.width, 'byte')} of freed memory",
            fixes=_FIXES,
            weight=87,
        )

"""A pointer into one memory space is used by an instruction for another."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.memory.global_out_of_bounds.rule import match as out_of_bounds
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import SanitizerFault

CAUSE = Cause(
    "memory/invalid-address-space",
    "a pointer to shared or local memory is used where global memory is needed",
    Severity.CRASH,
)

_ADDRESS_SPACE = 7
_FIXES = (
    Fix("convert the pointer for the space the instruction works on (__cvta_generic_to_shared, __cvta_generic_to_global), "
        "or drop the state space from the inline PTX so that the generic form is used", safe=True),
    Fix("keep data that atomics or asynchronous copies touch in global or shared memory, never in a local variable"),
)  # fmt: skip


def is_shared_window(report: SanitizerFault) -> bool:
    """True when a global access far from any allocation looks like a generic pointer to shared memory.

    The shared window starts at a multiple of 4 GiB and a block has at most 227 KiB.
    """
    return (
        report.space == "global"
        and (report.allocation is None or report.allocation.distance >= 1 << 30)
        and report.address is not None
        and report.address >= 1 << 32
        and report.address & 0xFFFFFFFF < 256 << 10
        and report.high & 0xFFFFFFFF < 256 << 10
    )


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match address-space exceptions whose address does not come from an overrun global pointer."""
    seen = False
    explained = {id(fact) for finding in out_of_bounds(evidence) for fact in finding.facts}
    for fault in evidence.faults:
        if fault.exception != _ADDRESS_SPACE or id(fault) in explained:
            continue
        launch, address = fault.launch, fault.address
        if address is None or not address.window:
            # Without the address an overrun looks the same: say nothing rather than guess.
            continue
        name = launch.short if launch is not None else "the kernel"
        seen = True
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{name}` uses {address.value:#x}, a pointer into {address.window} memory, "
            f"in an instruction for {address.space} memory ({fault.opcode})",
            why=(
                words.raised(fault),
                f"the address lies in the {address.window} memory window"
                + (
                    " and was not computed from a pointer argument; if the pointer was loaded from memory, an index that "
                    "ran into the window looks the same"
                    if address.base is None
                    else ", as the pointer itself does"
                ),
            ),
            fixes=_FIXES,
            weight=82,
        )
    for report in evidence.reports_of("out-of-bounds"):
        if seen or not is_shared_window(report):
            continue
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` uses {report.address:#x}, by its form a pointer into shared memory, "
            "in an instruction for global memory",
            "no allocation is near, and the address is a small offset from a multiple of 4 GiB, as the shared window is",
            fixes=_FIXES,
            weight=81,
        )

"""An index that leaves a thread's local array."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Fault

CAUSE = Cause(
    "memory/local-out-of-bounds",
    "an index leaves a thread's local array",
    Severity.CRASH,
    misleads="700 'an illegal memory access was encountered', as if global memory were meant",
)

_EXCEPTIONS = (1, 4, 5, 14)
#: WARP_STACK_CANARY: the guard value behind a frame's arrays was overwritten.
_CANARY = 19
#: Local memory is addressed with 24 bits; the stack grows down from the top.
_LOCAL_TOP = 1 << 24
_FIXES = (
    Fix("bound the index by the array's length before the access", safe=True),
)  # fmt: skip


def is_inside_frame(fault: Fault) -> bool:
    """True when the address lies between the stack pointer and the top of local memory."""
    address = fault.address
    return address is not None and 0 < fault.stack_pointer <= address.value < _LOCAL_TOP


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match faults on local-memory instructions whose address is outside of the stack."""
    for fault in evidence.faults:
        if fault.exception == _CANARY:
            yield _overwritten(evidence, fault)
            return
        if fault.exception not in _EXCEPTIONS or fault.opcode not in ("LDL", "STL"):
            continue
        if fault.address is None or is_inside_frame(fault):
            continue
        launch = fault.launch
        name = launch.short if launch is not None else "the kernel"
        offset = fault.address.value - fault.stack_pointer
        if offset >= 1 << 31:
            offset -= 1 << 32
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{name}` {words.verb(fault.access)} a local array {words.amount(offset)} "
            f"{'past' if offset >= 0 else 'before'} the start of its stack frame",
            why=(
                words.raised(fault),
                f"the instruction is {fault.opcode}: local memory, which holds a thread's arrays and spills",
            ),
            misleading=words.misleading(
                evidence, fault, "the access goes to the thread's own local array, not to a buffer"
            ),
            details=(
                ("local address", f"{fault.address.value:#x} ({fault.address.how})"),
                ("stack pointer", f"{fault.stack_pointer:#x}"),
                ("offset in frame", f"{offset:,} bytes"),
            ),
            fixes=_FIXES,
            weight=85,
        )
        return
    for report in evidence.reports_of("out-of-bounds", space="local"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` {words.verb(report.access)} {words.plural(report.width, 'byte')} outside of its local memory",
            fixes=_FIXES,
            weight=85,
        )


def _overwritten(evidence: Evidence, fault: Fault) -> Finding:
    name = fault.launch.short if fault.launch is not None else "the kernel"
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        f"`{name}` has written past a local array: the guard value of its stack frame is gone",
        why=(
            words.raised(fault),
            "the guard is looked at when the function returns, so the place is that of the return and not of the write",
        ),
        fixes=_FIXES,
        weight=85,
    )

"""A thread needs more stack than it has."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.memory.local_out_of_bounds.rule import is_inside_frame
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Fault

CAUSE = Cause(
    "memory/stack-overflow",
    "a thread needs more stack than cudaLimitStackSize gives it",
    Severity.CRASH,
    misleads="700 'an illegal memory access was encountered'",
)

_CERTAIN = (2, 3, 9)
_MAYBE = (5, 14)
_FIXES = (
    Fix("replace the recursion by a loop with a bounded, explicit stack, or check that it ends"),
    Fix("raise the limit: cudaDeviceSetLimit(cudaLimitStackSize, bytes) before the first launch",
        caution="every resident thread gets that much: at 2,048 threads an SM, 1 MiB more each is 264 GiB on an H200"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match stack exceptions, and local accesses inside a frame that lies beyond the stack."""
    for fault in evidence.faults:
        if fault.exception in _CERTAIN or (
            fault.exception in _MAYBE and fault.opcode in ("LDL", "STL") and is_inside_frame(fault)
        ):
            yield _from_dump(evidence, fault)
            return
    for report in evidence.reports_of("stack-overflow"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` runs out of stack",
            fixes=_FIXES,
            weight=88,
        )


def _from_dump(evidence: Evidence, fault: Fault) -> Finding:
    launch = fault.launch
    name = launch.short if launch is not None else "the kernel"
    inner = fault.place.innermost if fault.place is not None else None
    function = inner.function if inner is not None and inner.function else name
    used = (1 << 24) - fault.stack_pointer if fault.stack_pointer else 0
    calls = [p for p in fault.stack if fault.place is not None and p.function == fault.place.function]
    why = [
        words.raised(fault),
    ]
    if fault.exception in _MAYBE:
        why.append(
            f"the instruction is {fault.opcode} and its address lies inside the function's own stack frame: "
            "the frame itself is beyond the stack"
        )
    if calls or fault.recursive:
        why.append(f"`{function}` calls itself, so the compiler could not tell how much stack it needs")
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        f"`{function}` "
        + (
            "calls itself and has run out of stack"
            if calls or fault.recursive
            else "needs more stack than a thread has"
        )
        + (f": {words.amount(used)} used" if used else ""),
        why=tuple(why),
        misleading=words.misleading(
            evidence, fault, "no buffer was overrun: the thread's stack is exhausted"
        ),
        details=(
            ("stack pointer", f"{words.amount(used)} below the top of local memory" if used else "unknown"),
            ("default limit", "1,024 bytes a thread unless cudaDeviceSetLimit says otherwise"),
        ),
        fixes=_FIXES,
        weight=88,
    )

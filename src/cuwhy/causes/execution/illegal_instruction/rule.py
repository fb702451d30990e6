"""The hardware met bytes that are no instruction, or was sent to an address without code."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Fault

CAUSE = Cause(
    "execution/illegal-instruction",
    "execution reached bytes that are no instruction",
    Severity.CRASH,
)

_ILLEGAL, _INVALID_PC = 4, 8
_MEMORY = ("load", "store", "atomic", "reduction")
_FIXES = (
    Fix("check every function pointer and table index that leads to an indirect call"),
    Fix("see that the module is the one that was built: a truncated, patched or stale cubin, or one for another "
        "architecture"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match illegal-instruction exceptions that are no memory access in disguise, and invalid pcs."""
    for fault in evidence.faults:
        # Without any opcode it may be a memory access in disguise (see shared-out-of-bounds).
        told = bool(fault.opcode) or fault.place is None
        if fault.exception == _INVALID_PC or (
            fault.exception == _ILLEGAL and fault.access not in _MEMORY and told
        ):
            yield _finding(evidence, fault)
            return
    for report in evidence.reports_of("illegal-instruction", "invalid-pc"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short or 'the kernel'}` executed something that is no instruction",
            fixes=_FIXES,
            weight=70,
        )


def _finding(evidence: Evidence, fault: Fault) -> Finding:
    launch = fault.launch
    name = launch.short if launch is not None else "the kernel"
    if fault.place is None:
        what = "jumped to an address that is in no loaded function"
    else:
        what = f"met an instruction that the hardware refuses at {fault.place.short}"
    why = [
        f"{words.counts(fault.threads) if fault.threads.count else 'an SM'} {words.hold(fault.threads) if fault.threads.count else 'holds'} {words.exception_fact(fault)}"
    ]
    if fault.place is not None and fault.place.sass:
        why.append(f"nvdisasm reads the bytes as: {fault.place.sass}")
    if fault.opcode == "?":
        why.append("nvdisasm refuses to read the function: it holds bytes that are no instruction")
    if fault.stack:
        why.append(f"called from {fault.stack[0].short}")
    return Finding(
        CAUSE,
        f"`{name}` {what}",
        tuple(why),
        place=fault.place or (fault.stack[0] if fault.stack else None),
        launch=launch,
        kernel=name,
        threads=fault.threads,
        host=evidence.host_line(),
        fixes=_FIXES,
        facts=(fault,),
        weight=70,
    )

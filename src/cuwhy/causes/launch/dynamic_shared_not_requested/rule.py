"""The kernel uses dynamic shared memory, and the launch asked for none."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.memory.shared_out_of_bounds.rule import (
    EXCEPTIONS,
    OPCODES,
    has_no_array,
    reserved_bytes,
)
from cuwhy.locate.recorded import record_of
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Fault, LaunchRecord

CAUSE = Cause(
    "launch/dynamic-shared-not-requested",
    "the kernel uses dynamic shared memory and the launch asks for none",
    Severity.CRASH,
    misleads="715 'an illegal instruction was encountered' or 700; no instruction is illegal",
)

_FIXES = (
    Fix("give the size at the launch, the third parameter in `<<<grid, block, bytes>>>`; above 49,152 bytes raise the "
        "kernel's limit first (cudaFuncAttributeMaxDynamicSharedMemorySize)", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match shared-memory faults in blocks that have no shared memory at all: only a dynamic array can be meant."""
    for fault in evidence.faults:
        launch = fault.launch
        if fault.exception not in EXCEPTIONS or fault.opcode not in OPCODES or launch is None:
            continue
        # A static array counts into the block's share; without any, and without a byte asked for, there is nothing.
        if has_no_array(evidence, fault):
            yield _finding(evidence, fault, record_of(launch, evidence.records))


def _finding(evidence: Evidence, fault: Fault, record: LaunchRecord | None) -> Finding:
    launch, address = fault.launch, fault.address
    assert launch is not None
    width = words.plural(address.width, "byte") + " of " if address is not None and address.width else ""
    sentence = f"`{launch.short}` {words.verb(fault.access)} {width}dynamic shared memory; the launch asks for 0 bytes of it"
    rows = [("requested", "0 bytes of dynamic shared memory")]
    least = 0
    if address is not None and address.high >= reserved_bytes(evidence):
        least = address.high - reserved_bytes(evidence) + max(address.width, 1)
        rows.append(("needed", f"at least {words.amount(least)}, by the largest offset that was seen"))
        sentence += f", and uses at least {words.amount(least)}"
    why = [
        words.raised(fault),
        "the block has no shared memory: the kernel declares no array of known size, so the one it uses is "
        "`extern __shared__`, whose size is given at the launch",
    ]
    if record is not None and not record.dynamic_shared:
        why.append("the launch recorder saw 0 bytes of dynamic shared memory asked for")
    why.append("no kernel line is wrong: the launch is")
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        sentence,
        why=tuple(why),
        misleading=words.misleading(
            evidence, fault, "the instruction is legal; the block has no shared memory"
        ),
        details=tuple(rows),
        fixes=_FIXES,
        weight=89,
    )

"""A shared-memory access beyond the block's shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.architecture import architecture_of
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import Fault

CAUSE = Cause(
    "memory/shared-out-of-bounds",
    "a thread accesses shared memory beyond what the block has",
    Severity.CRASH,
    misleads="715 'an illegal instruction was encountered' far beyond the window, 700 'an illegal memory access' nearer",
)

EXCEPTIONS = (1, 4, 5, 14, 17)
OPCODES = ("LDS", "STS", "ATOMS", "LDSM", "STSM", "REDS")
#: The driver keeps the first KiB of a block's shared memory for itself on sm_80 and later.
RESERVED = 1024
_FIXES = (
    Fix("bound the index by the array's length, or make the array as large as the largest index + 1", safe=True),
    Fix("for `extern __shared__`: ask for enough bytes at the launch (third launch parameter)", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match faults on shared-memory instructions and memcheck's reports of shared memory."""
    reports = evidence.reports_of("out-of-bounds", space="shared")
    seen: list[str] = []
    for fault in evidence.faults:
        if fault.exception in EXCEPTIONS and fault.opcode in OPCODES:
            seen.append(fault.launch.short if fault.launch is not None else "")
            if has_no_array(evidence, fault):
                # Not an index that is too large: launch/dynamic-shared-not-requested.
                continue
            yield _from_dump(evidence, fault)
    for report in reports:
        if report.short in seen:
            continue
        sentence = f"`{report.short}` {words.verb(report.access)} {words.plural(report.width, 'byte')} of shared memory"
        if report.address is not None:
            sentence += f" at {report.address:#x} of the window, beyond what the block has"
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            sentence,
            fixes=_FIXES,
            role=Role.LATENT if seen else Role.PRIMARY,
            weight=85,
        )


def has_no_array(evidence: Evidence, fault: Fault) -> bool:
    """True when the block has no shared memory of its own, neither declared nor asked for at the launch."""
    return fault.launch is not None and fault.launch.shared_bytes in (0, reserved_bytes(evidence))


def reserved_bytes(evidence: Evidence) -> int:
    """Bytes that the driver keeps for itself at the start of a block's shared memory."""
    chip = architecture_of(evidence.machines[0].architecture) if evidence.machines else None
    return chip.reserved_shared if chip is not None else RESERVED


def _from_dump(evidence: Evidence, fault: Fault) -> Finding:
    address, launch = fault.address, fault.launch
    name = launch.short if launch is not None else "the kernel"
    size = launch.shared_bytes if launch is not None else -1
    why = [
        words.raised(fault),
        f"the instruction is {fault.opcode}, a legal access to shared memory",
    ]
    rows = []
    reserved = reserved_bytes(evidence)
    own = max(0, size - reserved)
    if address is not None:
        offset = address.value - reserved
        sentence = (
            f"`{name}` {words.verb(fault.access)} {words.plural(address.width, 'byte')} of shared memory at offset "
            f"{offset:,}" + (f"; the block has {words.amount(own)}" if size >= 0 else "")
        )
        rows.append(("shared offset", f"{offset:,} in {words.who(fault.threads)}"))
        if address.high != address.low:
            rows.append(("largest offset", f"{address.high - reserved:,}"))
    else:
        has = f"the {words.amount(own)} that the block has" if size >= 0 else "what the block has"
        sentence = f"`{name}` accesses shared memory beyond {has}"
    if size >= 0:
        rows.append(
            ("shared memory", f"{words.amount(own)} a block, behind {reserved:,} that the driver reserves")
        )
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        sentence,
        why=tuple(why),
        misleading=words.misleading(
            evidence, fault, "the instruction is legal, its shared-memory address is not"
        ),
        details=tuple(rows),
        fixes=_FIXES,
        weight=85,
    )

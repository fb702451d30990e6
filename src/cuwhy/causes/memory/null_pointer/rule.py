"""An access through a null pointer, or so close behind one that the base was null."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import Fault, SanitizerFault

CAUSE = Cause(
    "memory/null-pointer",
    "a kernel accesses memory through a null pointer",
    Severity.CRASH,
    misleads="nothing at all: while core dumps are on, a store to address 0 raises no error",
)

_NULL_PAGE = 64 << 10
#: cudaMalloc, pools and virtual memory all lie above this on 64-bit Linux (seen from 0x7f0000000000 on).
_LOWEST_ALLOCATION = 1 << 32
_EXCEPTIONS = (1, 5, 7, 10, 14)
_FIXES = (
    Fix("check the pointer on the host before the launch; test the result of cudaMalloc and of tensor.data_ptr() "
        "(an empty tensor has none)", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match accesses in the first 64 KiB, accesses based on a null argument, and memcheck's reports."""
    reports = [
        *evidence.reports_of("null"),
        *(r for r in evidence.reports_of("out-of-bounds") if is_null_based(r)),
    ]
    for fault in evidence.faults:
        if _fits(fault):
            related = [r for r in reports if fault.launch is not None and r.short == fault.launch.short]
            yield _from_dump(evidence, fault, related)
            reports = [r for r in reports if r not in related]
    for report in reports:
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` {words.verb(report.access)} {words.plural(report.width, 'byte')} at address "
            f"{report.address or 0:#x}: "
            + (
                "the pointer is null"
                if (report.address or 0) < _NULL_PAGE
                else f"below 4 GiB lies no allocation: a null pointer and {words.amount(report.address or 0)} of index, "
                "or a pointer that was cut to 32 bits"
            ),
            fixes=_FIXES,
            weight=90,
        )


def is_null_based(report: SanitizerFault) -> bool:
    """True for a global access below 4 GiB: CUDA places no allocation there, so the base was null."""
    return report.space == "global" and report.address is not None and report.address < _LOWEST_ALLOCATION


def _fits(fault: Fault) -> bool:
    address = fault.address
    if fault.exception not in _EXCEPTIONS or address is None or address.space not in ("global", "generic"):
        return False
    if address.value < _NULL_PAGE:
        return True
    return _null_argument(fault) is not None


def _null_argument(fault: Fault) -> int | None:
    """The pointer argument that is null and that the address was computed from."""
    address, launch = fault.address, fault.launch
    if address is None or launch is None or address.base is None:
        return None
    return address.base if launch.arguments[address.base].value == 0 else None


def _from_dump(evidence: Evidence, fault: Fault, reports: list[SanitizerFault]) -> Finding:
    address, launch = fault.address, fault.launch
    assert address is not None
    name = launch.short if launch is not None else "the kernel"
    position = _null_argument(fault)
    sentence = f"`{name}` {words.verb(fault.access)} {words.plural(address.width, 'byte')} at address {address.value:#x}"
    if position is not None:
        sentence += f": {words.argument_label(launch, position)} is null"
    else:
        sentence += ": the pointer is null"
    why = [
        words.raised(fault),
        "the first 64 KiB of the address space are never mapped"
        if address.value < _NULL_PAGE
        else f"the whole address is an offset of {words.amount(address.value)} from a null base",
    ]
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        sentence,
        why=tuple(why),
        fixes=_FIXES,
        facts=(fault, *reports),
        weight=90,
    )

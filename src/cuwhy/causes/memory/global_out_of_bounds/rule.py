"""A thread accesses global memory outside of what was allocated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.freed import freed_before
from cuwhy.causes.indexing import explain, explained
from cuwhy.causes.memory.shared_out_of_bounds.rule import OPCODES as SHARED_OPCODES
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import Address, Fault, SanitizerFault

CAUSE = Cause(
    "memory/global-out-of-bounds",
    "a thread reads or writes global memory outside of any allocation",
    Severity.CRASH,
    misleads="717 'operation not supported on global/shared address space' when the address lands in a memory window",
)

_ILLEGAL = (1, 10, 14)
_ADDRESS_SPACE = 7
_NULL_PAGE = 64 << 10
_FIXES = (
    Fix("guard the access: compute the index once, and return or mask when it is not below the element count",
        caution="a guard hides an index that is wrong for another reason: see first where it comes from"),
    Fix("compare the launch (grid x block x elements per thread) with the element count that the kernel gets",
        caution="a smaller grid can leave elements untouched"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match illegal-address exceptions on global accesses, and memcheck's reports of them."""
    faults = [f for f in evidence.faults if _fits(f) and not _named_otherwise(evidence, f)]
    reports = [
        r
        for r in evidence.reports_of("out-of-bounds", space="global")
        if not _explained_otherwise(evidence, r)
    ]
    if faults:
        # One kernel, one finding: more instructions of it may have faulted in other warps.
        for launch_faults in _by_kernel(faults):
            related = [r for r in reports if _same_kernel(r, launch_faults[0])]
            reports = [r for r in reports if r not in related]
            yield _from_dump(evidence, launch_faults, related)
    for report in reports:
        # Beside a dump of another kernel it is another fault, of another run.
        yield replace(_from_report(evidence, report), role=Role.LATENT if faults else Role.PRIMARY)


def _named_otherwise(evidence: Evidence, fault: Fault) -> bool:
    """The index says why it is wrong, or the memory was gone."""
    return explain(evidence, fault) is not None or freed_before(evidence, fault) is not None


def _explained_otherwise(evidence: Evidence, report: SanitizerFault) -> bool:
    """A null base, a shared-memory pointer, an index that names itself: memcheck calls all of them out of bounds."""
    from cuwhy.causes.memory.invalid_address_space.rule import is_shared_window
    from cuwhy.causes.memory.null_pointer.rule import is_null_based

    return is_null_based(report) or is_shared_window(report) or explained(evidence, report)


def _fits(fault: Fault) -> bool:
    if fault.access not in ("load", "store", "atomic", "reduction"):
        # Without any instruction text an unmapped address is still an unmapped address.
        return fault.exception in _ILLEGAL and not fault.opcode
    address = fault.address
    if address is not None and address.space not in ("global", "generic"):
        return False
    if address is None and fault.opcode in (*SHARED_OPCODES, "LDL", "STL"):
        return False
    if address is not None and (address.value < _NULL_PAGE or _base_is_null(fault, address)):
        return False
    if fault.exception in _ILLEGAL or any(code in _ILLEGAL for code in fault.alternatives):
        return True
    if fault.exception == _ADDRESS_SPACE or _ADDRESS_SPACE in fault.alternatives:
        # Pointer arithmetic that starts at a global pointer and ends in a window overran the buffer.
        return address is not None and address.base is not None and not _base_in_window(fault, address)
    return False


def _base_is_null(fault: Fault, address: Address) -> bool:
    if address.base is None or fault.launch is None:
        return False
    return fault.launch.arguments[address.base].value == 0


def _base_in_window(fault: Fault, address: Address) -> bool:
    """True when the base pointer itself points into the window (a few MiB around the address)."""
    for distance in address.distances:
        if distance.argument == address.base:
            return address.window == "local" and abs(distance.bytes) < 1 << 20
    return False


def _by_kernel(faults: list[Fault]) -> list[list[Fault]]:
    kernels: dict[tuple[str, int], list[Fault]] = {}
    for fault in faults:
        key = (fault.launch.kernel, fault.launch.grid_id) if fault.launch is not None else ("", 0)
        kernels.setdefault(key, []).append(fault)
    return list(kernels.values())


def _same_kernel(report: SanitizerFault, fault: Fault) -> bool:
    return fault.launch is not None and report.short == fault.launch.short


def _first(faults: list[Fault]) -> Fault:
    """The fault whose first thread comes first; of equals the one with more threads."""

    def key(fault: Fault) -> tuple[int, ...]:
        block = fault.threads.first_block or (1 << 31, 0, 0)
        return (block[2], block[1], block[0], -fault.threads.count)

    return min(faults, key=key)


def _from_dump(evidence: Evidence, faults: list[Fault], reports: list[SanitizerFault]) -> Finding:
    fault = _first(faults)
    place, address, launch = fault.place, fault.address, fault.launch
    function = place.innermost.function if place is not None and place.innermost is not None else None
    name = function or (launch.short if launch is not None else "the kernel")
    width = f"{words.plural(address.width, 'byte')} of " if address is not None and address.width else ""
    sentence = f"`{name}` {words.verb(fault.access)} {width}global memory outside of any allocation"
    why = [words.raised(fault)]
    misleading = ""
    if address is not None:
        distance = words.offset_from_base(address, launch)
        sentence = f"`{name}` {words.verb(fault.access)} {width or ''}global memory at {address.value:#x}"
        if distance:
            sentence += f", {distance}"
            why.append(f"the address was computed from {words.argument_label(launch, address.base)}")
        if any(d.argument == address.base and d.bytes < 0 for d in address.distances):
            why.append("the offset is negative: a negative index, or a 32-bit product that wrapped around")
    if len(faults) > 1:
        others = sorted({f.place.short for f in faults if f.place is not None and f is not fault})
        why.append(
            f"{words.plural(len(faults) - 1, 'more instruction')} of the kernel faulted too, at {', '.join(others)}"
        )
    window = address.window if address is not None else ""
    if window and _ADDRESS_SPACE in (fault.exception, *fault.alternatives):
        misleading = words.misleading(
            evidence,
            fault,
            f"no address space is mixed up: the address ran so far that it fell into the {window} memory window",
        )
    rows = words.address_rows(fault)
    for report in reports[:1]:
        rows += [
            ("address under memcheck" if label == "address" else label, text)
            for label, text in words.report_rows(report)
        ]
    return Finding(
        CAUSE,
        sentence,
        tuple(why),
        place=place,
        launch=launch,
        kernel=launch.short if launch is not None else "",
        threads=fault.threads,
        host=evidence.host_of(*reports),
        misleading=misleading,
        details=tuple(rows),
        fixes=_FIXES,
        facts=(*faults, *reports),
        weight=80,
    )


def _from_report(evidence: Evidence, report: SanitizerFault) -> Finding:
    allocation = report.allocation
    sentence = f"`{_function(report)}` {words.verb(report.access)} {words.plural(report.width, 'byte')} of global memory"
    if report.address is not None:
        sentence += f" at {report.address:#x}"
    if allocation is not None and allocation.side in ("before", "after"):
        sentence += f", {words.amount(allocation.distance)} {allocation.side} an allocation of {words.amount(allocation.size)}"
    return build.from_report(evidence, CAUSE, report, sentence, fixes=_FIXES, weight=80)


def _function(report: SanitizerFault) -> str:
    frame = report.place.innermost if report.place is not None else None
    return (frame.function if frame is not None and frame.function else "") or report.short or "the kernel"

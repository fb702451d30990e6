"""What the distance between an address and its buffer says of the index: it wrapped, is a filler, or is the size.

Three rules share this with ``memory/global-out-of-bounds``, which keeps what none of them explains.  All of it is
exact arithmetic; where the numbers do not fit to the byte, nothing is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.causes.evidence import Evidence
from cuwhy.locate.demangle import demangle
from cuwhy.locate.recorded import allocation_of
from cuwhy.model.facts import Address, Dim3, Fault, Launch, LaunchRecord, Overflow, SanitizerFault

_UNMAPPED = (1, 7, 10, 14)
_ACCESSES = ("load", "store", "atomic", "reduction")
_WORD = 1 << 32
#: Fillers that people use, as an index that is added to a base; -1 is looked at more closely.
_FILLERS = {
    2**31 - 1: "INT32_MAX",
    -(2**31): "INT32_MIN",
    2**32 - 1: "UINT32_MAX (-1)",
    0xDEADBEEF: "0xdeadbeef",
}


@dataclass(frozen=True, slots=True)
class Wrapped:
    """A signed 32-bit index that wrapped.

    Attributes:
        index: what was used; exact: what was meant; both in elements of ``width`` bytes.
        size: bytes of the buffer, 0 when unknown.
        arithmetic: the sum or product, None when only its result is known.
    """

    index: int
    exact: int
    width: int
    size: int
    arithmetic: Overflow | None = None


@dataclass(frozen=True, slots=True)
class Filling:
    """An index that is a constant, not a position; ``names``: those that it can be, ``bits``: known bits of it."""

    names: tuple[str, ...]
    width: int
    bits: int = 64


@dataclass(frozen=True, slots=True)
class AtEnd:
    """A single thread's index that equals the number of elements, and that its place in the launch does not explain."""

    elements: int
    width: int
    size: int
    launch: LaunchRecord


Explanation = Wrapped | Filling | AtEnd


def explain(evidence: Evidence, subject: Fault | SanitizerFault) -> Explanation | None:
    """Return what is behind an access outside of a global buffer, None when the numbers do not say."""
    if isinstance(subject, Fault):
        return _of_fault(evidence, subject)
    return _of_report(evidence, subject)


def explained(evidence: Evidence, report: SanitizerFault) -> bool:
    """True for a report that is explained, or that is about the same line of a kernel as an explained fault."""
    if explain(evidence, report) is not None:
        return True
    return any(same_line(fault, report) and explain(evidence, fault) is not None for fault in evidence.faults)


def same_line(fault: Fault, report: SanitizerFault) -> bool:
    """True when a checker and a core dump tell of one instruction of one kernel."""
    if fault.launch is None or fault.launch.short != report.short:
        return False
    one = fault.place.user if fault.place is not None else None
    two = report.place.user if report.place is not None else None
    if one is None or two is None or one.line is None:
        return False
    return _name(one.file) == _name(two.file) and one.line == two.line


def _name(file: str | None) -> str:
    return (file or "").rpartition("/")[2]


# -- core dumps --------------------------------------------------------------------


def _of_fault(evidence: Evidence, fault: Fault) -> Explanation | None:
    if fault.access not in _ACCESSES or not {fault.exception, *fault.alternatives} & set(_UNMAPPED):
        return None
    address, launch = fault.address, fault.launch
    if address is None:
        filler = fault.filler
        return Filling(filler.names, filler.width, filler.bits) if filler is not None else None
    if launch is None or address.base is None or address.space not in ("global", "generic"):
        return None
    distance = next((d.bytes for d in address.distances if d.argument == address.base), None)
    if distance is None or not launch.arguments[address.base].value:
        return None
    size = _size_behind(evidence, fault, address, launch)
    width = address.width
    if address.overflow is not None:
        return _wrapped_by(address.overflow, distance, size, launch)
    wrapped = _wrapped(distance, width, size)
    return wrapped or _filling(distance, width)


def _size_behind(evidence: Evidence, fault: Fault, address: Address, launch: Launch) -> int:
    """Bytes from where the base argument points to the end of its buffer; 0 when unknown."""
    assert address.base is not None
    argument = launch.arguments[address.base]
    start = argument.value
    assert isinstance(start, int)
    if argument.target is not None and argument.target.tensor is not None:
        return argument.target.tensor.bytes
    block = allocation_of(fault, evidence.allocations)
    if block is not None and block.freed is None and block.address <= start < block.address + block.size:
        return block.address + block.size - start
    sizes = {
        r.allocation.size
        for r in evidence.reports_of("out-of-bounds", space="global")
        if r.allocation is not None and same_line(fault, r) and _wrapped_report(r) is not None
    }
    return sizes.pop() if len(sizes) == 1 else 0


def _wrapped_by(overflow: Overflow, distance: int, size: int, launch: Launch) -> Wrapped | None:
    """The wrap that the instructions show, if the address is made of what was kept of it."""
    for shift in range(5):
        width = 1 << shift
        # What the instruction itself adds to the address is small.
        if 0 <= distance - overflow.stored * width < 4096 * width:
            meant = distance + (overflow.exact - overflow.stored) * width
            if size and not 0 <= meant < size and not _is_step(overflow, launch):
                return None
            more = (distance - overflow.stored * width) // width
            return Wrapped(overflow.stored + more, overflow.exact + more, width, size, overflow)
    return None


def _is_step(overflow: Overflow, launch: Launch) -> bool:
    """True for the step of a grid-stride loop: a larger index would have ended the loop, the wrapped one did not."""
    stride = launch.grid[0] * launch.block[0]
    return overflow.right == 1 and stride in (overflow.left, overflow.added)


def _wrapped(distance: int, width: int, size: int) -> Wrapped | None:
    """A negative offset that lands inside the buffer when 2^32 elements are added."""
    if not width or distance >= 0 or distance % width or not size:
        return None
    index = distance // width
    exact = index + _WORD
    if index >= -(1 << 31) and exact * width + width <= size:
        return Wrapped(index, exact, width, size)
    return None


def _filling(distance: int, width: int) -> Filling | None:
    if not width or distance % width:
        return None
    name = _FILLERS.get(distance // width)
    return Filling((name,), width) if name is not None else None


# -- reports -----------------------------------------------------------------------


def _of_report(evidence: Evidence, report: SanitizerFault) -> Explanation | None:
    if report.kind != "out-of-bounds" or report.space != "global":
        return None
    wrapped = _wrapped_report(report)
    if wrapped is not None:
        return wrapped
    return _at_end(evidence, report)


def _wrapped_report(report: SanitizerFault) -> Wrapped | None:
    allocation = report.allocation
    if allocation is None or report.address is None:
        return None
    return _wrapped(report.address - allocation.address, report.width, allocation.size)


def _at_end(evidence: Evidence, report: SanitizerFault) -> AtEnd | None:
    """One thread in the middle of its launch reads exactly the element behind the last."""
    allocation, width = report.allocation, report.width
    block, thread = report.threads.first_block, report.threads.first_thread
    if (
        allocation is None
        or not width
        or report.access != "read"
        or report.address != allocation.address + allocation.size
        or allocation.size % width
        or report.records != 1
        or report.threads.count != 1
        or block is None
        or thread is None
    ):
        return None
    launches = [r for r in evidence.records if r.kernel and demangle(r.kernel).short == report.short]
    shapes = {(r.grid, r.block) for r in launches}
    if len(shapes) != 1:
        return None
    record = launches[-1]
    elements = allocation.size // width
    if _explained_by_position(elements, block, thread, record):
        return None
    return AtEnd(elements, width, allocation.size, record)


def _explained_by_position(elements: int, block: Dim3, thread: Dim3, record: LaunchRecord) -> bool:
    """True when the thread may have come to the end by counting: an off-by-one, a loop one turn too long."""
    threads = record.block[0] * record.block[1] * record.block[2]
    blocks = record.grid[0] * record.grid[1] * record.grid[2]
    here = thread[0] + record.block[0] * (thread[1] + record.block[1] * thread[2])
    which = block[0] + record.grid[0] * (block[1] + record.grid[1] * block[2])
    everywhere = which * threads + here
    if here == threads - 1 or (blocks > 1 and which == blocks - 1):
        return True
    # One element a thread, several in a row, or every so many of them in a loop.
    if everywhere in (elements, elements - 1) or elements % (everywhere + 1) == 0:
        return True
    return any((elements - back) % step == here for back in (0, 1) for step in (threads, threads * blocks))

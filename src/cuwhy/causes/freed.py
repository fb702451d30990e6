"""Memory that was gone when the kernel that used it was launched."""

from __future__ import annotations

from cuwhy.causes.evidence import Evidence
from cuwhy.locate.recorded import allocation_of, record_of
from cuwhy.model.facts import DriverAllocation, Fault

_UNMAPPED = (1, 10, 14)


def freed_before(evidence: Evidence, fault: Fault) -> DriverAllocation | None:
    """Return the freed allocation that holds a faulting address, None when nothing proves that it was freed first.

    The launch must be the very one that the dump shows: what a program frees after an error, on its way
    out, says nothing.  A captured launch runs later than it was recorded.
    """
    launch, address = fault.launch, fault.address
    if launch is None or address is None or not {fault.exception, *fault.alternatives} & set(_UNMAPPED):
        return None
    record = record_of(launch, evidence.records)
    if record is None or record.number != launch.grid_id or "captured" in record.flags:
        return None
    block = allocation_of(fault, [b for b in evidence.allocations if b.process == record.process])
    if (
        block is None
        or block.freed is None
        or not block.address <= address.value < block.address + block.size
    ):
        return None
    return block if block.freed < record.microseconds else None

"""A block of a cluster has ended while another still accesses its shared memory."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/cluster-peer-exited",
    "a block of a cluster ends while another block still accesses its shared memory",
    Severity.CRASH,
    misleads="719 'unspecified launch failure'",
)

#: CLUSTER_BLOCK_NOT_PRESENT (cudadebugger.h).
_NOT_PRESENT = 18

_FIXES = (
    Fix(
        "let every thread of the cluster call `cluster.sync()` (barrier.cluster.arrive and wait) after the last access "
        "to another block's shared memory and before the block ends"
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the exception that only this raises."""
    seen = set()
    for fault in evidence.faults:
        # Warps that had run on to different instructions are one fault.
        where = fault.place.short if fault.place is not None else ""
        if fault.exception != _NOT_PRESENT or where in seen:
            continue
        seen.add(where)
        name = fault.launch.short if fault.launch is not None else "the kernel"
        what = {"load": "read from", "store": "written to"}.get(fault.access, "accessed")
        why = [
            f"the core dump holds {words.exception_fact(fault)}; it has no other meaning",
            "a block's shared memory exists only while the block runs; nothing keeps it for its peers but a barrier of "
            "the cluster",
        ]
        if not fault.precise:
            why.append(
                "the warps had run on when the exception came; the line is the one line of the kernel that accesses "
                "memory through a generic pointer"
                if fault.access
                else "the warps had run on when the exception came: the access lies before the line shown"
            )
        if fault.threads.count:
            why.append(words.counts(fault.threads))
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{name}`: shared memory of another block of the cluster is {what} although that block has ended",
            why=tuple(why),
            misleading="719 'unspecified launch failure' names neither the cluster nor the missing block",
            fixes=_FIXES,
            weight=85,
        )

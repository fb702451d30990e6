"""A kernel that does not wait for the work it needs: another stream, or an early launch."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_line, host_place
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/missing-stream-order",
    "a kernel does not wait for the work it needs, which runs in another stream or lets it start early",
    Severity.WRONG,
)

_EVENT = Fix(
    "record an event after the earlier launch and let the later stream wait for it (`cudaEventRecord`, "
    "`cudaStreamWaitEvent`; PyTorch: `later.wait_stream(earlier)`)",
    safe=True,
)
_LEGACY = Fix(
    "launch both in one stream, or create the stream without `cudaStreamNonBlocking`: the legacy default stream "
    "waits for blocking streams, and they for it",
    caution="implicit waiting for the default stream serialises whatever else runs beside it",
)
_WAIT = Fix(
    "call `cudaGridDependencySynchronize()` (PTX `griddepcontrol.wait`) before the first access to what the kernel "
    "in front writes, or launch without cudaLaunchAttributeProgrammaticStreamSerialization"
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match a bisected pair whose launches are in two streams, or in one with early start."""
    found = ordering.unordered(evidence)
    if found is None or found.earlier is None or found.recycled(evidence) is not None:
        return
    earlier, later = found.earlier, found.later
    why = list(ordering.reasons(found))
    if not found.same_stream:
        fixes: tuple[Fix, ...] = (_EVENT,)
        why.append("launches in different streams are ordered by nothing but events and synchronisations")
        legacy = ordering.is_legacy(earlier), ordering.is_legacy(later)
        if any(legacy) and not all(legacy):
            fixes = (_EVENT, _LEGACY)
            why.append(
                "one is the legacy default stream, which a stream made with cudaStreamNonBlocking does not wait for"
            )
    elif found.early_start:
        fixes = (_WAIT,)
        why.append(
            "it was launched with programmatic stream serialisation, which lets it start as soon as the kernel in "
            "front triggers; only a grid dependency synchronisation in the kernel waits for its memory"
        )
    else:
        return
    yield Finding(
        CAUSE,
        f"{ordering.described(later)} needs what {ordering.described(earlier)} writes, and nothing makes it wait",
        why=tuple(why),
        place=host_place(later),
        other=host_place(earlier),
        kernel=ordering.short(later),
        host=host_line(later),
        fixes=fixes,
        facts=found.facts,
        weight=70,
    )

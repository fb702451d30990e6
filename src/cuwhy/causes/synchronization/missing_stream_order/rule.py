"""Work in two streams that nothing orders, although the later needs the earlier."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/missing-stream-order",
    "a kernel runs in another stream than the work it needs, and does not wait for it",
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


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match a bisected pair whose launches are in two streams."""
    found = ordering.unordered(evidence)
    if found is None or found.earlier is None or found.same_stream or found.recycled(evidence) is not None:
        return
    earlier, later = found.earlier, found.later
    legacy = 0 in (ordering.stream_of(earlier), ordering.stream_of(later))
    why = [
        *ordering.reasons(found),
        "launches in different streams are ordered by nothing but events and synchronisations",
    ]
    if legacy:
        why.append(
            "one is the legacy default stream, which a stream made with cudaStreamNonBlocking does not wait for"
        )
    yield Finding(
        CAUSE,
        f"{ordering.described(later)} needs what {ordering.described(earlier)} writes, and nothing makes it wait",
        why=tuple(why),
        place=ordering.host_place(later),
        other=ordering.host_place(earlier),
        kernel=ordering.short(later),
        host=ordering.host_line(later),
        fixes=(_EVENT, *((_LEGACY,) if legacy else ())),
        facts=found.facts,
        weight=70,
    )

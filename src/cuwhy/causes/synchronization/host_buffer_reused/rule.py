"""The host touches memory that work in a stream still uses."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import ordering
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_line, host_place
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "synchronization/host-buffer-reused",
    "the host rewrites or reads memory while an asynchronous copy or kernel in one stream still uses it",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "before the host touches the buffer again, wait for an event recorded after the copy (`cudaEventRecord`, "
        "`cudaEventSynchronize`), or use as many buffers as there are copies in flight"
    ),
    Fix(
        "if the copy is in another stream than the kernels, let theirs wait for an event recorded after it "
        "(`cudaStreamWaitEvent`)"
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match a bisected pair in one stream without early start: the stream orders them, so the host is what is early."""
    found = ordering.unordered(evidence)
    if found is None or found.earlier is None or not found.same_stream or found.early_start:
        return
    if found.recycled(evidence) is not None:
        return
    earlier, later = found.earlier, found.later
    yield Finding(
        CAUSE,
        f"the host does not wait for work in {ordering.stream_name(later)}: what it does after "
        f"{ordering.described(later)} is too early for a copy or kernel issued from {ordering.described(earlier)} on",
        why=(
            *ordering.reasons(found),
            "both are in one stream, which runs them in order; a synchronisation there changes only what the host does "
            "before it is over: it touches memory that the stream has not finished with",
            "a copy or memset issued between the two in another stream would give the same pattern; launch logs hold "
            "none, so look at the host lines between them",
        ),
        place=host_place(later),
        other=host_place(earlier),
        kernel=ordering.short(later),
        host=host_line(later),
        fixes=_FIXES,
        facts=found.facts,
        weight=66,
    )

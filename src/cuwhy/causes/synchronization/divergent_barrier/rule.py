"""Threads of one block meet at different barriers, or some never reach one."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import WaitKind

CAUSE = Cause(
    "synchronization/divergent-barrier",
    "a block barrier stands in code that only some threads of the block reach",
    Severity.LATENT,
    misleads="nothing: on Volta and later the barrier completes with whichever threads come",
)

_FIXES = (
    Fix("move the barrier out of the branch: close the branch, synchronise with all threads, branch again",
        caution="values kept across the barrier must live in both halves"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match synccheck's reports, and a hang with one block at two different whole-block barriers."""
    for report in evidence.reports_of("divergent-barrier"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` has a block barrier that not all threads of the block reach together",
            fixes=_FIXES,
            weight=65,
        )
    # Without SASS or PTX neither number nor count of a barrier is known: then nothing is said.
    whole = [
        w
        for w in evidence.waits
        if w.kind is WaitKind.BLOCK_BARRIER and w.barrier == 0 and w.expected is None and w.place is not None
    ]
    same_block = [w for w in whole if w.threads.first_block == whole[0].threads.first_block]
    if len({w.place.pc for w in same_block if w.place is not None}) > 1:
        first, second = same_block[:2]
        launch = first.launch
        name = launch.short if launch is not None else "the kernel"
        yield Finding(
            CAUSE,
            f"`{name}` hangs: threads of one block wait at two different barriers",
            tuple(
                f"{words.counts(w.threads)} wait at {w.place.short}"
                for w in same_block
                if w.place is not None
            ),
            place=first.place,
            other=second.place,
            launch=launch,
            kernel=name,
            threads=first.threads,
            host=evidence.host_line(),
            fixes=_FIXES,
            facts=tuple(same_block),
            weight=80,
        )

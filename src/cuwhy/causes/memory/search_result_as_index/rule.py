"""The answer "not found" of a search, the number of elements, is used as an index."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_line
from cuwhy.causes.indexing import AtEnd, explain
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "memory/search-result-as-index",
    "an index equals the number of elements, as of a search that found nothing",
    Severity.CRASH,
)

_FIXES = (
    Fix("compare what the search returns with the size before it is used", safe=True),
    Fix("if it is no search: find where this thread's index comes from; its place in the launch does not give it"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match memcheck's report of one thread in the middle of a launch that reads just behind a buffer."""
    for report in evidence.reports_of("out-of-bounds", space="global"):
        found = explain(evidence, report)
        if not isinstance(found, AtEnd):
            continue
        threads = found.launch.block[0] * found.launch.block[1] * found.launch.block[2]
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` reads {words.plural(found.width, 'byte')} exactly at the end of a buffer of "
            f"{words.amount(found.size)}, in one thread: the index equals the size",
            f"{words.who(report.threads)} alone does so: neither the last thread of its block of {threads:,} nor one whose "
            "number leads there by counting, so that the index comes from data",
            "a search that finds nothing returns the number of elements",
            host=host_line(found.launch) or evidence.host_of(report),
            fixes=_FIXES,
            weight=82,
        )

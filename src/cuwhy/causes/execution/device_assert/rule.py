"""A device-side assert of the user's own kernel fired."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.memory.host_index_out_of_range.rule import is_index_assert, is_index_kernel
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.place import Frame, Place

CAUSE = Cause("execution/device-assert", "an assert in a kernel failed", Severity.CRASH)

_ASSERT = 12
_FIXES = (
    Fix("read the condition with the values of the first failing thread; the assert is right until shown otherwise"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match assert exceptions and assertion messages that are not a library's index check."""
    messages = [m for m in evidence.asserts if not is_index_assert(m)]
    faults = [f for f in evidence.faults if f.exception == _ASSERT and not is_index_kernel(f.launch)]
    if evidence.asserts and not messages:
        return
    message = messages[0] if messages else None
    fault = faults[0] if faults else None
    if message is None and fault is None:
        yield from _from_reports(evidence)
        return
    threads = message.threads if message is not None else fault.threads if fault is not None else None
    place = fault.place if fault is not None else None
    if message is not None and (place is None or not place.frames):
        frame = Frame(message.function, message.file, message.line)
        place = Place(
            place.function if place is not None else message.function,
            place.offset if place else 0,
            frames=(frame,),
        )
    launch = fault.launch if fault is not None else None
    name = (
        launch.short
        if launch is not None
        else message.function.partition("(")[0].split(" ")[-1]
        if message
        else ""
    )
    sentence = f"the assert in `{name}` failed"
    if message is not None:
        sentence = f"the assert `{message.expression}` in `{name}` failed"
    if threads is not None and threads.count:
        sentence += f" in {words.plural(threads.count, 'thread')}, first in {words.who(threads)}"
    why = []
    if fault is not None:
        why.append(words.raised(fault))
    if message is not None:
        why.append(
            f"the program's output: {message.file}:{message.line}: assertion `{message.expression}` failed"
        )
    yield Finding(
        CAUSE,
        sentence,
        tuple(why),
        place=place,
        launch=launch,
        kernel=name,
        threads=threads,
        host=evidence.host_line(),
        details=(("assertion", message.expression),) if message is not None else (),
        fixes=_FIXES,
        facts=tuple(f for f in (fault, message) if f is not None),
        weight=90,
    )


def _from_reports(evidence: Evidence) -> Iterator[Finding]:
    """Memcheck sees the exception inside ``__assertfail`` and knows no kernel line."""
    for report in evidence.reports_of("assert"):
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"an assert failed, first seen in {words.who(report.threads)}; memcheck does not say in which kernel",
            "the program's own output names file, line and condition",
            kernel="",
            fixes=_FIXES,
            weight=60,
        )

"""A failure that no rule explains: what was seen, and what would tell more."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import event_rows, where
from cuwhy.model.cuda import describe_error
from cuwhy.model.diagnosis import Cause, Finding, Severity
from cuwhy.model.facts import WaitKind

CAUSE = Cause("unknown/unexplained", "something failed and this evidence does not say why", Severity.CRASH)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match any sign of failure; ``diagnose`` asks only when nothing else has matched."""
    if evidence.faults:
        fault = evidence.faults[0]
        launch = fault.launch
        name = launch.short if launch is not None else "a kernel"
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{name}` stopped with {words.exception_fact(fault)}; the evidence does not say why",
            why=(words.counts(fault.threads),) if fault.threads.count else (),
            facts=tuple(evidence.faults),
        )
    elif evidence.waits and not any(
        wait.kind in (WaitKind.RUNNING, WaitKind.MEMORY) for wait in evidence.waits
    ):
        # While a thread runs, the others may wait for it rightly.
        yield _hang(evidence)
    elif evidence.reports:
        report = evidence.reports[0]
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"{report.tool} reports in `{report.short or 'a call'}`: {report.message}",
        )
    elif evidence.errors:
        error = evidence.errors[0]
        said = describe_error(error.code) if error.code else error.text
        yield Finding(
            CAUSE,
            f"the program reports {said}; its output alone does not say which kernel or why",
            host=evidence.host_line(),
            facts=(error,),
        )
    elif event := next((e for e in evidence.numerics if e.kind != "uninitialized"), None):
        what = {"inf": "makes Inf out of finite inputs", "nan": "makes NaN out of none"}.get(
            event.kind, "reads a NaN that no operation was seen to make"
        )
        yield Finding(
            CAUSE,
            f"{where(event.operation)} {what}; the evidence does not say why",
            host=event.operation.line,
            details=event_rows(event),
            facts=(event,),
        )
    elif evidence.reruns:
        pattern = evidence.rerun_pattern()
        # A single run that ended badly says nothing about the GPU; reruns were made because something did.
        if pattern.plain.failures and pattern.others:
            yield Finding(
                CAUSE,
                f"the program {pattern.plain.text} without a device error; the evidence does not say why",
                why=pattern.sentences,
                facts=tuple(evidence.reruns[:20]),
            )


def _hang(evidence: Evidence) -> Finding:
    """Threads that wait, without a rule that says for whom: each group, most threads first."""
    waits = sorted(evidence.waits, key=lambda wait: -wait.threads.count)
    first = waits[0]
    why = tuple(
        f"{wait.kind.value} at {wait.place.short if wait.place is not None else '?'}: {words.counts(wait.threads)}"
        for wait in waits[:8]
    )
    return build.from_wait(
        evidence,
        CAUSE,
        first,
        f"`{words.kernel_of(first)}`: {words.plural(first.threads.count, 'thread')} wait ({first.kind.value}); the dump "
        "does not say for whom",
        why=why,
        facts=tuple(waits[:8]),
    )

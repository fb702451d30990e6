"""Findings from a fault, from a wait, from a checker's report: what every rule fills in the same way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cuwhy.causes import words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding
from cuwhy.model.facts import Fault, SanitizerFault, Wait


def from_fault(evidence: Evidence, cause: Cause, fault: Fault, sentence: str, **more: Any) -> Finding:
    """Return a finding that rests on an exception in a core dump.

    Args:
        evidence: the case, for the host line.
        cause: the cause.
        fault: gives place, launch, kernel, threads and the rows about the address.
        sentence: what happened.
        more: further fields of the finding, or others instead of these.
    """
    fields: dict[str, Any] = {
        "place": fault.place,
        "launch": fault.launch,
        "kernel": words.kernel_of(fault),
        "threads": fault.threads,
        "host": evidence.host_line(),
        "details": tuple(words.address_rows(fault)),
        "facts": (fault,),
    }
    return Finding(cause, sentence, **{**fields, **more})


def from_wait(evidence: Evidence, cause: Cause, wait: Wait, sentence: str, **more: Any) -> Finding:
    """Return a finding that rests on where the threads of a hung kernel stand."""
    fields: dict[str, Any] = {
        "place": wait.place,
        "launch": wait.launch,
        "kernel": words.kernel_of(wait),
        "threads": wait.threads,
        "host": evidence.host_line(),
        "facts": (wait,),
    }
    return Finding(cause, sentence, **{**fields, **more})


def from_report(
    evidence: Evidence, cause: Cause, report: SanitizerFault, sentence: str, *also: str, **more: Any
) -> Finding:
    """Return a finding that rests on a checker's report.

    Args:
        evidence: the case, for the host line.
        cause: the cause.
        report: gives place, kernel, threads, values, and the first reason: the tool's own words.
        sentence: what happened.
        also: further reasons.
        more: further fields of the finding, or others instead of these.
    """
    threads = report.threads
    limit = evidence.printed(report)
    if limit and threads.count:
        # What was not printed may be anywhere: no pattern, and a count that is a lower bound.
        threads = replace(threads, pattern=f"at least, as {limit}")
    seen = (words.counts(threads),) if threads.count else ()
    fields: dict[str, Any] = {
        "why": (f"{report.tool}: {report.message}", *also, *seen),
        "place": report.place,
        "other": report.other,
        "kernel": report.short,
        "threads": threads,
        "host": evidence.host_of(report),
        "details": tuple(words.report_rows(report)),
        "facts": (report,),
    }
    return Finding(cause, sentence, **{**fields, **more})

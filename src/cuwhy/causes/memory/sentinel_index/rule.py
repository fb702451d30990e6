"""A constant that stands for "none" is used as an index."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.indexing import Filling, explain, same_line
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "memory/sentinel-index",
    "a constant that stands for none, such as -1 or INT32_MAX, is used as an index",
    Severity.CRASH,
)

_FIXES = (
    Fix("test for the constant before the access, and skip or take a neutral value", safe=True),
    Fix("find who writes it: a search that found nothing, padding, a parent of the root; and whether it should have",
        caution="a test at the access hides a table that is wrong"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match faults whose index is one of the constants, to the last bit that is known."""
    seen: set[tuple[str, str]] = set()
    for fault in evidence.faults:
        found = explain(evidence, fault)
        launch = fault.launch
        if not isinstance(found, Filling) or launch is None:
            continue
        key = (launch.kernel, fault.place.short if fault.place is not None else "")
        if key in seen:
            continue
        seen.add(key)
        base = fault.filler.argument if fault.filler is not None else None
        if fault.address is not None:
            base = fault.address.base
        label = words.argument_label(launch, base)
        names = " or ".join(found.names)
        reports = [r for r in evidence.reports_of("out-of-bounds", space="global") if same_line(fault, r)]
        why = [words.raised(fault)]
        if found.bits < 64:
            why.append(
                f"the load overwrote the upper half of its address; the lower half says that the lowest {found.bits} bits of "
                "the index are all set"
            )
            why.append(
                f"of the numbers that end so, {' and '.join(found.names)} are what programs write for none"
            )
        else:
            why.append(f"the address is {label} + {names} x {words.plural(found.width, 'byte')}, to the byte")
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{launch.short}` {words.verb(fault.access)} {label} at index {names} in {words.who(fault.threads)}: a value that stands for none",
            why=tuple(why),
            host=evidence.host_of(*reports),
            details=(("index", names), *words.address_rows(fault), *(row for r in reports[:1] for row in words.report_rows(r))),
            facts=(fault, *reports),
            fixes=_FIXES,
            weight=83,
        )  # fmt: skip

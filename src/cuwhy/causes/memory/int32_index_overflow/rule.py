"""An index is computed in 32 bits and wraps; the access lands before the buffer."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.indexing import Wrapped, explain, explained, same_line
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import Fault, Launch

CAUSE = Cause(
    "memory/int32-index-overflow",
    "an index computed in 32 bits wraps, and the access lands somewhere else",
    Severity.CRASH,
    misleads="717 'operation not supported on global/shared address space' when the address lands in a memory window",
)

_LARGEST = 2**31 - 1
_FIXES = (
    Fix("compute the index in 64 bits from its first factor on: `size_t(row) * width + column`; a cast of the result "
        "is too late", safe=True),
    Fix("in a grid-stride loop make the loop variable 64 bits wide: a guard `i < n` lets a wrapped, negative `i` through",
        safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match faults and reports whose offset is a 32-bit number that wrapped, to the byte."""
    kernels: set[str] = set()
    for fault in evidence.faults:
        found = explain(evidence, fault)
        if isinstance(found, Wrapped) and fault.launch is not None and fault.launch.kernel not in kernels:
            kernels.add(fault.launch.kernel)
            yield _from_dump(evidence, fault, found)
    dumped = {fault.launch.short for fault in evidence.faults if fault.launch is not None}
    for report in evidence.reports_of("out-of-bounds", space="global"):
        found = explain(evidence, report)
        if isinstance(found, Wrapped) and report.short not in dumped:
            yield build.from_report(
                evidence,
                CAUSE,
                report,
                f"`{report.short}` {words.verb(report.access)} at index {found.index:,}: {found.exact:,} does not fit 32 bits",
                *_reasons(found),
                details=(*words.report_rows(report), *_rows(found, None)),
                fixes=_FIXES,
                role=Role.LATENT if dumped else Role.PRIMARY,
                weight=84,
            )


def _from_dump(evidence: Evidence, fault: Fault, found: Wrapped) -> Finding:
    launch, address = fault.launch, fault.address
    assert launch is not None
    assert address is not None
    label = words.argument_label(launch, address.base)
    meant = _arithmetic(found, launch) or f"{found.exact:,}"
    reports = [
        r for r in evidence.reports_of("out-of-bounds", space="global") if same_line(fault, r) and explained(evidence, r)
    ]  # fmt: skip
    misleading = ""
    if 7 in (fault.exception, *fault.alternatives):
        misleading = words.misleading(
            evidence,
            fault,
            "no address space is mixed up: the index wrapped, and the address fell into a window",
        )
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        f"`{launch.short}` {words.verb(fault.access)} {label} at index {found.index:,}: {meant} does not fit 32 bits",
        why=(words.raised(fault), *_reasons(found)),
        host=evidence.host_of(*reports),
        misleading=misleading,
        details=(*words.address_rows(fault), *_rows(found, launch)),
        facts=(fault, *reports),
        fixes=_FIXES,
        weight=84,
    )


def _reasons(found: Wrapped) -> Iterator[str]:
    yield (
        f"the largest signed 32-bit number is {_LARGEST:,}; {found.exact:,} less 2^32 is {found.index:,}"
        if found.exact > _LARGEST
        else f"{found.exact:,} is below the smallest signed 32-bit number, {-_LARGEST - 1:,}"
    )
    if found.size and 0 <= found.exact * found.width < found.size:
        yield (
            f"index {found.exact:,} x {words.plural(found.width, 'byte')} lies inside the buffer of {words.amount(found.size)}; "
            f"{found.index:,} lies before it"
        )


def _arithmetic(found: Wrapped, launch: Launch) -> str:
    """The product with its factors named where an argument has that value: "66,000 x 32,768 (`cols`) = …"."""
    parts = found.arithmetic
    if parts is None:
        return ""
    names = {
        a.value: a.name for a in launch.arguments if a.name and isinstance(a.value, int) and not a.is_pointer
    }

    def text(value: int) -> str:
        return f"{value:,}" + (f" (`{names[value]}`)" if value in names and abs(value) > 1 else "")

    left, right = parts.left, parts.right
    if right in names and left not in names:
        shown = f"{text(left)} x {text(right)}"
    else:
        shown = f"{text(right)} x {text(left)}" if right != 1 else text(left)
    if parts.added:
        shown += f" + {text(parts.added)}"
    return f"{shown} = {parts.exact:,}"


def _rows(found: Wrapped, launch: Launch | None) -> Iterator[tuple[str, str]]:
    yield "index", f"{found.index:,}"
    yield "meant", f"{found.exact:,}"
    if launch is not None and (text := _arithmetic(found, launch)):
        yield "arithmetic", text

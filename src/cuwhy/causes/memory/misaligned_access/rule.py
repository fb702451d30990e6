"""An address that is no multiple of the width of the access."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import Fault

CAUSE = Cause(
    "memory/misaligned-access",
    "an address is no multiple of the width of the load or store",
    Severity.CRASH,
)

_EXCEPTIONS = (6, 11)
_FIXES = (
    Fix("take the scalar path when pointer or row pitch is no multiple of the vector width: "
        "test `(uintptr_t)p % sizeof(vector) == 0` and `pitch % sizeof(vector) == 0` on the host", safe=True),
    Fix("pad the row pitch to a multiple of the vector width, or make the tensor contiguous before the call",
        caution="costs memory or a copy"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match misaligned-address exceptions and memcheck's reports of them."""
    seen: list[str] = []
    for fault in evidence.faults:
        if fault.exception in _EXCEPTIONS:
            seen.append(fault.launch.short if fault.launch is not None else "")
            yield _from_dump(evidence, fault)
    for report in evidence.reports_of("misaligned"):
        if report.short in seen:
            continue
        rest = report.address % report.width if report.address is not None and report.width else 0
        yield build.from_report(
            evidence,
            CAUSE,
            report,
            f"`{report.short}` {words.verb(report.access)} {words.plural(report.width, 'byte')} at "
            f"{report.address or 0:#x}, which is {rest} modulo {report.width}",
            fixes=_FIXES,
            role=Role.LATENT if seen else Role.PRIMARY,
            weight=85,
        )


def _from_dump(evidence: Evidence, fault: Fault) -> Finding:
    address, launch = fault.address, fault.launch
    name = launch.short if launch is not None else "the kernel"
    why = [words.raised(fault)]
    if address is not None and address.width:
        sentence = (
            f"`{name}` {words.verb(fault.access)} {words.plural(address.width, 'byte')} at {address.value:#x}, "
            f"which is {address.misaligned_by} modulo {address.width}"
        )
        if address.base is not None and launch is not None:
            base = launch.arguments[address.base]
            label = words.argument_label(launch, address.base)
            value = base.value if isinstance(base.value, int) else 0
            rest = value % address.width
            if rest:
                why.append(
                    f"{label} itself is {rest} modulo {address.width}: the view starts off the boundary"
                )
            else:
                why.append(f"{label} is aligned; the offset of {words.amount(address.value - value)} is not")
    else:
        sentence = f"`{name}` accesses memory at an address that is no multiple of the access width"
    return build.from_fault(
        evidence,
        CAUSE,
        fault,
        sentence,
        why=tuple(why),
        fixes=_FIXES,
        weight=85,
    )

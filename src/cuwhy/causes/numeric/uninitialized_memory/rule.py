"""An operation reads memory that nothing has written."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause(
    "numeric/uninitialized-memory",
    "an operation reads memory that nothing has written (torch.empty and its kin)",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "write all of it before it is read: torch.zeros instead of torch.empty, or find what should have filled it",
        safe=True,
        caution="costs one pass over the buffer",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    count = sum(item.poison for item in event.operation.inputs)
    text = f"{where(event.operation)} reads {count:,} element{'s' if count != 1 else ''} that nothing has written"
    frame = next((f for f in event.allocated if not f.is_library), None)
    return text + (f"; the memory comes from {frame.short}" if frame is not None else "")

"""Inf is subtracted from Inf."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause(
    "numeric/inf-minus-inf",
    "Inf is subtracted from Inf, most often in a softmax of a row that is masked as a whole",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "give a row that is masked as a whole something finite: torch.where(all_masked, 0, ...), or mask with torch.finfo(dtype).min",
        caution="with finfo.min such a row becomes uniform weights; drop its output",
    ),
    Fix("online softmax: subtract a maximum that is not -Inf, `m = torch.where(m == -inf, 0, m)`", safe=True),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    text = f"{where(event.operation)} subtracts Inf from Inf, which is NaN"
    if event.masked_rows:
        rows = f"{event.masked_rows:,} row{'s' if event.masked_rows != 1 else ''}"
        text += f": {rows} of its input {'are' if event.masked_rows != 1 else 'is'} -Inf in every element"
    return text

"""A logarithm or a root is taken outside its domain."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause("numeric/log-sqrt-domain", "a logarithm or root of a negative number or of 0", Severity.WRONG)

_FIXES = (
    Fix(
        "find out why the argument is not positive: a variance as mean(x*x) - mean(x)**2 is negative after rounding; use x.var()"
    ),
    Fix(
        "clamp the argument: x.clamp_min(eps).log(), or use log_softmax, log1p, logsumexp",
        caution="a clamped value has gradient 0",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    operation = event.operation
    at = event.at[0] if event.at else None
    made = "NaN" if event.kind == "nan" else "Inf"
    text = f"{where(operation)} makes {made}"
    if at is not None and at.low is not None and at.high is not None:
        span = f"{at.low:.6g}" if at.low == at.high else f"{at.low:.6g} to {at.high:.6g}"
        text += f" of {at.elements:,} element{'s' if at.elements != 1 else ''} that {'are' if at.elements != 1 else 'is'} {span}"
    return text + ": outside its domain"

"""0 is multiplied by Inf, or Inf is divided by Inf."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause("numeric/zero-times-inf", "0 is multiplied by Inf, or Inf divided by Inf", Severity.WRONG)

_FIXES = (
    Fix(
        "choose with torch.where(mask, x, 0) or masked_fill instead of multiplying by a mask of 0 and 1",
        safe=True,
    ),
    Fix(
        "in a backward pass: guard the argument of the function, not its result (`f(torch.where(ok, x, 1))`)",
        caution="the gradient of the result that is not chosen is 0 * Inf otherwise",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    if "div" in event.operation.name:
        return f"{where(event.operation)} divides Inf by Inf, which is NaN"
    return f"{where(event.operation)} multiplies 0 by Inf, which is NaN"

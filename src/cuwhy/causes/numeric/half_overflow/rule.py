"""A result in half precision passes 65504 and becomes Inf."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause(
    "numeric/half-overflow",
    "a result in half precision passes 65504, the largest number it has",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "compute this operation in float32 (`x.float()`, or leave it out of autocast), and cast the result back where it fits",
        safe=True,
        caution="costs memory for the float32 copy",
    ),
    Fix(
        "use bfloat16: its largest number is 3.4e38",
        caution="it has 8 bits of precision where float16 has 11",
    ),
    Fix(
        "scale before, not after: q / sqrt(d) before the product, x / n before the sum",
        caution="small values can become 0",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    exact = event.exact
    text = f"{where(event.operation)} makes Inf in float16"
    if exact is not None and exact.low is not None and exact.high is not None:
        worst = max(exact.low, exact.high, key=abs)
        text += f": computed in float64 the result reaches {worst:.6g}, and the largest float16 is 65504"
    else:
        text += " out of finite inputs: the largest float16 is 65504"
    if event.absorbed is not None:
        text += f"; {where(event.absorbed)} hides it, its output is finite again"
    return text

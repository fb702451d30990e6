"""The epsilon that keeps a divisor from 0 is itself 0 in the type it is added in."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, lost_epsilon, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import SMALLEST, NumericEvent

CAUSE = Cause(
    "numeric/epsilon-lost-in-cast",
    "the epsilon that keeps a divisor from 0 is 0 in half precision",
    Severity.WRONG,
)

_FIXES = (
    Fix(
        "do the division in float32 and cast its result",
        safe=True,
        caution="costs memory for the float32 copy",
    ),
    Fix(
        "use an epsilon that the type can hold: 1e-5 in float16 for what is near 1",
        caution="it changes results near 0",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    lost = lost_epsilon(event)
    text = f"{where(event.operation)} meets a 0 that an epsilon should have prevented"
    if lost is not None and lost[1] is not None:
        kind = lost[0].outputs[0].dtype
        text += f": {lost[1]:g}, added by {where(lost[0])}, is 0 in {kind}, whose smallest number is {SMALLEST[kind]:.3g}"
    elif lost is not None:
        kind = lost[0].outputs[0].dtype
        text += f": {where(lost[0])} casts {lost[0].inputs[0].low:.3g} to {kind}, whose smallest number is {SMALLEST[kind]:.3g}"
    return text

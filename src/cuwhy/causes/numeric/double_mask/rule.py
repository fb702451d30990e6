"""Two masks of the most negative number are added and give -Inf."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause(
    "numeric/double-mask", "two masks of the most negative number are added and give -Inf", Severity.WRONG
)

_FIXES = (
    Fix(
        "join the masks as booleans and fill once: scores.masked_fill(causal | padding, torch.finfo(dtype).min)",
        safe=True,
    ),
    Fix("after adding, clamp at torch.finfo(dtype).min", safe=True),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    dtype = event.operation.outputs[0].dtype
    lows = [at.low for at in event.at[:2] if at is not None and at.low is not None]
    return (
        f"{where(event.operation)} adds two masks, {' + '.join(f'({low:.6g})' for low in lows)}: "
        f"that is -Inf in {dtype}, and a row of nothing else gives NaN in the softmax"
    )

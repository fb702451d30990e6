"""Something is divided by 0: 0/0 is NaN, anything else Inf."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.numeric_events import findings, where
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.numerics import NumericEvent

CAUSE = Cause(
    "numeric/division-by-zero", "something is divided by 0: 0/0 is NaN, anything else Inf", Severity.WRONG
)

_FIXES = (
    Fix(
        "keep the divisor away from 0: clamp_min(eps), with an eps that the type can hold (float16: 6e-8 at least, 6.1e-5 to be a normal number)",
        caution="it changes results near 0",
    ),
    Fix(
        "where a count can be 0 (an empty batch, a mask without a 1), leave it out: torch.where(count > 0, sum / count, 0)",
        caution="through torch.where the gradient is still NaN: guard the divisor as well, not the quotient alone",
    ),
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match the events of a numeric trace that are this."""
    yield from findings(evidence, CAUSE, _sentence, _FIXES)


def _sentence(event: NumericEvent) -> str:
    made = "NaN" if event.kind == "nan" else "Inf"
    zeros = event.at[-1].zeros if event.at and event.at[-1] is not None else 0
    how = f": the divisor is 0 in {zeros:,} place{'s' if zeros != 1 else ''}" if zeros else ""
    kind = "0/0" if event.kind == "nan" else "a division by 0"
    return (
        f"{where(event.operation)} makes {made}{how}, {kind}"
        if how
        else f"{where(event.operation)} makes {made}: {kind}"
    )

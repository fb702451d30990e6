"""What a rerun will cost: from the command's own time and from factors that were measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from cuwhy.model.facts import Rerun, Setting

_H200 = "measured on an H200"
_ASSUMED = "assumed; no measurement yet"
#: Setting -> factor on the command's time, seconds on top, where that was measured.
#: memcheck of one kernel: a PyTorch script of 6 s took 7 s; launch-blocking: a training step with 2,122
#: launches took 1.9 times as long.
FACTORS: dict[str, tuple[float, float, str]] = {
    "memcheck one kernel": (1.2, 2.0, _H200),
    "memcheck": (10.0, 3.0, _ASSUMED),
    "racecheck": (20.0, 3.0, _ASSUMED),
    "synccheck": (5.0, 3.0, _ASSUMED),
    "initcheck": (15.0, 3.0, _ASSUMED),
    "launch-blocking": (1.9, 0.0, _H200),
    "synchronized": (1.9, 0.0, f"launch-blocking, {_H200}, is an upper bound"),
    "no-caching": (2.0, 0.0, _ASSUMED),
    "nan-filled": (1.5, 0.0, _ASSUMED),
    "core-dumps": (1.0, 0.3, _H200),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds, and where the number comes from."""

    seconds: float
    basis: str


def plain_seconds(reruns: Sequence[Rerun]) -> float:
    """Return the median time of the command as it is; 0 when it never ran to its end."""
    times = [r.seconds for r in reruns if not r.ended and {s.kind for s in r.settings} <= {"core-dumps"}]
    return median(times) if times else 0.0


def cost_of(settings: Sequence[Setting], reruns: Sequence[Rerun], *, one_kernel: bool = False) -> Cost:
    """Estimate a run with these settings.

    Args:
        settings: of the run.
        reruns: what ran so far; a run of the same kinds of settings is the best estimate.
        one_kernel: True when a checker is narrowed to one kernel.
    """
    kinds = {setting.kind for setting in settings}
    alike = [
        r.seconds
        for r in reruns
        if {s.kind for s in r.settings} == kinds
        and not r.ended
        and any(s.kernel for s in r.settings) == one_kernel
    ]
    if alike:
        return Cost(median(alike), "as before" if len(alike) > 1 or settings else "its own time")
    plain = plain_seconds(reruns)
    factor, added, bases = 1.0, 0.0, ["its own time"]
    for setting in settings:
        if setting.kind == "delayed":
            added += (setting.last - setting.first + 1) * setting.microseconds / 1e6
            continue
        key = f"{setting.kind} one kernel" if one_kernel and setting.kind == "memcheck" else setting.kind
        by, plus, basis = FACTORS.get(key, (1.0, 0.0, ""))
        if (by, plus) == (1.0, 0.0):
            continue
        if one_kernel and key == setting.kind and basis == _ASSUMED and setting.kind != "no-caching":
            # The other kernels run at full speed.
            by = max(1.2, by / 4)
        factor *= by
        added += plus
        words = f"{by:g} x its own time" + (f" + {plus:g} s" if plus else "") + f", {basis}"
        bases = [words] if bases == ["its own time"] else [*bases, words]
    return Cost(plain * factor + added, "; ".join(bases))

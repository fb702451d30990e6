"""What a launch could gain at most: the bound that every finding about speed states before the repair.

A resource that is busy for a part ``p`` of the time, and of whose work a part ``e`` is superfluous, can at most give
``p * e`` of the time back; and nothing gets the launch below the time that the other resources are busy.
"""

from __future__ import annotations

from typing import Any

from cuwhy.model.diagnosis import Cause, Finding
from cuwhy.model.facts import CostLine, LaunchProfile

#: Times of one program vary by 10 to 20 % from run to run: a smaller gain could not be told from that.
LEAST_GAIN = 1.2
#: How busy the shared resources were, none of which the repair of an access makes idle.
_ROOFS = ("dram_throughput", "sm_throughput", "l2_throughput")
#: No finding says more than this many times faster: beyond it something unseen is the limit.
_MOST_GAIN = 100.0


def bound(profile: LaunchProfile, saved: float, *, roofs: dict[str, float] | None = None) -> float:
    """Return how many times faster a launch can get at most.

    Args:
        profile: the launch.
        saved: part of the time that can be given back, 0 to 1.
        roofs: how busy a resource will still be, 0 to 1 of the time now; the others stay as busy as they are.
    """
    busy = {name: (profile.value(name) or 0.0) / 100 for name in _ROOFS} | (roofs or {})
    return min(_MOST_GAIN, 1 / max(1 - saved, *busy.values(), 1 / _MOST_GAIN))


def top(profile: LaunchProfile, counter: str) -> CostLine | None:
    """Return the line with the largest part of a counter."""
    lines = [line for line in profile.lines if line.count(counter) > 0]
    return max(lines, key=lambda line: line.count(counter), default=None)


def gain_row(profile: LaunchProfile, gain: float) -> tuple[str, str]:
    """Return the row that states the bound: ``at most 2.7 times faster (32.6 instead of 87.3 us)``."""
    now = profile.value("microseconds")
    text = f"at most {gain:.1f} times faster"
    return "gain", f"{text} ({now / gain:,.1f} instead of {now:,.1f} us)" if now is not None else text


def from_profile(
    cause: Cause, profile: LaunchProfile, line: CostLine, sentence: str, gain: float, **more: Any
) -> Finding:
    """Return a finding about speed; of several the one that can give most time back comes first."""
    saved = (profile.value("microseconds") or 0.0) * (1 - 1 / gain)
    fields: dict[str, Any] = {
        "place": line.place,
        "launch": profile.launch,
        "kernel": profile.launch.short,
        "facts": (profile,),
        # Below every finding about a failure (10 and more).
        "weight": -1_000_000_000 + int(saved),
    }
    sentence += f"; repaired, at most {gain:.1f} times faster"
    more["details"] = (gain_row(profile, gain), *more.get("details", ()))
    return Finding(cause, sentence, **{**fields, **more})

"""Lanes of one shared-memory access meet in the same bank."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.profiled import LEAST_GAIN, bound, from_profile, top
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import CostLine, LaunchProfile

CAUSE = Cause(
    "access-pattern/shared-bank-conflict",
    "lanes of a warp access different words of the same shared-memory bank, one after the other",
    Severity.SLOW,
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match launches in which superfluous shared-memory wavefronts hold up the load/store pipe."""
    for profile in evidence.profiles:
        excess, pipe = profile.value("shared_excess"), profile.value("lsu_pipe")
        line = top(profile, "shared_excess")
        if excess is None or pipe is None or line is None:
            continue
        gain = bound(profile, pipe / 100 * excess / 100)
        if gain >= LEAST_GAIN:
            yield _finding(profile, line, gain, excess, pipe)


def _finding(profile: LaunchProfile, line: CostLine, gain: float, excess: float, pipe: float) -> Finding:
    extra, all_of = line.count("shared_excess"), line.count("shared_wavefronts")
    ways = all_of / (all_of - extra) if all_of > extra else 0.0
    sentence = f"`{profile.launch.short}` accesses shared memory at {line.place.short} with bank conflicts"
    if ways:
        sentence += f": {ways:.0f} wavefronts where 1 would do"
    return from_profile(
        CAUSE,
        profile,
        line,
        sentence,
        gain,
        why=(
            f"{excess:.1f} % of the launch's shared-memory wavefronts are superfluous, {line.share('shared_excess'):.0f} % "
            f"of these are at this line ({extra:,.0f} of its {all_of:,.0f})",
            f"the load/store data pipe was busy for {pipe:.1f} % of the time",
        ),
        other=line.declaration,
        fixes=(_padding(line.text), _SWIZZLE),
        details=(("superfluous wavefronts", f"{extra:,.0f} of {all_of:,.0f} at this line"),),
    )


_SWIZZLE = Fix(
    "or swap the column index for `column ^ row` in every access to the array, which costs no memory",
    caution="each access must use the same permutation",
)


def _padding(declaration: str) -> Fix:
    found = re.search(
        r"(\w{1,80}(?:\s{0,4}\[[^\]]{1,80}\]){1,6}?)\s{0,4}\[([^\]]{1,80})\]\s{0,4}[;,=]", declaration
    )
    if found is None:
        text = "pad each row of the array by one element"
    else:
        inner = found[2].strip()
        longer = str(int(inner) + 1) if inner.isdecimal() and len(inner) < 10 else f"{inner} + 1"
        text = f"pad each row of the array by one element: `{found[1]}[{longer}]` instead of `{found[1]}[{inner}]`"
    return Fix(
        text, safe=False, caution="vector accesses and bulk copies (TMA) need rows of a multiple of 16 bytes"
    )

"""Lanes of one global access touch more sectors than their data fill."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.profiled import LEAST_GAIN, bound, from_profile, top
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import LaunchProfile

CAUSE = Cause(
    "access-pattern/uncoalesced-access",
    "lanes of a warp access global memory so far apart that most of what is moved is not used",
    Severity.SLOW,
)

_FIXES = (
    Fix("let neighbouring lanes access neighbouring elements: the index that changes fastest belongs to threadIdx.x",
        caution="another order of summation changes floating-point results"),
    Fix("where the layout is the reason, store one array for each member instead of an array of structs",
        caution="whoever else reads the buffer must know"),
    Fix("else load tiles with neighbouring lanes side by side into shared memory and read them from there", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match launches whose superfluous sectors hold up the load/store pipe, the L2 or the memory."""
    for profile in evidence.profiles:
        line = top(profile, "global_excess")
        excess = profile.value("global_excess")
        if line is None or excess is None:
            continue
        gain, by, busy = _gain(profile, excess / 100)
        if gain < LEAST_GAIN:
            continue
        extra, sectors = line.count("global_excess"), line.count("global_sectors")
        yield from_profile(
            CAUSE,
            profile,
            line,
            f"`{profile.launch.short}` accesses global memory at {line.place.short} with lanes far apart: "
            f"{extra:,.0f} of {sectors:,.0f} sectors are superfluous",
            gain,
            why=(
                f"{excess:.1f} % of the launch's 32-byte sectors are superfluous, {line.share('global_excess'):.0f} % of these "
                "are at this line",
                f"{by} was busy for {busy:.1f} % of the time",
            ),
            fixes=_FIXES,
            details=(("superfluous sectors", f"{extra:,.0f} of {sectors:,.0f} at this line"),),
        )


def _gain(profile: LaunchProfile, excess: float) -> tuple[float, str, float]:
    """The bound, the resource that the superfluous sectors keep most busy, and how busy it was (%)."""
    excess *= 1 - (profile.value("local_share") or 0.0) / 100
    pipe, memory, l2 = (
        profile.value(name) or 0.0 for name in ("lsu_pipe", "dram_throughput", "l2_throughput")
    )
    missed = 1 - (profile.value("l1_hit") or 0.0) / 100
    # What the L1 caught never went further: behind it only what is missed beyond the ideal number is superfluous.
    behind = max(0.0, 1 - (1 - excess) / missed) if missed else 0.0
    saved = {
        "the load/store data pipe": (pipe * excess, pipe),
        "the L2": (l2 * behind, l2),
        "device memory": (memory * behind, memory),
    }
    by = max(saved, key=lambda name: saved[name][0])
    roofs = {
        "dram_throughput": memory / 100 * (1 - behind),
        "l2_throughput": l2 / 100 * (1 - max(behind, excess)),
    }
    return bound(profile, saved[by][0] / 100, roofs=roofs), by, saved[by][1]

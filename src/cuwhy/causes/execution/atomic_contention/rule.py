"""Atomic operations on few addresses wait for one another in one slice of the L2."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.profiled import LEAST_GAIN, bound, from_profile
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import CostLine

CAUSE = Cause(
    "execution/atomic-contention",
    "atomic operations on few addresses queue up in one slice of the L2",
    Severity.SLOW,
)

#: The slice was busy 99 % of the time in the corpus case with the fault, and 65 % in its repaired twin, which still
#: adds once a block to one counter: in the middle between them.
_SATURATED = 82.0

_FIXES = (
    Fix("add up inside the block first (`__syncthreads_count`, `__reduce_add_sync`, a counter in shared memory) and let one "
        "thread add the block's sum", caution="another order of summation changes floating-point results"),
    Fix("spread what is left over several counters and add them at the end", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match launches in which one slice of the L2 does atomics nearly all the time."""
    for profile in evidence.profiles:
        slice_busy = profile.value("atomic_slice")
        lines = [line for line in profile.lines if line.count("atomics")]
        if slice_busy is None or slice_busy < _SATURATED or not lines:
            continue
        gain = bound(profile, slice_busy / 100)
        if gain < LEAST_GAIN:
            continue
        line = max(lines, key=lambda one: one.count("instructions"))
        yield from_profile(
            CAUSE,
            profile,
            line,
            f"`{profile.launch.short}` waits for its atomic operations at {line.place.short}: one slice of the L2 "
            f"was busy with them for {slice_busy:.1f} % of the time",
            gain,
            why=(
                f"the busiest slice of the L2 did atomics for {slice_busy:.1f} % of the time, the L2 as a whole was "
                f"at {profile.value('l2_throughput') or 0.0:.1f} % of its peak",
                *_inferred(line),
            ),
            fixes=_FIXES,
        )


def _inferred(line: CostLine) -> Iterator[str]:
    frame = line.place.innermost
    if frame is not None and frame.is_library and len(line.place.frames) > 1:
        yield f"the report places the instruction in {frame.short}; the line is that of the instruction before it"

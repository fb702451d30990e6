"""What a bisection over forced synchronisations found, joined with what the launch recorder saw of the pair."""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_line
from cuwhy.causes.reruns import OrderedPair, RerunPattern
from cuwhy.locate.demangle import demangle
from cuwhy.locate.recorded import handed_out_again
from cuwhy.model.facts import DriverAllocation, Fact, LaunchRecord

#: Handles of default streams: CU_STREAM_LEGACY and CU_STREAM_PER_THREAD in cuda.h; 0 is either, by the entry point.
_LEGACY, _PER_THREAD = 1, 2


@dataclass(frozen=True, slots=True)
class Unordered:
    """Two launches of which the later one must wait for the earlier one, and does not.

    Attributes:
        pattern: all reruns; pair: the launch numbers.
        earlier, later: their records; ``earlier`` is None for what came before the first launch.
    """

    pattern: RerunPattern
    pair: OrderedPair
    earlier: LaunchRecord | None
    later: LaunchRecord

    @property
    def same_stream(self) -> bool:
        """True when both were put into one stream."""
        return self.earlier is not None and stream_of(self.earlier) == stream_of(self.later)

    @property
    def early_start(self) -> bool:
        """True when the later one may start before the earlier one has ended."""
        return "early start" in self.later.flags

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What it rests on."""
        records = [record for record in (self.earlier, self.later) if record is not None]
        return tuple(records)

    def recycled(self, evidence: Evidence) -> DriverAllocation | None:
        """Memory that was given back between the two launches and handed out again before the later one."""
        earlier, later = self.earlier, self.later
        if earlier is None:
            return None
        fitting = [
            old
            for old, new in handed_out_again(evidence.allocations)
            if old.process == later.process
            and old.microseconds <= earlier.microseconds <= (old.freed or 0)
            and new.microseconds <= later.microseconds
        ]
        return fitting[0] if fitting else None


def recycled_while_read(
    evidence: Evidence,
) -> tuple[RerunPattern, LaunchRecord, LaunchRecord, DriverAllocation] | None:
    """The only memory that was freed behind work of another stream and handed out again, where blocking cures.

    For cases in which the bisection did not come to its end.
    """
    pattern = evidence.rerun_pattern()
    if not pattern.plain.failures or not pattern.cured_by("launch-blocking") or pattern.pair is not None:
        return None
    found = []
    for old, new in handed_out_again(evidence.allocations):
        before = [
            record
            for record in evidence.records
            if record.process == old.process
            and old.microseconds <= record.microseconds <= (old.freed or 0)
            and stream_of(record)[0] != old.stream
        ]
        after = [
            r for r in evidence.records if r.process == old.process and r.microseconds >= new.microseconds
        ]
        if before and after:
            found.append((pattern, before[-1], after[0], old))
    return found[0] if len(found) == 1 else None


def stream_of(record: LaunchRecord) -> tuple[int, int, int]:
    """Identity of the stream: handle, context and thread; the latter two are 0 where the handle says all."""
    handle = record.stream or (_PER_THREAD if "per-thread stream" in record.flags else _LEGACY)
    if handle == _LEGACY:
        return handle, record.context, 0
    return (handle, record.context, record.thread) if handle == _PER_THREAD else (handle, 0, 0)


def is_legacy(record: LaunchRecord) -> bool:
    """True for the legacy default stream of a context."""
    return stream_of(record)[0] == _LEGACY


def stream_name(record: LaunchRecord) -> str:
    """The stream as a person says it."""
    handle, _, thread = stream_of(record)
    if handle == _LEGACY:
        return "the legacy default stream"
    return f"the default stream of thread {thread}" if handle == _PER_THREAD else f"stream {handle:#x}"


def unordered(evidence: Evidence) -> Unordered | None:
    """Return the pair that the reruns found, None when they found none or its launches were not recorded."""
    pattern = evidence.rerun_pattern()
    pair = pattern.pair
    if pair is None or not pattern.plain.failures:
        return None
    later = evidence.recorded(pair.later)
    if later is None:
        return None
    return Unordered(pattern, pair, evidence.recorded(pair.earlier), later)


def short(record: LaunchRecord) -> str:
    """Base name of the kernel."""
    return demangle(record.kernel).short if record.kernel else f"launch {record.number}"


def described(record: LaunchRecord) -> str:
    """Kernel, launch number, host line and stream: ``smooth (launch 1, filter.cu:36, stream 0x5570)``."""
    line = host_line(record)
    where = f", {line.short}" if line is not None else ""
    return f"`{short(record)}` (launch {record.number}{where}, {stream_name(record)})"


def reasons(found: Unordered) -> tuple[str, ...]:
    """The pattern, then who launched what."""
    lines = list(found.pattern.sentences)
    if found.earlier is not None:
        lines.append(f"{described(found.earlier)} comes first, {described(found.later)} later")
    return tuple(lines)

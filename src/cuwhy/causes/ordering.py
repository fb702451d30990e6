"""What a bisection over forced synchronisations found, joined with what the launch recorder saw of the pair."""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.reruns import OrderedPair, RerunPattern
from cuwhy.locate.demangle import demangle
from cuwhy.model.facts import DriverAllocation, Fact, LaunchRecord
from cuwhy.model.place import Frame, Place

#: Handles that stand for the legacy default stream (cuda.h: CU_STREAM_LEGACY is 1).
_LEGACY = (0, 1)


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
        if self.earlier is None:
            return None
        begin, end = self.earlier.microseconds, self.later.microseconds
        freed = [
            a
            for a in evidence.allocations
            if a.freed is not None
            and a.process == self.later.process
            and a.microseconds <= begin <= a.freed <= end
        ]
        again = [
            a
            for a in evidence.allocations
            if a.process == self.later.process and begin <= a.microseconds <= end
        ]
        for old in freed:
            if any(
                new.address < old.address + old.size and old.address < new.address + new.size for new in again
            ):
                return old
        return None


def stream_of(record: LaunchRecord) -> int:
    """The stream's handle; 0 for the legacy default stream, -1 for the default stream of a thread."""
    if record.stream in _LEGACY:
        return -1 if "per-thread stream" in record.flags else 0
    return record.stream


def stream_name(record: LaunchRecord) -> str:
    """The stream as a person says it."""
    handle = stream_of(record)
    if handle == 0:
        return "the legacy default stream"
    return "the thread's default stream" if handle == -1 else f"stream {handle:#x}"


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


def host_place(record: LaunchRecord | None) -> Place | None:
    """The host lines of a launch as a place, None when no frame has one."""
    if record is None or host_line(record) is None:
        return None
    frames = tuple(frame for frame in record.frames if frame.file is not None)
    return Place(function=record.kernel, offset=0, pc=0, frames=frames, name=short(record))


def host_line(record: LaunchRecord | None) -> Frame | None:
    """The innermost line of the user's that launched it."""
    frames = record.frames if record is not None else ()
    return next((f for f in frames if f.file is not None and f.line is not None and not f.is_library), None)


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

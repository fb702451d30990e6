"""What a rule gets to see: the facts of a case, sorted by type, with a few joint views."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cuwhy.causes.reruns import RerunPattern, pattern_of
from cuwhy.model.cuda import EXCEPTIONS
from cuwhy.model.facts import (
    AssertMessage,
    BlockFact,
    CleanExit,
    DriverAllocation,
    ErrorReport,
    Fact,
    Fault,
    HostTraceback,
    Launch,
    LaunchProfile,
    LaunchRecord,
    Machine,
    RefusedLaunch,
    Rerun,
    Residency,
    SanitizerFault,
    SanitizerSummary,
    TensorFact,
    Wait,
)
from cuwhy.model.numerics import NumericEvent, NumericTrace
from cuwhy.model.place import Frame

#: Frames of Triton between a launch and the user's line, as a text report names them: without a path.
_TRITON_LAUNCHER = frozenset({("__call__", "driver.py"), ("run", "jit.py"), ("<lambda>", "jit.py")})


@dataclass(slots=True)
class Evidence:
    """The facts of one case by type, each list in the order of reading."""

    machines: list[Machine] = field(default_factory=list)
    launches: list[Launch] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    waits: list[Wait] = field(default_factory=list)
    residencies: list[Residency] = field(default_factory=list)
    reports: list[SanitizerFault] = field(default_factory=list)
    summaries: list[SanitizerSummary] = field(default_factory=list)
    asserts: list[AssertMessage] = field(default_factory=list)
    errors: list[ErrorReport] = field(default_factory=list)
    tracebacks: list[HostTraceback] = field(default_factory=list)
    clean: list[CleanExit] = field(default_factory=list)
    reruns: list[Rerun] = field(default_factory=list)
    records: list[LaunchRecord] = field(default_factory=list)
    refused: list[RefusedLaunch] = field(default_factory=list)
    allocations: list[DriverAllocation] = field(default_factory=list)
    tensors: list[TensorFact] = field(default_factory=list)
    blocks: list[BlockFact] = field(default_factory=list)
    numerics: list[NumericEvent] = field(default_factory=list)
    numeric_traces: list[NumericTrace] = field(default_factory=list)
    profiles: list[LaunchProfile] = field(default_factory=list)

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Evidence:
        """Sort facts into an :class:`Evidence`."""
        evidence = cls()
        lists: dict[type, list[Any]] = {
            Machine: evidence.machines,
            Launch: evidence.launches,
            Fault: evidence.faults,
            Wait: evidence.waits,
            Residency: evidence.residencies,
            SanitizerFault: evidence.reports,
            SanitizerSummary: evidence.summaries,
            AssertMessage: evidence.asserts,
            ErrorReport: evidence.errors,
            HostTraceback: evidence.tracebacks,
            CleanExit: evidence.clean,
            Rerun: evidence.reruns,
            LaunchRecord: evidence.records,
            RefusedLaunch: evidence.refused,
            DriverAllocation: evidence.allocations,
            TensorFact: evidence.tensors,
            BlockFact: evidence.blocks,
            NumericEvent: evidence.numerics,
            NumericTrace: evidence.numeric_traces,
            LaunchProfile: evidence.profiles,
        }
        for fact in facts:
            lists[type(fact)].append(fact)
        evidence.reports = _joined(evidence.reports)
        return evidence

    def said(self, fault: Fault | None = None) -> int:
        """Return the CUDA error code the runtime gave, or will have given for ``fault``; 0 if unknown."""
        for error in self.errors:
            # Under a checker the program sees 719 for whatever the checker found.
            if error.code >= 200 and not (self.reports and error.code == 719):
                return error.code
        if fault is not None:
            kind = EXCEPTIONS.get(fault.exception)
            return kind.runtime if kind is not None else 719 if fault.access == "trap" else 0
        return 0

    def was_said(self) -> bool:
        """True when an error code stands in the program's own output."""
        return any(error.code >= 200 and not (self.reports and error.code == 719) for error in self.errors)

    def host_line(self) -> Frame | None:
        """Return the deepest user frame of the first Python traceback."""
        for traceback in self.tracebacks:
            frame = traceback.user
            if frame is not None:
                return frame
        return None

    def host_of(self, *reports: SanitizerFault) -> Frame | None:
        """Return the host line of a launch: from the checker's host stack, else from a traceback.

        A frame without a file ("main", "launch") tells nobody anything and is left out.
        """
        for report in reports:
            for frame in report.host:
                # The stub that nvcc writes around a launch is nobody's line.
                if frame.file is None or frame.is_library or frame.file.endswith(".stub.c"):
                    continue
                if (frame.function, frame.file) in _TRITON_LAUNCHER:
                    continue
                return frame
        return self.host_line()

    def rerun_pattern(self) -> RerunPattern:
        """Return how often the command passed and failed, by what was changed for the run."""
        return pattern_of(self.reruns)

    def recorded(self, number: int) -> LaunchRecord | None:
        """Return the launch of this number, as the launch recorder saw it; of the first process that has it."""
        return next((record for record in self.records if record.number == number > 0), None)

    def printed(self, report: SanitizerFault) -> str:
        """Say how much of a checker's errors was printed, where not all were; empty where all were."""
        same = [r for r in self.reports if r.tool == report.tool]
        printed = sum(r.records for r in same)
        total = max((s.errors for s in self.summaries if s.tool == report.tool), default=0)
        if report.tool in ("memcheck", "initcheck") and total > printed:
            return f"the tool printed {printed:,} of {total:,} errors (--print-limit)"
        if printed == _PRINT_LIMIT and total <= printed:
            return f"the tool stops at {_PRINT_LIMIT} records (--print-limit)"
        return ""

    def reports_of(self, *kinds: str, space: str | None = None) -> list[SanitizerFault]:
        """Return the sanitizer's faults of these kinds, in one memory space if given."""
        return [r for r in self.reports if r.kind in kinds and (space is None or r.space == space)]


#: Records that Compute Sanitizer prints unless told otherwise.
_PRINT_LIMIT = 100


def _joined(reports: list[SanitizerFault]) -> list[SanitizerFault]:
    """Join the XML and the text form of one report: the XML has the host stack, the text the allocation."""
    joined: dict[tuple[object, ...], SanitizerFault] = {}
    for report in reports:
        frame = report.place.innermost if report.place is not None else None
        other = report.other.innermost if report.other is not None else None
        key = (
            report.tool,
            report.kind,
            report.space,
            report.short,
            _spot(frame),
            _spot(other),
        )
        known = joined.get(key)
        if known is None or known.origin.artefact == report.origin.artefact:
            joined[key if known is None else (*key, len(joined))] = report
            continue
        joined[key] = replace(
            known,
            allocation=known.allocation or report.allocation,
            host=max(known.host, report.host, key=_full_paths),
            kernel=known.kernel or report.kernel,
            hazards=known.hazards or report.hazards,
        )
    return list(joined.values())


def _full_paths(frames: Sequence[Frame]) -> int:
    """How many frames say where their file is: the XML does, the text has base names."""
    return sum(frame.file is not None and "/" in frame.file for frame in frames)


def _spot(frame: Frame | None) -> tuple[str, int | None] | None:
    """Base name and line: the XML has the whole path where the text has the name alone."""
    return ((frame.file or "").rpartition("/")[2], frame.line) if frame is not None else None

"""A kernel's source with what was counted on each line."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from cuwhy.locate.sources import SourceBook
from cuwhy.model.errors import InputError
from cuwhy.model.place import Frame
from cuwhy.model.profile import ProfiledLaunch
from cuwhy.profiles.ncu import parse_ncu_report

#: Counters whose sums over a line mean something, and what to call them.
COUNTERS = {
    "samples": "smsp__pcsamp_sample_count",
    "instructions": "inst_executed",
    "shared_excess": "derived__memory_l1_wavefronts_shared_excessive",
    "shared_wavefronts": "memory_l1_wavefronts_shared",
    "global_excess": "derived__memory_l2_theoretical_sectors_global_excessive",
    "global_sectors": "memory_l2_theoretical_sectors_global",
    "local_sectors": "memory_l2_theoretical_sectors_local",
}
_STALL = "smsp__pcsamp_warps_issue_stalled_"


@dataclass(slots=True)
class LineCost:
    """What was counted on one source line.

    Attributes:
        file, line: as the report has them; file "" and line 0 gather instructions without a line.
        text: the source line, None when the source was not handed over.
        counts: by the names of :data:`COUNTERS`; what was collected nowhere on the line is missing.
        shares: the same as % of the kernel's total.
        stall: the stall reason with most samples on the line, empty when there are none.
        sass: the instructions of the line, in order of address.
    """

    file: str
    line: int
    text: str | None = None
    counts: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    stall: str = ""
    sass: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AnnotatedKernel:
    """A kernel's lines with their cost.

    Attributes:
        launch: what was profiled; lines: in order of file and line, only those with code.
        notes: what does not fit together (a source that may have changed), one sentence each.
    """

    launch: ProfiledLaunch
    lines: tuple[LineCost, ...]
    notes: tuple[str, ...] = ()

    def top(self, counter: str, count: int = 5) -> list[LineCost]:
        """The lines with the most of a counter, those with none left out."""
        found = [line for line in self.lines if line.counts.get(counter)]
        return sorted(found, key=lambda line: -line.counts[counter])[:count]


def annotate_kernel_source(
    report: str | os.PathLike[str] | ProfiledLaunch,
    kernel: str = "",
    *,
    sources: Iterable[str | os.PathLike[str]] = (),
) -> AnnotatedKernel:
    """Return a kernel's source lines with what was counted on each.

    Args:
        report: a ``.ncu-rep`` file, or one launch of it.
        kernel: part of the kernel's name; of several launches the longest is taken. Empty: the longest of all.
        sources: folders with the source; paths in the report are never opened.

    Raises:
        InputError: no launch of that name, or the report is damaged.
        ToolMissing: NVIDIA's reader is not installed.
    """
    if isinstance(report, ProfiledLaunch):
        launch = report
    else:
        launches = parse_ncu_report(report)
        fitting = [one for one in launches if kernel in one.kernel or kernel in one.name]
        if not fitting:
            names = ", ".join(dict.fromkeys(one.short for one in launches[:20]))
            raise InputError(f"no kernel called {kernel[:80]!r} in the report", hint=f"it has {names}")
        launch = max(fitting, key=lambda one: one.value("gpu__time_duration.sum") or 0.0)
    return annotate(launch, SourceBook({}, tuple(Path(folder) for folder in sources)))


def annotate(launch: ProfiledLaunch, book: SourceBook) -> AnnotatedKernel:
    """Sum a launch's counters on source lines."""
    found: dict[tuple[str, int], LineCost] = {}
    stalled: dict[tuple[str, int], dict[str, float]] = {}
    totals: dict[str, float] = {}
    for instruction in launch.instructions:
        key = (instruction.file, instruction.line)
        line = found.get(key)
        if line is None:
            text = book.line(Frame("", *key)) if instruction.line else None
            line = found[key] = LineCost(*key, text=text)
        line.sass.append(instruction.sass)
        for name, counter in COUNTERS.items():
            value = instruction.counters.get(counter)
            if value is not None:
                line.counts[name] = line.counts.get(name, 0.0) + value
                totals[name] = totals.get(name, 0.0) + value
        for counter, value in instruction.counters.items():
            if counter.startswith(_STALL) and not counter.endswith("_not_issued"):
                reasons = stalled.setdefault(key, {})
                reason = counter[len(_STALL) :]
                reasons[reason] = reasons.get(reason, 0.0) + value
    for key, line in found.items():
        line.shares = {
            name: value / totals[name] * 100 for name, value in line.counts.items() if totals[name]
        }
        waiting = {
            r: v for r, v in stalled.get(key, {}).items() if v and r not in ("selected", "not_selected")
        }
        line.stall = max(waiting, key=lambda reason: waiting[reason]) if waiting else ""
    return AnnotatedKernel(launch, tuple(found[key] for key in sorted(found)), tuple(_notes(found, book)))


def _notes(lines: dict[tuple[str, int], LineCost], book: SourceBook) -> list[str]:
    notes = []
    for file in sorted({file for file, line in lines if line}):
        have = book.lines(file)
        last = max(line for name, line in lines if name == file)
        base = file.replace("\\", "/").rpartition("/")[2]
        if have is not None and len(have) < last:
            notes.append(
                f"{base} has {len(have)} lines here, the profiled one at least {last}: it has changed"
            )
        elif have is not None:
            # The report holds no source to compare with, but no compiler gives code to such a line.
            empty = [
                line for name, line in sorted(lines) if name == file and line and _is_empty(have[line - 1])
            ]
            if empty:
                notes.append(
                    f"{base}:{empty[0]} is no code here, but has instructions in the report: the file has changed"
                )
    if any(not line for _, line in lines):
        notes.append("some instructions have no line: build with -lineinfo")
    return notes


def _is_empty(text: str) -> bool:
    bare = text.strip()
    return not bare or bare.startswith("//")

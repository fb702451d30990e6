"""A profiled launch as a fact: the numbers and lines that rules look at."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cuwhy.locate.sources import SourceBook
from cuwhy.model.errors import CuwhyError
from cuwhy.model.facts import CostLine, Launch, LaunchProfile, Origin
from cuwhy.model.place import Frame, Place
from cuwhy.model.profile import InstructionCost, ProfiledLaunch
from cuwhy.profiles.annotate import COUNTERS, LineCost, annotate
from cuwhy.profiles.features import features_of
from cuwhy.profiles.ncu import parse_ncu_report

#: Numbers beside the feature vector, all % of a peak: how busy the load/store data pipe, the L2 and the L2 slice
#: with most atomics were.
MORE = {
    "lsu_pipe": "l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed",
    "l2_throughput": "lts__throughput.avg.pct_of_peak_sustained_elapsed",
    "atomic_slice": "lts__d_atomic_input_cycles_active.max.pct_of_peak_sustained_elapsed",
}
#: Lines that are kept, of those with most of each counter.
_LINES = 8
_DECLARATION_LINES = 400
_ATOMICS = ("ATOM", "ATOMG", "RED", "REDG")


def profile_facts(data: bytes | memoryview, name: str, book: SourceBook) -> list[LaunchProfile]:
    """Return a fact for each launch of a ``.ncu-rep`` file's content.

    Raises:
        InputError: the report is damaged.
        ToolMissing: NVIDIA's reader is not installed.
    """
    with tempfile.TemporaryDirectory(prefix="cuwhy-") as folder:
        # NVIDIA's reader takes a file; the artefact may stand in a case.
        path = Path(folder) / (os.path.basename(name) or "report.ncu-rep")
        path.write_bytes(data)
        try:
            launches = parse_ncu_report(path)
        except CuwhyError as error:
            # Its name, not that of the copy, which is gone when somebody reads this.
            raise type(error)(error.message.replace(str(path), name), hint=error.hint) from error
    return [profile_fact(launch, name, book) for launch in launches]


def profile_fact(profiled: ProfiledLaunch, name: str, book: SourceBook) -> LaunchProfile:
    """Return what rules look at in one launch."""
    values: dict[str, float] = {}
    for key, value in dataclasses.asdict(features_of(profiled)).items():
        if isinstance(value, float):
            values[key] = value
    for key, metric in MORE.items():
        if (number := profiled.value(metric)) is not None:
            values[key] = number
    origin = Origin(name, f"launch {profiled.index}")
    registers = profiled.value("launch__registers_per_thread")
    launch = Launch(
        kernel=profiled.kernel,
        name=profiled.name,
        short=profiled.short,
        grid=profiled.grid,
        block=profiled.block,
        cluster=profiled.cluster,
        registers=int(registers or 0),
        origin=origin,
    )
    return LaunchProfile(launch, tuple(values.items()), tuple(_lines(profiled, book)), origin)


def _lines(profiled: ProfiledLaunch, book: SourceBook) -> Iterator[CostLine]:
    annotated = annotate(profiled, book)
    kept: dict[tuple[str, int], LineCost] = {}
    for counter in ("shared_excess", "global_excess", "samples"):
        for line in annotated.top(counter, _LINES):
            kept.setdefault((line.file, line.line), line)
    instructions: dict[tuple[str, int], list[InstructionCost]] = {}
    for one in profiled.instructions:
        instructions.setdefault((one.file, one.line), []).append(one)
    atomic = {key for key, some in instructions.items() if any(_is_atomic(one.sass) for one in some)}
    for line in annotated.lines:
        if (line.file, line.line) in atomic:
            kept.setdefault((line.file, line.line), line)
    for key, line in kept.items():
        worst = max(instructions[key], key=_cost)
        frames: tuple[Frame, ...] = (
            (Frame(None if _is_library(key) else profiled.short, *key),) if line.line else ()
        )
        if line.line and _is_library(key):
            frames += _caller(profiled, worst)
        counts = {**line.counts, "atomics": float(sum(_is_atomic(one.sass) for one in instructions[key]))}
        place = Place(profiled.kernel, worst.offset, frames=frames, sass=worst.sass, name=profiled.short)
        declared = _declaration(line, book) if line.counts.get("shared_excess") else None
        yield CostLine(
            place,
            tuple(counts.items()),
            tuple(line.shares.items()),
            Place(
                profiled.kernel, frames=(Frame(profiled.short, line.file, declared[0]),), name=profiled.short
            )
            if declared
            else None,
            declared[1] if declared else "",
        )


def _is_library(key: tuple[str, int]) -> bool:
    return Frame(None, *key).is_library


def _caller(profiled: ProfiledLaunch, inlined: InstructionCost) -> tuple[Frame, ...]:
    """The user's line before an instruction of an inlined header: a report holds the innermost line only."""
    before = [one for one in profiled.instructions if one.line and one.offset < inlined.offset]
    for one in reversed(before):
        frame = Frame(profiled.short, one.file, one.line)
        if not frame.is_library:
            return (frame,)
    return ()


def _cost(one: InstructionCost) -> tuple[float, float]:
    excess = sum(one.counters.get(COUNTERS[name], 0.0) for name in ("shared_excess", "global_excess"))
    return excess, float(_is_atomic(one.sass))


def _is_atomic(sass: str) -> bool:
    """True for an atomic on global memory: ``@!P0 RED.E.ADD …``."""
    words = sass.split()
    opcode = next((word for word in words if not word.startswith("@")), "")
    return opcode.partition(".")[0] in _ATOMICS


def _declaration(line: LineCost, book: SourceBook) -> tuple[int, str] | None:
    """The nearest ``__shared__`` array above a line that the line names."""
    lines = book.lines(line.file)
    if lines is None or not 0 < line.line <= len(lines):
        return None
    named = set(re.findall(r"([A-Za-z_]\w{0,80})\s{0,4}\[", lines[line.line - 1][:1000]))
    for number in range(line.line, max(0, line.line - _DECLARATION_LINES), -1):
        text = lines[number - 1][:1000]
        if "__shared__" in text and named & set(re.findall(r"([A-Za-z_]\w{0,80})\s{0,4}\[", text)):
            return number, text.strip()
    return None

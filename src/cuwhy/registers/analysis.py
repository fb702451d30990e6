"""Where a kernel's registers go: the peak, who holds them there, spills, and the steps of occupancy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from cuwhy.launching.occupancy import occupancy
from cuwhy.locate.demangle import demangle
from cuwhy.locate.sass import access_of
from cuwhy.locate.unloaded import UnloadedLines, unloaded_lines
from cuwhy.model.architecture import MAX_REGISTERS_PER_THREAD, Architecture, architecture_of
from cuwhy.model.errors import InputError
from cuwhy.model.place import Frame
from cuwhy.read.cubin import Cubin, Resources
from cuwhy.registers.liveness import LiveRow, live_ranges

#: Block size that residency is computed for when the kernel is compiled for none.
DEFAULT_THREADS = 256

#: A source line: file and line, innermost inline frame first.
Line = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Holding:
    """Registers that are live at the peak and were last written on one line.

    Attributes:
        line: where, None without line information; count: how many;
        registers: their numbers, ascending.
    """

    line: Line | None
    count: int
    registers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocalTraffic:
    """Accesses to local memory on one line.

    Attributes:
        line: where, None without line information.
        stores, loads: instructions; store_bytes, load_bytes: bytes a thread moves when each runs once.
        indexed: True for a local array, False for registers that were spilled.
    """

    line: Line | None
    stores: int
    loads: int
    store_bytes: int
    load_bytes: int
    indexed: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Most registers that still leave ``blocks`` blocks (``fraction`` of an SM's warps) resident."""

    registers: int
    blocks: int
    fraction: float


@dataclass(frozen=True, slots=True)
class RegisterReport:
    """The register pressure of one kernel.

    Attributes:
        kernel: symbol; name: demangled base name.
        architecture: "sm_90".
        resources: what it was compiled to need.
        rows: one for each instruction, in order of address.
        lines: the source line of each row, None where there is none.
        peak: most registers live at once; what was allocated can be more by alignment and pairs.
        at: index of the first row at the peak.
        holders: what is live there, most registers first.
        local: accesses to local memory by line, most bytes first.
        threads: the block size that the steps are for; assumed: True when nothing told it.
        steps: residency that fewer or more registers give, most registers first.
    """

    kernel: str
    name: str
    architecture: str
    resources: Resources
    rows: tuple[LiveRow, ...]
    lines: tuple[Line | None, ...]
    peak: int
    at: int
    holders: tuple[Holding, ...]
    local: tuple[LocalTraffic, ...]
    threads: int
    assumed: bool
    steps: tuple[Step, ...]

    def by_line(self) -> list[tuple[Line, int]]:
        """Each source line with the most registers that are live on it, in order of the source."""
        most: dict[Line, int] = {}
        for row, line in zip(self.rows, self.lines, strict=True):
            if line is not None:
                most[line] = max(most.get(line, 0), row.live)
        return sorted(most.items())


def analyse(
    data: bytes | memoryview, what: str, *, threads: int = 0, kernel: str = ""
) -> list[RegisterReport]:
    """Return one report for each kernel of a cubin, most registers first.

    Args:
        data: the cubin.
        what: its name, for messages.
        threads: block size to compute residency for; 0: what the kernel was compiled for, else 256.
        kernel: only kernels whose symbol or demangled name contains this.

    Raises:
        InputError: it is no cubin, nvdisasm cannot analyse it, or no kernel matches.
        ToolMissing: nvdisasm is not there.
    """
    cubin = Cubin(data, what)
    functions = live_ranges(data, what)
    chosen = {
        name: rows for name, rows in functions.items() if kernel in name or kernel in demangle(name).text
    }
    if not chosen:
        names = ", ".join(demangle(name).short for name in list(functions)[:8])
        raise InputError(f"{what}: no kernel called {kernel[:80]!r}", hint=f"it has {names}")
    table = unloaded_lines(cubin)
    reports = [_report(cubin, table, name, rows, threads) for name, rows in chosen.items()]
    return sorted(reports, key=lambda report: (-report.resources.registers, report.kernel))


def _report(
    cubin: Cubin, table: UnloadedLines, symbol: str, rows: Sequence[LiveRow], threads: int
) -> RegisterReport:
    resources = cubin.resources(symbol)
    lines = tuple(_line(table, symbol, row.instruction.offset) for row in rows)
    at = max(range(len(rows)), key=lambda i: (rows[i].live, -i))
    architecture = architecture_of(str(cubin.sm))
    chosen = threads or resources.max_threads or DEFAULT_THREADS
    return RegisterReport(
        kernel=symbol,
        name=demangle(symbol).short,
        architecture=f"sm_{cubin.sm}",
        resources=resources,
        rows=tuple(rows),
        lines=lines,
        peak=rows[at].live,
        at=at,
        holders=tuple(_holders(rows, lines, at)),
        local=tuple(_local(rows, lines)),
        threads=chosen,
        assumed=not threads and not resources.max_threads,
        steps=tuple(_steps(architecture, chosen, resources)) if architecture is not None else (),
    )


def _line(table: UnloadedLines, symbol: str, offset: int) -> Line | None:
    """The innermost line of the user's code, of a library where there is no other."""
    chain = table.chain(symbol, offset)
    frames = [Frame("", frame.file, frame.line) for frame in chain]
    chosen = next((frame for frame in frames if not frame.is_library), frames[0] if frames else None)
    return (chosen.file or "", chosen.line or 0) if chosen is not None else None


def _holders(rows: Sequence[LiveRow], lines: Sequence[Line | None], at: int) -> Iterator[Holding]:
    """Group the registers at the peak by the line that last wrote them, in order of address."""
    written: dict[int, Line | None] = {}
    for row, line in zip(rows[: at + 1], lines[: at + 1], strict=True):
        for register, mark in row.marks:
            if mark in "^x":
                written[register] = line
    groups: dict[Line | None, list[int]] = {}
    for register, _ in rows[at].marks:
        groups.setdefault(written.get(register), []).append(register)
    for line, registers in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0] or ("", 0))):
        yield Holding(line, len(registers), tuple(sorted(registers)))


def _local(rows: Sequence[LiveRow], lines: Sequence[Line | None]) -> list[LocalTraffic]:
    accesses = [
        (row, line, access)
        for row, line in zip(rows, lines, strict=True)
        if (access := access_of(row.instruction)) is not None and access.space == "local"
    ]
    # Slots of spilled registers lie at constant offsets from the stack pointer, R1, but so do elements of an
    # array that are accessed by a constant index.
    computed = any(not _fixed(row) for row, _, _ in accesses)
    counts: dict[tuple[Line | None, bool], Counter[str]] = {}
    for row, line, access in accesses:
        spill = row.spill or (_fixed(row) and not computed)
        counter = counts.setdefault((line, not spill), Counter())
        counter[access.kind] += 1
        counter[f"{access.kind} bytes"] += access.width
    found = [
        LocalTraffic(line, c["store"], c["load"], c["store bytes"], c["load bytes"], indexed)
        for (line, indexed), c in counts.items()
    ]
    return sorted(found, key=lambda t: (-(t.store_bytes + t.load_bytes), t.line or ("", 0)))


def _fixed(row: LiveRow) -> bool:
    return any(operand.startswith(("[R1+", "[R1]")) for operand in row.instruction.operands)


def _steps(architecture: Architecture, threads: int, resources: Resources) -> Iterator[Step]:
    last = -1
    for registers in range(MAX_REGISTERS_PER_THREAD, 0, -1):
        found = occupancy(architecture, threads, registers, resources.shared_bytes)
        if found.blocks != last and found.blocks:
            yield Step(registers, found.blocks, found.fraction)
        last = found.blocks


def step_of(report: RegisterReport) -> int:
    """Index of the step that the kernel's registers fall on, -1 when it is not known."""
    fitting = [i for i, step in enumerate(report.steps) if step.registers >= report.resources.registers]
    return fitting[-1] if fitting and report.resources.registers else -1


def files_of(reports: Iterable[RegisterReport]) -> list[str]:
    """The source files that the reports' lines are in."""
    return sorted({line[0] for report in reports for line in report.lines if line is not None})

"""GPU core dumps (``.nvcudmp``): the tables of the file, linked up.

The layout is that of ``cudacoredump.h``, which the CUDA toolkit ships under
``extras/Debugger/include`` (BSD-style licence).  Newer drivers append fields to
an entry, so every table is read with the file's own entry size and only the
fields that are there are used.

Sections form a tree through ``sh_link`` (the parent table's section) and
``sh_info`` (the row in it): SM -> block -> warp -> lane -> registers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

from cuwhy.model.errors import InputError
from cuwhy.model.facts import Dim3
from cuwhy.read.elf import Elf, text_at

ELF_OSABI_CUDA = 0x33
ELF_MACHINE_CUDA = 190
ELF_TYPE_CORE = 4

_USER = 0x80000000
SHT_LOCAL, SHT_SHARED = _USER + 3, _USER + 4
SHT_REGS, SHT_ELF_IMAGE, SHT_RELOCATED_IMAGE, SHT_BACKTRACE = _USER + 5, _USER + 6, _USER + 7, _USER + 8
SHT_DEVICES, SHT_CONTEXTS, SHT_SMS, SHT_GRIDS = _USER + 9, _USER + 10, _USER + 11, _USER + 12
SHT_BLOCKS, SHT_WARPS, SHT_LANES, SHT_MODULES = _USER + 13, _USER + 14, _USER + 15, _USER + 16
SHT_PREDICATES, SHT_PARAMS, SHT_UREGS, SHT_UPREDICATES = _USER + 17, _USER + 18, _USER + 19, _USER + 20
SHT_META, SHT_CONVERGENCE = _USER + 22, _USER + 23

#: Lanes looked at in one dump; a full 148-SM device has 303,104.
MAX_LANES = 400_000
_MAX_PARAM_BYTES = 65_536
#: Rows of each other kind; a full device has 148 SMs, 4,736 blocks and 9,472 warps.
MAX_BLOCKS = MAX_WARPS = 100_000
_MAX_ROWS = {
    "device": 256,
    "context": 4096,
    "module": 20_000,
    "launch": 1024,
    "SM": 4096,
    "block": MAX_BLOCKS,
    "warp": MAX_WARPS,
    "thread": MAX_LANES,
    "call frame": 2_000_000,
}
_MAX_FRAMES = 256
_MAX_CHILDREN = 500_000
_LANE_SPAN = 256
_PER_LANE = frozenset({SHT_REGS, SHT_PREDICATES, SHT_BACKTRACE, SHT_LOCAL})
_LINKED = frozenset(
    {
        SHT_BLOCKS,
        SHT_WARPS,
        SHT_LANES,
        SHT_UREGS,
        SHT_UPREDICATES,
        SHT_PARAMS,
        SHT_RELOCATED_IMAGE,
        SHT_MODULES,
    }
)
_TOPS = frozenset({SHT_DEVICES, SHT_CONTEXTS, SHT_SMS, SHT_GRIDS, SHT_MODULES, SHT_META})
_MAX_REGISTERS = 256


class Device(NamedTuple):
    """One row of the device table."""

    name: str
    architecture: str
    sm_count: int
    sm_major: int
    sm_minor: int
    instruction_size: int


class Context(NamedTuple):
    """One row of the context table: where the memory windows begin."""

    handle: int
    device: int
    shared_window: int
    local_window: int


class Module(NamedTuple):
    """A loaded module; ``section`` holds its relocated cubin (-1: not in the file)."""

    handle: int
    context: int
    section: int


class Grid(NamedTuple):
    """One row of the grid table (a launch), with its parameter bytes.

    ``grid`` is at least as large as the highest block seen; ``grid_certain`` is False when the
    table said less (driver 580 writes (1, 1, 1) for a cooperative launch).
    """

    id: int
    device: int
    context: int
    entry: int
    module: int
    parent: int
    registers: int
    grid: Dim3
    block: Dim3
    cluster: Dim3
    origin_gpu: bool
    host_thread: int
    parameters: bytes
    constant_bank_offset: int
    section: int
    grid_certain: bool = True


class Sm(NamedTuple):
    """One row of the SM table: an exception stays here even when its warps are gone."""

    device: int
    id: int
    exception: int
    error_pc: int | None


class Lane(NamedTuple):
    """One thread: its own pc runs ahead of the instruction that faulted."""

    pc: int
    lane: int
    thread: Dim3
    exception: int
    call_depth: int
    syscall_depth: int
    state: int | None
    row: int


@dataclass(slots=True)
class Warp:
    """One warp; masks have one bit per lane."""

    id: int
    block: Dim3
    grid_id: int
    device: int
    sm: int
    error_pc: int | None
    valid: int
    active: int
    broken: bool
    registers: int
    shared_bytes: int
    in_syscall: int
    exited: int
    lanes: list[Lane]
    section: int
    row: int
    lane_section: int


class BacktraceFrame(NamedTuple):
    """A device call frame: the address execution returns to."""

    return_pc: int
    level: int


@dataclass(slots=True)
class Block:
    """One thread block on the chip."""

    index: Dim3
    grid_id: int
    device: int
    sm: int
    cluster: Dim3
    warps: list[Warp] = field(default_factory=list)


def looks_like_coredump(head: bytes) -> bool:
    """True when the first bytes are those of a GPU core dump."""
    return (
        len(head) >= 20
        and head[:4] == b"\x7fELF"
        and head[7] == ELF_OSABI_CUDA
        and struct.unpack_from("<HH", head, 16) == (ELF_TYPE_CORE, ELF_MACHINE_CUDA)
    )


class CoreDump:
    """A parsed GPU core dump.

    Attributes:
        devices, contexts, modules, grids, sms, blocks: the tables.
        driver, cuda: versions as "580.159" and "13.0", empty in old files.
        problems: parts that could not be read; the rest is still good.

    Raises:
        InputError: when the file is not a GPU core dump or its tables are damaged.
    """

    def __init__(self, data: bytes | memoryview, what: str = "core dump") -> None:
        if not looks_like_coredump(bytes(memoryview(data)[:20])):
            raise InputError(f"{what}: not a GPU core dump")
        self.what = what
        self.elf = Elf(data, what)
        self.problems: list[str] = []
        self._children: dict[tuple[int, int], int] = {}
        self._below_lane: dict[int, int] = {}
        self._lane_table = -1
        self._lane_children: dict[tuple[int, int], int] = {}
        tops: dict[int, list[int]] = {}
        below_lane = self._below_lane
        children = self._children
        for index, header in enumerate(self.elf.headers()):
            kind = header[1]
            if kind < _USER:
                continue
            if kind in _PER_LANE:
                # Three sections a lane: only where those of a lane table begin is kept.
                if len(below_lane) < _MAX_CHILDREN:
                    below_lane.setdefault(header[6], index)
            elif kind in _LINKED and len(children) < _MAX_CHILDREN:
                children.setdefault((kind, header[6] << 32 | header[7]), index)
            if kind in _TOPS:
                tops.setdefault(kind, []).append(index)
        if SHT_DEVICES not in tops:
            raise InputError(f"{what}: holds no device table; the file is truncated or damaged")
        strings = self.elf.find_strings(".strtab")
        self._strings = self.elf.content(strings) if strings >= 0 else memoryview(b"")
        self._left = dict(_MAX_ROWS)
        self.devices = [
            self._device(row) for row in self._rows(tops[SHT_DEVICES][0], "<QQQIIIIIIIIIII", "device")
        ]
        self.driver = self.cuda = ""
        self._read_meta(tops.get(SHT_META, ()))
        self.contexts: list[Context] = []
        self._context_of_section: dict[tuple[int, int], int] = {}
        for index in tops.get(SHT_CONTEXTS, ()):
            for row, values in enumerate(self._rows(index, "<QQQQII", "context")):
                self.contexts.append(Context(values[0], values[4], values[1], values[2]))
                self._context_of_section[index, row] = values[0]
        self.modules = [m for index in tops.get(SHT_MODULES, ()) for m in self._modules(index)]
        self.grids = [g for index in tops.get(SHT_GRIDS, ()) for g in self._grids(index)]
        self.sms: list[Sm] = []
        self.blocks: list[Block] = []
        # A full chip has 270,000 lanes that share a few hundred indices and addresses.
        self._threads: dict[Dim3, Dim3] = {}
        self._pcs: dict[int, int] = {}
        for index in tops.get(SHT_SMS, ()):
            self._read_sms(index)
        self._by_launch: dict[tuple[int, int], list[Block]] = {}
        for block in self.blocks:
            self._by_launch.setdefault((block.device, block.grid_id), []).append(block)
        self.grids = [self._with_seen_blocks(grid) for grid in self.grids]

    # -- tables ---------------------------------------------------------------

    def _rows(self, index: int, layout: str, kind: str) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a table, each cut to ``layout``; skip a table too short for it.

        All tables of a kind together yield no more than ``_MAX_ROWS``: their contents may overlap
        in the file, so its size is no bound.
        """
        section = self.elf.sections[index]
        packed = struct.Struct(layout)
        size = section.entry_size or packed.size
        if size < packed.size:
            self._problem(
                f"table in section {index} has entries of {size} bytes, {packed.size} were expected"
            )
            return
        content = self.elf.content(index)
        for offset in range(0, len(content) - size + 1, size):
            self._left[kind] -= 1
            if self._left[kind] < 0:
                self._problem(f"more than {_MAX_ROWS[kind]:,} {kind}s; the rest was not read")
                return
            yield packed.unpack_from(content, offset)

    def _problem(self, text: str) -> None:
        if len(self.problems) < 20 and text not in self.problems:
            self.problems.append(text)

    def _child(self, kind: int, link: int, row: int) -> int:
        """Return the section that hangs below ``row`` of table ``link``, or -1."""
        if kind not in _PER_LANE:
            return self._children.get((kind, link << 32 | row), -1)
        if self._lane_table != link:
            # A lane's sections follow its table: 32 lanes of 4 sections, and some slack.
            start = self._below_lane.get(link, len(self.elf.sections))
            self._lane_table, self._lane_children = link, {}
            for index, header in enumerate(self.elf.headers(start, start + _LANE_SPAN), start):
                if header[6] == link:
                    self._lane_children.setdefault((header[1], header[7]), index)
        return self._lane_children.get((kind, row), -1)

    def _device(self, row: tuple[Any, ...]) -> Device:
        return Device(
            text_at(self._strings, row[0]), text_at(self._strings, row[2]), row[6], row[11], row[12], row[13]
        )

    def _read_meta(self, indexes: Any) -> None:
        for index in indexes:
            content = self.elf.content(index)
            if len(content) >= 24:
                _name, major, minor, cuda_major, cuda_minor = struct.unpack_from("<QIIII", content)
                self.driver = f"{major}.{minor}"
                self.cuda = f"{cuda_major}.{cuda_minor}"

    def _modules(self, index: int) -> Iterator[Module]:
        section = self.elf.sections[index]
        context = self._context_of_section.get((section.link, section.info), 0)
        for row, (handle,) in enumerate(self._rows(index, "<Q", "module")):
            yield Module(handle, context, self._child(SHT_RELOCATED_IMAGE, index, row))

    def _grids(self, index: int) -> Iterator[Grid]:
        device = self.elf.sections[index].info
        long = self.elf.sections[index].entry_size >= 116
        for row, v in enumerate(self._rows(index, "<7Q15I" if long else "<7Q12I", "launch")):
            params = self._child(SHT_PARAMS, index, row)
            raw = bytes(self.elf.content(params)[:_MAX_PARAM_BYTES]) if params >= 0 else b""
            yield Grid(
                id=v[0],
                device=device,
                context=v[1],
                entry=v[3],
                module=v[4],
                parent=v[5],
                constant_bank_offset=v[6],
                origin_gpu=v[8] == 1,
                registers=v[10],
                grid=(v[11], v[12], v[13]),
                block=(v[14], v[15], v[16]),
                host_thread=v[18],
                cluster=(v[19], v[20], v[21]) if long else (0, 0, 0),
                parameters=raw,
                section=params,
            )

    def _with_seen_blocks(self, grid: Grid) -> Grid:
        seen = [block.index for block in self.blocks_of(grid)]
        x, y, z = (max([size, *(index[axis] + 1 for index in seen)]) for axis, size in enumerate(grid.grid))
        return grid if (x, y, z) == grid.grid else grid._replace(grid=(x, y, z), grid_certain=False)

    def blocks_of(self, grid: Grid) -> list[Block]:
        """Return the blocks of a launch that were on the chip."""
        return self._by_launch.get((grid.device, grid.id), [])

    def _read_sms(self, index: int) -> None:
        device = self.elf.sections[index].info
        entry = self.elf.sections[index].entry_size
        long = entry >= 24
        for row, values in enumerate(self._rows(index, "<IIIIQ" if long else "<II", "SM")):
            exception = values[2] if long else 0
            pc = values[4] if long and values[3] else None
            self.sms.append(Sm(device, values[0], exception, pc))
            blocks = self._child(SHT_BLOCKS, index, row)
            if blocks >= 0:
                self._read_blocks(blocks, device, values[0])

    def _read_blocks(self, index: int, device: int, sm: int) -> None:
        long = self.elf.sections[index].entry_size >= 36
        for row, v in enumerate(self._rows(index, "<Q7I" if long else "<Q3I", "block")):
            block = Block((v[1], v[2], v[3]), v[0], device, sm, (v[5], v[6], v[7]) if long else (0, 0, 0))
            self.blocks.append(block)
            warps = self._child(SHT_WARPS, index, row)
            if warps >= 0:
                self._read_warps(warps, block)

    def _read_warps(self, index: int, block: Block) -> None:
        # The fixed part is 32 bytes; registers, shared memory and the CBU masks came later.
        size = self.elf.sections[index].entry_size
        count = 14 if size >= 64 else 10 if size >= 48 else 8 if size >= 40 else 6
        for row, v in enumerate(self._rows(index, f"<Q{count}I", "warp")):
            rest = (*v[1:], *([0] * (14 - count)))
            lanes = self._child(SHT_LANES, index, row)
            block.warps.append(
                Warp(
                    id=rest[0],
                    block=block.index,
                    grid_id=block.grid_id,
                    device=block.device,
                    sm=block.sm,
                    error_pc=v[0] if rest[4] else None,
                    valid=rest[1],
                    active=rest[2],
                    broken=bool(rest[3]),
                    registers=rest[6],
                    shared_bytes=rest[8] if count >= 10 else -1,
                    in_syscall=rest[10],
                    exited=rest[12],
                    lanes=self._lanes(lanes) if lanes >= 0 else [],
                    section=index,
                    row=row,
                    lane_section=lanes,
                )
            )

    def _lanes(self, index: int) -> list[Lane]:
        long = self.elf.sections[index].entry_size >= 52
        threads, pcs = self._threads, self._pcs
        found = []
        for row, v in enumerate(self._rows(index, "<QQ9I" if long else "<QQ8I", "thread")):
            # pc, (function offset), lane, thread, exception, call depth, syscall depth, (cc), state
            thread, pc = (v[3], v[4], v[5]), v[0]
            thread, pc = threads.setdefault(thread, thread), pcs.setdefault(pc, pc)
            found.append(Lane(pc, v[2], thread, v[6], v[7], v[8], v[10] if long else None, row))
        return found

    # -- what hangs below a warp or lane ----------------------------------------

    def _words(self, index: int, limit: int = _MAX_REGISTERS) -> tuple[int, ...]:
        if index < 0:
            return ()
        content = self.elf.content(index)
        count = min(len(content) // 4, limit)
        return struct.unpack_from(f"<{count}I", content)

    def registers(self, warp: Warp, lane: Lane) -> tuple[int, ...]:
        """Return R0.. of one thread, 32 bits each; empty when they are not in the file."""
        return self._words(self._child(SHT_REGS, warp.lane_section, lane.row))

    def predicates(self, warp: Warp, lane: Lane) -> tuple[int, ...]:
        """Return P0.. of one thread (0 or 1)."""
        return self._words(self._child(SHT_PREDICATES, warp.lane_section, lane.row))

    def uniform_registers(self, warp: Warp) -> tuple[int, ...]:
        """Return UR0.. of one warp."""
        return self._words(self._child(SHT_UREGS, warp.section, warp.row))

    def backtrace(self, warp: Warp, lane: Lane) -> list[BacktraceFrame]:
        """Return the device call stack of one thread, innermost first, at most 256 frames."""
        index = self._child(SHT_BACKTRACE, warp.lane_section, lane.row)
        if index < 0:
            return []
        rows = self._rows(index, "<QQII", "call frame")
        frames = [BacktraceFrame(v[1], v[2]) for v in islice(rows, _MAX_FRAMES)]
        return sorted(frames, key=lambda frame: frame.level)

    def image(self, module: Module) -> memoryview:
        """Return the relocated cubin of a module; empty when it is not in the file."""
        return self.elf.content(module.section) if module.section >= 0 else memoryview(b"")

    def context(self, handle: int) -> Context | None:
        """Return the context with this handle."""
        return next((c for c in self.contexts if c.handle == handle), None)

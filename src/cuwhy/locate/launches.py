"""Grids of a dump as launches: names, shapes and typed arguments."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cuwhy.locate.demangle import demangle
from cuwhy.locate.places import CodeMap
from cuwhy.model.facts import Argument, Launch, Origin
from cuwhy.read.coredump import CoreDump, Grid
from cuwhy.read.cubin import Cubin

_FORMATS = {
    "int8": "<b", "uint8": "<B", "char": "<b", "bool": "<?", "int16": "<h", "uint16": "<H",
    "int32": "<i", "uint32": "<I", "int64": "<q", "uint64": "<Q",
    "float": "<f", "double": "<d", "half": "<e",
}  # fmt: skip
_PTX_FORMATS = {
    "u8": "<B",
    "s8": "<b",
    "u16": "<H",
    "s16": "<h",
    "u32": "<I",
    "s32": "<i",
    "u64": "<Q",
    "s64": "<q",
}
_PTX_FORMATS |= {"f32": "<f", "f64": "<d", "b32": "<I", "b64": "<Q", "b16": "<H", "b8": "<B"}
_RAW_SHOWN = 64


def launch_of(grid: Grid, code: CodeMap, artefact: str) -> Launch:
    """Return the launch that a row of the grid table describes."""
    cubin = code.module_of(grid.module)
    found = code.find(grid.entry, grid.module)
    symbol = found[1].name if found is not None else ""
    if found is None:
        code.note(f"the module of grid {grid.id} is not in the dump: its kernel has no name")
    if not grid.grid_certain:
        code.note(
            f"the dump gives a smaller grid for launch {grid.id} than it has blocks, as driver 580 does for cooperative "
            f"launches: {grid.grid} is the smallest that holds the blocks seen"
        )
    names = demangle(symbol)
    known = code.sources.parameters(code.place(grid.entry, grid.module), names.short)
    return Launch(
        kernel=symbol,
        name=names.text or "(unknown kernel)",
        short=names.short or "(unknown kernel)",
        grid_id=grid.id,
        device=grid.device,
        context=grid.context,
        grid=grid.grid,
        block=grid.block,
        cluster=grid.cluster,
        grid_certain=grid.grid_certain,
        registers=grid.registers,
        arguments=_arguments(grid, cubin, symbol, known) if cubin is not None else (),
        origin=Origin(artefact, f".cudbg.gridtbl.dev{grid.device}, grid {grid.id}"),
    )


def _arguments(grid: Grid, cubin: Cubin, symbol: str, known: list[str]) -> tuple[Argument, ...]:
    layout = cubin.parameters(symbol)
    names = demangle(symbol)
    types = (
        names.parameters if names.parameters is not None and len(names.parameters) == len(layout) else None
    )
    ptx = cubin.ptx_parameters(symbol) if types is None else []
    if len(ptx) != len(layout):
        ptx = []
    arguments = []
    for position, slot in enumerate(layout):
        raw = grid.parameters[slot.offset : slot.offset + slot.size]
        kind = names.kinds[position] if types is not None else ""
        pointer: bool | None = kind in ("pointer", "reference") if types is not None else None
        form = _FORMATS.get(kind, "")
        type_name = types[position] if types is not None else ""
        if types is None and ptx:
            type_name = ptx[position].removesuffix(".ptr")
            pointer = True if ptx[position].endswith(".ptr") else None
            form = _PTX_FORMATS.get(type_name, "")
        if pointer:
            form = "<Q"
        value: int | float | None = None
        if form and struct.calcsize(form) == len(raw):
            (value,) = struct.unpack(form, raw)
        elif kind == "bfloat16" and len(raw) == 2:
            (value,) = struct.unpack("<f", b"\0\0" + raw)
        elif not form and types is None and len(raw) in (4, 8):
            # No type anywhere: the bits as an integer say more than a hex string.
            value = int.from_bytes(raw, "little")
        arguments.append(
            Argument(
                position,
                slot.offset,
                slot.size,
                type_name,
                # Triton appends parameters of its own (scratch memory) behind the source's.
                known[position] if position < len(known) <= len(layout) else "",
                value,
                raw[:_RAW_SHOWN].hex(),
                pointer,
            )
        )
    return tuple(arguments)


def argument_finder(launch: Launch) -> Callable[[int], int | None]:
    """Return a function from a byte offset in the parameter block to an argument's position."""
    spans = [(a.offset, a.offset + a.size, a.position) for a in launch.arguments]

    def find(offset: int) -> int | None:
        return next((position for low, high, position in spans if low <= offset < high), None)

    return find


def pointer_words(launch: Launch, parameters: bytes) -> list[tuple[int, str, int]]:
    """Return every pointer in the arguments: (position, label, value).

    Members of structures passed by value count when they look like device
    addresses (at least 2**32, below 2**57, aligned to 4 bytes).
    """
    found = []
    for argument in launch.arguments:
        if argument.is_pointer and isinstance(argument.value, int):
            found.append((argument.position, argument.label, argument.value))
            continue
        if argument.is_pointer is None or argument.size > 8:
            raw = parameters[argument.offset : argument.offset + argument.size]
            for at in range(0, len(raw) - 7, 8):
                (value,) = struct.unpack_from("<Q", raw, at)
                if 1 << 32 <= value < 1 << 57 and value % 4 == 0:
                    label = argument.label if argument.size == 8 else f"{argument.label}+{at:#x}"
                    found.append((argument.position, label, value))
    return found


def dump_launches(dump: CoreDump, code: CodeMap, artefact: str) -> dict[int, tuple[Grid, Launch]]:
    """Return the launches of a dump by grid id."""
    return {grid.id: (grid, launch_of(grid, code, artefact)) for grid in dump.grids[:1024]}

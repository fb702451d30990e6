"""Slim a core dump to what a diagnosis reads.

Dropped: images of modules that no lane, call frame or launch is in; inside the
images that stay, the code of other functions; memory contents; empty sections.
Kept: every table, and the registers of the lanes and warps that a diagnosis looks at
closely (``read.groups.sampled``).  The result is a valid core dump with its
section links renumbered, and slimming it again changes nothing.
"""

from __future__ import annotations

import struct

from cuwhy.model.errors import InputError
from cuwhy.read import coredump as cd
from cuwhy.read.cubin import open_cubin
from cuwhy.read.elf import SHT_NOBITS, Elf, Section
from cuwhy.read.groups import exception_groups, sampled, standing_groups

_MEMORY = {0x80000001, 0x80000002, cd.SHT_LOCAL, cd.SHT_SHARED, cd.SHT_ELF_IMAGE}
_EMPTY_WHEN_DROPPED = {
    cd.SHT_BACKTRACE,
    cd.SHT_REGS,
    cd.SHT_PREDICATES,
    cd.SHT_UREGS,
    cd.SHT_UPREDICATES,
    cd.SHT_CONVERGENCE,
    cd.SHT_BLOCKS,
    cd.SHT_WARPS,
    cd.SHT_LANES,
}
_PER_LANE = {cd.SHT_REGS, cd.SHT_PREDICATES, cd.SHT_BACKTRACE}
_PER_WARP = {cd.SHT_UREGS, cd.SHT_UPREDICATES, cd.SHT_CONVERGENCE}
_CUBIN_KEPT = (
    ".shstrtab",
    ".strtab",
    ".symtab",
    ".debug_line",
    ".debug_str",
    ".nv_debug_line_sass",
    ".nv_debug_ptx_txt",
    ".nv.info",
    # A few bytes each, without which nvdisasm refuses the whole image.
    ".nv.compat",
    ".note.nv.cuinfo",
    ".note.nv.tkinfo",
)
_SECTION = struct.Struct("<IIQQQQIIQQ")
_HEADER_BYTES = 64


def slim_coredump(data: bytes) -> bytes:
    """Return a smaller core dump that leads to the same diagnosis.

    Raises:
        InputError: when ``data`` is not a readable core dump.
    """
    dump = cd.CoreDump(data, "core dump")
    wanted = _addresses(dump)
    keep: list[int] = []
    replaced: dict[int, bytes] = {}
    images = {module.section for module in dump.modules if module.section >= 0}
    lanes, warps = _looked_at(dump)
    for index, section in enumerate(dump.elf.sections):
        if section.type in _PER_LANE and (section.link, section.info) not in lanes:
            continue
        if section.type in _PER_WARP and (section.link, section.info) not in warps:
            continue
        if section.type in _MEMORY or (section.size == 0 and section.type in _EMPTY_WHEN_DROPPED):
            continue
        if section.type == cd.SHT_RELOCATED_IMAGE:
            if index not in images:
                continue
            slim = _slim_image(dump.elf.content(index), wanted)
            if slim is None:
                continue
            replaced[index] = slim
        keep.append(index)
    return _write(dump.elf, keep, replaced)


def _looked_at(dump: cd.CoreDump) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """(table section, row) of every lane and of every warp whose registers a diagnosis reads."""
    groups = [sampled(group, dump) for group in exception_groups(dump)]
    if not groups:
        groups = [group.lanes[:32] for grid in dump.grids for group in standing_groups(dump, grid.id)]
    looked_at = [pair for lanes in groups for pair in lanes]
    return (
        {(warp.lane_section, lane.row) for warp, lane in looked_at},
        {(warp.section, warp.row) for warp, _ in looked_at},
    )


def _addresses(dump: cd.CoreDump) -> list[int]:
    """Every code address that a diagnosis may ask for."""
    wanted = {grid.entry for grid in dump.grids}
    wanted |= {sm.error_pc for sm in dump.sms if sm.error_pc is not None}
    for block in dump.blocks:
        for warp in block.warps:
            if warp.error_pc is not None:
                wanted.add(warp.error_pc)
            for lane in warp.lanes:
                wanted.add(lane.pc)
                if lane.call_depth:
                    wanted |= {frame.return_pc for frame in dump.backtrace(warp, lane)}
    return sorted(wanted)


def _slim_image(image: memoryview, wanted: list[int]) -> bytes | None:
    """Return a module image with only the code at ``wanted``, None when it holds none of it."""
    cubin = open_cubin(image, "module")
    if cubin is None:
        return None
    elf = cubin.elf
    code = [i for i, s in enumerate(elf.sections) if s.flags & 4 and s.address]
    used = {i for i in code if any(elf.sections[i].address <= pc < _end(elf.sections[i]) for pc in wanted)}
    if not used:
        return None
    names = {elf.name(i).removeprefix(".text.") for i in used}
    kept = set(used)
    for index in range(len(elf.sections)):
        name = elf.name(index)
        suffix = name.removeprefix(".nv.info.").removeprefix(".nv.shared.")
        if name in _CUBIN_KEPT or suffix in names:
            kept.add(index)
    emptied = {i: b"" for i in range(len(elf.sections)) if i not in kept}
    return _write(elf, list(range(len(elf.sections))), emptied, hollow=frozenset(emptied))


def _end(section: Section) -> int:
    return section.address + section.size


def _write(
    elf: Elf, keep: list[int], replaced: dict[int, bytes], hollow: frozenset[int] = frozenset()
) -> bytes:
    """Write the sections ``keep`` anew: contents packed, links renumbered, names rebuilt.

    Sections in ``hollow`` keep their header but lose their content.
    """
    number = {old: new for new, old in enumerate(keep)}
    old_names = _name_section(elf)
    names = bytearray(b"\0")
    known: dict[str, int] = {"": 0}
    offsets = {}
    for index in keep:
        name = elf.name(index)
        if name not in known:
            known[name] = len(names)
            names += name.encode() + b"\0"
        offsets[index] = known[name]
    body = bytearray()
    rows = []
    for index in keep:
        section = elf.sections[index]
        if index == 0:
            rows.append(section)
            continue
        if index == old_names:
            content: bytes | memoryview = bytes(names)
        elif index in replaced:
            content = replaced[index]
        else:
            content = elf.content(index)
        is_hollow = index in hollow or section.type == SHT_NOBITS
        rows.append(
            section._replace(
                name=offsets[index],
                type=SHT_NOBITS if is_hollow else section.type,
                offset=_HEADER_BYTES + len(body) if not is_hollow else 0,
                size=section.size if is_hollow else len(content),
                link=number.get(section.link, 0),
            )
        )
        if not is_hollow:
            body += content
            body += bytes(-len(body) % 8)
    count, string_index = len(rows), number.get(old_names, 0)
    large = count >= 0xFF00
    rows[0] = Section(
        0, 0, 0, 0, 0, count if large else 0, string_index if string_index >= 0xFF00 else 0, 0, 0, 0
    )
    header = bytearray(elf.data[:_HEADER_BYTES])
    struct.pack_into("<QQ", header, 32, 0, _HEADER_BYTES + len(body))
    struct.pack_into("<HHH", header, 54, 0, 0, _SECTION.size)
    struct.pack_into(
        "<HH", header, 60, 0 if large else count, 0xFFFF if string_index >= 0xFF00 else string_index
    )
    return bytes(header) + bytes(body) + b"".join(_SECTION.pack(*row) for row in rows)


def _name_section(elf: Elf) -> int:
    (index,) = struct.unpack_from("<H", elf.data, 62)
    index = elf.sections[0].link if index == 0xFFFF else index
    if index >= len(elf.sections):
        raise InputError(f"{elf.what}: has no section names; the file is damaged")
    return int(index)

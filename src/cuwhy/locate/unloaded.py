"""Line tables of cubins that were never loaded, where every function stands at address 0.

The loader writes each function's address into ``.debug_line`` at the places that ``.rela.debug_line`` (older
compilers: ``.rel.debug_line``) lists.  Here each section of code gets an address of its own instead, far from
all others, so that the table can be read as that of a loaded image.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from cuwhy.locate.lines import InlineFrame, LineTable, read_lines
from cuwhy.read.cubin import Cubin

_SHT_RELA, _SHT_REL = 4, 9
_MAX_RELOCATIONS = 1_000_000
#: No section of code is this large.
_SPACING = 1 << 32


@dataclass(frozen=True, slots=True)
class UnloadedLines:
    """The line table of a cubin, asked for by section of code.

    Attributes:
        table: with the addresses that were made up.
        bases: made-up address of each function's section, by symbol.
    """

    table: LineTable
    bases: dict[str, int]

    def chain(self, symbol: str, offset: int) -> list[InlineFrame]:
        """Inline chain, innermost first, of the instruction ``offset`` bytes into the section of ``symbol``."""
        base = self.bases.get(symbol)
        return self.table.chain(base + offset) if base is not None else []


def unloaded_lines(cubin: Cubin) -> UnloadedLines:
    """Read the line table of a cubin; addresses that are set already are kept."""
    symbols = cubin.elf.functions()
    bases: dict[str, int] = {}
    for symbol in symbols:
        section = cubin.elf.sections[symbol.section] if symbol.section < len(cubin.elf.sections) else None
        loaded = section is not None and section.address
        bases[symbol.text] = section.address if loaded and section else (symbol.section + 1) * _SPACING
    content = bytearray(cubin.section(".debug_line"))
    for name, form, entry in ((".rela.debug_line", _SHT_RELA, "<QQq"), (".rel.debug_line", _SHT_REL, "<QQ")):
        index = cubin.elf.find_name(name)
        if index < 0 or cubin.elf.sections[index].type != form:
            continue
        table = cubin.elf.content(index)
        size = struct.calcsize(entry)
        count = min(len(table) // size, _MAX_RELOCATIONS)
        for position, info, *addend in struct.iter_unpack(entry, table[: count * size]):
            base = bases.get(cubin.elf.symbol_name(info >> 32), 0)
            if position + 8 <= len(content) and base >= _SPACING:
                start = addend[0] if addend else struct.unpack_from("<Q", content, position)[0]
                struct.pack_into("<Q", content, position, (base + start) % 2**64)
    return UnloadedLines(read_lines(memoryview(bytes(content)), cubin.section(".debug_str")), bases)

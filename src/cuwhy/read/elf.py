"""The section table of a 64-bit little-endian ELF file, read in one go.

A GPU core dump of a busy device has more than 25,000 sections, so the table is
unpacked as a block and names are looked up only when asked for.
Source: System V ABI, ELF-64 object file format (``e_shnum`` and ``e_shstrndx``
overflow into section 0).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from cuwhy.model.errors import InputError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

#: More sections than any real dump: 148 SMs x 64 warps x 32 lanes x 3 is 0.9 million.
MAX_SECTIONS = 2_000_000
_MAX_NAME = 16_384

SHT_NOBITS = 8
SHT_SYMTAB = 2
STT_FUNC = 2


class Section(NamedTuple):
    """One section header, fields as in the ELF specification (bytes)."""

    name: int
    type: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class Symbol(NamedTuple):
    """One entry of the symbol table that names a function."""

    name: str
    address: int
    size: int
    section: int


class Elf:
    """An ELF image over a bytes-like object; nothing is copied until asked for.

    Raises:
        InputError: when the header or the section table lies outside the data.
    """

    def __init__(self, data: bytes | memoryview, what: str) -> None:
        self.data = memoryview(data)
        self.what = what
        if len(self.data) < _HEADER.size or bytes(self.data[:4]) != b"\x7fELF":
            raise InputError(f"{what}: not an ELF file")
        header = _HEADER.unpack_from(self.data)
        if header[0][4] != 2 or header[0][5] != 1:
            raise InputError(f"{what}: not a 64-bit little-endian ELF file")
        self.os_abi: int = header[0][7]
        self.type: int = header[1]
        self.machine: int = header[2]
        self.flags: int = header[7]
        table, entry, count, names = header[6], header[11], header[12], header[13]
        if entry != _SECTION.size or table + _SECTION.size > len(self.data):
            raise InputError(
                f"{what}: the section table lies outside the file; the file is truncated or damaged"
            )
        first = Section._make(_SECTION.unpack_from(self.data, table))
        if count == 0:
            count = first.size
        if names == 0xFFFF:
            names = first.link
        if count > MAX_SECTIONS or table + count * _SECTION.size > len(self.data):
            raise InputError(
                f"{what}: the section table lies outside the file; the file is truncated or damaged"
            )
        self.sections: list[Section] = list(
            map(Section._make, _SECTION.iter_unpack(self.data[table : table + count * _SECTION.size]))
        )
        self._names = self.content(names) if names < count else memoryview(b"")

    def content(self, index: int) -> memoryview:
        """Return the bytes of section ``index``.

        Raises:
            InputError: when they lie outside the file.
        """
        section = self.sections[index]
        if section.type == SHT_NOBITS:
            return memoryview(b"")
        if section.offset + section.size > len(self.data):
            raise InputError(
                f"{self.what}: section {index} lies outside the file; the file is truncated or damaged"
            )
        return self.data[section.offset : section.offset + section.size]

    def name(self, index: int) -> str:
        """Return the name of section ``index``; empty when it cannot be read."""
        return text_at(self._names, self.sections[index].name)

    def find(self, name: str) -> int:
        """Return the index of the first section called ``name``, or -1."""
        return next((i for i in range(len(self.sections)) if self.name(i) == name), -1)

    def functions(self, limit: int = 200_000) -> list[Symbol]:
        """Return the function symbols, at most ``limit``."""
        found: list[Symbol] = []
        for index, section in enumerate(self.sections):
            if section.type != SHT_SYMTAB or section.link >= len(self.sections):
                continue
            names = self.content(section.link)
            table = self.content(index)
            usable = min(len(table) // _SYMBOL.size, limit) * _SYMBOL.size
            for name, info, _other, where, address, size in _SYMBOL.iter_unpack(table[:usable]):
                if info & 15 == STT_FUNC:
                    found.append(Symbol(text_at(names, name), address, size, where))
        return found


def text_at(table: memoryview, offset: int) -> str:
    """Return the NUL-terminated string at ``offset`` of a string table, or ''."""
    if offset >= len(table):
        return ""
    piece = bytes(table[offset : offset + _MAX_NAME])
    end = piece.find(b"\0")
    return (piece if end < 0 else piece[:end]).decode("utf-8", "replace")

"""The section table of a 64-bit little-endian ELF file, read in one go.

A GPU core dump of a busy device has more than 25,000 sections, so the table is
unpacked as a block and names are looked up only when asked for.
Source: System V ABI, ELF-64 object file format (``e_shnum`` and ``e_shstrndx``
overflow into section 0).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from cuwhy.model.errors import InputError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")

#: More sections than any real dump: 148 SMs x 64 warps x 32 lanes x 3 is 0.9 million.
MAX_SECTIONS = 2_000_000
_MAX_NAME = 16_384

SHT_NOBITS = 8
SHT_SYMTAB = 2
SHT_STRTAB = 3
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
    """One entry of the symbol table that names a function; ``name`` is where it stands in ``names``."""

    address: int
    size: int
    section: int
    name: int
    names: memoryview

    @property
    def text(self) -> str:
        """The name."""
        return text_at(self.names, self.name)


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
        self._table = self.data[table : table + count * _SECTION.size]
        self.sections: Sequence[Section] = _Rows(self._table)
        self._names = self.content(names) if names < count else memoryview(b"")

    def headers(self, start: int = 0, stop: int | None = None) -> Iterator[tuple[int, ...]]:
        """Yield section headers as plain tuples, in order: the fast way over a million of them."""
        end = len(self._table) if stop is None else min(stop * _SECTION.size, len(self._table))
        return _SECTION.iter_unpack(self._table[min(start * _SECTION.size, end) : end])

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

    def find_strings(self, name: str) -> int:
        """Return the index of the first string table called ``name``, or -1."""
        wanted = name.encode() + b"\0"
        for index, header in enumerate(self.headers()):
            if header[1] == SHT_STRTAB and self._names[header[0] : header[0] + len(wanted)] == wanted:
                return index
        return -1

    def find_name(self, name: str) -> int:
        """Return the index of the first section called ``name``, or -1; nothing is copied for it."""
        wanted = name.encode() + b"\0"
        names, length = self._names, len(wanted)
        for index, header in enumerate(self.headers()):
            if names[header[0] : header[0] + length] == wanted:
                return index
        return -1

    def functions(self, limit: int = 200_000) -> list[Symbol]:
        """Return the function symbols among the first ``limit`` symbols, in order of the file."""
        found: list[Symbol] = []
        for index, header in enumerate(self.headers()):
            if header[1] != SHT_SYMTAB or header[6] >= len(self.sections) or limit <= 0:
                continue
            names = self.content(header[6])
            table = self.content(index)
            usable = min(len(table) // _SYMBOL.size, limit)
            limit -= usable
            for name, info, _other, where, address, size in _SYMBOL.iter_unpack(
                table[: usable * _SYMBOL.size]
            ):
                if info & 15 == STT_FUNC:
                    found.append(Symbol(address, size, where, name, names))
        return found

    def symbol_name(self, index: int) -> str:
        """Return the name of symbol ``index`` of the first symbol table; empty when there is none."""
        for position, header in enumerate(self.headers()):
            if header[1] == SHT_SYMTAB and header[6] < len(self.sections):
                table = self.content(position)
                if (index + 1) * _SYMBOL.size > len(table):
                    return ""
                name = _SYMBOL.unpack_from(table, index * _SYMBOL.size)[0]
                return text_at(self.content(header[6]), name)
        return ""


class _Rows(Sequence[Section]):
    """The section table as a sequence that unpacks a row when it is asked for."""

    def __init__(self, table: memoryview) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table) // _SECTION.size

    @overload
    def __getitem__(self, index: int) -> Section: ...
    @overload
    def __getitem__(self, index: slice) -> list[Section]: ...
    def __getitem__(self, index: int | slice) -> Section | list[Section]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if not 0 <= index < len(self):
            raise IndexError(index)
        return Section._make(_SECTION.unpack_from(self._table, index * _SECTION.size))


def text_at(table: memoryview, offset: int) -> str:
    """Return the NUL-terminated string at ``offset`` of a string table, or ''."""
    if offset >= len(table):
        return ""
    piece = bytes(table[offset : offset + _MAX_NAME])
    end = piece.find(b"\0")
    return (piece if end < 0 else piece[:end]).decode("utf-8", "replace")

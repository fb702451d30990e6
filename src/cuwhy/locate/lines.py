"""Line tables of cubins: pc -> file:line with the whole inline chain.

``.debug_line`` of a cubin is a DWARF line program (DWARF 4, section 6.2) without
compilation units.  NVIDIA adds one extended opcode, 0x90, with two ULEB128
operands: the number of the earlier row of its sequence (counted from 1) that holds
the call site, 0 for code that is not inlined, and the offset of the inlined function's
mangled name in ``.debug_str``.  It is not documented; the reading here agrees
with ``nvdisasm -gi`` on every row of the corpus (tests/locate/test_lines.py).
"""

from __future__ import annotations

import bisect
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from cuwhy.read.elf import text_at

#: Bounds for hostile tables: this many rows take about 130 MB and a second.
MAX_ROWS = 600_000
_MAX_FILES = 65_536
_MAX_INLINE = 64
_MAX_OVERLAP = 64

_INLINED_CALL = 0x90


class LineRow(NamedTuple):
    """One row: address, file index, line, row number of the call site (0: none), name offset."""

    address: int
    file: int
    line: int
    caller: int
    name: int


class InlineFrame(NamedTuple):
    """One level of an inline chain; ``function`` is mangled and empty for the outermost."""

    file: str
    line: int
    function: str


@dataclass(slots=True)
class LineTable:
    """The rows of one line program.

    Attributes:
        rows: in the order of the program, so that ``rows[n - 1]`` is row number n.
        files: by DWARF index minus one.
        problem: why the table ends early, empty when it was read to its end.
    """

    rows: list[LineRow] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    sequences: list[tuple[int, int, int, int]] = field(default_factory=list)
    names: memoryview = field(default_factory=lambda: memoryview(b""))
    problem: str = ""
    _by_address: list[tuple[int, int, int, int]] = field(default_factory=list)

    def chain(self, pc: int) -> list[InlineFrame]:
        """Return the inline chain at ``pc``, innermost first; empty when it has no line."""
        found = self._sequence(pc)
        if found is None:
            return []
        _, _, start, end = found
        # Of several rows at one address the last one counts, as nvdisasm reads it.
        index = bisect.bisect_right(self.rows, pc, start, end, key=lambda row: row.address) - 1
        if index < start:
            return []
        chain: list[InlineFrame] = []
        number = index + 1
        while number and len(chain) < _MAX_INLINE:
            row = self.rows[number - 1]
            name = text_at(self.names, row.name) if row.caller else ""
            chain.append(InlineFrame(self._file(row.file), row.line, name))
            # A call site stands before what it inlines; anything else would be a loop.
            number = row.caller if row.caller < number else 0
        return chain

    def _sequence(self, pc: int) -> tuple[int, int, int, int] | None:
        if len(self._by_address) != len(self.sequences):
            self._by_address = sorted(self.sequences)
        # Sequences of linked code do not overlap; a few that do are looked through.
        last = bisect.bisect_right(self._by_address, pc, key=lambda s: s[0])
        for sequence in reversed(self._by_address[max(0, last - _MAX_OVERLAP) : last]):
            if pc < sequence[1]:
                return sequence
        return None

    def lines(self, low: int, high: int) -> set[tuple[str, int]]:
        """Return every (file, line) that has code between two addresses."""
        return {(self._file(row.file), row.line) for row in self.rows if low <= row.address < high}

    def _file(self, index: int) -> str:
        return self.files[index - 1] if 0 < index <= len(self.files) else ""


class _Reader:
    """A cursor that turns running off the end into one exception type."""

    def __init__(self, data: memoryview, position: int, end: int) -> None:
        self.data = data
        self.position = position
        self.end = end

    def byte(self) -> int:
        if self.position >= self.end:
            raise EOFError
        value = self.data[self.position]
        self.position += 1
        return value

    def uleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value
            if shift > 63:
                raise EOFError

    def sleb(self) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value - (1 << shift) if byte & 0x40 else value
            if shift > 63:
                raise EOFError

    def string(self) -> str:
        text = text_at(self.data[: self.end], self.position)
        while self.byte():
            pass
        return text


def read_lines(line_section: memoryview, names: memoryview) -> LineTable:
    """Parse ``.debug_line`` (and ``.debug_str`` for names); never raises.

    Args:
        line_section: content of ``.debug_line``; may hold several programs.
        names: content of ``.debug_str``.
    """
    table = LineTable(names=names)
    position = 0
    while position + 10 < len(line_section):
        (length,) = struct.unpack_from("<I", line_section, position)
        end = position + 4 + length
        if length < 6 or end > len(line_section):
            table.problem = "the line table is truncated"
            break
        try:
            _program(table, _Reader(line_section, position + 4, end))
        except EOFError:
            table.problem = "the line table is damaged"
            break
        if table.problem:
            break
        position = end
    return table


def _program(table: LineTable, reader: _Reader) -> None:
    data = reader.data
    version, header_length = struct.unpack_from("<HI", data, reader.position)
    reader.position += 6
    if not 2 <= version <= 4:
        table.problem = f"line table version {version} is not supported"
        return
    program = reader.position + header_length
    step = reader.byte()
    if version >= 4:
        reader.byte()
    reader.byte()
    base = reader.byte()
    base = base - 256 if base > 127 else base
    spread = reader.byte() or 1
    opcodes = reader.byte()
    lengths = [reader.byte() for _ in range(max(opcodes - 1, 0))]
    directories = [""]
    while text := reader.string():
        directories.append(text)
        if len(directories) > _MAX_FILES:
            raise EOFError
    first_file = len(table.files)
    while text := reader.string():
        directory = reader.uleb()
        reader.uleb()
        reader.uleb()
        if not text.startswith("/") and 0 < directory < len(directories):
            text = f"{directories[directory]}/{text}"
        table.files.append(text)
        if len(table.files) > _MAX_FILES:
            raise EOFError
    reader.position = program

    rows = table.rows
    address = caller = name = 0
    file, line = 1, 1
    start = len(rows)

    def emit() -> None:
        # Row numbers count from the first row of the sequence (seen in cubins of several kernels).
        site = start + caller if caller else 0
        rows.append(LineRow(address, first_file + file, line, site, name))

    while reader.position < reader.end and len(rows) < MAX_ROWS:
        opcode = reader.byte()
        if opcode >= opcodes:
            special = opcode - opcodes
            address += special // spread * step
            line += base + special % spread
            emit()
        elif opcode == 0:
            size = reader.uleb()
            stop = reader.position + size
            if size == 0 or stop > reader.end:
                raise EOFError
            extended = reader.byte()
            if extended == 1:
                _close(table, start, address)
                start = len(rows)
                address = caller = name = 0
                file, line = 1, 1
            elif extended == 2 and size >= 9:
                (address,) = struct.unpack_from("<Q", data, reader.position)
            elif extended == _INLINED_CALL:
                caller = reader.uleb()
                name = reader.uleb()
            reader.position = stop
        elif opcode == 1:
            emit()
        elif opcode == 2:
            address += reader.uleb() * step
        elif opcode == 3:
            line += reader.sleb()
        elif opcode == 4:
            file = reader.uleb()
        elif opcode == 8:
            address += (255 - opcodes) // spread * step
        elif opcode == 9:
            if reader.position + 2 > reader.end:
                raise EOFError
            address += data[reader.position] | data[reader.position + 1] << 8
            reader.position += 2
        else:
            for _ in range(lengths[opcode - 1]):
                reader.uleb()
    if len(rows) >= MAX_ROWS:
        table.problem = f"the line table has more than {MAX_ROWS:,} rows; the rest was not read"
    _close(table, start, address)


def _close(table: LineTable, start: int, high: int) -> None:
    """Record one sequence; its rows are sorted only if the producer did not."""
    rows = table.rows
    if start >= len(rows):
        return
    low = rows[start].address
    if any(rows[i].address > rows[i + 1].address for i in range(start, len(rows) - 1)):
        # Row numbers must stay, so a table out of order cannot be searched: leave it out.
        table.problem = "a line sequence is not in order of address"
        return
    table.sequences.append((low, max(high, rows[-1].address + 1), start, len(rows)))

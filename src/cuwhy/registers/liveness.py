"""Live registers of each instruction, from nvdisasm's life ranges.

``nvdisasm -plr -lrm narrow -c CUBIN`` prints one column for each register, and in it ``^`` where the
instruction writes it, ``v`` where it reads it, ``x`` where it does both, ``:`` where it is live and untouched.
The number before the columns counts the registers that are live.  It needs a whole cubin: on the raw bytes of
a function it prints no life ranges.
"""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import dataclass

from cuwhy.locate.sass import Instruction, find_nvdisasm, parse_instruction
from cuwhy.model.errors import InputError, ToolMissing
from cuwhy.process import Running
from cuwhy.read.elf import SHT_NOBITS, SHT_SYMTAB, Elf

#: A cubin of this size takes nvdisasm's flow analysis about half a minute.
MAX_CUBIN_BYTES = 16 << 20
SECONDS = 60.0
_MAX_OUTPUT = 512 << 20
_SECTION = re.compile(r"^//-+ \.text\.(\S+)\s+-+$")
# Between instruction and semicolon can stand a remark of the compiler: (*"SpillRefill"*).
_ROW = re.compile(r"^\s*/\*([0-9a-f]{4,16})\*/\s+(.*?)\s*(\(\*.*?)?;.*?// \|(.*)$")
_HEADING = re.compile(r"// \|(\s*#\s+\d[\d |#]*)$")
_CLASSES = re.compile(r"// \|((?:\s+U?(?:GPR|PRED)\s+\|)+)\s*$")


@dataclass(frozen=True, slots=True)
class LiveRow:
    """One instruction of a function.

    Attributes:
        instruction: offset from the entry of its section, and text.
        live: general registers that are live at it.
        marks: for each register that is live, its number and mark (``^ v x :``).
        uniform: uniform registers that are live.
        predicates: predicates that are live.
        spill: True when the compiler says that this saves or restores a register.
    """

    instruction: Instruction
    live: int
    marks: tuple[tuple[int, str], ...]
    uniform: int = 0
    predicates: int = 0
    spill: bool = False


def live_ranges(cubin: bytes | memoryview, what: str) -> dict[str, tuple[LiveRow, ...]]:
    """Return the life ranges of every kernel and function of a cubin, by the symbol of its section.

    Raises:
        ToolMissing: nvdisasm is not there.
        InputError: it cannot analyse this image, which its message says.
    """
    if len(cubin) > MAX_CUBIN_BYTES:
        raise InputError(
            f"{what}: {len(cubin) >> 20} MB is more than {MAX_CUBIN_BYTES >> 20} MB",
            hint="extract the kernel's own cubin (`cuobjdump -xelf NAME FILE`)",
        )
    tool = find_nvdisasm()
    handle, path = tempfile.mkstemp(prefix="cuwhy-", suffix=".cubin")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_without_missing_code(memoryview(cubin)))
        try:
            done = Running([tool, "-plr", "-lrm", "narrow", "-c", path]).finish(SECONDS, _MAX_OUTPUT)
        except OSError as error:
            raise ToolMissing(f"nvdisasm cannot be started ({error.strerror})") from error
    finally:
        os.unlink(path)
    found = parse_live_ranges(done.out.decode("utf-8", "replace"))
    if found:
        return found
    if done.code is None:
        raise InputError(f"{what}: nvdisasm took longer than {SECONDS:g} s, or printed too much")
    said = [line for line in done.err.decode("utf-8", "replace").splitlines() if line.strip()]
    # The last complaint is only that an earlier one made it give up.
    reason = next(
        (line for line in said if "error" in line or "not support" in line), said[-1] if said else ""
    )
    if "not support" in reason or "disabled" in reason:
        raise InputError(
            f"{what}: nvdisasm cannot find life ranges in an image as it was loaded",
            hint="give the cubin itself (nvcc -cubin -lineinfo; Triton keeps it in its cache folder)",
        )
    raise InputError(f"{what}: nvdisasm finds no code to analyse" + (f" ({reason[:150]})" if reason else ""))


def _without_missing_code(image: memoryview) -> bytes | memoryview:
    """Blank the symbols of code that slimming took out, and the hollow sections: nvdisasm refuses them."""
    try:
        elf = Elf(image, "module")
        tables = [i for i, section in enumerate(elf.sections) if section.type == SHT_SYMTAB]
        hollow = {i for i, section in enumerate(elf.sections) if section.type == SHT_NOBITS}
    except InputError:
        return image
    if not any(elf.name(i).startswith(".text") for i in hollow):
        return image
    patched = bytearray(image)
    for index in tables:
        section = elf.sections[index]
        for at in range(section.offset, min(section.offset + section.size, len(patched)) - 23, 24):
            if int.from_bytes(patched[at + 6 : at + 8], "little") in hollow:
                patched[at : at + 24] = bytes(24)
    table = int.from_bytes(patched[40:48], "little")
    for index in range(len(elf.sections)):
        if index in hollow or elf.name(index) == ".nv.info":
            patched[table + 64 * index + 4 : table + 64 * index + 8] = bytes(4)
    return bytes(patched)


def parse_live_ranges(text: str) -> dict[str, tuple[LiveRow, ...]]:
    """Parse what ``nvdisasm -plr -lrm narrow -c`` prints; empty when it holds no life ranges."""
    functions: dict[str, tuple[LiveRow, ...]] = {}
    rows: list[LiveRow] = []
    symbol = ""
    classes: list[str] = []
    starts: list[int] = []
    for line in text.splitlines():
        if line.startswith("//-"):
            if symbol and rows:
                functions[symbol] = tuple(rows)
            section = _SECTION.match(line)
            symbol, rows, classes, starts = (section[1] if section else ""), [], [], []
        elif not symbol:
            continue
        elif not starts:
            heading = _CLASSES.search(line)
            if heading is not None:
                classes = [name.strip() for name in heading[1].split("|") if name.strip()]
            heading = _HEADING.search(line)
            if heading is not None and classes:
                starts = _first_columns(heading[1])
        else:
            row = _row(line, classes, starts)
            if row is not None:
                rows.append(row)
    if symbol and rows:
        functions[symbol] = tuple(rows)
    return functions


def _first_columns(heading: str) -> list[int]:
    """Column of register 0 in each class: the first digit after ``#``."""
    starts, position = [], 0
    for part in heading.split("|"):
        digits = re.search(r"#\s+(\d)", part)
        if digits is not None:
            starts.append(position + digits.start(1))
        position += len(part) + 1
    return starts


def _row(line: str, classes: list[str], starts: list[int]) -> LiveRow | None:
    match = _ROW.match(line)
    if match is None:
        return None
    counts: dict[str, int] = {}
    marks: list[tuple[int, str]] = []
    position = 0
    for name, part in zip(classes, match[4].split("|"), strict=False):
        index = len(counts)
        start = starts[index] - position if index < len(starts) else len(part)
        number = part[:start].strip()
        counts[name] = int(number) if number.isdigit() else 0
        if name == "GPR":
            marks = [(i, mark) for i, mark in enumerate(part[start:].rstrip()) if mark in "^vx:"]
        position += len(part) + 1
    return LiveRow(
        parse_instruction(int(match[1], 16), match[2]),
        counts.get("GPR", 0),
        tuple(marks),
        counts.get("UGPR", 0),
        counts.get("PRED", 0),
        "SpillRefill" in (match[3] or ""),
    )

"""Cubins: functions, parameter layout, resource notes and embedded PTX.

Parameter layout comes from the ``.nv.info.<kernel>`` attributes (KPARAM_INFO),
whose encoding NVIDIA does not publish; the form used here is the one that
``cuobjdump -elf`` prints, checked against kernels of known signature.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from cuwhy.model.errors import InputError
from cuwhy.read.elf import Elf, Symbol

_KPARAM_INFO = 0x17
_KPARAM_INFO_V2 = 0x45
_MAX_THREADS, _FRAME_SIZE, _REQNTID, _REGCOUNT = 0x05, 0x11, 0x10, 0x2F
_RESERVED_SHARED = 1024
_MAX_PARAMS = 4096
_MAX_TEXT = 16 << 20
_MAX_PTX = 8 << 20
_MAX_PTX_LINES = 400_000
#: Functions that may begin between an address and the entry of the one that holds it.
_MAX_NESTED = 1024

_PTX_PARAM = re.compile(
    rb"\.param\s+(?:\.align\s+\d+\s+)?\.([bsuf]\d+)((?:\s+\.\w+|\s+\d+)*?)\s+(\w+)(\[\d*\])?"
)


class Parameter(NamedTuple):
    """One kernel parameter: ordinal, byte offset and size in the parameter block."""

    ordinal: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Resources:
    """What a kernel was compiled to need.

    Attributes:
        registers: of a thread, 0 when not recorded.
        frame_bytes: stack frame of a thread (local memory), spills included.
        shared_bytes: static shared memory of a block.
        max_threads: threads of a block that it was compiled for (``__launch_bounds__``,
            ``.reqntid``), 0 when not bounded.
    """

    registers: int = 0
    frame_bytes: int = 0
    shared_bytes: int = 0
    max_threads: int = 0


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a cubin; ``text`` is its machine code, ``address`` where it was loaded."""

    name: str
    address: int
    size: int
    text: memoryview


class Cubin:
    """A cubin image as loaded on the device: text sections stand at absolute addresses.

    Raises:
        InputError: when the image is damaged.
    """

    def __init__(self, data: bytes | memoryview, what: str = "cubin") -> None:
        self.elf = Elf(data, what)
        self.what = what
        self._functions: list[Symbol] | None = None
        self._found: dict[str, int] = {}
        # Where code was loaded; asked for with every address, so kept.
        self._code = [
            (header[3], header[3] + header[5]) for header in self.elf.headers() if header[2] & 4 and header[3]
        ]

    @property
    def sm(self) -> int:
        """Compute capability as ``nvdisasm -b SM<n>`` wants it (90), 0 when unknown."""
        low, high = self.elf.flags & 0xFF, self.elf.flags >> 8 & 0xFF
        # The ABI of CUDA 13 moved the number one byte up; small leftovers are flags, not versions.
        for value in (high, low) if self.elf.os_abi != 0x33 else (low, high):
            if 50 <= value <= 130:
                return value
        return 0

    def section(self, name: str) -> memoryview:
        """Return the content of the named section, empty when it is not there."""
        if name not in self._found:
            self._found[name] = self.elf.find_name(name)
        position = self._found[name]
        return self.elf.content(position) if position >= 0 else memoryview(b"")

    def covers(self, pc: int) -> bool:
        """True when an executable section of this image holds the address."""
        return any(low <= pc < high for low, high in self._code)

    def _symbols(self) -> list[Symbol]:
        """The functions in order of address."""
        if self._functions is None:
            self._functions = sorted(self.elf.functions(), key=lambda symbol: symbol.address)
        return self._functions

    def function_at(self, pc: int) -> Function | None:
        """Return the function that holds the address."""
        symbols = self._symbols()
        last = bisect.bisect_right(symbols, pc, key=lambda symbol: symbol.address)
        best: Symbol | None = None
        for symbol in reversed(symbols[max(0, last - _MAX_NESTED) : last]):
            inside = symbol.address <= pc < symbol.address + max(symbol.size, 1)
            # The innermost symbol: a device function can lie inside its kernel's section.
            if inside and symbol.address and (best is None or symbol.size < best.size):
                best = symbol
        if best is None:
            return None
        return self._function(best)

    def function(self, name: str) -> Function | None:
        """Return the function of that symbol name."""
        wanted = name.encode() + b"\0"
        for symbol in self._symbols():
            if symbol.names[symbol.name : symbol.name + len(wanted)] == wanted:
                return self._function(symbol)
        return None

    def _function(self, symbol: Symbol) -> Function | None:
        if symbol.section >= len(self.elf.sections):
            return None
        section = self.elf.sections[symbol.section]
        content = self.elf.content(symbol.section)
        start = symbol.address - section.address
        if not 0 <= start <= len(content) or symbol.size > _MAX_TEXT:
            return None
        return Function(symbol.text, symbol.address, symbol.size, content[start : start + symbol.size])

    def parameters(self, kernel: str) -> tuple[Parameter, ...]:
        """Return the parameter layout of a kernel, by ordinal; empty when not recorded."""
        content = self.section(f".nv.info.{kernel}")
        found: dict[int, Parameter] = {}
        position = 0
        while position + 4 <= len(content) and len(found) < _MAX_PARAMS:
            form, attribute, size = struct.unpack_from("<BBH", content, position)
            position += 4
            if form != 4:
                continue
            if attribute in (_KPARAM_INFO, _KPARAM_INFO_V2) and size >= 12 and position + 12 <= len(content):
                _index, ordinal, offset, flags = struct.unpack_from("<IHHI", content, position)
                found[ordinal] = Parameter(ordinal, offset, flags >> 18)
            position += size
        return tuple(found[key] for key in sorted(found))

    def _attributes(self, section: str) -> Iterator[tuple[int, memoryview]]:
        """The (attribute, payload) pairs of a ``.nv.info`` section that carry a payload."""
        content = self.section(section)
        position = 0
        while position + 4 <= len(content):
            form, attribute, size = struct.unpack_from("<BBH", content, position)
            position += 4
            if form == 4:
                yield attribute, content[position : position + size]
                position += size

    def resources(self, kernel: str) -> Resources:
        """Return what the kernel was compiled to need (attribute numbers as ``cuobjdump -elf`` names them)."""
        found = {_REGCOUNT: 0, _FRAME_SIZE: 0}
        for attribute, payload in self._attributes(".nv.info"):
            if attribute in found and len(payload) >= 8:
                symbol, value = struct.unpack_from("<II", payload)
                if self.elf.symbol_name(symbol) == kernel:
                    found[attribute] = value
        threads = 0
        for attribute, payload in self._attributes(f".nv.info.{kernel}"):
            if attribute in (_MAX_THREADS, _REQNTID) and len(payload) >= 12:
                x, y, z = struct.unpack_from("<III", payload)
                threads = max(threads, x * y * z)
        return Resources(found[_REGCOUNT], found[_FRAME_SIZE], self.shared_bytes(kernel), threads)

    def shared_bytes(self, kernel: str) -> int:
        """Return the static shared memory that a kernel declares, in bytes."""
        position = self.elf.find_name(f".nv.shared.{kernel}")
        if position < 0:
            return 0
        # From sm_90 on the section counts what the driver reserves as well (seen for sm_90, 100 and 120).
        reserved = _RESERVED_SHARED if self.sm >= 90 else 0
        return max(0, self.elf.sections[position].size - reserved)

    def ptx(self) -> list[bytes]:
        """Return the embedded PTX as lines, empty when built without ``-lineinfo``."""
        content = self.section(".nv_debug_ptx_txt")
        if not content or len(content) > _MAX_PTX:
            return []
        return bytes(content).split(b"\0", _MAX_PTX_LINES)

    def ptx_parameters(self, kernel: str) -> list[str]:
        """Return the PTX type of each parameter ("u64.ptr", "b32", "b8[16]"), in order."""
        wanted = kernel.encode()
        types: list[str] = []
        inside = False
        for line in self.ptx():
            if not inside:
                inside = (
                    b".entry" in line
                    and re.search(rb"\.entry\s+" + re.escape(wanted) + rb"\b", line) is not None
                )
            if inside:
                for kind, extras, _name, array in _PTX_PARAM.findall(line):
                    types.append(kind.decode() + (".ptr" if b".ptr" in extras else "") + array.decode())
                if b"{" in line or len(types) > _MAX_PARAMS:
                    break
        return types


def open_cubin(data: memoryview, what: str) -> Cubin | None:
    """Return the cubin, or None when the image is damaged (the dump may still be good)."""
    try:
        return Cubin(data, what)
    except InputError:
        return None

"""Cubins: functions, parameter layout, resource notes and embedded PTX.

Parameter layout comes from the ``.nv.info.<kernel>`` attributes (KPARAM_INFO),
whose encoding NVIDIA does not publish; the form used here is the one that
``cuobjdump -elf`` prints, checked against kernels of known signature.
"""

from __future__ import annotations

import bisect
import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

from cuwhy.model.errors import InputError
from cuwhy.read.elf import Elf, Symbol

_KPARAM_INFO = 0x17
_KPARAM_INFO_V2 = 0x45
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

    def shared_bytes(self, kernel: str) -> int:
        """Return the static shared memory of a kernel in bytes."""
        position = self.elf.find_name(f".nv.shared.{kernel}")
        return self.elf.sections[position].size if position >= 0 else 0

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

"""SASS: disassembly through NVIDIA's nvdisasm, and what an opcode means.

nvdisasm is optional (``pip install 'cuwhy[sass]'``).  It is fed the bytes of one
function, never a whole module: PyTorch's 8 MB module takes it 5.8 s, a kernel 0.2 s,
most of which is its own start-up, so it runs beside the rest of the reading.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from cuwhy.model.errors import ToolMissing
from cuwhy.process import Running

INSTRUCTION_BYTES = 16
#: nvdisasm gets at most this much around the instruction of interest (0.6 s); PyTorch's largest kernel has 120 kB.
MAX_WINDOW = 512 << 10
#: How long one disassembly may take, and how much it may print (about 100 bytes an instruction).
SECONDS = 5.0
_MAX_OUTPUT = 16 << 20

_LINE = re.compile(r"^\s*/\*([0-9a-f]{4,16})\*/\s+(.*?)\s*;")
_PREDICATE = re.compile(r"^@(!?)(U?P(?:\d|T))\s+")
_TARGET = re.compile(r"^(?:0x)?([0-9a-f]+)$")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        offset: bytes from the function's entry.
        predicate: register that guards it ("P0", "UP1"), empty when none does.
        negated: True for ``@!P0``.
        opcode: mnemonic with its modifiers ("LDG.E.64").
        operands: as printed, split at top-level commas.
        text: the whole instruction.
    """

    offset: int
    predicate: str
    negated: bool
    opcode: str
    operands: tuple[str, ...]
    text: str

    @property
    def base(self) -> str:
        """The mnemonic without modifiers."""
        return self.opcode.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """What follows the mnemonic, without dots."""
        return tuple(self.opcode.split(".")[1:])

    @property
    def target(self) -> int | None:
        """Branch target as an offset from the entry, for direct branches."""
        if self.base not in ("BRA", "BSSY", "CALL", "JMP", "RET", "WARPSYNC", "BREAK"):
            return None
        for operand in reversed(self.operands):
            found = _TARGET.match(operand)
            if found:
                return int(found[1], 16)
        return None


@dataclass(frozen=True, slots=True)
class Listing:
    """Disassembly of (part of) one function.

    Attributes:
        instructions: in order of address.
        start: offset of the first one from the function's entry.
    """

    instructions: tuple[Instruction, ...]
    start: int = 0

    def index(self, offset: int) -> int:
        """Return the position of the instruction at ``offset``, or -1."""
        position = (offset - self.start) // INSTRUCTION_BYTES
        if 0 <= position < len(self.instructions) and self.instructions[position].offset == offset:
            return position
        return -1

    def at(self, offset: int) -> Instruction | None:
        """Return the instruction at ``offset``, or None."""
        position = self.index(offset)
        return self.instructions[position] if position >= 0 else None


def find_nvdisasm() -> str:
    """Return the path of nvdisasm.

    Looked for in $CUWHY_NVDISASM, then the PyPI package nvidia-cuda-nvdisasm,
    then $PATH, then /usr/local/cuda/bin.

    Raises:
        ToolMissing: when there is none.
    """
    chosen = os.environ.get("CUWHY_NVDISASM")
    if chosen is not None:
        if os.access(chosen, os.X_OK):
            return chosen
        raise ToolMissing(f"CUWHY_NVDISASM={chosen} is not an executable file")
    name = "nvdisasm.exe" if os.name == "nt" else "nvdisasm"
    for folder in sys.path:
        root = Path(folder or ".") / "nvidia"
        # cu13, cu14, ...: one folder per CUDA major version.
        if root.is_dir():
            for path in sorted(root.glob(f"*/bin/{name}"), reverse=True):
                if os.access(path, os.X_OK):
                    return str(path)
    found = shutil.which(name) or shutil.which(name, path="/usr/local/cuda/bin")
    if found is None:
        raise ToolMissing("nvdisasm is not installed", hint="pip install 'cuwhy[sass]'")
    return found


class Disassembly:
    """A disassembly under way; :meth:`listing` waits for it."""

    def __init__(self, code: bytes | memoryview, sm: int, around: int = 0) -> None:
        """Start nvdisasm on the machine code of a function.

        Args:
            code: the function's bytes.
            sm: compute capability, 90 for sm_90.
            around: offset of the instruction of interest; a function larger than
                MAX_WINDOW is cut to the part before and a little after it.

        Raises:
            ToolMissing: when nvdisasm is not there or cannot be started.
        """
        tool = find_nvdisasm()
        self._start = 0
        if len(code) > MAX_WINDOW:
            self._start = max(0, (around - MAX_WINDOW * 3 // 4)) // INSTRUCTION_BYTES * INSTRUCTION_BYTES
            code = code[self._start : self._start + MAX_WINDOW]
        try:
            handle, self._path = tempfile.mkstemp(prefix="cuwhy-", suffix=".bin")
            with os.fdopen(handle, "wb") as file:
                file.write(code)
        except OSError as error:
            raise ToolMissing(f"nvdisasm needs a temporary file ({error.strerror})") from error
        try:
            self._running: Running | None = Running([tool, "-b", f"SM{sm}", self._path])
        except OSError as error:
            os.unlink(self._path)
            raise ToolMissing(f"nvdisasm cannot be started ({error.strerror})") from error
        self._listing: Listing | None = None

    def listing(self, seconds: float = SECONDS) -> Listing | None:
        """Return the listing, or None when nvdisasm failed on these bytes or took longer than ``seconds``."""
        if self._running is not None:
            done = self._running.finish(seconds, _MAX_OUTPUT)
            self._running = None
            os.unlink(self._path)
            self._listing = (
                parse_listing(done.out.decode("utf-8", "replace"), self._start) if done.ok else None
            )
        return self._listing

    def cancel(self) -> None:
        """Stop without waiting for the result."""
        if self._running is not None:
            self._running.kill()
            self.listing()


def parse_listing(text: str, start: int = 0) -> Listing | None:
    """Parse the text that ``nvdisasm -b`` prints; None when it holds no instruction.

    Args:
        text: the tool's output, or the ``sass`` artefact of a case.
        start: offset of the first instruction from the function's entry.
    """
    found: list[Instruction] = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        offset = int(match[1], 16) + start
        if found and offset != found[-1].offset + INSTRUCTION_BYTES:
            break
        found.append(parse_instruction(offset, match[2]))
    return Listing(tuple(found), found[0].offset) if found else None


def parse_instruction(offset: int, text: str) -> Instruction:
    """Parse one instruction as nvdisasm prints it, without the semicolon."""
    text = " ".join(text.split())[:200]
    body, predicate, negated = text, "", False
    match = _PREDICATE.match(text)
    if match is not None:
        negated, predicate = match[1] == "!", match[2]
        body = text[match.end() :]
    opcode, _, rest = body.partition(" ")
    return Instruction(offset, predicate, negated, opcode, tuple(_split(rest)), text)


def _split(rest: str) -> list[str]:
    parts, depth, current = [], 0, ""
    for char in rest:
        if char in "[(":
            depth += 1
        elif char in "])":
            depth -= 1
        if char == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += char
    if current.strip():
        parts.append(current.strip())
    return parts


def format_listing(listing: Listing) -> str:
    """Return a listing as text that :func:`parse_listing` reads back."""
    return "".join(f"        /*{i.offset:04x}*/ {i.text} ;\n" for i in listing.instructions)


@dataclass(frozen=True, slots=True)
class Access:
    """What a memory instruction does.

    Attributes:
        kind: "load", "store", "atomic" or "reduction".
        space: "global", "shared", "local", "generic", "constant" or "distributed shared".
        width: bytes per thread.
    """

    kind: str
    space: str
    width: int


_LOADS = {
    "LDG": "global",
    "LDS": "shared",
    "LDL": "local",
    "LD": "generic",
    "LDC": "constant",
    "LDSM": "shared",
    "LDGSTS": "global",
}
_STORES = {
    "STG": "global",
    "STS": "shared",
    "STL": "local",
    "ST": "generic",
    "STSM": "shared",
    "STAS": "distributed shared",
}
_ATOMICS = {"ATOMG": "global", "ATOMS": "shared", "ATOM": "generic"}
_REDUCTIONS = {"RED": "global", "REDG": "global", "REDS": "shared", "REDAS": "distributed shared"}
_WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "F16": 2, "BF16": 2, "64": 8, "128": 16, "256": 32}
_WIDTHS |= {"F16x2": 4, "BF16x2": 4, "F32x2": 8, "F64": 8, "U64": 8, "S64": 8}
_WIDTHS |= {"F16x4": 8, "BF16x4": 8, "F16x8": 16, "BF16x8": 16, "F32x4": 16}


def access_of(instruction: Instruction) -> Access | None:
    """Return what a load, store, atomic or reduction accesses, None for anything else."""
    base = instruction.base
    for kind, table in (
        ("load", _LOADS),
        ("store", _STORES),
        ("atomic", _ATOMICS),
        ("reduction", _REDUCTIONS),
    ):
        if base in table:
            width = 4
            for modifier in instruction.modifiers:
                width = _WIDTHS.get(modifier, width)
            if base in ("LDSM", "STSM"):
                width = 16
            return Access(kind, table[base], width)
    return None


#: Opcodes (bits 0..11 of the 128-bit word) whose class matters without a disassembler.
#: Read off nvdisasm's listings of one program compiled for sm_75, 80, 86, 89, 90, 100
#: and 120; tests/locate/test_sass.py checks them against nvdisasm.
_OPCODES = {
    0x381: "LDG", 0x981: "LDG", 0x386: "STG", 0x986: "STG", 0xFAE: "LDGSTS",
    0x388: "STS", 0x988: "STS", 0x984: "LDS",
    0x387: "STL", 0x987: "STL", 0x983: "LDL",
    0x980: "LD", 0x385: "ST", 0x985: "ST",
    0x9A8: "ATOMG", 0x3A9: "ATOMG", 0x9A3: "ATOMG", 0x38A: "ATOM", 0x98A: "ATOM", 0x9A2: "ATOM",
    0x38C: "ATOMS", 0x38D: "ATOMS", 0x58D: "ATOMS", 0xF8C: "ATOMS",
    0x98E: "RED", 0x9A6: "REDG",
    0x31D: "BAR", 0xB1D: "BAR", 0x348: "WARPSYNC", 0x948: "WARPSYNC", 0x941: "BSYNC", 0x945: "BSSY",
    0x9C7: "UCGABAR_ARV", 0xDC7: "UCGABAR_WAIT",
    0x547: "BRA", 0x947: "BRA", 0x949: "BRX", 0x343: "CALL", 0x344: "CALL", 0x944: "CALL",
    0x94D: "EXIT", 0x950: "RET", 0x95C: "BPT", 0x35D: "NANOSLEEP", 0x95D: "NANOSLEEP", 0xB5D: "NANOSLEEP",
}  # fmt: skip


def opcode_of(code: bytes | memoryview, offset: int) -> str:
    """Return the mnemonic of the instruction at ``offset`` from its bits, '' when not in the table."""
    if offset < 0 or offset + INSTRUCTION_BYTES > len(code):
        return ""
    return _OPCODES.get((code[offset] | code[offset + 1] << 8) & 0xFFF, "")

"""From a pc to a place, over all modules of a dump."""

from __future__ import annotations

import time

from cuwhy.locate.demangle import demangle
from cuwhy.locate.flow import Flow
from cuwhy.locate.lines import LineTable, read_lines
from cuwhy.locate.sass import (
    INSTRUCTION_BYTES,
    MAX_WINDOW,
    SECONDS,
    Disassembly,
    Instruction,
    Listing,
    opcode_of,
    parse_listing,
)
from cuwhy.locate.sources import SourceBook
from cuwhy.model.errors import ToolMissing
from cuwhy.model.place import Frame, Place
from cuwhy.read.coredump import CoreDump
from cuwhy.read.cubin import Cubin, Function, open_cubin

#: How the note begins that says there was no disassembler.
NO_SASS = "no SASS, no recomputed addresses"
#: Bytes of line programs that are read in one dump: 4 MB take 2.5 s.
_MAX_LINE_BYTES = 6 << 20
#: Functions that are disassembled in one dump; a failure stands in one or two.
_MAX_DISASSEMBLIES = 8
_MAX_CODE_BYTES = 1 << 20
_MAX_STATEMENT = 200


def plain_symbol(symbol: str) -> str:
    """Return the part of a symbol that names the function itself.

    A device function that was not inlined is called ``$kernel$function``.
    """
    return symbol.rsplit("$", 1)[-1] if symbol.startswith("$") else symbol


class CodeMap:
    """Finds modules, functions, lines and instructions for addresses of one dump.

    Attributes:
        notes: what could not be told and how to get it, in words.
    """

    def __init__(
        self, dump: CoreDump, listings: dict[str, str] | None = None, sources: SourceBook | None = None
    ) -> None:
        """Keep the dump; nothing is read before it is asked for.

        Args:
            dump: the tables.
            listings: SASS that the case carries, by symbol, for machines without nvdisasm.
            sources: source texts that were handed over.
        """
        self._dump = dump
        self.sources = sources or SourceBook()
        self._cubins: dict[int, Cubin | None] = {}
        self._tables: dict[int, LineTable] = {}
        self._statements: dict[int, tuple[LineTable, list[bytes]]] = {}
        self._places: dict[int, tuple[Cubin, Function] | None] = {}
        self._pending: dict[int, Disassembly] = {}
        self._line_bytes = _MAX_LINE_BYTES
        self._code_bytes = _MAX_CODE_BYTES
        self._patience = SECONDS
        self._disassemblies = 0
        self._unreadable: set[int] = set()
        self._flows: dict[int, Flow | None] = {}
        self._listings = listings or {}
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        """Record a limit once."""
        if text not in self.notes:
            self.notes.append(text)

    def cubin(self, index: int) -> Cubin | None:
        """Return the cubin of module ``index``, None when it is missing or damaged."""
        if index not in self._cubins:
            image = self._dump.image(self._dump.modules[index])
            self._cubins[index] = open_cubin(image, f"module {index}") if len(image) else None
        return self._cubins[index]

    def module_of(self, handle: int) -> Cubin | None:
        """Return the cubin of the module with this handle."""
        for index, module in enumerate(self._dump.modules):
            if module.handle == handle:
                return self.cubin(index)
        return None

    def find(self, pc: int, module: int = 0) -> tuple[Cubin, Function] | None:
        """Return the cubin and the function that hold ``pc``, looking into ``module`` first."""
        if pc in self._places:
            return self._places[pc]
        order = sorted(range(len(self._dump.modules)), key=lambda i: self._dump.modules[i].handle != module)
        found = None
        for index in order:
            cubin = self.cubin(index)
            if cubin is not None and cubin.covers(pc):
                function = cubin.function_at(pc)
                if function is not None:
                    found = (cubin, function)
                    break
        self._places[pc] = found
        return found

    def place(self, pc: int, module: int = 0) -> Place | None:
        """Return the place of ``pc``; without line tables it holds symbol and offset only."""
        found = self.find(pc, module)
        if found is None:
            return None
        cubin, function = found
        flow = self._flows.get(function.address)
        instruction = flow.listing.at(pc - function.address) if flow is not None else None
        return Place(
            function=plain_symbol(function.name),
            offset=pc - function.address,
            pc=pc,
            frames=self._frames(cubin, function, pc),
            sass=instruction.text if instruction is not None else None,
            ptx=self._ptx(cubin, pc),
            name=demangle(plain_symbol(function.name)).short,
        )

    def _ptx(self, cubin: Cubin, pc: int) -> str | None:
        """The PTX statement that ``pc`` was compiled from, where ``-lineinfo`` embedded both."""
        key = id(cubin)
        if key not in self._statements:
            table = cubin.section(".nv_debug_line_sass")
            lines = cubin.ptx() if 0 < len(table) <= self._line_bytes else []
            self._line_bytes -= len(table) if lines else 0
            # Same form as .debug_line, with the lines of the embedded PTX.
            self._statements[key] = (read_lines(table if lines else table[:0], table[:0]), lines)
        rows, lines = self._statements[key]
        chain = rows.chain(pc)
        if not chain or not 0 < chain[0].line <= len(lines):
            return None
        text = lines[chain[0].line - 1][:_MAX_STATEMENT].decode("utf-8", "replace")
        return " ".join(text.split()) or None

    def _frames(self, cubin: Cubin, function: Function, pc: int) -> tuple[Frame, ...]:
        key = id(cubin)
        if key not in self._tables:
            section = cubin.section(".debug_line")
            if len(section) > self._line_bytes:
                self.note(
                    f"{cubin.what}: more than {_MAX_LINE_BYTES >> 20} MB of line tables; its own was not read"
                )
                section = section[:0]
            self._line_bytes -= len(section)
            self._tables[key] = read_lines(section, cubin.section(".debug_str"))
            if self._tables[key].problem:
                self.note(f"{cubin.what}: {self._tables[key].problem}")
        outer = demangle(plain_symbol(function.name)).short
        frames = []
        for level in self._tables[key].chain(pc):
            name = demangle(level.function).short if level.function else outer
            frames.append(Frame(name, level.file or None, level.line or None))
        return tuple(frames)

    # -- instructions ------------------------------------------------------------

    def start_listing(self, pc: int, module: int = 0) -> None:
        """Start disassembling the function at ``pc`` in the background."""
        found = self.find(pc, module)
        if found is None:
            return
        cubin, function = found
        if function.address in self._flows or function.address in self._pending:
            return
        if function.name in self._listings:
            listing = parse_listing(self._listings[function.name])
            self._flows[function.address] = Flow(listing) if listing is not None else None
            return
        size = min(len(function.text), MAX_WINDOW)
        if self._disassemblies >= _MAX_DISASSEMBLIES or size > self._code_bytes:
            self.note(f"only {self._disassemblies} functions were disassembled; the others have no SASS here")
            self._flows[function.address] = None
            return
        self._disassemblies += 1
        self._code_bytes -= size
        try:
            self._pending[function.address] = Disassembly(function.text, cubin.sm, pc - function.address)
        except ToolMissing as error:
            self.note(f"{NO_SASS}: {error}")
            self._flows[function.address] = None

    def flow(self, pc: int, module: int = 0) -> Flow | None:
        """Return the function's instructions, None without nvdisasm."""
        found = self.find(pc, module)
        if found is None:
            return None
        address = found[1].address
        if address not in self._flows:
            self.start_listing(pc, module)
        if address not in self._flows:
            started = time.monotonic()
            listing = self._pending.pop(address).listing(max(self._patience, 0.1))
            # One patience for all: a tool that hangs must not be waited for again and again.
            self._patience -= time.monotonic() - started
            if listing is None:
                self.note(f"nvdisasm could not read {demangle(found[1].name).short}")
                self._unreadable.add(address)
            self._flows[address] = Flow(listing) if listing is not None else None
        return self._flows[address]

    def instruction(self, pc: int, module: int = 0) -> Instruction | None:
        """Return the instruction at ``pc``, None without nvdisasm."""
        found = self.find(pc, module)
        flow = self.flow(pc, module)
        return flow.listing.at(pc - found[1].address) if flow is not None and found is not None else None

    def opcode(self, pc: int, module: int = 0) -> str:
        """Return the mnemonic at ``pc``: from the listing, else from the instruction's bits."""
        instruction = self.instruction(pc, module)
        if instruction is not None:
            return instruction.base
        found = self.find(pc, module)
        if found is None:
            return ""
        known = opcode_of(found[1].text, pc - found[1].address)
        # "?" says that nvdisasm itself knows no such instruction; "" that nobody was asked.
        return known or ("?" if found[1].address in self._unreadable else "")

    def is_recursive(self, pc: int, module: int = 0) -> bool:
        """True when the function at ``pc`` calls its own entry."""
        flow = self.flow(pc, module)
        if flow is None or flow.listing.start != 0:
            return False
        return any(i.base == "CALL" and i.target == 0 for i in flow.listing.instructions)

    def listings(self) -> dict[str, Listing]:
        """Return what was disassembled so far, by symbol (a case can carry it)."""
        found: dict[str, Listing] = {}
        for cubin_function in self._places.values():
            if cubin_function is not None:
                flow = self._flows.get(cubin_function[1].address)
                if flow is not None:
                    found[cubin_function[1].name] = flow.listing
        return found

    def close(self) -> None:
        """Stop disassemblies that nobody waited for."""
        for pending in self._pending.values():
            pending.cancel()
        self._pending.clear()


def previous(pc: int) -> int:
    """Return the address of the instruction before ``pc``: a warp's pc points behind a call or barrier."""
    return pc - INSTRUCTION_BYTES

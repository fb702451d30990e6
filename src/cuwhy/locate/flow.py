"""What the instructions of a function write, and how control moves between them.

Everything here errs to one side: an instruction is taken to write what it might write, and
to lead wherever it might lead.  An address is recomputed only where that still leaves one
possibility (``evaluate``), so what is overlooked here would make a wrong address there.
Which registers an instruction writes is checked against ``nvdisasm -plr`` (tests/locate/test_sass.py).
"""

from __future__ import annotations

import re
from bisect import bisect_left

from cuwhy.locate.sass import Instruction, Listing, access_of

REGISTER = re.compile(r"^(U?)R(\d+|Z)$")
PREDICATE = re.compile(r"^!?U?P[T\d]$")
_WRITTEN_PREDICATE = re.compile(r"^U?P\d$")
_CODE_ADDRESS = re.compile(r"^0x[0-9a-f]+$")

#: Stands for every register: a call, or an instruction that is not known.
ANYTHING = "*"
#: Nodes of control flow that one function may cost, all questions together.
_MAX_VISITS = 3_000_000

_NO_RESULT = frozenset(
    {
        "STG", "STS", "STL", "ST", "STSM", "STAS", "RED", "REDG", "REDS", "REDAS", "SUST", "SURED", "LDGSTS",
        "BRA", "BRX", "BRXU", "JMP", "JMX", "JMXU", "EXIT", "RET", "KILL", "BREAK", "BSSY", "BSYNC", "WARPSYNC",
        "ENDCOLLECTIVE", "YIELD", "NANOSLEEP", "BPT", "NOP", "BAR", "MEMBAR", "FENCE", "ERRBAR", "CGAERRBAR",
        "DEPBAR", "LDGDEPBAR", "ARRIVES", "CCTL", "CCTLL", "CCTLT", "PMTRIG", "PREEXIT", "ACQBULK", "ACQSHMINIT",
        "UTMALDG", "UTMASTG", "UTMAREDG", "UTMAPF", "UTMACCTL", "UTMACMDFLUSH", "UBLKCP", "UBLKRED", "UBLKPF",
        "UCGABAR_ARV", "UCGABAR_WAIT", "USETMAXREG", "USETSHMSZ", "WARPGROUP",
    }
)  # fmt: skip
#: Compares: what follows the leading predicates is only read.
_COMPARES = frozenset(
    {"ISETP", "UISETP", "FSETP", "UFSETP", "DSETP", "HSETP2", "PSETP", "UPSETP", "PLOP3", "UPLOP3", "FCHK",
     "QSPC", "FSETP2", "ISETP2"}
)  # fmt: skip
_TEXTURE = frozenset({"TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUATOM", "SUQUERY", "FOOTPRINT"})
_TENSOR = frozenset({"HMMA", "IMMA", "DMMA", "BMMA", "QMMA", "OMMA", "MOVM", "LDSM"})
_PAIRS = frozenset({"LEPC", "SYNCS", "CS2UR", "FADD2", "FFMA2", "FMUL2", "DADD", "DFMA", "DMUL", "DMNMX"})
#: Results of one register unless a modifier says 64 bits.
_PLAIN = frozenset(
    {
        "MOV", "UMOV", "IMAD", "UIMAD", "IADD", "UIADD", "IADD3", "UIADD3", "IADD2", "VIADD", "UVIADD", "IMUL",
        "LEA", "ULEA", "SHF", "USHF", "SHL", "SHR", "LOP3", "ULOP3", "LOP", "SEL", "USEL", "PRMT", "UPRMT",
        "IMNMX", "UIMNMX", "VIMNMX", "UVIMNMX", "VIMNMX3", "UVIMNMX3", "VIADDMNMX", "UVIADDMNMX", "SGXT",
        "USGXT", "BMSK", "UBMSK", "IABS", "UIABS", "VABSDIFF", "VABSDIFF4", "IDP", "IDP4A", "POPC", "UPOPC",
        "FLO", "UFLO", "BREV", "UBREV", "ISCADD", "XMAD", "BFE", "BFI", "I2I", "I2IP", "I2F", "I2FP", "UI2F",
        "UI2FP", "F2I", "F2IP", "UF2I", "UF2IP", "F2F", "F2FP", "UF2F", "UF2FP", "FRND", "UFRND", "MUFU",
        "FADD", "FMUL", "FFMA", "FMNMX", "FMNMX3", "FSEL", "FSET", "FSWZADD", "UFADD", "UFMUL", "UFFMA",
        "UFMNMX", "UFSEL", "UFSET", "HADD2", "HMUL2", "HFMA2", "HMNMX2", "HSET2", "S2R", "S2UR", "CS2R",
        "R2UR", "UR2UR", "P2R", "UP2UR", "B2R", "GETLMEMBASE", "SHFL", "VOTE", "VOTEU", "MATCH", "REDUX", "CREDUX",
        "ELECT", "AL2P", "LDC", "ULDC", "LDCU", "LDG", "LDS", "LDL", "LD", "ATOM", "ATOMG", "ATOMS", "BMOV", "NOP",
    }
)  # fmt: skip
_WIDE = frozenset({"64", "WIDE", "F64", "S64", "U64", "F32x2"})
_SINGLE_HALF = frozenset({"SHF", "USHF", "SHL", "SHR"})


def destinations(instruction: Instruction) -> frozenset[str]:
    """Return what an instruction may write: "R4", "UR5", "P0", and "*" for everything."""
    base = instruction.base
    if base in _NO_RESULT:
        return frozenset()
    if base in ("R2P", "UR2UP"):
        return frozenset(f"{'U' if base == 'UR2UP' else ''}P{n}" for n in range(8))
    if base in _COMPARES:
        return frozenset(o for o in instruction.operands[:2] if _WRITTEN_PREDICATE.match(o))
    if base not in _PLAIN and base not in _PAIRS and base not in _TENSOR and base not in _TEXTURE:
        return frozenset((ANYTHING,))
    written: set[str] = set()
    width = result_width(instruction)
    groups = 2 if base in _TEXTURE or "ENL2" in instruction.modifiers else 1
    for operand in instruction.operands:
        match = REGISTER.match(operand.partition(".")[0])
        if match is not None and groups:
            groups -= 1
            if match[2] != "Z":
                written.update(f"{match[1]}R{int(match[2]) + extra}" for extra in range(width))
        elif _WRITTEN_PREDICATE.match(operand):
            # Predicate results stand before the register result or right behind it.
            written.add(operand)
        elif operand not in ("PT", "UPT"):
            break
    return frozenset(written)


def result_width(instruction: Instruction) -> int:
    """Return how many registers the result may take, never too few."""
    base, modifiers = instruction.base, instruction.modifiers
    access = access_of(instruction)
    if access is not None and base != "LDSM":
        return max(1, access.width // 4)
    if base == "LDCU" or base == "ULDC":
        return 4 if "128" in modifiers else 2 if "64" in modifiers else 1
    if base in _TENSOR:
        return 8
    if base in _TEXTURE:
        return 4
    if base in _PAIRS or (base == "CS2R" and "32" not in modifiers):
        return 2
    return 2 if base not in _SINGLE_HALF and not _WIDE.isdisjoint(modifiers) else 1


class Flow:
    """A function's instructions with their control flow; made once, used for every thread.

    Attributes:
        listing: the instructions.
        writes: what each of them may write.
        targets: offsets that a jump, call or return may lead to.
        partial: True when code outside the listing may lead into it.
    """

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        instructions = listing.instructions
        self.writes = [destinations(i) for i in instructions]
        self._budget = _MAX_VISITS
        self._known: dict[tuple[str, int], frozenset[int]] = {}
        self._ran: dict[tuple[int, int, bool], frozenset[str]] = {}
        self.partial = listing.start != 0
        self._indirect = False
        self._entries: set[int] = set()
        self._next: list[tuple[int, ...]] = []
        reconverge: dict[str, set[int]] = {}
        for instruction in instructions:
            if instruction.base == "BSSY" and instruction.target is not None:
                reconverge.setdefault(instruction.operands[0], set()).add(listing.index(instruction.target))
        calls = any(i.base == "CALL" for i in instructions)
        for position, instruction in enumerate(instructions):
            self._next.append(tuple(self._successors(position, instruction, reconverge)))
            if instruction.base == "CALL":
                self._enter(instruction.target)
            elif calls and instruction.base in ("MOV", "UMOV", "IMAD"):
                self._returns("".join(instruction.operands[-1:]))
        before: list[list[int]] = [[] for _ in instructions]
        for position, following in enumerate(self._next):
            for after in following:
                before[after].append(position)
        self._before = before
        #: Position from which control can only fall through to here, for each position.
        self._run = [0] * len(instructions)
        for position in range(1, len(instructions)):
            joined = self._indirect or position in self._entries or before[position] != [position - 1]
            self._run[position] = position if joined else self._run[position - 1]
        self.targets = {
            i.offset
            for position, i in enumerate(instructions)
            if position in self._entries or any(b != position - 1 for b in before[position])
        }
        self._written_at: dict[str, list[int]] = {}
        for position, names in enumerate(self.writes):
            for name in names:
                self._written_at.setdefault(name, []).append(position)

    def _successors(
        self, position: int, instruction: Instruction, reconverge: dict[str, set[int]]
    ) -> list[int]:
        base, target = instruction.base, instruction.target
        following: list[int] = []
        conditional = instruction.predicate not in ("", "PT", "UPT") or instruction.negated
        if base in ("BRX", "BRXU", "JMX", "JMXU"):
            self._indirect = True
        elif base in ("BRA", "JMP"):
            # BRA.U UP0, BRA.DIV, BRA.CONV and BRA P1 carry their condition in modifiers or operands.
            conditional = conditional or len(instruction.operands) != 1 or bool(instruction.modifiers)
            if target is None:
                self._indirect = True
            else:
                following.append(self.listing.index(target))
        elif base == "BSYNC":
            # It goes on where its BSSY says: right behind itself in all code that was seen.
            joins = reconverge.get(instruction.operands[0] if instruction.operands else "", set())
            if position + 1 not in joins:
                following += sorted(joins)
            conditional = True
        elif base == "WARPSYNC" and target is not None and "COLLECTIVE" in instruction.modifiers:
            following.append(self.listing.index(target))
            conditional = True
        elif base not in ("EXIT", "RET", "KILL"):
            conditional = True
        if conditional and not (base == "NOP" and position + 1 == len(self.listing.instructions)):
            # A function ends in padding; nothing runs off its end.
            following.append(position + 1)
        inside = [f for f in following if 0 <= f < len(self.listing.instructions)]
        if len(inside) != len(following):
            self.partial = True
        return list(dict.fromkeys(inside))

    def _enter(self, target: int | None) -> None:
        if target is not None and (position := self.listing.index(target)) >= 0:
            self._entries.add(position)

    def _returns(self, operand: str) -> None:
        """Take a constant that is the offset of an instruction for a return address."""
        if _CODE_ADDRESS.match(operand):
            position = self.listing.index(int(operand, 16))
            if position > 0 and self.listing.instructions[position - 1].base != "CALL":
                self._entries.add(position)

    # -- questions -----------------------------------------------------------------

    def before(self, position: int) -> tuple[int, ...]:
        """Return the positions from which control may come to ``position``."""
        return tuple(self._before[position])

    def after(self, position: int) -> tuple[int, ...]:
        """Return the positions that control may go to from ``position``."""
        return self._next[position]

    def reads(self, position: int) -> frozenset[str]:
        """Return the registers and predicates that an instruction may read, too many rather than too few.

        An operand that is also the result counts as read only where it stands a second time.
        """
        instruction = self.listing.instructions[position]
        results = self.writes[position]
        found = {instruction.predicate} if instruction.predicate else set()
        wide = "WIDE" in instruction.modifiers
        register_result = False
        leading = True
        for place, operand in enumerate(instruction.operands):
            is_predicate = operand == "PT" or PREDICATE.match(operand) is not None
            # Results stand first: predicates, and one register, which may be a source as well later on.
            leading = leading and (operand in ("PT", "UPT") or operand in results or operand in ("RZ", "URZ"))
            if leading and (is_predicate or not register_result):
                register_result = register_result or not is_predicate
                if operand in results:
                    continue
            for name in re.findall(r"\bU?(?:R|P)\d+\b", operand):
                found.add(name)
                if name.lstrip("U").startswith("R") and (".64" in operand or wide or place == 0):
                    found.add(next_register(name))
        return frozenset(name for name in found if not name.endswith("PT"))

    def run_start(self, position: int) -> int:
        """Return the first position from which control can only have fallen through to ``position``."""
        return self._run[position] if position < len(self._run) else position

    def last_write(self, name: str, position: int) -> int:
        """Return the last position before ``position``, in the listing, that may write a register, or -1."""
        found = -1
        for key in (name, ANYTHING):
            places = self._written_at.get(key, ())
            index = bisect_left(places, position) - 1
            if index >= 0:
                found = max(found, places[index])
        return found

    def definitions(self, name: str, index: int) -> frozenset[int]:
        """Return the positions of the writes of a register that can reach ``index``; -1 is the entry.

        Walks the control flow backwards; -2 stands for a call, an indirect jump, code that
        is not in the listing, or a walk that became too long.
        """
        key = (name, index)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = self._definitions(name, index)
        return known

    def _definitions(self, name: str, index: int) -> frozenset[int]:
        if self._indirect or self.partial or not 0 <= index < len(self._before):
            return frozenset((-2,))
        found: set[int] = set()
        seen: set[int] = set()
        waiting = [index]
        while waiting:
            position = waiting.pop()
            if position == 0:
                found.add(-1)
            if position in self._entries:
                found.add(-2)
            for before in self._before[position]:
                if before in seen:
                    continue
                seen.add(before)
                writes = self.writes[before]
                if ANYTHING in writes:
                    found.add(-2)
                    continue
                if name in writes:
                    found.add(before)
                    if not self.listing.instructions[before].predicate:
                        continue
                waiting.append(before)
        self._budget -= len(seen)
        return frozenset(found) if self._budget > 0 else frozenset((-2,))

    def written_since(self, error: int, stop: int, again: bool) -> frozenset[str]:
        """Return what may have been written from when ``error`` issued until a thread stood at ``stop``.

        Args:
            error: the instruction that faulted.
            stop: where the thread stands now; outside the listing when it left the function.
            again: True when ``error`` may have run more than once (a store needs no answer,
                a load does).
        """
        key = (error, stop, again)
        known = self._ran.get(key)
        if known is None:
            known = self._ran[key] = self._written_since(error, stop, again)
        return known

    def _written_since(self, error: int, stop: int, again: bool) -> frozenset[str]:
        count = len(self._next)
        if not (0 <= error < count and 0 <= stop < count) or self._indirect or self.partial:
            return frozenset((ANYTHING,))
        if stop == error and not again:
            return frozenset()
        limit = -1 if again else error
        ahead = self._reach(self._next, error, limit)
        behind = self._reach(self._before, stop, limit)
        if stop != error and stop not in ahead:
            # No way leads there: one of the two addresses is not what it seems.
            return frozenset((ANYTHING,))
        self._budget -= len(ahead) + len(behind)
        if self._budget < 0:
            return frozenset((ANYTHING,))
        ran = ahead & behind
        if stop != error:
            ran.add(error)
            if stop not in self._reach(self._next, stop, limit):
                ran.discard(stop)
        written: set[str] = set()
        for position in ran:
            written |= self.writes[position]
        return frozenset(written)

    def may_repeat(self, position: int) -> bool:
        """True when control can lead from an instruction back to it."""
        return position in self._reach(self._next, position, -1)

    def _reach(self, edges: list[tuple[int, ...]] | list[list[int]], start: int, stop: int) -> set[int]:
        """Every position that one step or more lead to; ``stop`` is never left nor counted."""
        seen: set[int] = set()
        waiting = list(edges[start])
        while waiting:
            position = waiting.pop()
            if position in seen or position == stop:
                continue
            seen.add(position)
            waiting += edges[position]
        return seen

    def constants(self, names: list[str], index: int) -> frozenset[int]:
        """Return the offsets in constant bank 0 that can flow into registers at ``index``.

        Follows every definition that can reach, through arithmetic but not through memory:
        what a load returns does not come from its address.
        """
        found: set[int] = set()
        seen: set[tuple[str, int]] = set()
        waiting = [(name, index) for name in names]
        while waiting and len(seen) < 2000:
            name, position = waiting.pop()
            if (name, position) in seen:
                continue
            seen.add((name, position))
            for where in self.definitions(name, position):
                if where < 0:
                    continue
                instruction = self.listing.instructions[where]
                access = access_of(instruction)
                if access is not None and access.space != "constant":
                    continue
                upper = bool(instruction.operands) and instruction.operands[0] != name
                for operand in instruction.operands[1:]:
                    for bank, offset in re.findall(r"c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+)\]", operand):
                        if int(bank, 16) == 0:
                            found.add(int(offset, 16) + (4 if upper else 0))
                    for register in re.findall(r"\bU?R\d+\b", operand):
                        waiting.append((register, where))
                        if "WIDE" in instruction.modifiers and operand == instruction.operands[-1]:
                            waiting.append((next_register(register), where))
        return frozenset(found)


def next_register(name: str) -> str:
    """Return the register behind ``name``: "R5" for "R4"."""
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :] or 0) + 1}"

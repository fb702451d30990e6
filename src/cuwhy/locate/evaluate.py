"""Recompute a register from what the dump still holds: arguments, block, thread, other registers.

A load that faults has usually overwritten its own address register, and the
warp has run ahead of it.  The integer instructions before it are known, though,
and most of what fed them is still in the dump.  This walks backwards from the
faulting instruction: a register that nothing has written since is read from the
dump; one that has been written is computed from the instruction that defined
it.  Where control flow leaves more than one definition possible, the answer is
None: no guess.

Instruction semantics are those of the CUDA Binary Utilities' instruction set
reference (names) as observed in compiled code of known source (operand order).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cuwhy.locate.sass import Instruction, Listing, access_of
from cuwhy.model.facts import Dim3

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_MAX_STEPS = 4000
_MAX_DEPTH = 120

_REGISTER = re.compile(r"^(U?)R(\d+|Z)$")
_CONSTANT = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(0x[0-9a-f]+|U?RZ|U?R\d+(?:\+0x[0-9a-f]+)?)\]$")
_MEMORY = re.compile(
    r"^(?:desc\[\w+\])?\[((?:U?R\w+)?)((?:\.\w+)*)((?:\+?-?0x[0-9a-f]+|\+U?R\w+)*)\]((?:\.\w+)*)$"
)


class Value(NamedTuple):
    """A 32-bit value (or 0/1 for a predicate) and the kernel arguments that flowed into it."""

    bits: int
    arguments: frozenset[int] = frozenset()
    loaded: bool = False


@dataclass(frozen=True, slots=True)
class Thread:
    """What the dump knows of one thread at the point where it stopped.

    Attributes:
        pc: offset of its own pc from the function's entry.
        registers, uniform, predicates: contents, 32 bits each.
        thread, block: indices; block_dim, grid_dim: dimensions.
        parameters: bytes of the parameter block.
        parameter_base: its offset in constant bank 0.
        argument_at: parameter byte offset -> argument position, or None.
        lane: lane of the warp.
        initial: special registers that the launch fixes ("SR_SWINHI"), and registers at entry.
    """

    pc: int
    registers: Sequence[int]
    uniform: Sequence[int]
    predicates: Sequence[int]
    thread: Dim3
    block: Dim3
    block_dim: Dim3
    grid_dim: Dim3
    parameters: bytes
    parameter_base: int
    argument_at: Callable[[int], int | None]
    lane: int = 0
    initial: dict[str, int] = field(default_factory=dict)


class AddressResult(NamedTuple):
    """An address, how it was obtained, and the arguments in it."""

    value: int
    how: str
    arguments: frozenset[int]


class _Unknown(Exception):
    """The value cannot be told."""


def destinations(instruction: Instruction) -> set[str]:
    """Return the registers and predicates an instruction writes ("R4", "UR5", "P0")."""
    base, operands = instruction.base, instruction.operands
    if not operands:
        return set()
    if base in ("STG", "STS", "STL", "ST", "RED", "REDG", "BRA", "EXIT", "BAR", "BSSY", "BSYNC", "MEMBAR",
                "NOP", "BPT", "WARPSYNC", "ERRBAR", "CCTL", "DEPBAR", "STAS", "STSM", "UTMALDG", "RET", "JMP"):  # fmt: skip
        return set()
    written: set[str] = set()
    first = operands[0]
    match = _REGISTER.match(first.partition(".")[0])
    if match is not None and match[2] != "Z":
        number, prefix = int(match[2]), match[1]
        for extra in range(_written_width(instruction)):
            written.add(f"{prefix}R{number + extra}")
    # Predicate results stand right behind the register result, or first for compares.
    for operand in operands[: 3 if base not in ("ISETP", "UISETP", "FSETP", "PLOP3", "LOP3", "ULOP3") else 2]:
        if re.fullmatch(r"U?P\d", operand):
            written.add(operand)
        elif not _REGISTER.match(operand.partition(".")[0]):
            break
    if base in ("CALL", "BMOV"):
        written.add("*")
    return written


def _written_width(instruction: Instruction) -> int:
    access = access_of(instruction)
    modifiers = instruction.modifiers
    if access is not None and access.kind in ("load", "atomic"):
        return max(1, access.width // 4)
    if instruction.base in ("ULDC", "CS2R", "LDC") and "64" in modifiers:
        return 2
    if "WIDE" in modifiers or (
        instruction.base in ("IADD", "UIADD", "MOV", "I2F", "F2I") and "64" in modifiers
    ):
        return 2
    if instruction.base == "CS2R" and "32" not in modifiers:
        return 2
    # Wide arithmetic results (DADD, HMMA, ...): overestimate, never underestimate.
    if instruction.base[:1] == "D" or (instruction.base.endswith("MMA") and instruction.base != "HFMA2"):
        return 4 if instruction.base.endswith("MMA") else 2
    return 1


class Flow:
    """What a listing writes and where it jumps; made once per function, used for every thread."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.writes = [destinations(i) for i in listing.instructions]
        self.targets = {t for i in listing.instructions if (t := i.target) is not None and i.base != "BSSY"}
        self._clobbered: dict[tuple[int, int], frozenset[str]] = {}
        self._jumps: dict[int, list[int]] = {}
        self._indirect = False
        for position, instruction in enumerate(listing.instructions):
            if instruction.base in ("BRX", "JMX"):
                self._indirect = True
            target = instruction.target
            if target is not None and instruction.base in ("BRA", "JMP"):
                self._jumps.setdefault(listing.index(target), []).append(position)

    def definitions(self, name: str, index: int) -> set[int]:
        """Return the positions of the writes of a register that can reach ``index``; -1 is the entry.

        Walks the control flow backwards; a call or an indirect jump counts as a write
        of everything, -2.
        """
        if self._indirect:
            return {-2}
        found: set[int] = set()
        seen: set[int] = set()
        waiting = [index]
        while waiting:
            position = waiting.pop()
            if position == 0:
                found.add(-1)
            for before in self._before(position):
                if before in seen:
                    continue
                seen.add(before)
                writes = self.writes[before]
                if "*" in writes:
                    found.add(-2)
                elif name in writes:
                    found.add(before)
                    if self.listing.instructions[before].predicate:
                        waiting.append(before)
                else:
                    waiting.append(before)
        return found

    def constants(self, names: list[str], index: int) -> set[int]:
        """Return the offsets in constant bank 0 that can flow into registers at ``index``.

        Follows every definition that can reach, through arithmetic but not through memory:
        what a load returns does not come from its address.
        """
        found: set[int] = set()
        seen: set[tuple[str, int]] = set()
        waiting = [(name, index) for name in names]
        while waiting and len(seen) < _MAX_STEPS:
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
                            waiting.append((_next(register), where))
        return found

    def _before(self, position: int) -> list[int]:
        instructions = self.listing.instructions
        found = list(self._jumps.get(position, ()))
        if position > 0:
            last = instructions[position - 1]
            if last.base not in ("BRA", "EXIT", "RET", "JMP") or last.predicate:
                found.append(position - 1)
        return found

    def clobbered(self, error: int, stop: int) -> frozenset[str]:
        """Registers that instruction ``error`` or what ran after it, up to ``stop``, may have written."""
        known = self._clobbered.get((error, stop))
        if known is None:
            known = self._clobbered[error, stop] = self._between(error, stop)
        return known

    def _between(self, error: int, stop: int) -> frozenset[str]:
        if error < 0:
            return frozenset("*")
        instructions = self.listing.instructions
        end = instructions[stop].offset if stop < len(instructions) else 1 << 62
        written: set[str] = set()
        straight = stop > error and all(
            instructions[i].base not in ("CALL", "RET", "JMP", "BRX")
            # A guarded jump beyond the place where the warp stands was not taken.
            and (
                instructions[i].base != "BRA"
                or (instructions[i].predicate and (instructions[i].target or 0) >= end)
            )
            for i in range(error, stop)
        )
        for index in range(error, stop) if straight else range(len(instructions)):
            written |= self.writes[index]
        return frozenset(written)


class Evaluator:
    """Evaluates registers of one thread in one function.

    Args:
        flow: the function's instructions.
        thread: the thread's state.
        error: offset of the instruction that faulted.
    """

    def __init__(self, flow: Flow, thread: Thread, error: int) -> None:
        self.listing = listing = flow.listing
        self._flow = flow
        self.thread = thread
        self.error = listing.index(error)
        # The warp stopped before the instruction at its pc.
        stop = listing.index(thread.pc)
        self._stop = stop if stop >= 0 else len(listing.instructions)
        self._steps = 0
        self._writes = flow.writes
        self._targets = flow.targets
        self._memo: dict[tuple[str, int], Value] = {}
        self._clobbered: frozenset[str] = flow.clobbered(self.error, self._stop)

    # -- entry points ------------------------------------------------------------

    def address(self) -> AddressResult | None:
        """Return the address the faulting instruction accessed, None when it cannot be told."""
        if self.error < 0:
            return None
        instruction = self.listing.instructions[self.error]
        operand = next((o for o in instruction.operands if "[" in o and not o.startswith("c[")), None)
        match = _MEMORY.match(operand) if operand is not None else None
        if match is None:
            return None
        name, suffix, offsets, outer = match[1], match[2] + match[4], match[3], match[4]
        try:
            wide = ".64" in suffix or (".U32" not in suffix and access_is_wide(instruction) and name != "")
            total = 0
            arguments: frozenset[int] = frozenset()
            direct = True
            for part in re.findall(r"[+]?(-?0x[0-9a-f]+|U?R(?:\d+|Z))", offsets):
                if "R" in part:
                    low, high = self._pair(part, self.error, wide or ".64" in outer)
                    total += (high.bits << 32 | low.bits) if ".U32" not in suffix else low.bits
                    arguments |= low.arguments | high.arguments
                else:
                    total += int(part, 16)
            if name and not name.endswith("Z"):
                upper = _next(name)
                direct = name not in self._clobbered and (not wide or upper not in self._clobbered)
                low, high = self._pair(name, self.error, wide)
                total += (high.bits << 32 | low.bits) if wide else low.bits
                for offset in self._flow.constants([name, upper] if wide else [name], self.error):
                    position = self.thread.argument_at(offset - self.thread.parameter_base)
                    if position is not None:
                        arguments |= {position}
        except _Unknown:
            return None
        mask = _M64 if wide else _M32
        return AddressResult(total & mask, "registers" if direct else "evaluated", arguments)

    def register(self, name: str) -> Value | None:
        """Return a register as it was when the faulting instruction issued, None when unknown."""
        try:
            return self._read(name, self.error, 0)
        except _Unknown:
            return None

    # -- the walk ------------------------------------------------------------------

    def _pair(self, name: str, index: int, wide: bool) -> tuple[Value, Value]:
        low = self._read(name, index, 0)
        if not wide:
            return low, Value(0)
        match = _REGISTER.match(name)
        if match is None or match[2] == "Z":
            return low, Value(0)
        return low, self._read(f"{match[1]}R{int(match[2]) + 1}", index, 0)

    def _dumped(self, name: str) -> Value | None:
        kind = name.rstrip("0123456789")
        bank = {"R": self.thread.registers, "UR": self.thread.uniform, "P": self.thread.predicates}.get(kind)
        number = int(name[len(kind) :] or 0)
        if bank is None or number >= len(bank):
            return None
        return Value(bank[number] & (1 if kind == "P" else _M32))

    def _read(self, name: str, index: int, depth: int) -> Value:
        """Value of a register as instruction ``index`` sees it."""
        self._steps += 1
        if self._steps > _MAX_STEPS or depth > _MAX_DEPTH:
            raise _Unknown
        key = (name, index)
        if key in self._memo:
            return self._memo[key]
        value = self._find(name, index, depth)
        self._memo[key] = value
        return value

    def _find(self, name: str, index: int, depth: int) -> Value:
        instructions = self.listing.instructions
        # Untouched between here and where the warp stopped: the dump has it.
        if index <= self.error and "*" not in self._clobbered and name not in self._clobbered:
            between = range(index, self.error)
            if not any(
                name in self._writes[i] or "*" in self._writes[i] for i in between
            ) and self._is_straight(index, self.error):
                known = self._dumped(name)
                if known is not None:
                    return known
        if index <= self.error:
            undone = self._undo(name, index, depth)
            if undone is not None:
                return undone
        # Straight back as long as nothing joins in; there a guarded write can be decided.
        position = index - 1
        joined = index < len(instructions) and instructions[index].offset in self._targets
        while position >= 0 and not joined:
            writes = self._writes[position]
            if "*" in writes or (
                instructions[position].base in ("EXIT", "BRA") and not instructions[position].predicate
            ):
                raise _Unknown
            if name in writes:
                instruction = instructions[position]
                if not instruction.predicate or self._guard(instruction, position, depth):
                    return self._execute(instruction, name, position, depth + 1)
            joined = instructions[position].offset in self._targets
            position -= 1
        # Behind a join only a register with a single possible definition is certain.
        reaching = self._flow.definitions(name, position + 1)
        if reaching == {-1} and name in self.thread.initial:
            return Value(self.thread.initial[name])
        if len(reaching) != 1:
            raise _Unknown
        (only,) = reaching
        if only < 0 or instructions[only].predicate:
            raise _Unknown
        return self._execute(instructions[only], name, only, depth + 1)

    def _undo(self, name: str, index: int, depth: int) -> Value | None:
        """Reverse a single ``X = X + K`` that ran between ``index`` and where the warp stopped.

        Loops step their index right behind the access that faulted.
        """
        if self.error < 0 or self._stop <= self.error or not self._is_straight(index, self._stop):
            return None
        writers = [i for i in range(index, self._stop) if name in self._writes[i] or "*" in self._writes[i]]
        dumped = self._dumped(name)
        if len(writers) != 1 or dumped is None:
            return None
        step = self.listing.instructions[writers[0]]
        if step.base not in ("IADD3", "VIADD", "UIADD3", "IADD") or step.predicate or len(step.modifiers):
            return None
        source = [o.replace(".reuse", "") for o in step.operands[1:]]
        if (
            step.operands[0] != name
            or source.count(name) != 1
            or any(re.fullmatch(r"!?U?P[T\d]", o) for o in source)
        ):
            return None
        source.remove(name)
        # What was added must not have changed since either.
        added = sum(self._operand(o, writers[0], depth + 1).bits for o in source)
        return Value(dumped.bits - added & _M32)

    def _is_straight(self, low: int, high: int) -> bool:
        """True when nothing between two instructions can jump away or be jumped into."""
        instructions = self.listing.instructions
        for index in range(low, high):
            if (
                instructions[index].base in ("BRA", "CALL", "RET", "JMP", "BRX")
                and not instructions[index].predicate
            ):
                return False
            if index > low and instructions[index].offset in self._targets:
                return False
        return True

    def _guard(self, instruction: Instruction, index: int, depth: int) -> bool:
        if instruction.predicate.endswith("T"):
            return not instruction.negated
        value = self._read(instruction.predicate, index, depth + 1).bits & 1
        return bool(value) != instruction.negated

    # -- operands -------------------------------------------------------------------

    def _operand(self, text: str, index: int, depth: int) -> Value:
        """Value of a 32-bit source operand, with its sign and inversion applied."""
        negate = invert = absolute = False
        text = text.replace(".reuse", "")
        if text.startswith("-"):
            negate, text = True, text[1:]
        if text.startswith("~"):
            invert, text = True, text[1:]
        if text.startswith("|") and text.endswith("|"):
            absolute, text = True, text[1:-1]
        value = self._plain(text, index, depth)
        bits = value.bits
        if absolute and bits & 0x80000000:
            bits = -bits & _M32
        if negate:
            bits = -bits & _M32
        if invert:
            bits = ~bits & _M32
        return Value(bits, value.arguments, value.loaded)

    def _plain(self, text: str, index: int, depth: int) -> Value:
        if text in ("RZ", "URZ", "SRZ"):
            return Value(0)
        if text in ("PT", "UPT"):
            return Value(1)
        if text in ("!PT", "!UPT"):
            return Value(0)
        if text.startswith("!"):
            value = self._read(text[1:], index, depth)
            return Value(value.bits & 1 ^ 1, value.arguments, value.loaded)
        if re.fullmatch(r"U?P\d", text) or _REGISTER.match(text):
            return self._read(text, index, depth)
        if re.fullmatch(r"0x[0-9a-f]+", text):
            return Value(int(text, 16) & _M32)
        if text.startswith("c["):
            return self._constant(text, 4, index, depth)[0]
        raise _Unknown

    def _constant(self, text: str, size: int, index: int, depth: int) -> list[Value]:
        """Words of a constant-bank operand: launch dimensions or kernel parameters."""
        match = _CONSTANT.match(text)
        if match is None or int(match[1], 16) != 0:
            raise _Unknown
        place = match[2]
        if "R" in place:
            name, _, extra = place.partition("+")
            offset = self._plain(name, index, depth).bits + (int(extra, 16) if extra else 0)
        else:
            offset = int(place, 16)
        words = []
        for at in range(offset, offset + size, 4):
            words.append(self._constant_word(at))
        return words

    def _constant_word(self, offset: int) -> Value:
        thread = self.thread
        at = offset - thread.parameter_base
        if at >= 0 and at + 1 <= len(thread.parameters):
            raw = thread.parameters[at : at + 4].ljust(4, b"\0")
            position = thread.argument_at(at)
            return Value(
                struct.unpack("<I", raw)[0], frozenset() if position is None else frozenset((position,))
            )
        # Below the parameters sits the launch header; this layout holds up to sm_90.
        if thread.parameter_base in (0x160, 0x210) and offset < 0x18:
            return Value((*thread.block_dim, *thread.grid_dim)[offset // 4])
        if thread.parameter_base == 0x380 and 0x360 <= offset < 0x378:
            return Value((*thread.block_dim, *thread.grid_dim)[(offset - 0x360) // 4])
        raise _Unknown

    # -- instructions -----------------------------------------------------------------

    def _execute(self, ins: Instruction, name: str, index: int, depth: int) -> Value:
        """Compute what ``ins`` wrote into ``name``."""
        base, mods = ins.base, ins.modifiers
        ops = list(ins.operands)
        if re.fullmatch(r"U?P\d", name):
            return self._predicate(ins, name, index, depth)
        first = _REGISTER.match(ops[0].partition(".")[0])
        here = _REGISTER.match(name)
        if first is None or here is None or first[2] == "Z" or here[2] == "Z":
            raise _Unknown
        half = int(here[2]) - int(first[2])

        def get(text: str) -> Value:
            return self._operand(text, index, depth)

        pure = base.removeprefix("U") if base.startswith("U") and base != "UP2UR" else base

        if pure in ("LDC", "LDCU"):
            size = 8 if "64" in mods else 4
            if any(m in mods for m in ("U8", "S8", "U16", "S16", "128")):
                raise _Unknown
            return self._constant(ops[1], size, index, depth)[half]
        if pure in ("MOV", "R2UR", "R2URS") or base in ("UMOV", "R2UR"):
            return get(ops[1])
        if pure in ("S2R", "S2UR", "CS2R"):
            return self._special(ops[1]) if not half else Value(0)
        source = [o for o in ops[1:] if not re.fullmatch(r"!?U?PT?\d?", o)]
        carries = [o for o in ops[1:] if re.fullmatch(r"!?U?P[T\d]", o)]
        if pure in ("IADD3", "IADD", "VIADD", "IADD2", "VIADD3"):
            if "64" in mods:
                raise _Unknown
            values = [get(o) for o in source]
            return _merge(sum(v.bits for v in values) + self._carry_in(ins, carries, index, depth), values)
        if pure in ("IMAD", "MUFU") and base in ("IMAD", "UIMAD"):
            return self._imad(mods, source, carries, half, index, depth)
        if pure == "LEA":
            return self._lea(mods, source, carries, index, depth)
        if pure == "SHF":
            return self._shf(mods, [get(o) for o in source[:3]])
        if pure in ("LOP3", "LOP"):
            if "LUT" not in mods or len(source) < 4:
                raise _Unknown
            values = [get(o) for o in source[:3]]
            return _merge(_lut(int(source[3], 16), *(v.bits for v in values)), values)
        if pure in ("SEL", "FSEL") and base in ("SEL", "USEL"):
            chosen = self._plain(carries[-1], index, depth).bits & 1
            return get(source[0] if chosen else source[1])
        if pure == "IABS":
            value = get(source[0])
            return _merge(-value.bits if value.bits & 0x80000000 else value.bits, [value])
        if pure in ("IMNMX", "VIMNMX"):
            left, right = get(source[0]), get(source[1])
            signed = "U32" not in mods
            low = self._plain(carries[-1], index, depth).bits & 1
            pick = min if low else max
            return pick(left, right, key=lambda v: _signed(v.bits) if signed else v.bits)
        if pure == "PRMT":
            first_word, selector, second_word = (get(o) for o in source[:3])
            bits = _permute(first_word.bits, selector.bits, second_word.bits)
            return _merge(bits, [first_word, second_word])
        if pure == "SGXT":
            value, width = get(source[0]), get(source[1])
            bits = width.bits & 31
            masked = value.bits & ((1 << bits) - 1)
            if "U32" not in mods and bits and masked >> (bits - 1):
                masked |= _M32 << bits
            return _merge(masked, [value, width])
        if base == "HFMA2" and ops[1] == "-RZ" and ops[2] == "RZ" and len(ops) >= 5:
            # nvcc's idiom for a 32-bit constant: two half-precision immediates.
            return Value(_half(ops[3]) << 16 | _half(ops[4]))
        raise _Unknown

    def _special(self, name: str) -> Value:
        thread = self.thread
        axes = {"X": 0, "Y": 1, "Z": 2}
        stem, _, axis = name.partition(".")
        if stem == "SR_TID" and axis in axes:
            return Value(thread.thread[axes[axis]])
        if stem == "SR_CTAID" and axis in axes:
            return Value(thread.block[axes[axis]])
        if stem in ("SR_NTID", "SR_NTid") and axis in axes:
            return Value(thread.block_dim[axes[axis]])
        if name == "SR_LANEID":
            return Value(thread.lane)
        if name in thread.initial:
            return Value(thread.initial[name])
        if name == "SRZ":
            return Value(0)
        raise _Unknown

    def _carry_in(self, ins: Instruction, carries: list[str], index: int, depth: int) -> int:
        """Carry inputs of IADD3.X; its carry outputs stand before the sources."""
        if "X" not in ins.modifiers:
            return 0
        seen_source = False
        total = 0
        for operand in ins.operands[1:]:
            if re.fullmatch(r"!?U?P[T\d]", operand):
                if seen_source:
                    total += self._plain(operand, index, depth).bits & 1
            else:
                seen_source = True
        return total

    def _imad(
        self, mods: tuple[str, ...], source: list[str], carries: list[str], half: int, index: int, depth: int
    ) -> Value:
        a, b = (self._operand(o, index, depth) for o in source[:2])
        if "WIDE" in mods:
            signed = "U32" not in mods
            product = (_signed(a.bits) * _signed(b.bits)) if signed else a.bits * b.bits
            low, high = self._pair64(source[2], index, depth)
            total = (product + (high.bits << 32 | low.bits)) & _M64
            return _merge(total >> 32 if half else total, [a, b, low, high])
        c = self._operand(source[2], index, depth) if len(source) > 2 else Value(0)
        if "HI" in mods:
            signed = "U32" not in mods
            product = (_signed(a.bits) * _signed(b.bits)) if signed else a.bits * b.bits
            low, high = self._pair64(source[2], index, depth)
            return _merge(((product + (high.bits << 32 | low.bits)) & _M64) >> 32, [a, b, low, high])
        carry = self._plain(carries[-1], index, depth).bits & 1 if "X" in mods and carries else 0
        return _merge(a.bits * b.bits + c.bits + carry, [a, b, c])

    def _pair64(self, text: str, index: int, depth: int) -> tuple[Value, Value]:
        text = text.replace(".reuse", "")
        if text in ("RZ", "URZ"):
            return Value(0), Value(0)
        if text.startswith("c["):
            low, high = self._constant(text, 8, index, depth)
            return low, high
        match = _REGISTER.match(text)
        if match is None:
            raise _Unknown
        return self._read(text, index, depth), self._read(f"{match[1]}R{int(match[2]) + 1}", index, depth)

    def _lea(
        self, mods: tuple[str, ...], source: list[str], carries: list[str], index: int, depth: int
    ) -> Value:
        shift = int(source[-1], 16) & 31
        a = self._operand(source[0], index, depth)
        b = self._operand(source[1], index, depth)
        if "HI" not in mods:
            return _merge((a.bits << shift) + b.bits, [a, b])
        if "SX32" in mods:
            wide, used = _signed(a.bits) & _M64, [a, b]
        elif len(source) >= 4:
            top = self._operand(source[2], index, depth)
            wide, used = top.bits << 32 | a.bits, [a, b, top]
        else:
            wide, used = a.bits, [a, b]
        carry = self._plain(carries[-1], index, depth).bits & 1 if "X" in mods and carries else 0
        return _merge(((wide << shift) >> 32) + b.bits + carry, used)

    def _shf(self, mods: tuple[str, ...], values: list[Value]) -> Value:
        low, amount, high = values
        count = amount.bits
        wide = any(m in mods for m in ("U64", "S64"))
        count = min(count, 63 if wide else 32) if "W" not in mods else count & (63 if wide else 31)
        joined = high.bits << 32 | low.bits
        if "L" in mods:
            result = joined << count
            bits = result >> 32 if "HI" in mods or (not wide and low.bits and "U32" not in mods) else result
            # SHF.L.U32 d, a, n, RZ shifts a; with .HI the upper word of the pair is wanted.
            if "HI" not in mods:
                bits = low.bits << count
        else:
            signed = any(m in mods for m in ("S32", "S64"))
            if "HI" in mods:
                top = _signed(high.bits) if signed else high.bits
                bits = (
                    top >> min(count, 31 if signed else 32)
                    if not wide
                    else (_signed64(joined) if signed else joined) >> count >> 32
                )
            elif wide:
                bits = (_signed64(joined) if signed else joined) >> count
            else:
                bits = joined >> count
        return _merge(bits, values)

    def _predicate(self, ins: Instruction, name: str, index: int, depth: int) -> Value:
        pure = ins.base.removeprefix("U")
        ops = list(ins.operands)
        if pure == "ISETP":
            # ISETP.cmp.[U32].bool[.EX] P, P, a, b, Pc[, Pex]
            if ops[0] != name:
                raise _Unknown
            mods = ins.modifiers
            signed = "U32" not in mods
            left, right = (self._operand(o, index, depth) for o in ops[2:4])
            a, b = (_signed(left.bits), _signed(right.bits)) if signed else (left.bits, right.bits)
            if "EX" in mods:
                low = self._plain(ops[5], index, depth).bits & 1
                outcome = _compare(mods[0], a, b) if a != b else bool(low)
            else:
                outcome = _compare(mods[0], a, b)
            other = self._plain(ops[4], index, depth).bits & 1
            joined = {"AND": outcome and other, "OR": outcome or other, "XOR": bool(outcome) != bool(other)}
            for mod in mods:
                if mod in joined:
                    return Value(int(bool(joined[mod])), left.arguments | right.arguments)
            raise _Unknown
        if pure in ("IADD3", "LEA") and "HI" not in ins.modifiers and "X" not in ins.modifiers:
            # Carry out of the low half of a 64-bit addition.
            source = [o for o in ops[1:] if not re.fullmatch(r"!?U?P[T\d]", o)]
            if [o for o in ops[1:] if re.fullmatch(r"U?P\d", o)][:1] != [name]:
                raise _Unknown
            if pure == "LEA":
                scaled, base = (self._operand(o, index, depth) for o in source[:2])
                total = (scaled.bits << (int(source[-1], 16) & 31) & _M32) + base.bits
                return Value(int(total > _M32), scaled.arguments | base.arguments)
            values = [self._operand(o, index, depth) for o in source]
            return Value(sum(v.bits for v in values) >> 32 & 1)
        raise _Unknown


def _next(name: str) -> str:
    """Return the register behind ``name``: "R5" for "R4"."""
    stem = name.rstrip("0123456789")
    return f"{stem}{int(name[len(stem) :] or 0) + 1}"


def access_is_wide(instruction: Instruction) -> bool:
    """True when the instruction takes a 64-bit address by default (global and generic)."""
    access = access_of(instruction)
    return access is not None and access.space in ("global", "generic")


def _merge(bits: int, values: list[Value]) -> Value:
    arguments: frozenset[int] = frozenset().union(*(v.arguments for v in values))
    return Value(bits & _M32, arguments, any(v.loaded for v in values))


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits & 0x80000000 else bits


def _signed64(bits: int) -> int:
    return bits - (1 << 64) if bits >> 63 else bits


def _lut(table: int, a: int, b: int, c: int) -> int:
    result = 0
    for case in range(8):
        if table >> case & 1:
            result |= (a if case & 4 else ~a) & (b if case & 2 else ~b) & (c if case & 1 else ~c)
    return result & _M32


def _permute(a: int, selector: int, b: int) -> int:
    data = (b << 32 | a).to_bytes(8, "little")
    result = 0
    for place in range(4):
        pick = selector >> 4 * place & 15
        byte = data[pick & 7]
        if pick & 8:
            byte = 0xFF if byte & 0x80 else 0
        result |= byte << 8 * place
    return result


def _half(text: str) -> int:
    try:
        return int.from_bytes(struct.pack("<e", float(text)), "little")
    except (ValueError, OverflowError, struct.error):
        raise _Unknown from None


def _compare(operation: str, a: int, b: int) -> bool:
    table = {"EQ": a == b, "NE": a != b, "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b}
    if operation not in table:
        raise _Unknown
    return table[operation]

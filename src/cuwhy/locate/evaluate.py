"""Recompute a register from what the dump still holds: arguments, block, thread, other registers.

A load that faults has usually overwritten its own address register, and the
warp has run ahead of it.  The integer instructions before it are known, though,
and most of what fed them is still in the dump.  This walks backwards from the
faulting instruction: a register that nothing has written since is read from the
dump; one that has been written is computed from the instruction that defined
it.  Where control flow leaves more than one definition possible, the answer is
None: no guess.

Instruction semantics are those of the CUDA Binary Utilities' instruction set
reference (names) as observed in compiled code of known source (operand order):
tests/locate/test_evaluate.py holds every form against addresses known in closed
form.  A form that is not in the lists below is unknown, never approximated.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cuwhy.locate.flow import ANYTHING, PREDICATE, REGISTER, Flow, next_register
from cuwhy.locate.sass import Instruction, access_of
from cuwhy.model.facts import Dim3

_M32 = 0xFFFFFFFF
_M64 = 0xFFFFFFFFFFFFFFFF
_MAX_STEPS = 4000
_MAX_DEPTH = 80

_CONSTANT = re.compile(r"^c\[(0x[0-9a-f]+)\]\[(?:(U?R(?:Z|\d+)))?\+?(-?0x[0-9a-f]+)?\]$")
_IMMEDIATE = re.compile(r"^-?0x[0-9a-f]+$")
MEMORY = re.compile(
    r"^(?:desc\[\w+\])?\[(?:(U?R(?:Z|\d+))((?:\.\w+)*))?((?:\+?-?0x[0-9a-f]+|\+U?R(?:Z|\d+)(?:\.\w+)*)*)\]((?:\.\w+)*)$"
)
_ZEROS = frozenset({"RZ", "URZ", "SRZ"})
#: Where the launch's dimensions stand in constant bank 0, by where its parameters begin.
_DIMENSIONS = {
    0x160: ({0x0: 0, 0x4: 1, 0x8: 2}, {0xC: 0, 0x10: 1, 0x14: 2}),
    0x210: ({0x0: 0, 0x4: 1, 0x8: 2}, {0xC: 0, 0x10: 1, 0x14: 2}),
    0x380: ({0x360: 0, 0x364: 1, 0x368: 2}, {0x370: 0, 0x374: 1, 0x378: 2}),
}


class Value(NamedTuple):
    """A 32-bit value (or 0/1 for a predicate) and the kernel arguments that flowed into it."""

    bits: int
    arguments: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Thread:
    """What the dump knows of one thread at the point where it stopped.

    Attributes:
        pc: offset of its own pc from the function's entry.
        registers, uniform, predicates: contents, 32 bits each.
        thread, block: indices; block_dim, grid_dim: dimensions (grid_dim None when the dump does not hold it).
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
    grid_dim: Dim3 | None
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


class Unknown(Exception):
    """The value cannot be told."""


class Evaluator:
    """Evaluates registers of one thread in one function.

    Args:
        flow: the function's instructions.
        thread: the thread's state.
        error: offset of the instruction that faulted.
        repeats: True when the instruction may have run again since, in a loop; by default
            told from what it is.
    """

    def __init__(self, flow: Flow, thread: Thread, error: int, *, repeats: bool | None = None) -> None:
        listing = flow.listing
        self._flow = flow
        self._instructions = listing.instructions
        self.thread = thread
        self.error = listing.index(error)
        # The warp stopped before the instruction at its pc.
        self._stop = listing.index(thread.pc)
        self._steps = 0
        self._memo: dict[tuple[str, int], Value | None] = {}
        # A load cannot run twice before the first one has answered: its result register is waited
        # for.  A store needs no answer, so in a loop the one that faulted may be some turns back.
        if repeats is None:
            repeats = self.error >= 0 and not flow.writes[self.error]
        self._again = repeats and self.error >= 0 and flow.may_repeat(self.error)
        self._clobbered = flow.written_since(self.error, self._stop, self._again)

    # -- entry points ------------------------------------------------------------

    def address(self) -> AddressResult | None:
        """Return the address the faulting instruction accessed, None when it cannot be told.

        None too when the instruction's guard was off in this thread, or may have been.
        """
        if self.error < 0:
            return None
        instruction = self._instructions[self.error]
        operands = [o for o in instruction.operands if "[" in o and not o.startswith("c[")]
        # LDGSTS names the place in shared memory first; the access that can fault comes last.
        match = MEMORY.match(operands[-1]) if operands else None
        if match is None:
            return None
        try:
            if instruction.predicate and not self._guard(instruction, self.error, 0):
                return None
            return self._sum(
                instruction, match[1] or "", match[2] + match[4] if match[2] else match[4], match[3]
            )
        except Unknown:
            return None

    def _sum(self, instruction: Instruction, name: str, suffix: str, offsets: str) -> AddressResult:
        """Add up the parts of a memory operand: a register with a suffix, and what is added to it."""
        access = access_of(instruction)
        global_space = access is not None and access.space in ("global", "generic")
        words = [w for w in suffix.split(".") if w]
        scale = 1
        wide = global_space
        narrow_base = False
        for word in words:
            if word == "64":
                wide = True
            elif word in ("X4", "X8", "X16") and not global_space:
                scale = int(word[1:])
            elif word == "U32" and global_space:
                narrow_base = True
            else:
                raise Unknown
        total = 0
        arguments: frozenset[int] = frozenset()
        direct = True
        for part in re.findall(r"-?0x[0-9a-f]+|U?R(?:\d+|Z)(?:\.\w+)*", offsets):
            if "R" in part:
                register, _, extra = part.partition(".")
                if extra not in ("", "64"):
                    raise Unknown
                low, high = self._pair(register, self.error, wide)
                total += high.bits << 32 | low.bits
                arguments |= low.arguments | high.arguments
                direct = direct and self._is_direct(register, wide)
            else:
                total += int(part, 16)
        if name and name not in _ZEROS:
            low, high = self._pair(name, self.error, wide and not narrow_base)
            total += (high.bits << 32 | low.bits) * scale
            direct = direct and self._is_direct(name, wide and not narrow_base)
            names = [name, next_register(name)] if wide and not narrow_base else [name]
            for offset in self._flow.constants(names, self.error):
                position = self.thread.argument_at(offset - self.thread.parameter_base)
                if position is not None:
                    arguments |= {position}
        mask = _M64 if wide else _M32
        return AddressResult(total & mask, "registers" if direct else "evaluated", arguments)

    def register(self, name: str) -> Value | None:
        """Return a register as it was when the faulting instruction issued, None when unknown."""
        try:
            return self._read(name, self.error, 0) if self.error >= 0 else None
        except Unknown:
            return None

    # -- the walk ------------------------------------------------------------------

    def _is_direct(self, name: str, wide: bool) -> bool:
        names = (name, next_register(name)) if wide else (name,)
        return name in _ZEROS or all(
            ANYTHING not in self._clobbered and n not in self._clobbered and self._dumped(n) is not None
            for n in names
        )

    def _pair(self, name: str, index: int, wide: bool = True) -> tuple[Value, Value]:
        """Low and high word of a register pair; the high one is 0 unless ``wide``."""
        if name in _ZEROS:
            return Value(0), Value(0)
        low = self._read(name, index, 0)
        return low, self._read(next_register(name), index, 0) if wide else Value(0)

    def _dumped(self, name: str) -> Value | None:
        kind = name.rstrip("0123456789")
        bank = {"R": self.thread.registers, "UR": self.thread.uniform, "P": self.thread.predicates}.get(kind)
        number = int(name[len(kind) :] or 0)
        if bank is None or number >= len(bank):
            return None
        return Value(bank[number] & (1 if kind == "P" else _M32))

    def _read(self, name: str, index: int, depth: int) -> Value:
        """Value of a register as instruction ``index`` sees it."""
        key = (name, index)
        if key not in self._memo:
            self._steps += 1
            if self._steps > _MAX_STEPS or depth > _MAX_DEPTH:
                raise Unknown
            # What is being worked out cannot rest on itself.
            self._memo[key] = None
            self._memo[key] = self._find(name, index, depth)
        value = self._memo[key]
        if value is None:
            raise Unknown
        return value

    def _find(self, name: str, index: int, depth: int) -> Value:
        flow = self._flow
        # Control can only have fallen through from here to the faulting instruction.
        straight = flow.run_start(self.error) <= index <= self.error
        if straight and flow.last_write(name, self.error) < index:
            if ANYTHING not in self._clobbered and name not in self._clobbered:
                known = self._dumped(name)
                if known is not None:
                    return known
            undone = self._undo(name, index, depth)
            if undone is not None:
                return undone
        # Back as far as control can only have fallen through; there a guarded write can be decided.
        start = flow.run_start(index)
        if flow.partial and start == 0:
            raise Unknown
        position = flow.last_write(name, index)
        while position >= start:
            instruction = self._instructions[position]
            if ANYTHING in flow.writes[position]:
                raise Unknown
            if not instruction.predicate or self._guard(instruction, position, depth):
                return self._execute(instruction, name, position, depth + 1)
            position = flow.last_write(name, position)
        # Behind a join only a register with a single possible definition is certain.
        reaching = flow.definitions(name, start)
        if reaching == {-1} and name in self.thread.initial:
            return Value(self.thread.initial[name])
        if len(reaching) != 1:
            raise Unknown
        (only,) = reaching
        if only < 0 or self._instructions[only].predicate:
            raise Unknown
        return self._execute(self._instructions[only], name, only, depth + 1)

    def _undo(self, name: str, index: int, depth: int) -> Value | None:
        """Reverse a single ``X = X + K`` that ran between ``index`` and where the warp stopped.

        Loops step their index right behind the access that faulted.
        """
        flow = self._flow
        if self._again or self._stop <= self.error or flow.run_start(self._stop) > index:
            return None
        # What a way around to where the warp stands may have written, it may have written twice.
        if ANYTHING in self._clobbered:
            return None
        position = flow.last_write(name, self._stop)
        dumped = self._dumped(name)
        if position < self.error or flow.last_write(name, position) >= index or dumped is None:
            return None
        step = self._instructions[position]
        if step.base not in ("IADD3", "VIADD", "UIADD3", "IADD") or step.predicate or step.modifiers:
            return None
        source = [o.replace(".reuse", "") for o in step.operands[1:] if o not in ("PT", "UPT")]
        if step.operands[0] != name or source.count(name) != 1 or any(PREDICATE.match(o) for o in source):
            return None
        source.remove(name)
        if any(name in o for o in source):
            return None
        added = sum(self._step(o, position, depth) for o in source)
        return Value(dumped.bits - added & _M32)

    def _step(self, text: str, position: int, depth: int) -> int:
        """Value of an addend of the step at ``position``: still in the dump when nothing wrote it since."""
        name = text.removeprefix("-")
        if REGISTER.match(name) and name not in _ZEROS and self._flow.last_write(name, self._stop) < position:
            known = self._dumped(name)
            if known is not None:
                return -known.bits if text.startswith("-") else known.bits
        return self._operand(text, position, depth + 1).bits

    def _guard(self, instruction: Instruction, index: int, depth: int) -> bool:
        if instruction.predicate.endswith("T"):
            return not instruction.negated
        value = self._read(instruction.predicate, index, depth + 1).bits & 1
        return bool(value) != instruction.negated

    # -- operands -------------------------------------------------------------------

    def _operand(self, text: str, index: int, depth: int) -> Value:
        """Value of a 32-bit source operand, with its sign and inversion applied."""
        text = text.replace(".reuse", "")
        if _IMMEDIATE.match(text):
            value = int(text, 16)
            if not -(1 << 31) <= value <= _M32:
                raise Unknown
            return Value(value & _M32)
        sign = text[0] if text[:1] in ("-", "~") else ""
        value32 = self._plain(text[len(sign) :], index, depth)
        bits = -value32.bits if sign == "-" else ~value32.bits if sign == "~" else value32.bits
        return value32._replace(bits=bits & _M32)

    def _operand64(self, text: str, index: int, depth: int) -> Value:
        """Value of a 64-bit source operand: a pair, a constant, or a sign-extended immediate."""
        text = text.replace(".reuse", "")
        if _IMMEDIATE.match(text):
            return Value(int(text, 16) & _M64)
        sign = "-" if text.startswith("-") else ""
        text = text[len(sign) :]
        if text.startswith("c["):
            low, high = self._constant(text, 2, index, depth)
        elif text in _ZEROS:
            low = high = Value(0)
        elif REGISTER.match(text):
            low, high = self._read(text, index, depth), self._read(next_register(text), index, depth)
        else:
            raise Unknown
        bits = high.bits << 32 | low.bits
        return Value((-bits if sign else bits) & _M64, low.arguments | high.arguments)

    def _plain(self, text: str, index: int, depth: int) -> Value:
        if text in _ZEROS:
            return Value(0)
        if REGISTER.match(text):
            return self._read(text, index, depth)
        if text.startswith("c["):
            return self._constant(text, 1, index, depth)[0]
        raise Unknown

    def _truth(self, text: str, index: int, depth: int) -> bool:
        """Value of a predicate operand."""
        if PREDICATE.match(text) is None:
            raise Unknown
        name = text.removeprefix("!")
        value = True if name.endswith("T") else bool(self._read(name, index, depth).bits & 1)
        return value != text.startswith("!")

    def _constant_offset(self, text: str, index: int, depth: int) -> int:
        match = _CONSTANT.match(text)
        if match is None or int(match[1], 16) != 0:
            raise Unknown
        offset = int(match[3], 16) if match[3] else 0
        return offset + (self._plain(match[2], index, depth).bits if match[2] else 0) & _M32

    def _constant(self, text: str, words: int, index: int, depth: int) -> list[Value]:
        """Words of a constant-bank operand: launch dimensions or kernel parameters."""
        offset = self._constant_offset(text, index, depth)
        return [self._constant_word(offset + 4 * word) for word in range(words)]

    def _constant_word(self, offset: int) -> Value:
        thread = self.thread
        at = offset - thread.parameter_base
        if 0 <= at <= len(thread.parameters) - 4:
            position = thread.argument_at(at)
            (bits,) = struct.unpack_from("<I", thread.parameters, at)
            return Value(bits, frozenset() if position is None else frozenset((position,)))
        block, grid = _DIMENSIONS.get(thread.parameter_base, ({}, {}))
        if offset in block:
            return Value(thread.block_dim[block[offset]])
        if offset in grid:
            if thread.grid_dim is None:
                raise Unknown
            return Value(thread.grid_dim[grid[offset]])
        raise Unknown

    def _constant_part(self, text: str, kind: str, index: int, depth: int) -> Value:
        """A parameter of one or two bytes."""
        at = self._constant_offset(text, index, depth) - self.thread.parameter_base
        size = 1 if kind.endswith("8") else 2
        raw = self.thread.parameters[at : at + size] if at >= 0 else b""
        if len(raw) != size:
            raise Unknown
        position = self.thread.argument_at(at)
        bits = int.from_bytes(raw, "little", signed=kind.startswith("S"))
        return Value(bits & _M32, frozenset() if position is None else frozenset((position,)))

    # -- instructions -----------------------------------------------------------------

    def _execute(self, ins: Instruction, name: str, index: int, depth: int) -> Value:
        """Compute what ``ins`` wrote into ``name``."""
        try:
            if re.fullmatch(r"U?P\d", name):
                return Value(int(self._predicate(ins, name, index, depth)))
            # Predicate results may stand in front of the register.
            lead = next(n for n, o in enumerate(ins.operands) if not PREDICATE.match(o))
            ops = ins.operands[lead:]
            first, here = REGISTER.match(ops[0]), REGISTER.match(name)
            if first is None or here is None or first[1] != here[1] or first[2] == "Z":
                raise Unknown
            return self._result(ins, ops, int(here[2]) - int(first[2]), index, depth)
        except (IndexError, ValueError, OverflowError, RecursionError, StopIteration):
            # Text that is not what it looks like.
            raise Unknown from None

    def _result(self, ins: Instruction, ops: Sequence[str], half: int, index: int, depth: int) -> Value:
        """Word ``half`` of the register result; ``ops`` begins with it."""
        base, mods = ins.base, frozenset(ins.modifiers)
        pure = base[1:] if base in ("UMOV", "UIADD3", "UIADD", "UIMAD", "ULEA", "USHF", "ULOP3", "USEL", "UPRMT",
                                    "UIMNMX", "UVIMNMX", "USGXT", "UIABS", "UVIADD", "UISETP") else base  # fmt: skip
        if base in ("LDC", "ULDC", "LDCU"):
            if len(mods) == 1 and mods <= {"U8", "S8", "U16", "S16"} and not half:
                return self._constant_part(ops[1], ins.modifiers[0], index, depth)
            words = {frozenset(): 1, frozenset({"64"}): 2, frozenset({"128"}): 4}.get(mods)
            if words is None or not 0 <= half < words or len(ops) != 2:
                raise Unknown
            return self._constant(ops[1], words, index, depth)[half]
        if half in (0, 1) and (
            (pure in ("IADD", "IADD3", "MOV", "SEL") and mods == {"64"})
            or (pure in ("IMNMX", "VIMNMX") and mods in ({"S64"}, {"U64"}))
        ):
            wide = self._wide(pure, mods, ops, index, depth)
            return wide._replace(bits=wide.bits >> 32 * half & _M32)
        predicates = [o for o in ops[1:] if PREDICATE.match(o)]
        source = [o for o in ops[1:] if not PREDICATE.match(o)]
        # What stands behind the last source is read; a predicate before that is a further result.
        last = max((n for n, o in enumerate(ops) if not PREDICATE.match(o)), default=len(ops))
        read = list(ops[last + 1 :])
        if pure == "IMAD" and "WIDE" in mods and half in (0, 1):
            carry = self._truth(_exactly(read, 1)[0], index, depth) if "X" in mods else False
            if (read and "X" not in mods) or ("X" in mods and "U32" not in mods):
                raise Unknown
            product, values = self._product(mods - {"WIDE", "X"}, source, index, depth)
            return _merge((product + carry & _M64) >> 32 * half, values)
        if base == "CS2R" and (not mods or mods == {"32"}):
            if half and source != ["SRZ"]:
                raise Unknown
            return self._special(source[0])
        if half:
            raise Unknown
        if pure in ("MOV", "R2UR") and not mods and len(ins.operands) == 2:
            return self._operand(ops[1], index, depth)
        if base in ("S2R", "S2UR") and not mods:
            return self._special(ops[1])
        if pure in ("IADD3", "IADD", "VIADD") and mods <= {"X"}:
            values = [self._operand(o, index, depth) for o in source]
            if read and "X" not in mods:
                raise Unknown
            return _merge(sum(v.bits for v in values) + self._carries(read, index, depth), values)
        if pure == "IMAD":
            return self._imad(mods, source, read, index, depth)
        if pure == "LEA":
            return self._lea(mods, source, read, index, depth)
        if pure == "SHF":
            return _shift(mods, [self._operand(o, index, depth) for o in _exactly(source, 3)])
        if pure == "LOP3" and mods == {"LUT"}:
            values = [self._operand(o, index, depth) for o in _exactly(source, 4)[:3]]
            return _merge(_lut(int(source[3], 16), *(v.bits for v in values)), values)
        if pure == "SEL" and not mods and len(predicates) == 1:
            return self._operand(_exactly(source, 2)[not self._truth(read[0], index, depth)], index, depth)
        if pure == "IABS" and not mods:
            value = self._operand(_exactly(source, 1)[0], index, depth)
            return _merge(-value.bits if value.bits >> 31 else value.bits, [value])
        if (pure == "IMNMX" and mods <= {"U32"}) or (
            pure == "VIMNMX" and mods in ({"U32"}, {"S32"}, frozenset())
        ):
            left, right = (self._operand(o, index, depth) for o in _exactly(source, 2))
            return _least(left, right, "U32" not in mods, self._truth(_exactly(read, 1)[0], index, depth))
        if base == "VIADDMNMX" and mods <= {"U32"}:
            one, two, right = (self._operand(o, index, depth) for o in _exactly(source, 3))
            left = _merge(one.bits + two.bits, [one, two])
            return _least(left, right, "U32" not in mods, self._truth(_exactly(read, 1)[0], index, depth))
        if pure == "PRMT" and not mods:
            low, selector, high = (self._operand(o, index, depth) for o in _exactly(source, 3))
            return _merge(_permute(low.bits, selector.bits, high.bits), [low, selector, high])
        if pure == "SGXT" and mods <= {"U32"}:
            value, width = (self._operand(o, index, depth) for o in _exactly(source, 2))
            if not 0 < width.bits < 32:
                raise Unknown
            masked = value.bits & ((1 << width.bits) - 1)
            if "U32" not in mods and masked >> (width.bits - 1):
                masked |= _M32 << width.bits
            return _merge(masked, [value, width])
        if base == "HFMA2" and mods <= {"MMA"} and len(ops) == 5 and ops[1:3] == ("-RZ", "RZ"):
            # nvcc's idiom for a 32-bit constant: two half-precision immediates.
            return Value(_half(ops[3]) << 16 | _half(ops[4]))
        raise Unknown

    def _special(self, name: str) -> Value:
        thread = self.thread
        stem, _, axis = name.partition(".")
        triple = {"SR_TID": thread.thread, "SR_CTAID": thread.block, "SR_NTID": thread.block_dim,
                  "SR_NCTAID": thread.grid_dim}.get(stem)  # fmt: skip
        if triple is not None and axis in ("X", "Y", "Z"):
            return Value(triple["XYZ".index(axis)])
        if name == "SR_LANEID":
            return Value(thread.lane)
        if name == "SRZ":
            return Value(0)
        if name in thread.initial:
            return Value(thread.initial[name])
        raise Unknown

    def _wide(self, pure: str, mods: frozenset[str], ops: Sequence[str], index: int, depth: int) -> Value:
        """64-bit forms (sm_100 and later)."""
        source = [o for o in ops[1:] if not PREDICATE.match(o)]
        predicates = [o for o in ops[1:] if PREDICATE.match(o)]
        if pure in ("IMNMX", "VIMNMX"):
            values = [self._operand64(o, index, depth) for o in _exactly(source, 2)]
            if len(predicates) != 2 or predicates[1] not in ("!PT", "!UPT"):
                raise Unknown
            pick = min if self._truth(predicates[0], index, depth) else max
            chosen = pick(values, key=lambda v: _signed64(v.bits) if "S64" in mods else v.bits)
            return chosen._replace(arguments=values[0].arguments | values[1].arguments)
        if pure == "SEL":
            chosen_second = not self._truth(_exactly(predicates, 1)[0], index, depth)
            return self._operand64(_exactly(source, 2)[chosen_second], index, depth)
        if any(p not in ("PT", "UPT") for p in predicates) or (pure == "MOV" and len(source) != 1):
            raise Unknown
        values = [self._operand64(o, index, depth) for o in source]
        return Value(sum(v.bits for v in values) & _M64, frozenset().union(*(v.arguments for v in values)))

    def _carries(self, read: Sequence[str], index: int, depth: int) -> int:
        """Sum of the carries that IADD3.X takes in."""
        if len(read) == 2 and all(re.fullmatch(r"U?P\d", o) for o in read):
            # A sum of three carries twice.  Which of its two predicates holds which carry is not known,
            # but together they are the upper bits of the sum.
            places = {self._defined_at(o, index) for o in read}
            if len(places) == 1 and (place := places.pop()) >= 0:
                ins = self._instructions[place]
                results = [o for o in ins.operands[1:3] if PREDICATE.match(o)]
                if ins.base in ("IADD3", "UIADD3") and not ins.modifiers and sorted(results) == sorted(read):
                    return self._total(ins, place, depth) >> 32
        return sum(self._truth(o, index, depth) for o in read)

    def _defined_at(self, name: str, index: int) -> int:
        """Position of the instruction in the same straight run that defines a register, or -1."""
        position = self._flow.last_write(name, index)
        if position < self._flow.run_start(index) or self._instructions[position].predicate:
            return -1
        return position

    def _total(self, ins: Instruction, index: int, depth: int) -> int:
        """The sum of IADD3's three addends, not cut to 32 bits."""
        source = [o for o in ins.operands[1:] if not PREDICATE.match(o)]
        return sum(self._carried(o, index, depth) for o in _exactly(source, 3))

    def _imad(
        self, mods: frozenset[str], source: list[str], read: list[str], index: int, depth: int
    ) -> Value:
        if "HI" in mods and not read:
            product, values = self._product(mods - {"HI"}, source, index, depth)
            return _merge((product & _M64) >> 32, values)
        if not mods <= {"MOV", "U32", "SHL", "IADD", "X"} or len(source) != 3:
            raise Unknown
        a, b, c = (self._operand(o, index, depth) for o in source)
        carry = self._truth(_exactly(read, 1)[0], index, depth) if "X" in mods else False
        if read and "X" not in mods:
            raise Unknown
        return _merge(a.bits * b.bits + c.bits + carry, [a, b, c])

    def _product(
        self, mods: frozenset[str], source: list[str], index: int, depth: int
    ) -> tuple[int, list[Value]]:
        """Product of two words plus a 64-bit addend (a register pair or constant), uncut."""
        if not mods <= {"U32"} or len(source) != 3 or any(_is_signed_register(o) for o in source[:2]):
            raise Unknown
        if _IMMEDIATE.match(source[2]):
            raise Unknown
        a, b = (self._operand(o, index, depth) for o in source[:2])
        c = self._operand64(source[2], index, depth)
        product = a.bits * b.bits if "U32" in mods else _signed(a.bits) * _signed(b.bits)
        return product + c.bits, [a, b, c]

    def _lea(self, mods: frozenset[str], source: list[str], read: list[str], index: int, depth: int) -> Value:
        # Where a pair is shifted only the 32-bit addend, the second source, may carry a sign.
        signed = "HI" in mods and any(_is_signed_register(o) for n, o in enumerate(source) if n != 1)
        if signed or not mods <= {"HI", "X", "SX32"} or not _IMMEDIATE.match(source[-1]):
            raise Unknown
        shift = int(source[-1], 16)
        if not 0 <= shift < 32 or ("X" in mods) != bool(read):
            raise Unknown
        values = [self._operand(o, index, depth) for o in source[:-1]]
        if "HI" not in mods:
            if mods or len(values) != 2:
                raise Unknown
            return _merge((values[0].bits << shift) + values[1].bits, values)
        if len(values) != (2 if "SX32" in mods else 3):
            raise Unknown
        top = -(values[0].bits >> 31) if "SX32" in mods else values[2].bits
        wide = (top << 32 | values[0].bits) & _M64
        carry = self._truth(_exactly(read, 1)[0], index, depth) if "X" in mods else False
        return _merge((wide << shift >> 32) + values[1].bits + carry, values)

    def _predicate(self, ins: Instruction, name: str, index: int, depth: int) -> bool:
        pure = (
            ins.base[1:] if ins.base in ("UISETP", "UIADD3", "ULEA", "UIMAD", "ULOP3", "UPLOP3") else ins.base
        )
        ops, mods = ins.operands, frozenset(ins.modifiers)
        if pure == "ISETP" and ops[0] == name:
            return self._compare(ins, index, depth)
        if (
            pure == "LOP3"
            and mods == {"LUT"}
            and ops[0] == name
            and ops[-1] in ("!PT", "!UPT")
            and len(ops) == 7
        ):
            a, b, c = (self._operand(o, index, depth).bits for o in ops[2:5])
            return _lut(int(ops[5], 16), a, b, c) != 0
        if pure == "PLOP3" and mods == {"LUT"} and ops[0] == name and len(ops) == 7:
            table = int(ops[5], 16)
            case = sum(self._truth(o, index, depth) << (2 - n) for n, o in enumerate(ops[2:5]))
            return bool(table >> case & 1)
        results = [o for o in ops[1:3] if PREDICATE.match(o)]
        source = [o for o in ops[1:] if not PREDICATE.match(o)]
        if results[:1] != [name] or any(o not in ("PT", "UPT") for o in results[1:]):
            raise Unknown
        # Carry out of the low part of a wider addition.
        signed = any(_is_signed_register(o) for o in source)
        if pure == "IADD3" and not mods:
            carry = self._total(ins, index, depth) >> 32
        elif pure == "LEA" and mods <= {"HI"} and len(source) == (4 if mods else 3) and not signed:
            values = [self._operand(o, index, depth).bits for o in source[:-1]]
            shift = int(source[-1], 16)
            if not 0 <= shift < 32:
                raise Unknown
            wide = (values[2] << 32 | values[0]) << shift >> 32 if mods else values[0] << shift
            carry = (wide & _M32) + values[1] >> 32
        elif pure == "IMAD" and mods in ({"WIDE", "U32"}, {"HI", "U32"}) and not signed:
            carry = self._product(frozenset({"U32"}), source, index, depth)[0] >> 64
        else:
            raise Unknown
        if carry not in (0, 1):
            raise Unknown
        return bool(carry)

    def _carried(self, text: str, index: int, depth: int) -> int:
        """An addend with what its negation carries: -b is ~b + 1 in 33 bits, so that -0 carries."""
        bits = self._operand(text, index, depth).bits
        return 1 << 32 if _is_signed_register(text) and text[0] == "-" and not bits else bits

    def _compare(self, ins: Instruction, index: int, depth: int) -> bool:
        """ISETP.cmp[.U32][.S64].bool[.EX] P, P, a, b, Pc[, Pex]."""
        mods, ops = ins.modifiers, ins.operands
        kinds = set(mods[1:]) - {"AND", "OR", "XOR"}
        joins = [m for m in mods[1:] if m in ("AND", "OR", "XOR")]
        if (
            not kinds <= {"U32", "EX", "S64", "U64"}
            or len(joins) != 1
            or len(ops) != (6 if "EX" in kinds else 5)
        ):
            raise Unknown
        if kinds & {"S64", "U64"}:
            if len(kinds) != 1:
                raise Unknown
            a, b = (self._operand64(o, index, depth).bits for o in ops[2:4])
            if "S64" in kinds:
                a, b = _signed64(a), _signed64(b)
        else:
            a, b = (self._operand(o, index, depth).bits for o in ops[2:4])
            if "U32" not in kinds:
                a, b = _signed(a), _signed(b)
        # With equal upper words the compare of the lower ones decides.
        lower = "EX" in kinds and a == b
        outcome = self._truth(ops[5], index, depth) if lower else _compare(mods[0], a, b)
        other = self._truth(ops[4], index, depth)
        return {"AND": outcome and other, "OR": outcome or other, "XOR": outcome != other}[joins[0]]


def _exactly(items: list[str], count: int) -> list[str]:
    if len(items) != count:
        raise Unknown
    return items


def _is_signed_register(text: str) -> bool:
    """True for an operand with a sign or an inversion that is no plain number."""
    return text[:1] in ("-", "~", "|") and not _IMMEDIATE.match(text)


def _least(left: Value, right: Value, signed: bool, low: bool) -> Value:
    pick = min if low else max
    chosen = pick(left, right, key=lambda v: _signed(v.bits) if signed else v.bits)
    return _merge(chosen.bits, [left, right])


def _shift(mods: frozenset[str], values: list[Value]) -> Value:
    """SHF: shift of the pair (high, low), of which one word is the result."""
    low, amount, high = (v.bits for v in values)
    kind = mods & {"U32", "S32", "U64", "S64"}
    if (
        not mods <= {"L", "R", "W", "HI", "U32", "S32", "U64", "S64"}
        or len(kind) != 1
        or not mods & {"L", "R"}
    ):
        raise Unknown
    wide = bool(kind & {"U64", "S64"})
    signed = bool(kind & {"S32", "S64"})
    if "W" in mods:
        amount &= 63 if wide else 31
    if amount > (63 if wide else 31):
        raise Unknown
    joined = high << 32 | low
    if "L" in mods:
        # Without HI the low word is wanted, which nothing comes into from above.
        bits = joined << amount >> 32 if "HI" in mods else low << amount
    elif "HI" in mods and not wide:
        bits = (_signed(high) if signed else high) >> amount
    else:
        bits = (_signed64(joined) if signed else joined) >> amount
        bits = bits >> 32 if "HI" in mods else bits
    return _merge(bits, values)


def _merge(bits: int, values: Iterable[Value]) -> Value:
    arguments: frozenset[int] = frozenset().union(*(v.arguments for v in values))
    return Value(bits & _M32, arguments)


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
        raise Unknown from None


def _compare(operation: str, a: int, b: int) -> bool:
    table = {"EQ": a == b, "NE": a != b, "LT": a < b, "LE": a <= b, "GT": a > b, "GE": a >= b}
    if operation not in table:
        raise Unknown
    return table[operation]

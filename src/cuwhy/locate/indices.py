"""The index behind a faulting address: did 32-bit arithmetic wrap, or is it a filler like -1.

Both are read off the instructions that made the address, with values that :mod:`cuwhy.locate.evaluate`
knows for certain; what it does not know is left unknown here too.
"""

from __future__ import annotations

from typing import NamedTuple

from cuwhy.locate.evaluate import MEMORY, Evaluator, Unknown
from cuwhy.locate.flow import PREDICATE, REGISTER, next_register
from cuwhy.locate.sass import Instruction
from cuwhy.model.facts import Overflow

_M32 = 0xFFFFFFFF
_MAX_VISITS = 64
_MAX_DEPTH = 4
_ZEROS = ("RZ", "URZ")


class LowIndex(NamedTuple):
    """An index of which only the low bits are known.

    Attributes:
        base: the pointer that it was added to; scale: bytes of an element.
        names: the constants with all bits set that have these low bits.
        bits: how many are known.
    """

    base: int
    scale: int
    names: tuple[str, ...]
    bits: int


class IndexEvaluator(Evaluator):
    """Looks at the 32-bit values that were widened into an address."""

    def overflow(self) -> Overflow | None:
        """Return the 32-bit sum or product that wrapped before it was sign-extended into the address."""
        place = self._memory()
        if place is None:
            return None
        register, _ = place
        waiting = [(register, self.error), (next_register(register), self.error)]
        seen: set[tuple[str, int]] = set()
        while waiting and len(seen) < _MAX_VISITS:
            here = waiting.pop()
            if here in seen:
                continue
            seen.add(here)
            position = self._definition(*here)
            if position < 0:
                continue
            instruction = self._instructions[position]
            for name in _extended(instruction):
                found = self._wrapped(name, position, 0)
                if found is not None:
                    return found
            for operand in _sources(instruction):
                if REGISTER.match(operand) and operand not in _ZEROS:
                    waiting.append((operand, position))
                    if "WIDE" in instruction.modifiers or "64" in instruction.modifiers:
                        waiting.append((next_register(operand), position))
        return None

    def low_index(self) -> LowIndex | None:
        """Return what the low word of the address says of an index, where the load overwrote the high word.

        Only constants with all bits set are looked for: of others the upper bits would decide.
        """
        place = self._memory()
        if place is None:
            return None
        register, offset = place
        position = self._definition(register, self.error)
        if position < 0:
            return None
        instruction = self._instructions[position]
        source = _sources(instruction)
        if (
            instruction.base not in ("IMAD", "UIMAD")
            or "WIDE" not in instruction.modifiers
            or len(source) != 3
        ):
            return None
        scale = int(source[1], 16) if source[1].startswith("0x") else 0
        if scale < 2 or scale & (scale - 1) or scale > 1 << 16:
            return None
        try:
            low = self._read(register, self.error, 0).bits
            base = self._operand64(source[2], position, 0).bits
        except Unknown:
            return None
        unsigned = "U32" in instruction.modifiers
        constants = (
            ("INT32_MAX", 2**31 - 1),
            ("UINT32_MAX (-1)" if unsigned else "-1", _M32),
        )
        names = tuple(n for n, value in constants if (base + offset + value * scale - low) & _M32 == 0)
        return LowIndex(base, scale, names, 33 - scale.bit_length()) if names else None

    # -- steps ---------------------------------------------------------------------

    def _memory(self) -> tuple[str, int] | None:
        """Register pair and constant offset of the memory operand; None where it has another form."""
        if self.error < 0:
            return None
        operands = [o for o in self._instructions[self.error].operands if "[" in o and not o.startswith("c[")]
        match = MEMORY.match(operands[-1]) if operands else None
        if match is None or not match[1] or match[1] in _ZEROS or "R" in (match[3] or ""):
            return None
        return match[1], int(match[3].removeprefix("+"), 16) if match[3] else 0

    def _definition(self, name: str, index: int) -> int:
        """Position of the only instruction that can have defined a register as ``index`` sees it, or -1."""
        flow = self._flow
        position = flow.last_write(name, index)
        if position < flow.run_start(index):
            reaching = flow.definitions(name, flow.run_start(index))
            if len(reaching) != 1:
                return -1
            (position,) = reaching
        if position < 0 or self._instructions[position].predicate or name not in flow.writes[position]:
            return -1
        return position

    def _wrapped(self, name: str, index: int, depth: int) -> Overflow | None:
        """The wrap in the sums and products that made a 32-bit register."""
        position = self._definition(name, index) if depth < _MAX_DEPTH else -1
        if position < 0:
            return None
        instruction = self._instructions[position]
        parts = _arithmetic(instruction)
        if parts is None:
            return None
        left, right, *added = parts
        try:
            a, b, *rest = (self._signed_operand(text, position) for text in (left, right, *added))
        except Unknown:
            return None
        exact = a * b + sum(rest)
        if not -(1 << 31) <= exact < 1 << 31:
            return Overflow(a, b, sum(rest), exact, (exact + (1 << 31) & _M32) - (1 << 31))
        for operand in added:
            plain = operand.replace(".reuse", "")
            if REGISTER.match(plain) and plain not in _ZEROS:
                found = self._wrapped(plain, position, depth + 1)
                if found is not None:
                    return found
        return None

    def _signed_operand(self, text: str, position: int) -> int:
        bits = self._operand(text, position, 0).bits
        return bits - (1 << 32) if bits >> 31 else bits


def _sources(instruction: Instruction) -> list[str]:
    operands = [o.replace(".reuse", "") for o in instruction.operands if not PREDICATE.match(o)]
    return operands[1:]


def _extended(instruction: Instruction) -> list[str]:
    """Registers that an instruction takes as signed 32-bit numbers into a 64-bit result."""
    base, mods, source = instruction.base, instruction.modifiers, _sources(instruction)
    names: list[str] = []
    if base in ("IMAD", "UIMAD") and "WIDE" in mods and "U32" not in mods:
        names = source[:2]
    elif base in ("LEA", "ULEA") and "SX32" in mods:
        names = source[:1]
    elif base in ("SHF", "USHF") and {"R", "S32", "HI"} <= set(mods) and source[1:2] == ["0x1f"]:
        names = source[2:3]
    return [name for name in names if REGISTER.match(name) and name not in _ZEROS]


def _arithmetic(instruction: Instruction) -> list[str] | None:
    """Operands of a 32-bit sum or product: two factors, then what is added; None for anything else."""
    base, mods, source = instruction.base.removeprefix("U"), instruction.modifiers, _sources(instruction)
    if any(PREDICATE.match(o) for o in instruction.operands):
        # Part of a wider sum.
        return None
    if base == "IMAD" and len(source) == 3 and set(mods) <= {"IADD", "SHL", "MOV"}:
        return source
    if base == "IADD3" and not mods and len(source) == 3:
        return [source[0], "0x1", source[1], source[2]]
    if base == "VIADD" and not mods and len(source) == 2:
        return [source[0], "0x1", source[1]]
    return None

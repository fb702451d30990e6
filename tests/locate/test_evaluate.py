"""The evaluator must be sound: an address may be unknown, never wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import DumpCase, slowdown
from cuwhy.locate.evaluate import Evaluator, Thread
from cuwhy.locate.flow import Flow
from cuwhy.locate.sass import Instruction, Listing, access_of, parse_instruction, parse_listing

SOURCE = Path(__file__).parent / "data" / "addresses.cu"
ARCHITECTURES = (80, 86, 90, 100, 120)
#: Where parameters begin in constant bank 0.
BASES = {80: 0x160, 86: 0x160, 89: 0x160, 90: 0x210, 100: 0x380, 120: 0x380}
#: Low words near the ends, so that sums carry and differences borrow.
IN, OUT = 0x7F12_FFFF_F000, 0x7F56_0000_0200
M64 = (1 << 64) - 1


# -- addresses in closed form -----------------------------------------------------------


def i8(v: int) -> int:
    return (v + 0x80 & 0xFF) - 0x80


def i16(v: int) -> int:
    return (v + 0x8000 & 0xFFFF) - 0x8000


def i32(v: int) -> int:
    return (v + (1 << 31) & 0xFFFFFFFF) - (1 << 31)


def u32(v: int) -> int:
    return v & 0xFFFFFFFF


def i64(v: int) -> int:
    return (v + (1 << 63) & M64) - (1 << 63)


def u64(v: int) -> int:
    return v & M64


def quotient(a: int, b: int) -> int:
    """C's division, towards zero."""
    return -(-a // b) if a < 0 else a // b


def remainder(a: int, b: int) -> int:
    return a - quotient(a, b) * b


@dataclass(frozen=True)
class At:
    """One thread of a launch."""

    thread: tuple[int, int, int]
    block: tuple[int, int, int]
    size: tuple[int, int, int]
    grid: tuple[int, int, int]

    @property
    def x(self) -> int:
        return self.block[0] * self.size[0] + self.thread[0]

    @property
    def y(self) -> int:
        return self.block[1] * self.size[1] + self.thread[1]


@dataclass(frozen=True)
class Kernel:
    """A kernel of addresses.cu.

    Attributes:
        layout: its parameters behind in and out, as struct has them (native alignment is that of CUDA).
        values: theirs.
        load, store: byte offset from ``in`` and ``out`` of each thread; None says nothing about it.
        needed: True when the addresses must be known, not just right.
    """

    layout: str
    values: tuple[int, ...]
    load: Callable[..., int | None]
    store: Callable[..., int | None]
    needed: bool = True


def nested(a: At, n: int) -> int:
    r, c = a.x >> 5, a.x & 31
    return 4 * (((r * n + c) * n + (c ^ 16)) * n + r)


def by_const(i: int) -> int:
    return 4 * (quotient(i, 7) + remainder(i, 13) * 100 + remainder(i, 8))


def logic_store(i: int, n: int, m: int) -> int:
    a, b, c = i > n, bool(i & 1), i < m
    return 4 * (i if (a and b) or c else i + m)


def logic_load(i: int, n: int, m: int) -> int:
    a, b, c = i > n, bool(i & 1), i < m
    return 4 * (i if a != b else n if b or not c else m)


def byte_select(x: int, y: int, selector: int) -> int:
    data = (y << 32 | x).to_bytes(8, "little")
    return int.from_bytes(bytes(data[selector >> 4 * k & 7] for k in range(4)), "little")


L = 0x0123_4567_89AB
K = {
    "linear": Kernel("", (), lambda a: 4 * (a.x + 5), lambda a: 4 * a.x),
    "wide_index": Kernel(
        "q", (-(1 << 34) - 3,), lambda a, s: 4 * a.x * 0x100000001, lambda a, s: 4 * a.x * s
    ),
    "negative": Kernel("i", (1000,), lambda a, n: 4 * (a.x - n), lambda a, n: 4 * (-a.x - 1)),
    "two_d": Kernel(
        "ii", (257, 65), lambda a, p, h: 4 * (a.y * p + a.x), lambda a, p, h: 4 * (a.x * h + a.y)
    ),
    "three_d": Kernel(
        "",
        (),
        lambda a: 8 * (linear(a.thread, a.size) + linear(a.block, a.grid) * a.grid[2]),
        lambda a: 8 * (linear(a.block, a.grid) * 1024 + linear(a.thread, a.size)),
    ),
    "shifts": Kernel(
        "i",
        (3,),
        lambda a, n: 4 * (((a.x - 40) >> 2) + ((a.x - 40) << 5) - ((a.x - 40) >> n)),
        lambda a, n: 4 * (u32(u32(a.x - 40) << n) ^ u32(a.x - 40) >> 3),
    ),
    "by_constant": Kernel("", (), lambda a: by_const(a.x - 100), lambda a: 4 * (a.x // 10 + a.x % 1000 * 3)),
    "wide_constant": Kernel(
        "qQ",
        (-(1 << 50) - 7, (1 << 63) + 11),
        lambda a, n, u: 4 * (remainder(a.x + n, 1000003) - quotient(a.x + n, 0x100000007)),
        lambda a, n, u: 4 * (u64(a.x + u) % 1000003 + u64(a.x + u) // 10 % 4096),
    ),
    "clamp": Kernel(
        "iI",
        (100, 200),
        lambda a, n, m: 4 * min(max(a.x - 30, 0), n - 1),
        lambda a, n, m: 4 * min(a.x * 3, m),
    ),
    "wide_clamp": Kernel(
        "qQ",
        (300, 0x20_0000_0000),
        lambda a, n, m: 4 * min(max(a.x * 3 - 50, 0), n),
        lambda a, n, m: 4 * (((a.x << 31) >> 29) if (a.x << 31) < m else m),
    ),
    "ternary": Kernel(
        "i",
        (99,),
        lambda a, n: 4 * (n + a.x if a.x % 3 == 0 else a.x if a.x < 17 else -a.x),
        lambda a, n: 4 * (a.x * 2 if a.x & 4 else n - a.x),
    ),
    "unsigned_wide": Kernel(
        "I",
        (0xFFFFFFF5,),
        lambda a, n: u32(a.x * n) + n * 0xFFFFFFF1,
        lambda a, n: a.x * n,
    ),
    "small_types": Kernel(
        "bH?h",
        (-5, 0xFFF0, 1, -300),
        lambda a, k, h, b, s: (a.x * 7 & 0xFF) + i16(a.x * 0x3001) + k,
        lambda a, k, h, b, s: a.x * s + (h if b else -h),
    ),
    "wide_shifts": Kernel(
        "qQi",
        (-(1 << 60) + 12345, 0xFEDC_BA98_7654_3210, 9),
        lambda a, n, u, k: ((n + a.x) >> (k + 3)) - (a.x << 33),
        lambda a, n, u, k: (u >> k) + (a.x << k) + (u << 7),
    ),
    "bytes": Kernel(
        "I",
        (0xA1B2_C3D4,),
        lambda a, n: 4 * ((a.x * 77 >> 4 & 0xFF) | (n & 0xF00)),
        lambda a, n: 4 * (byte_select(a.x, n, 0x7430) & 0xFFFF),
    ),
    "absolute": Kernel("i", (77,), lambda a, n: 4 * (abs(n - 2 * a.x) + 1), lambda a, n: 4 * abs(a.x - n)),
    "high": Kernel(
        "iI",
        (-123456, 0x9000_0000),
        lambda a, n, m: 4 * (i32(a.x * 0x3779B97F) * n >> 32),
        lambda a, n, m: 4 * (u32(a.x * 0x9E3779B9) * m >> 32),
    ),
    "backwards": Kernel(
        "Qq",
        (0x5_0000_0000, 0x3_0000_0000),
        lambda a, n, m: n - a.x - m,
        lambda a, n, m: -(a.x << 32),
    ),
    "funnel": Kernel(
        "II",
        (0x8765_4321, 45),
        lambda a, n, m: u32((n << 32 | a.x) << 5 >> 32),
        lambda a, n, m: u32((n << 32 | a.x) >> (m & 31)),
    ),
    "block_only": Kernel(
        "i",
        (50,),
        lambda a, n: 4 * u32(a.block[1] * a.grid[0] + a.block[0] - n),
        lambda a, n: 4 * (a.block[0] * n + 3),
    ),
    "vectors": Kernel("i", (-6,), lambda a, n: 16 * a.x * n, lambda a, n: 16 * (a.x + n)),
    "guarded": Kernel("i", (90,), lambda a, n: 8 * a.x, lambda a, n: 4 * (a.x + n), needed=False),
    "masked": Kernel("i", (90,), lambda a, n: 8 * a.x if a.x < n else None, lambda a, n: None, needed=False),
    "atomics": Kernel("i", (-11,), lambda a, n: 4 * a.x * n, lambda a, n: 4 * (a.x - n)),
    "copies": Kernel("i", (21,), lambda a, n: 16 * a.x * n, lambda a, n: 16 * (a.x ^ n)),
    "three_terms": Kernel(
        "qqQ",
        (L, -L * 3, 0xFFFF_FFF0),
        lambda a, p, q, c: p + q + c + a.x * 0x123456789AB,
        lambda a, p, q, c: p - q + a.x * 7,
    ),
    "far": Kernel(
        "i",
        (-5,),
        lambda a, n: (a.x + n) * -3 + 0x80000000,
        lambda a, n: a.x * 12345678 - 0x7FFFFFFFFFFF,
    ),
    "wrapping": Kernel(
        "HB",
        (0xF123, 200),
        lambda a, h, c: 2 * ((a.x * 77 + c & 255) - ((a.x * 77 + c & 255) + c & 255)),
        lambda a, h, c: 2 * i16(i16(a.x * 321) + h),
    ),
    "bits": Kernel(
        "I",
        (0x5A5A,),
        lambda a, n: 4 * ((a.x ^ n) & ~(a.x << 4) & 0xFFFF),
        lambda a, n: 4 * ((a.x & n) + (a.x | n) * 2 + (~a.x & 0xFF)),
    ),
    "logic": Kernel(
        "ii", (40, 9), lambda a, n, m: logic_load(a.x, n, m), lambda a, n, m: logic_store(a.x, n, m)
    ),
    "wide_min": Kernel(
        "qqQ",
        (0x1_0000_0003, 0x20_0000_0000, 0x7_0000_0001),
        lambda a, p, q, c: 4 * (min(u64(a.x - 33), c) & 0xFFFFFF),
        lambda a, p, q, c: 4 * max(min((a.x - 33) * p, q), -q),
    ),
    "nested": Kernel("i", (31,), nested, lambda a, n: 4 * ((a.x >> 5) * 33 + (a.x & 31))),
    "wide_bits": Kernel(
        "QQ",
        (0x0000_F0F0_1234_5678, 0x0000_7777_0000_FFFF),
        lambda a, p, q: (a.x | p) & ~u64(q << 13),
        lambda a, p, q: (a.x * 0x0101010101010101 & p) ^ (q >> (a.x & 31)),
    ),
    "carried": Kernel(
        "QQ",
        (0x7_0000_0000, 0x3_FFFF_FFFF),
        lambda a, p, q: (p + a.x) * (q - a.x),
        lambda a, p, q: (p - a.x) * 3 - (q + a.x),
    ),
}


def linear(index: tuple[int, int, int], size: tuple[int, int, int]) -> int:
    return (index[2] * size[1] + index[1]) * size[0] + index[0]


SHAPES = (((96, 1, 1), (5, 3, 1)), ((8, 4, 4), (2, 3, 4)))


def threads() -> Iterator[At]:
    """A few threads of a flat and of a three-dimensional launch: first, last and between."""
    for size, grid in SHAPES:
        for block in {(0, 0, 0), (1, 0, 0), (grid[0] - 1, grid[1] - 1, grid[2] - 1)}:
            for number in (0, 1, 2, 3, 31, 32, 37, 64, size[0] * size[1] * size[2] - 1):
                x, rest = number % size[0], number // size[0]
                yield At((x, rest % size[1], rest // size[1]), block, size, grid)


def parameters(layout: str, values: tuple[int, ...]) -> bytes:
    return struct.pack(f"@QQ{layout}", IN, OUT, *values)


def bare(at: At, raw: bytes, sm: int, pc: int) -> Thread:
    """A thread of which nothing is known but the launch: every register has to be recomputed."""
    return Thread(
        pc=pc, registers=(), uniform=(), predicates=(), thread=at.thread, block=at.block, block_dim=at.size,
        grid_dim=at.grid, parameters=raw, parameter_base=BASES[sm], argument_at=lambda offset: offset // 8,
        lane=linear(at.thread, at.size) % 32, initial={"SR_CgaCtaId": 0},
    )  # fmt: skip


def accesses(listing: Listing, store: bool) -> list[Instruction]:
    """Accesses through ``in`` or ``out``."""
    kinds = ("store", "reduction") if store else ("load", "atomic")
    return [
        i
        for i in listing.instructions
        if (access := access_of(i)) is not None and access.kind in kinds and access.space == "global"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_addresses_in_closed_form(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """Every load and store of addresses.cu, for many threads, from the arguments alone."""
    listings = disassembled(compiled(SOURCE, sm))
    told = untold = 0
    for name, kernel in K.items():
        flow = Flow(listings[name])
        raw = parameters(kernel.layout, kernel.values)
        for base, offset, store in ((IN, kernel.load, False), (OUT, kernel.store, True)):
            found = accesses(listings[name], store)
            assert len(found) == 1, (name, [i.text for i in found])
            for at in threads():
                wanted = offset(at, *kernel.values)
                if wanted is None:
                    continue
                spot = found[0].offset
                result = Evaluator(flow, bare(at, raw, sm, spot + 16), spot).address()
                assert result is not None or not kernel.needed, (name, found[0].text, at)
                if result is not None:
                    told += 1
                    assert hex(result.value) == hex(u64(base + wanted)), (name, found[0].text, at)
                    assert result.how == "evaluated"
                else:
                    untold += 1
    assert told > 20 * untold


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_structure_by_value(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    stride, offset, shift, bias, step = -(1 << 33) - 1, -77, 2, -3, 250
    raw = struct.pack("@QqihbBQ", IN, stride, offset, shift, bias, step, OUT)
    listing = disassembled(compiled(SOURCE, sm))["by_value"]
    (load,), (store,) = accesses(listing, False), accesses(listing, True)
    for at in threads():
        for spot, wanted in (
            (load, IN + 2 * ((at.x + offset) * stride + (at.x >> shift))),
            (store, OUT + 2 * (at.x * step + bias)),
        ):
            result = Evaluator(Flow(listing), bare(at, raw, sm, spot.offset + 16), spot.offset).address()
            assert result is not None
            assert result.value == u64(wanted)


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_shared_addresses(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """Offsets in the shared window; the driver keeps the first 0x400 bytes from sm_90 on for itself."""
    n, reserved = 5, 0x400 if sm >= 90 else 0
    raw = struct.pack("@QQi", IN, OUT, n)
    listing = disassembled(compiled(SOURCE, sm))["shared_tile"]
    spots = {i.base: i for i in listing.instructions if i.base in ("LDS", "STS") and i.predicate != "PT"}
    for at in threads():
        t = at.thread[0]
        for base, wanted in (("STS", 4 * (t * 33 + 7)), ("LDS", 4 * ((t ^ n) * 8 + 1))):
            spot = spots[base].offset
            result = Evaluator(Flow(listing), bare(at, raw, sm, spot + 16), spot).address()
            assert result is not None
            assert result.value == reserved + wanted


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_loops_are_not_guessed(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """An index with a start and a step has two definitions; which turn it was, the code cannot say."""
    listings = disassembled(compiled(SOURCE, sm))
    raw = struct.pack("@QQi", IN, OUT, 1 << 20)
    at = At((37, 0, 0), (1, 0, 0), (96, 1, 1), (5, 1, 1))
    for name, store in (("strided", False), ("filled", True), ("walked", False)):
        flow = Flow(listings[name])
        inside = [
            i for i in accesses(listings[name], store) if flow.may_repeat(listings[name].index(i.offset))
        ]
        assert inside, name
        for spot in inside:
            assert Evaluator(flow, bare(at, raw, sm, spot.offset + 16), spot.offset).address() is None


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_two_arms(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    listing = disassembled(compiled(SOURCE, sm))["branched"]
    n = 40
    raw = struct.pack("@QQi4xQ", IN, OUT, n, 0x7F99_0000_0000)
    (load,) = accesses(listing, False)
    for at in threads():
        k = at.x * 3 if at.x > n else at.x - n
        result = Evaluator(Flow(listing), bare(at, raw, sm, load.offset + 16), load.offset).address()
        assert result is None or result.value == u64(IN + 4 * k)


# -- instruction forms, values by hand -----------------------------------------------------

PARAMETERS = struct.pack("<QqIbBhH", 0x7FAA_1234_5678, -2, 0xDEAD_BEEF, -3, 200, -2, 0xFFFE)


def listing_of(*lines: str) -> Listing:
    text = "".join(f" /*{16 * n:04x}*/ {line} ;\n" for n, line in enumerate(lines))
    listing = parse_listing(text)
    assert listing is not None
    assert len(listing.instructions) == len(lines)
    return listing


def thread_of(registers: dict[str, int], pc: int, base: int = 0x210, **changes: object) -> Thread:
    """A thread with some registers; all others hold a pattern that shows in every result."""
    banks = {
        "R": [0xA5A5_0000 + n for n in range(64)],
        "UR": [0x5A5A_0000 + n for n in range(64)],
        "P": [0] * 8,
    }
    for name, value in registers.items():
        kind = name.rstrip("0123456789")
        banks[kind][int(name[len(kind) :])] = value
    known = Thread(
        pc, banks["R"], banks["UR"], banks["P"], (3, 2, 1), (7, 5, 4), (32, 8, 4), (9, 6, 5), PARAMETERS, base,
        lambda offset: 0 if offset < 8 else 1, 17,
    )  # fmt: skip
    return replace(known, **changes)  # type: ignore[arg-type]


def result_of(lines: tuple[str, ...], name: str, registers: dict[str, int], **changes: object) -> int | None:
    """Value of a register after some instructions, from registers before them.

    Behind the instruction that is asked about, the register is overwritten: the dump cannot tell it.
    """
    kind = name.rstrip("0123456789")
    over = {
        "R": f"MOV {name}, 0x0",
        "UR": f"UMOV {name}, 0x0",
        "P": f"PLOP3.LUT {name}, PT, PT, PT, PT, 0x8, 0x80",
    }
    listing = listing_of(*lines, "LDG.E R40, [R50.64]", over[kind], "EXIT")
    spot = 16 * len(lines)
    value = Evaluator(Flow(listing), thread_of(registers, spot + 32, **changes), spot).register(name)
    return None if value is None else value.bits


M = 0xFFFFFFFF
FORMS: list[tuple[str, str, dict[str, int], int | None]] = [
    ("MOV R9, R2", "R9", {"R2": 5}, 5),
    ("MOV R9, 0xfffffff0", "R9", {}, 0xFFFFFFF0),
    ("UMOV UR9, 0x400", "UR9", {}, 0x400),
    ("R2UR UR9, R2", "UR9", {"R2": 6}, 6),
    ("R2UR P0, UR9, R2", "UR9", {"R2": 6}, None),
    ("MOV.64 R8, R2", "R8", {"R2": 1, "R3": 2}, 1),
    ("MOV.64 R8, R2", "R9", {"R2": 1, "R3": 2}, 2),
    ("MOV.64 R8, 0x3ff0000000000001", "R9", {}, 0x3FF00000),
    ("MOV.64 R8, RZ", "R9", {}, 0),
    ("MOV R9, R2, 0x3", "R9", {"R2": 5}, None),
    ("IMAD R9, R2, R3, R4", "R9", {"R2": 7, "R3": 6, "R4": 5}, 47),
    ("IMAD R9, R2, -0x4, R4", "R9", {"R2": 7, "R4": 5}, -23 & M),
    ("IMAD R9, R2, R3, -R4", "R9", {"R2": 7, "R3": 6, "R4": 50}, -8 & M),
    ("IMAD R9, R2.reuse, c[0x0][0x220], R4", "R9", {"R2": 2, "R4": 1}, 2 * 0xDEADBEEF + 1 & M),
    ("IMAD.MOV.U32 R9, RZ, RZ, R4", "R9", {"R4": 8}, 8),
    ("IMAD.MOV R9, RZ, RZ, -R4", "R9", {"R4": 8}, -8 & M),
    ("IMAD.SHL.U32 R9, R2, 0x100, RZ", "R9", {"R2": 0x12345678}, 0x34567800),
    ("IMAD.IADD R9, R2, 0x1, -R4", "R9", {"R2": 3, "R4": 5}, -2 & M),
    ("IMAD.X R9, R2, 0x1, ~R4, P1", "R9", {"R2": 9, "R4": 4, "P1": 1}, 5),
    ("IMAD.X R9, R2, 0x1, ~R4, P1", "R9", {"R2": 9, "R4": 4, "P1": 0}, 4),
    ("IMAD.WIDE R8, R2, 0x4, R4", "R8", {"R2": -1 & M, "R4": 2, "R5": 7}, -2 & M),
    ("IMAD.WIDE R8, R2, 0x4, R4", "R9", {"R2": -1 & M, "R4": 2, "R5": 7}, 6),
    ("IMAD.WIDE.U32 R8, R2, 0x4, R4", "R9", {"R2": -1 & M, "R4": 4, "R5": 7}, 11),
    ("IMAD.WIDE.U32 R8, R2, R3, RZ", "R8", {"R2": M, "R3": M}, 1),
    ("IMAD.WIDE.U32 R8, R2, R3, RZ", "R9", {"R2": M, "R3": M}, M - 1),
    ("IMAD.WIDE R8, R2, R3, c[0x0][0x210]", "R9", {"R2": 1, "R3": -1 & M}, 0x7FAA),
    ("IMAD.WIDE R8, R2, R3, c[0x0][0x210]", "R8", {"R2": 1, "R3": -1 & M}, 0x12345677),
    ("IMAD.WIDE R8, R2, 0x3, -R4", "R9", {"R2": 0, "R4": 1, "R5": 0}, M),
    ("IMAD.WIDE R8, -R2, 0x3, R4", "R8", {"R2": 1, "R4": 1, "R5": 0}, None),
    ("IMAD.WIDE.U32.X R8, R2, R3, R4, P0", "R8", {"R2": 2, "R3": 3, "R4": 1, "R5": 0, "P0": 1}, 8),
    ("IMAD.HI R9, R2, R3, RZ", "R9", {"R2": -(1 << 31) & M, "R3": 6}, -3 & M),
    ("IMAD.HI.U32 R9, R2, R3, RZ", "R9", {"R2": 1 << 31, "R3": 6}, 3),
    ("IMAD.HI.U32 R9, R2, R3, R4", "R9", {"R2": 1 << 31, "R3": 6, "R4": 0, "R5": 100}, 103),
    ("IADD3 R9, R2, -R3, R4", "R9", {"R2": 5, "R3": 10, "R4": 1}, -4 & M),
    ("IADD3 R9, PT, PT, R2, R3, RZ", "R9", {"R2": M, "R3": 3}, 2),
    ("IADD3.X R9, R2, R3, RZ, P0, !PT", "R9", {"R2": 5, "R3": 6, "P0": 1}, 12),
    ("IADD3.X R9, R2, R3, RZ, !P0, P1", "R9", {"R2": 5, "R3": 6, "P0": 0, "P1": 1}, 13),
    ("IADD3.X R9, P2, R4, ~R3, R4, P0, !PT", "R9", {"R4": 10, "R3": 3, "P0": 1}, 17),
    ("VIADD R9, R2, 0xffffffff", "R9", {"R2": 5}, 4),
    ("VIADD R9, R2, -UR4", "R9", {"R2": 5, "UR4": 7}, -2 & M),
    ("IADD.64 R8, R2, -R4", "R9", {"R2": 0, "R3": 1, "R4": 1, "R5": 0}, 0),
    ("IADD.64 R8, R2, -0x2", "R9", {"R2": 1, "R3": 0}, M),
    ("UIADD3.64 UR8, UPT, UPT, UR4, 0x1, URZ", "UR9", {"UR4": M, "UR5": 4}, 5),
    ("UIADD3 UR9, UR4, 0x4, URZ", "UR9", {"UR4": 7}, 11),
    ("LEA R9, R2, R3, 0x2", "R9", {"R2": 0x40000001, "R3": 9}, 13),
    ("LEA R9, -R2, R3, 0x2", "R9", {"R2": 1, "R3": 9}, 5),
    ("LEA.HI R9, R2, R3, RZ, 0x5", "R9", {"R2": 0xF8000000, "R3": 9}, 40),
    ("LEA.HI R9, R2, R3, R4, 0x5", "R9", {"R2": 0xF8000000, "R3": 9, "R4": 1}, 72),
    ("LEA.HI.SX32 R9, R2, R3, 0x1e", "R9", {"R2": -8 & M, "R3": 9}, 7),
    ("LEA.HI.X R9, R2, R3, R4, 0x3, P0", "R9", {"R2": 0xE0000000, "R3": 1, "R4": 2, "P0": 1}, 25),
    ("LEA.HI.X.SX32 R9, R2, R3, 0x2, P0", "R9", {"R2": -1 & M, "R3": 1, "P0": 0}, 0),
    ("LEA.HI R9, -R2, R3, RZ, 0x5", "R9", {"R2": 1, "R3": 0}, None),
    ("ULEA UR9, UR4, UR5, 0x18", "UR9", {"UR4": 0, "UR5": 0x400}, 0x400),
    ("SHF.L.U32 R9, R2, 0x3, RZ", "R9", {"R2": 0x20000001}, 8),
    ("SHF.L.U64.HI R9, R2, 0x4, R3", "R9", {"R2": 0xF0000000, "R3": 2}, 0x2F),
    ("SHF.L.W.U32.HI R9, R2, 0x8, R3", "R9", {"R2": 0xAB000000, "R3": 0x11223344}, 0x223344AB),
    ("SHF.R.U32.HI R9, RZ, 0x4, R3", "R9", {"R3": 0x80000000}, 0x08000000),
    ("SHF.R.S32.HI R9, RZ, 0x1f, R3", "R9", {"R3": 0x80000000}, M),
    ("SHF.R.S32.HI R9, RZ, 0x1f, R3", "R9", {"R3": 0x7FFFFFFF}, 0),
    ("SHF.R.U32 R9, R2, 0x8, R3", "R9", {"R2": 0x11223344, "R3": 0xAB}, 0xAB112233),
    ("SHF.R.U64 R9, R2, 0x24, R3", "R9", {"R2": 0, "R3": 0xABCDEF01}, 0x0ABCDEF0),
    ("SHF.R.S64 R9, R2, 0x24, R3", "R9", {"R2": 0, "R3": 0xABCDEF01}, 0xFABCDEF0),
    ("SHF.R.U32.HI R9, RZ, R2, R3", "R9", {"R2": 40, "R3": 1}, None),
    ("LOP3.LUT R9, R2, R3, R4, 0x96, !PT", "R9", {"R2": 0xF0, "R3": 0xCC, "R4": 0xAA}, 0x96),
    ("LOP3.LUT R9, R2, 0x1f, RZ, 0xc0, !PT", "R9", {"R2": 0x7F}, 0x1F),
    ("LOP3.LUT R9, RZ, R3, RZ, 0x33, !PT", "R9", {"R3": 5}, ~5 & M),
    ("LOP3.LUT P1, R9, R2, 0x3, RZ, 0xc0, !PT", "R9", {"R2": 7}, 3),
    ("LOP3.LUT P1, R9, R2, 0x8, RZ, 0xc0, !PT", "P1", {"R2": 7}, 0),
    ("LOP3.LUT P1, R9, R2, 0x4, RZ, 0xc0, !PT", "P1", {"R2": 7}, 1),
    ("ISETP.GE.AND P1, PT, R2, R3, PT", "P1", {"R2": -1 & M, "R3": 0}, 0),
    ("ISETP.GE.U32.AND P1, PT, R2, R3, PT", "P1", {"R2": -1 & M, "R3": 0}, 1),
    ("ISETP.LT.OR P1, PT, R2, R3, !P2", "P1", {"R2": 4, "R3": 3, "P2": 0}, 1),
    ("ISETP.NE.XOR P1, PT, R2, R3, P2", "P1", {"R2": 4, "R3": 3, "P2": 1}, 0),
    ("ISETP.GT.AND.EX P1, PT, R2, R3, PT, P2", "P1", {"R2": 4, "R3": 4, "P2": 1}, 1),
    ("ISETP.GT.AND.EX P1, PT, R2, R3, PT, P2", "P1", {"R2": 3, "R3": 4, "P2": 1}, 0),
    ("ISETP.LT.S64.AND P1, PT, R2, R4, PT", "P1", {"R2": 0, "R3": -1 & M, "R4": 0, "R5": 0}, 1),
    ("ISETP.LT.U64.AND P1, PT, R2, R4, PT", "P1", {"R2": 0, "R3": -1 & M, "R4": 0, "R5": 0}, 0),
    ("ISETP.GE.AND P1, P2, R2, R3, PT", "P2", {"R2": 1, "R3": 0}, None),
    ("PLOP3.LUT P1, PT, P2, P3, PT, 0x80, 0x8", "P1", {"P2": 1, "P3": 1}, 1),
    ("PLOP3.LUT P1, PT, P2, P3, PT, 0x80, 0x8", "P1", {"P2": 1, "P3": 0}, 0),
    ("PLOP3.LUT P1, PT, PT, PT, PT, 0x8, 0x80", "P1", {}, 0),
    ("SEL R9, R2, R3, P1", "R9", {"R2": 1, "R3": 2, "P1": 1}, 1),
    ("SEL R9, R2, R3, !P1", "R9", {"R2": 1, "R3": 2, "P1": 1}, 2),
    ("SEL.64 R8, R2, -0x1, P1", "R9", {"R2": 1, "R3": 2, "P1": 0}, M),
    ("FSEL R9, R2, R3, P1", "R9", {"R2": 1, "R3": 2, "P1": 1}, None),
    ("PRMT R9, R2, 0x7610, R3", "R9", {"R2": 0x33221100, "R3": 0x77665544}, 0x77661100),
    ("PRMT R9, R2, 0x8880, RZ", "R9", {"R2": 0x80}, 0xFFFFFF80),
    ("IMNMX R9, R2, R3, PT", "R9", {"R2": -1 & M, "R3": 3}, -1 & M),
    ("IMNMX R9, R2, R3, !PT", "R9", {"R2": -1 & M, "R3": 3}, 3),
    ("IMNMX.U32 R9, R2, R3, PT", "R9", {"R2": -1 & M, "R3": 3}, 3),
    ("VIMNMX R9, PT, PT, R2, R3, !PT", "R9", {"R2": -1 & M, "R3": 3}, 3),
    ("VIMNMX.U16x2 R9, R2, R3, PT", "R9", {"R2": 1, "R3": 3}, None),
    ("VIADDMNMX R9, R2, R3, R4, PT", "R9", {"R2": 4, "R3": 5, "R4": 7}, 7),
    ("IMNMX.S64 PT, PT, R8, R2, R4, !PT, !PT", "R9", {"R2": 0, "R3": -1 & M, "R4": 9, "R5": 8}, 8),
    ("SGXT R9, R2, 0x8", "R9", {"R2": 0x1FF}, M),
    ("SGXT.U32 R9, R2, 0x4", "R9", {"R2": 0x1FF}, 0xF),
    ("IABS R9, R2", "R9", {"R2": -7 & M}, 7),
    ("IABS R9, R2", "R9", {"R2": 1 << 31}, 1 << 31),
    ("HFMA2.MMA R9, -RZ, RZ, 0, 2.384185791015625e-07", "R9", {}, 4),
    ("HFMA2 R9, -RZ, RZ, 1.875, 0", "R9", {}, 0x3F800000),
    ("HFMA2.BF16_V2 R9, -RZ, RZ, 1.875, 0", "R9", {}, None),
    ("HFMA2 R9, R2, R3, 0, 1", "R9", {}, None),
    ("S2R R9, SR_TID.Y", "R9", {}, 2),
    ("S2R R9, SR_CTAID.Z", "R9", {}, 4),
    ("S2UR UR9, SR_CTAID.X", "UR9", {}, 7),
    ("S2R R9, SR_LANEID", "R9", {}, 17),
    ("S2R R9, SR_CLOCKLO", "R9", {}, None),
    ("CS2R R8, SRZ", "R9", {}, 0),
    ("CS2R R8, SR_CLOCKLO", "R9", {}, None),
    ("LDC R9, c[0x0][0x220]", "R9", {}, 0xDEADBEEF),
    ("LDC.64 R8, c[0x0][0x210]", "R9", {}, 0x7FAA),
    ("ULDC.64 UR8, c[0x0][0x218]", "UR9", {}, M),
    ("LDCU.128 UR8, c[0x0][0x210]", "UR10", {}, -2 & M),
    ("LDC.S8 R9, c[0x0][0x224]", "R9", {}, -3 & M),
    ("ULDC.U8 UR9, c[0x0][0x225]", "UR9", {}, 200),
    ("LDC.S16 R9, c[0x0][0x226]", "R9", {}, -2 & M),
    ("LDC.U16 R9, c[0x0][0x228]", "R9", {}, 0xFFFE),
    ("LDC R9, c[0x0][0x228]", "R9", {}, None),
    ("LDC R9, c[0x0][R2+0x210]", "R9", {"R2": 16}, 0xDEADBEEF),
    ("LDC R9, c[0x3][0x210]", "R9", {}, None),
    ("LDC R9, c[0x0][RZ]", "R9", {}, 32),
    ("LDC R9, c[0x0][0x10]", "R9", {}, 6),
    ("LDG.E R9, [R2.64]", "R9", {}, None),
    ("MUFU.RCP R9, R2", "R9", {}, None),
    ("POPC R9, R2", "R9", {}, None),
    ("SHFL.IDX PT, R9, R2, R3, 0x1f", "R9", {}, None),
    ("UNHEARD.OF R9, R2", "R9", {"R2": 1}, None),
    ("UNHEARD.OF R9, R2", "R2", {"R2": 1}, None),
]  # fmt: skip


@pytest.mark.parametrize(
    ("line", "name", "registers", "wanted"), FORMS, ids=[f[0] + " " + f[1] for f in FORMS]
)
def test_instruction_forms(line: str, name: str, registers: dict[str, int], wanted: int | None) -> None:
    assert result_of((line,), name, registers) == wanted


@pytest.mark.parametrize(
    ("low", "high", "sources", "wanted"),
    [
        # 64-bit sums and differences, as (line for the low word, line for the high word, values, result).
        ("IADD3 R8, P0, R2, R4, RZ", "IADD3.X R9, R3, R5, RZ, P0, !PT", (0xFFFFFFFF, 1, 1, 2), 4 << 32),
        ("IADD3 R8, P0, R2, -R4, RZ", "IADD3.X R9, R3, ~R5, RZ, P0, !PT", (5, 9, 6, 2), (7 << 32) - 1),
        # Nothing is taken away: -0 must carry, or the upper word comes out one short.
        ("IADD3 R8, P0, R2, -R4, RZ", "IADD3.X R9, R3, ~R5, RZ, P0, !PT", (5, 9, 0, 2), (7 << 32) + 5),
        ("IADD3 R8, P0, P1, R2, R4, R4", "IADD3.X R9, R3, R5, R5, P0, P1", (M, 0, M, 1), (4 << 32) + M - 2),
        (
            "LEA R8, P0, R2, R4, 0x3",
            "LEA.HI.X R9, R2, R5, R3, 0x3, P0",
            (0x20000001, 1, M, 2),
            (12 << 32) + 7,
        ),
    ],
)
def test_carries(low: str, high: str, sources: tuple[int, int, int, int], wanted: int) -> None:
    registers = dict(zip(("R2", "R3", "R4", "R5"), sources, strict=True))
    assert result_of((low, high), "R8", registers, predicates=()) == wanted & M
    assert result_of((low, high), "R9", registers, predicates=()) == wanted >> 32 & M


def test_result_that_is_also_the_last_source() -> None:
    """P2 in front of the sources is a carry out, though R9 stands in front of it too."""
    lines = ("MOV R9, R2", "IADD3.X R9, P2, R9, ~R3, R9, P0, !PT")
    assert result_of(lines, "R9", {"R2": 10, "R3": 3, "P0": 1, "P2": 1}) == 17


def test_a_double_carry_is_not_split() -> None:
    """Which of two carry predicates holds which carry is not known: alone, neither is told."""
    line = "IADD3 R8, P0, P1, R2, R4, R5"
    assert result_of((line,), "P0", {"R2": M, "R4": M, "R5": M}) is None
    assert result_of((line,), "P1", {"R2": 1, "R4": 1, "R5": 1}) is None
    assert result_of(("IADD3 R8, P0, R2, R4, R5",), "P0", {"R2": M, "R4": M, "R5": M}) is None


def test_dimensions_by_layout() -> None:
    """The launch's dimensions stand below the parameters up to sm_90 and behind 0x360 from sm_100 on."""
    for base, places in (
        (0x160, (0x0, 0x4, 0x8, 0xC, 0x10, 0x14)),
        (0x380, (0x360, 0x364, 0x368, 0x370, 0x374, 0x378)),
    ):
        for place, wanted in zip(places, (32, 8, 4, 9, 6, 5), strict=True):
            assert result_of((f"LDC R9, c[0x0][{place:#x}]",), "R9", {}, base=base) == wanted
    assert result_of(("LDC R9, c[0x0][0x0]",), "R9", {}, base=0x380) is None
    assert result_of(("LDC R9, c[0x0][0x0]",), "R9", {}, base=0x140) is None


# -- addresses ---------------------------------------------------------------------------


def address_of(
    *lines: str, at: int, stop: int, registers: dict[str, int], **changes: object
) -> tuple[int, str] | None:
    """Address of instruction number ``at`` with the thread standing at number ``stop``."""
    flow = Flow(listing_of(*lines, "EXIT"))
    result = Evaluator(flow, thread_of(registers, 16 * stop, **changes), 16 * at).address()
    return None if result is None else (result.value, result.how)


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("LDG.E R40, desc[UR4][R2.64]", 0x7_0000_0100),
        ("LDG.E R40, [R2.64+0x10]", 0x7_0000_0110),
        ("STG.E.64 [R2.64+-0x10], R8", 0x7_0000_00F0),
        ("LDG.E R40, [R2.U32+UR6]", 0x9_0000_0104),
        ("LDG.E R40, [UR6]", 0x9_0000_0004),
        ("ATOMG.E.CAS.STRONG.GPU PT, R40, [R2], R8, R9", 0x7_0000_0100),
        ("RED.E.ADD.STRONG.GPU [R2.64], R8", 0x7_0000_0100),
        ("LDS R40, [R2]", 0x100),
        ("LDS R40, [R2.X4+0x8]", 0x408),
        ("STS [R2.X16], R8", 0x1000),
        ("STS.U8 [R2.X8+-0x1], R8", 0x7FF),
        ("LDS R40, [R2+UR6+0x1]", 0x105),
        ("ATOMS.POPC.INC.32 RZ, [R2+URZ]", 0x100),
        ("LDS R40, [UR6+0x10]", 0x14),
        ("LDS.128 R40, [0x1200]", 0x1200),
        ("STS [RZ], R8", 0),
        ("LDL R40, [R2+-0x104]", 0xFFFFFFFC),
        ("LDGSTS.E.BYPASS.128 [R9], desc[UR4][R2.64]", 0x7_0000_0100),
        ("LDG.E R40, [R2.X4]", None),
        ("LDS R40, [R2.64]", 0x7_0000_0100),
        ("LDS R40, [R2.U8]", None),
        ("LDG.E R40, [garbage", None),
        ("LDG.E R40", None),
    ],
)  # fmt: skip
def test_memory_operands(line: str, wanted: int | None) -> None:
    registers = {"R2": 0x100, "R3": 7, "UR6": 4, "UR7": 9}
    found = address_of(line, at=0, stop=0, registers=registers)
    assert (found[0] if found else None) == wanted


@pytest.mark.parametrize("n", [1, 0x4000_0001, 0xFFFF_FFFF])
def test_uniform_pair_and_narrow_offset(
    n: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """uniform.cu: ``[R9.U32+UR6]`` is the pair UR6:UR7 and R9 without a sign."""
    listing = disassembled(compiled(SOURCE.with_name("uniform.cu"), 75))["narrow"]
    loads = [i for i in accesses(listing, False) if any(".U32+UR" in operand for operand in i.operands)]
    assert loads
    raw = struct.pack("<QQI", IN, OUT, n)
    for at in threads():
        wanted = {IN + 4 * n * at.block[0] + (at.thread[0] ^ j) for j in range(8)}
        for load in loads:
            result = Evaluator(Flow(listing), bare(at, raw, 80, load.offset), load.offset).address()
            assert result is not None, load.text
            assert result.value in wanted
            wanted.remove(result.value)


@pytest.mark.parametrize("n", [5, -1, 0x7FFF_FFFF])
def test_uniform_pair_and_wide_offset(
    n: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """uniform.cu: ``[R4.64+UR4]`` is the sum of two pairs, modulo 2**64."""
    listing = disassembled(compiled(SOURCE.with_name("uniform.cu"), 75))["wide"]
    store = next(i for i in accesses(listing, True) if any(".64+UR" in operand for operand in i.operands))
    thread = bare(next(threads()), struct.pack("<Qi", OUT, n), 80, store.offset)
    result = Evaluator(Flow(listing), thread, store.offset).address()
    assert result is not None
    assert result.value == OUT + 4 * n


def test_a_guard_that_is_off_accesses_nothing() -> None:
    lines = ("ISETP.GE.AND P0, PT, R4, 0x5, PT", "@!P0 LDG.E R2, [R2.64]", "IADD3 R4, R2, 0x1, RZ")
    base = {"R2": 0x200, "R3": 1}
    assert address_of(*lines, at=1, stop=1, registers={**base, "R4": 3, "P0": 0}) == (
        0x1_0000_0200,
        "registers",
    )
    assert address_of(*lines, at=1, stop=1, registers={**base, "R4": 9, "P0": 1}) is None
    # The base is overwritten but the guard can still be told off.
    assert address_of(*lines, at=1, stop=2, registers={**base, "R4": 9, "P0": 1}) is None


def test_overwritten_base_is_recomputed() -> None:
    lines = ("IMAD.WIDE R2, R4, 0x4, R6", "LDG.E R2, [R2.64]", "IADD3 R8, R2, 0x1, RZ")
    registers = {"R4": 3, "R6": 0x1000, "R7": 2, "R2": 0xBAD, "R3": 2}
    assert address_of(*lines, at=1, stop=2, registers=registers) == (0x2_0000_100C, "evaluated")


def test_source_that_changed_since_is_not_used() -> None:
    """R4 was stepped behind the load by an instruction that cannot be reversed."""
    lines = ("IMAD.WIDE R2, R4, 0x4, R6", "LDG.E R2, [R2.64]", "IMAD R4, R4, R4, RZ", "NOP")
    registers = {"R4": 9, "R6": 0x1000, "R7": 2, "R3": 2}
    assert address_of(*lines, at=1, stop=2, registers={**registers, "R4": 3}) == (0x2_0000_100C, "evaluated")
    assert address_of(*lines, at=1, stop=3, registers=registers) is None


LOOP = (
    "MOV R4, RZ",
    "LDS R8, [R4]",  # 1: jumped to
    "IADD3 R4, R4, 0x10, RZ",
    "ISETP.NE.AND P0, PT, R4, 0x1000, PT",
    "IADD3 R9, R9, R8, RZ",
    "@P0 BRA 0x10",
)


def test_step_behind_a_load_is_undone() -> None:
    assert address_of(*LOOP, at=1, stop=1, registers={"R4": 0x30}) == (0x30, "registers")
    assert address_of(*LOOP, at=1, stop=2, registers={"R4": 0x30}) == (0x30, "registers")
    for stop in (3, 4, 5):
        assert address_of(*LOOP, at=1, stop=stop, registers={"R4": 0x40}) == (0x30, "evaluated")


def test_step_by_a_register_that_changed_is_not_undone() -> None:
    lines = (
        "MOV R4, RZ",
        "LDS R8, [R4]",
        "IADD3 R4, R4, R10, RZ",
        "IADD3 R10, R10, 0x1, RZ",
        "NOP",
        "@P0 BRA 0x10",
    )
    assert address_of(*lines, at=1, stop=3, registers={"R4": 0x40, "R10": 7}) == (0x39, "evaluated")
    assert address_of(*lines, at=1, stop=4, registers={"R4": 0x40, "R10": 8}) is None


def test_two_steps_are_not_undone() -> None:
    lines = (*LOOP[:3], "IADD3 R4, R4, 0x10, RZ", "NOP", "@P0 BRA 0x10")
    assert address_of(*lines, at=1, stop=3, registers={"R4": 0x40}) == (0x30, "evaluated")
    assert address_of(*lines, at=1, stop=4, registers={"R4": 0x50}) is None


def test_a_store_in_a_loop_may_be_some_turns_back() -> None:
    """Nothing waits for a store: the warp may have gone round since, so a stepped base is not told."""
    store = (LOOP[0], "STS [R4], R8", *LOOP[2:])
    for stop in (1, 2, 3, 5):
        assert address_of(*store, at=1, stop=stop, registers={"R4": 0x40}) is None
    fixed = ("MOV R4, R10", "STS [R6], R8", *LOOP[2:])
    assert address_of(*fixed, at=1, stop=3, registers={"R4": 0x40, "R6": 0x80}) == (0x80, "registers")
    once = store[:-1]
    assert address_of(*once, at=1, stop=3, registers={"R4": 0x40}) == (0x30, "evaluated")


def test_ambiguous_definitions_are_not_guessed() -> None:
    lines = (
        "S2R R0, SR_TID.X",
        "@P0 BRA 0x40",
        "IMAD R2, R0, 0x8, RZ",
        "BRA 0x50",
        "IMAD R2, R0, 0x4, RZ",
        "LDS R2, [R2]",  # 5
        "NOP",
    )
    assert address_of(*lines, at=5, stop=6, registers={}) is None
    assert address_of(*lines, at=5, stop=5, registers={"R2": 12}) == (12, "registers")


@pytest.mark.parametrize("jump", ["BRA.U UP0, 0x30", "BRA.DIV UR4, 0x30", "BRA P1, 0x30", "@P0 BRA 0x30"])
def test_every_form_of_condition_falls_through(jump: str) -> None:
    """A conditional jump without a guard in front of it must not hide the way that falls through."""
    lines = ("MOV R2, 0x10", jump, "MOV R2, 0x20", "LDS R2, [R2]", "NOP")
    assert address_of(*lines, at=3, stop=4, registers={}) is None


def test_value_before_a_join_is_not_that_behind_it() -> None:
    """R4 is whole in the dump, but on the other way to the load it was written after R2 was made from it."""
    lines = ("IADD3 R2, R4, 0x4, RZ", "@P0 BRA 0x30", "MOV R4, 0x8", "LDS R2, [R2]", "NOP")
    assert address_of(*lines, at=3, stop=4, registers={"R4": 0x8}) is None


@pytest.mark.parametrize(
    "line",
    [
        "SHFL.IDX PT, R2, R9, R10, 0x1f",
        "SHFL.UP P0, R2, R9, 0x1, RZ",
        "ATOMG.E.ADD.STRONG.GPU PT, R2, desc[UR4][R10.64], R12",
        "LOP3.LUT P0, R2, R9, 0x1, RZ, 0xc0, !PT",
        "LDG.E.64 R1, [R10.64]",
        "LDCU.64 UR4, c[0x0][0x208]",
        "F2F.F64.F32 R1, R9",
        "LEPC R1",
        "HMMA.16816.F32 R0, R12, R16, RZ",
        "HGMMA.64x8x16.F32 R24, gdesc[UR8], R24",
        "CALL.REL.NOINC 0x100",
        "IMNMX.S64 PT, PT, R1, R8, R10, PT, !PT",
        "TEX.LL R6, R2, R4, R25, UR4, 2D",
    ],
)
def test_every_result_counts_as_written(line: str) -> None:
    """A base that these write behind the load is no longer what it was."""
    lines = ("LDS R8, [R2+UR5]", line, "NOP")
    registers = {"R2": 0x10, "UR5": 0x10}
    assert address_of(*lines, at=0, stop=1, registers=registers) == (0x20, "registers")
    assert address_of(*lines, at=0, stop=2, registers=registers) is None


def test_callee_entry_has_unknown_callers() -> None:
    lines = ("MOV R2, 0x10", "BPT.TRAP 0x1", "LDS R2, [R2]", "NOP", "CALL.REL.NOINC 0x20", "EXIT")
    assert address_of(*lines, at=2, stop=3, registers={}) is None


def test_window_of_a_large_function_tells_nothing_that_rests_on_code_outside() -> None:
    text = "".join(
        f"/*{n:04x}*/ {line} ;\n" for n, line in ((0, "MOV R2, 0x10"), (16, "LDS R2, [R2]"), (32, "EXIT"))
    )
    listing = parse_listing(text, start=0x8000)
    assert listing is not None
    flow = Flow(listing)
    assert flow.partial
    assert Evaluator(flow, thread_of({}, 0x8020), 0x8010).address() is None


def test_arguments_that_flow_in_are_named() -> None:
    lines = (
        "LDC.64 R6, c[0x0][0x210]",
        "S2R R4, SR_TID.X",
        "IMAD.WIDE R2, R4, 0x4, R6",
        "LDG.E R2, [R2.64]",
        "NOP",
    )
    flow = Flow(listing_of(*lines, "EXIT"))
    result = Evaluator(
        flow, thread_of({"R3": 0x7FAA, "R4": 3, "R6": 0x12345678, "R7": 0x7FAA}, 64), 48
    ).address()
    assert result is not None
    assert result.arguments == {0}
    assert result.value == 0x7FAA_1234_5678 + 12


# -- the corpus ----------------------------------------------------------------------------


def test_intact_bases_agree_with_recomputed_ones(dump_case: DumpCase) -> None:
    """Where the base register is still whole, hiding it must give the same address, or none."""
    from cuwhy.locate.faults import special_registers
    from cuwhy.locate.places import CodeMap
    from cuwhy.read.coredump import CoreDump
    from cuwhy.read.groups import exception_groups, sampled

    dump = CoreDump(dump_case.data)
    code = CodeMap(dump, dump_case.listings)
    grids = {grid.id: grid for grid in dump.grids}
    for group in exception_groups(dump):
        grid = grids.get(group.grid_id)
        if grid is None or group.pc is None:
            continue
        found, flow = code.find(group.pc, grid.module), code.flow(group.pc, grid.module)
        if found is None or flow is None:
            continue
        entry = found[1].address
        for warp, lane in sampled(group, dump)[::7]:
            whole = Thread(
                lane.pc - entry, dump.registers(warp, lane), dump.uniform_registers(warp),
                dump.predicates(warp, lane), lane.thread, warp.block, grid.block, grid.grid, grid.parameters,
                grid.constant_bank_offset, lambda offset: None, lane.lane,
                special_registers(grid, dump.context(grid.context)),
            )  # fmt: skip
            seen = Evaluator(flow, whole, group.pc - entry).address()
            if seen is None:
                continue
            for kept in range(0, len(whole.registers), 2):
                hidden = replace(whole, registers=whole.registers[:kept])
                again = Evaluator(flow, hidden, group.pc - entry).address()
                assert again is None or again.value == seen.value
    code.close()


# -- anything at all -------------------------------------------------------------------------

operands = st.sampled_from(
    ["R0", "R1", "R2", "R3", "R4", "RZ", "UR4", "UR5", "URZ", "P0", "P1", "!P0", "PT", "!PT", "UP0", "UPT", "0x4",
     "-0x1", "0xffffffff", "c[0x0][0x210]", "c[0x0][0x0]", "c[0x0][R2+0x4]", "c[0x3][0x0]", "[R2.64]", "[R2]",
     "[R2.X4+0x10]", "[R2.U32+UR4]", "desc[UR4][R2.64]", "-R2", "~R3", "|R2|", "R2.reuse", "SR_TID.X", "SRZ",
     "0x10", "0x20", "0x40", "B0", "-RZ", "0", "1.5", "+INF", "R999999999999", "c[", "[", "R2.H0_H0", "", "PR"]
)  # fmt: skip
opcodes = st.sampled_from(
    ["MOV", "IMAD", "IMAD.WIDE", "IMAD.WIDE.U32.X", "IMAD.HI.U32", "IADD3", "IADD3.X", "LEA", "LEA.HI.X", "SHF.R.U64",
     "SHF", "LOP3.LUT", "ISETP.GE.AND", "ISETP.LT.U32.AND.EX", "ISETP", "SEL", "PRMT", "IMNMX", "SGXT", "IABS",
     "HFMA2", "S2R", "CS2R", "LDC", "LDC.64", "LDC.U8", "LDG.E", "LDG.E.128", "STG.E", "LDS", "ATOMS", "BRA", "BRA.U",
     "BRX", "CALL.REL.NOINC", "RET", "EXIT", "BSSY", "BSYNC", "WARPSYNC.COLLECTIVE", "PLOP3.LUT", "SHFL", "X", "R2P"]
)  # fmt: skip
lines = st.builds(
    lambda guard, opcode, rest: f"{guard}{opcode} {', '.join(rest)}",
    st.sampled_from(["", "@P0 ", "@!P0 ", "@UP0 ", "@!PT "]),
    opcodes,
    st.lists(operands, max_size=7),
)


@given(st.lists(lines, min_size=1, max_size=40), st.integers(-2, 41), st.integers(-2, 41), st.integers(0, 5))
def test_random_listings_never_raise(text: list[str], at: int, stop: int, known: int) -> None:
    instructions = tuple(parse_instruction(16 * n, line) for n, line in enumerate(text))
    flow = Flow(Listing(instructions))
    thread = replace(thread_of({}, 16 * stop), registers=[1, 2, 3, 4, 5][:known], uniform=[], predicates=[0])
    evaluator = Evaluator(flow, thread, 16 * at)
    evaluator.address()
    evaluator.register("R2")
    evaluator.register("P0")


@pytest.mark.parametrize(
    "middle", ["IADD3 R2, R2, R2, RZ", "IMAD R2, R3, R2, R2", "@P0 BRA 0x0", "@P0 MOV R2, R3"]
)
def test_long_listings_end_in_time(middle: str) -> None:
    """The largest listing that is ever asked for, in its worst shapes: within seconds, for many threads."""
    import time

    from cuwhy.locate.sass import MAX_WINDOW

    count = MAX_WINDOW // 16
    instructions = tuple(parse_instruction(16 * n, middle) for n in range(count - 2))
    instructions += (
        parse_instruction(16 * (count - 2), "LDS R2, [R2]"),
        parse_instruction(16 * (count - 1), "EXIT"),
    )
    started = time.process_time()
    flow = Flow(Listing(instructions))
    for lane in range(160):
        thread = thread_of({}, 16 * (lane * 100), lane=lane % 32)
        Evaluator(flow, thread, 16 * (count - 2)).address()
    assert time.process_time() - started < 5.0 * slowdown()

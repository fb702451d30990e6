"""The evaluator must be sound: an address may be unknown, never wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import DumpCase
from hypothesis import given
from hypothesis import strategies as st

from cuwhy.locate.evaluate import Evaluator, Thread
from cuwhy.locate.flow import Flow
from cuwhy.locate.sass import Instruction, Listing, access_of, parse_instruction, parse_listing
from cuwhy.read.cubin import Cubin

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

"""Wraps and fillers behind an address, on instructions that nvcc made for recorded programs."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwhy.case import open_case
from cuwhy.locate.evaluate import Thread
from cuwhy.locate.flow import Flow
from cuwhy.locate.indices import IndexEvaluator
from cuwhy.locate.sass import parse_listing

CORPUS = Path(__file__).resolve().parents[2] / "corpus" / "memory"
POINTER = 0x7FA6_0000_0000
INT_MAX = 2**31 - 1


def flow_of(case: str) -> Flow:
    with open_case(CORPUS / case / "evidence.cuwhy") as opened:
        text = next(opened.read(entry.path) for entry in opened.artefacts if entry.kind == "sass")
    listing = parse_listing(bytes(text).decode())
    assert listing is not None
    return Flow(listing)


def load_at(flow: Flow, base: str) -> int:
    return next(i.offset for i in reversed(flow.listing.instructions) if i.opcode.startswith(base))


BRIGHTEN = flow_of("int32-index-overflow/bad_int_overflow")
DEPTH = flow_of("sentinel-index/bad_minus_one")


def brighten(block: int, cols: int, thread: int) -> IndexEvaluator:
    """``image[blockIdx.x * 500 * cols + threadIdx.x]`` with nothing in the registers: all is recomputed."""
    error = load_at(BRIGHTEN, "LDG")
    state = Thread(
        pc=error,
        registers=(),
        uniform=(),
        predicates=(),
        thread=(thread, 0, 0),
        block=(block, 0, 0),
        block_dim=(64, 1, 1),
        grid_dim=(1 << 20, 1, 1),
        parameters=struct.pack("<Qiii", POINTER, 1 << 20, cols, 5),
        parameter_base=0x210,
        argument_at=lambda offset: 0 if offset < 8 else None,
    )
    return IndexEvaluator(BRIGHTEN, state, error)


@given(st.integers(0, 4_000_000), st.integers(1, INT_MAX), st.integers(0, 63))
def test_a_product_is_reported_exactly_when_it_does_not_fit(block: int, cols: int, thread: int) -> None:
    row = block * 500
    exact = row * cols + thread
    found = brighten(block, cols, thread).overflow()
    if exact <= INT_MAX:
        assert found is None
        return
    assert found is not None
    assert {found.left, found.right} == {row, cols}
    assert (found.added, found.exact) == (thread, exact)
    assert -(1 << 31) <= found.stored <= INT_MAX
    assert (found.exact - found.stored) % (1 << 32) == 0


@pytest.mark.parametrize(
    ("block", "cols", "thread", "wraps"),
    # 4,294,967 x 500 = 2,147,483,500, and 65,500 x 32,786 = 2,147,483,000; the largest int is 2,147,483,647.
    [(4_294_967, 1, 63, False), (131, 32_786, 63, False), (131, 32_787, 0, True), (132, 32_768, 0, True)],
)
def test_the_last_number_that_fits(block: int, cols: int, thread: int, wraps: bool) -> None:
    assert (brighten(block, cols, thread).overflow() is not None) == wraps


def depth_of(node: int, base: int = POINTER, *, unsigned: bool = True) -> IndexEvaluator:
    """``node = parent[node]``, where the load has overwritten the upper word of its address."""
    flow = DEPTH
    if not unsigned:
        text = "\n".join(
            f"        /*{i.offset:04x}*/ {i.text.replace('WIDE.U32', 'WIDE')} ;"
            for i in flow.listing.instructions
        )
        listing = parse_listing(text)
        assert listing is not None
        flow = Flow(listing)
    error = load_at(flow, "LDG")
    low = base + 4 * node & 0xFFFFFFFF
    registers = [0] * 16
    registers[2], registers[6], registers[7] = low, base & 0xFFFFFFFF, base >> 32
    state = Thread(
        pc=error + 32,
        registers=registers,
        uniform=(0,) * 64,
        predicates=(0,) * 8,
        thread=(255, 0, 0),
        block=(15, 0, 0),
        block_dim=(256, 1, 1),
        grid_dim=(16, 1, 1),
        parameters=struct.pack("<QQi", base, base + 0x4000, 4096),
        parameter_base=0x210,
        argument_at=lambda offset: 0 if offset < 8 else None,
    )
    return IndexEvaluator(flow, state, error)


def test_ones_in_the_low_word_are_a_filler() -> None:
    for node in (0xFFFFFFFF, INT_MAX):
        found = depth_of(node).low_index()
        assert found is not None
        assert (found.base, found.scale, found.bits) == (POINTER, 4, 30)
        assert found.names == ("INT32_MAX", "UINT32_MAX (-1)")
    found = depth_of(0xFFFFFFFF, unsigned=False).low_index()
    assert found is not None
    assert found.names == ("INT32_MAX", "-1")


@given(st.integers(0, 0xFFFFFFFF), st.integers(1 << 32, 1 << 47))
def test_no_other_low_word_is_one(node: int, base: int) -> None:
    found = depth_of(node, base).low_index()
    assert (found is not None) == (node % (1 << 30) == (1 << 30) - 1)


def test_a_hash_is_no_index_that_wrapped() -> None:
    """``table[(unsigned)(x * 2654435761) % n]``: the product wraps on purpose, and is not extended with a sign."""
    text = """
        /*0000*/ LDC R4, c[0x0][0x218] ;
        /*0010*/ IMAD R0, R4, 0x61c88647, RZ ;
        /*0020*/ LOP3.LUT R0, R0, 0xff, RZ, 0xc0, !PT ;
        /*0030*/ LDC.64 R2, c[0x0][0x210] ;
        /*0040*/ IMAD.WIDE R2, R0, 0x4, R2 ;
        /*0050*/ LDG.E R0, desc[UR4][R2.64] ;
        /*0060*/ EXIT ;
    """
    listing = parse_listing(text)
    assert listing is not None
    state = Thread(
        pc=0x50,
        registers=(),
        uniform=(),
        predicates=(),
        thread=(0, 0, 0),
        block=(0, 0, 0),
        block_dim=(32, 1, 1),
        grid_dim=(1, 1, 1),
        parameters=struct.pack("<Qi", POINTER, 123456789),
        parameter_base=0x210,
        argument_at=lambda offset: 0 if offset < 8 else None,
    )
    assert IndexEvaluator(Flow(listing), state, 0x50).overflow() is None

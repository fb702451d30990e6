"""What counts as a spin, and who stands behind a barrier, on instructions as nvdisasm prints them."""

from __future__ import annotations

import pytest

from cuwhy.locate import waits
from cuwhy.locate.flow import Flow
from cuwhy.locate.sass import parse_listing


def flow_of(*instructions: str) -> Flow:
    text = "".join(f"        /*{16 * i:04x}*/ {line} ;\n" for i, line in enumerate(instructions))
    listing = parse_listing(text)
    assert listing is not None
    return Flow(listing)


def polled(flow: Flow, offset: int) -> str:
    span = waits._loop(flow, offset)
    assert span is not None
    found = waits._polled(flow, span)
    return found.text if found is not None else ""


def test_a_flag_that_is_read_again_and_again_is_a_spin() -> None:
    flow = flow_of(
        "LDC.64 R2, c[0x0][0x210]",
        "LDG.E.STRONG.GPU R0, desc[UR4][R2.64]",
        "ISETP.NE.AND P0, PT, R0, RZ, PT",
        "@!P0 BRA 0x10",
        "EXIT",
    )
    assert polled(flow, 0x20).startswith("LDG")


def test_the_barrier_of_a_cooperative_grid_is_a_spin() -> None:
    # As nvcc 13 compiles grid.sync() for sm_90.
    flow = flow_of(
        "ATOM.E.ADD.STRONG.GPU PT, R6, desc[UR4][R2.64+0x4], R13",
        "LD.E.STRONG.GPU R7, desc[UR4][R2.64+0x4]",
        "CCTL.IVALL",
        "LOP3.LUT R7, R7, R6, RZ, 0x3c, !PT",
        "ISETP.GT.AND P0, PT, R7, -0x1, PT",
        "@P0 BRA 0x10",
        "EXIT",
    )
    assert polled(flow, 0x30).startswith("LD.E.STRONG")


@pytest.mark.parametrize(
    "loop",
    [
        # A dot product: the trip count ends it.
        ("LDG.E R8, desc[UR4][R2.64]", "IADD3 R4, R4, 0x1, RZ", "ISETP.GE.AND P0, PT, R4, UR6, PT",
         "FFMA R9, R8, R8, R9", "@!P0 BRA 0x10"),
        # A search: what is loaded ends it, but each turn loads elsewhere.
        ("LDG.E R8, desc[UR4][R2.64]", "IADD3 R2, P1, R2, 0x4, RZ", "IADD3.X R3, RZ, R3, RZ, P1, !PT",
         "ISETP.NE.AND P0, PT, R8, RZ, PT", "@P0 BRA 0x10"),
        # A list: each turn loads where the last one said.
        ("LDG.E.64 R2, desc[UR4][R2.64]", "ISETP.NE.U32.AND P0, PT, R2, RZ, PT", "NOP", "NOP", "@P0 BRA 0x10"),
        # A delay: the clock ends it.
        ("CS2R R6, SR_CLOCKLO", "LDG.E R8, desc[UR4][R2.64]", "IADD3 R6, R6, -R4, RZ",
         "ISETP.GE.AND P0, PT, R6, 0x3e8, PT", "@!P0 BRA 0x10"),
        # A ticket: each turn takes another number.
        ("ATOMG.E.ADD.STRONG.GPU PT, R8, desc[UR4][R2.64], R10", "NOP", "ISETP.GE.AND P0, PT, R8, UR6, PT", "NOP",
         "@!P0 BRA 0x10"),
    ],
)  # fmt: skip
def test_a_loop_that_gets_on_is_no_spin(loop: tuple[str, ...]) -> None:
    assert polled(flow_of("MOV R4, RZ", *loop, "EXIT"), 0x20) == ""


def test_behind_a_barrier_only_where_no_other_way_leads() -> None:
    straight = flow_of("BAR.SYNC.DEFER_BLOCKING 0x0", "FADD R1, R1, R1", "FADD R2, R2, R2", "EXIT")
    assert waits._only_behind_barriers(straight, 2)
    # A loop right behind the barrier: a warp there has long passed it.
    loop = flow_of(
        "BAR.SYNC.DEFER_BLOCKING 0x0", "FFMA R1, R1, R2, R3", "IADD3 R4, R4, 0x1, RZ",
        "ISETP.GE.AND P0, PT, R4, UR6, PT", "@!P0 BRA 0x10", "EXIT",
    )  # fmt: skip
    assert not any(waits._only_behind_barriers(loop, position) for position in (1, 2, 3, 4))
    # Some threads jump over the barrier.
    around = flow_of("@P0 BRA 0x20", "BAR.SYNC.DEFER_BLOCKING 0x0", "FADD R1, R1, R1", "EXIT")
    assert not waits._only_behind_barriers(around, 2)
    # A loop with the barrier in it: every way back leads over it.
    inside = flow_of("BAR.SYNC.DEFER_BLOCKING 0x0", "FADD R1, R1, R1", "@P0 BRA 0x0", "EXIT")
    assert waits._only_behind_barriers(inside, 1)


def test_the_first_use_of_a_load_waits_for_memory() -> None:
    flow = flow_of("LDG.E R8, desc[UR4][R2.64]", "IADD3 R4, R5, R6, RZ", "FFMA R9, R8, R8, R9", "EXIT")
    assert waits._needs_load(flow, 2)
    assert not waits._needs_load(flow, 1)
    constant = flow_of("LDC R8, c[0x0][0x210]", "FFMA R9, R8, R8, R9", "EXIT")
    assert not waits._needs_load(constant, 1)

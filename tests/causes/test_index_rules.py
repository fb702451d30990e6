"""Rules about indices on facts that no recorded case holds: the arithmetic fits to the byte, or nothing is claimed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuwhy.diagnosing import conclude
from cuwhy.model.facts import (
    Address,
    Allocation,
    Argument,
    Distance,
    DriverAllocation,
    Fact,
    Fault,
    Filler,
    Launch,
    LaunchRecord,
    Overflow,
    SanitizerFault,
    Threads,
)
from cuwhy.model.place import Frame, Place

POINTER = 0x7F00_0000_0000
GENERAL, WRAP = "memory/global-out-of-bounds", "memory/int32-index-overflow"
FILLER, SEARCH = "memory/sentinel-index", "memory/search-result-as-index"
LAUNCH = Launch(
    "_Z1kPfi", "k(float*, int)", "k", 3, 0, grid=(64, 1, 1), block=(128, 1, 1),
    arguments=(Argument(0, 0, 8, "float*", "x", POINTER, "", True), Argument(1, 8, 4, "int", "cols", 50_000, "", False)),
)  # fmt: skip
PLACE = Place("_Z1kPfi", 16, 0x1000, (Frame("k", "/app/k.cu", 7),))
ONE = Threads(1, 1, 1, (9, 0, 0), (5, 0, 0), "one thread of block 9")


def fault(index: int, width: int = 4, **more: object) -> Fault:
    value = POINTER + index * width
    address = Address(
        value, "global", width, "evaluated", base=0, distances=(Distance(0, "x", index * width),), low=value, high=value, **more
    )  # type: ignore[arg-type]  # fmt: skip
    return Fault(LAUNCH, 14, PLACE, ONE, True, "load", "LDG", address)


def buffer(elements: int, width: int = 4, freed: int | None = None) -> DriverAllocation:
    return DriverAllocation(POINTER, elements * width, freed=freed)


def names(*facts: Fact) -> list[str]:
    return [f.cause.name for f in conclude(facts).findings]


#: 50,000 x 50,000 = 2,500,000,000; less 2^32: -1,794,967,296.
PRODUCT = Overflow(50_000, 50_000, 0, 2_500_000_000, -1_794_967_296)


def test_a_wrap_that_the_instructions_show_is_named_with_its_factors() -> None:
    (finding,) = conclude([fault(PRODUCT.stored, overflow=PRODUCT)]).findings
    assert finding.cause.name == WRAP
    assert "50,000 (`cols`) x 50,000 (`cols`) = 2,500,000,000" in finding.sentence
    assert dict(finding.details)["index"] == "-1,794,967,296"


def test_what_is_added_behind_the_wrap_is_kept() -> None:
    (finding,) = conclude([fault(PRODUCT.stored + 3, overflow=PRODUCT)]).findings
    assert dict(finding.details)["meant"] == "2,500,000,003"


def test_64_bits_must_help_where_the_size_is_known() -> None:
    one = fault(PRODUCT.stored, overflow=PRODUCT)
    assert names(one, buffer(2_500_000_001)) == [WRAP]
    assert names(one, buffer(2_500_000_000)) == [GENERAL]


def test_a_grid_stride_step_is_one_although_the_true_index_is_outside() -> None:
    stride = 64 * 128
    step = Overflow(2**31 - stride, 1, stride, 2**31, -(2**31))
    assert names(fault(step.stored, overflow=step), buffer(2**31 - 10)) == [WRAP]
    other = replace(step, left=2**31 - 1, added=1)
    assert names(fault(step.stored, overflow=other), buffer(2**31 - 10)) == [GENERAL]


def test_a_wrap_that_does_not_make_this_address_is_not_blamed() -> None:
    assert names(fault(PRODUCT.stored + 1_000_000, overflow=PRODUCT)) == [GENERAL]


def test_without_instructions_the_buffer_must_tell() -> None:
    assert names(fault(-1_794_967_296)) == [GENERAL]
    assert names(fault(-1_794_967_296), buffer(2_500_000_001)) == [WRAP]
    assert names(fault(-1_794_967_296), buffer(2_500_000_000)) == [GENERAL]
    assert names(fault(-1_794_967_296), buffer(2_500_000_001, freed=7)) == [GENERAL]
    # No 32-bit number is that small.
    assert names(fault(-(2**31) - 1), buffer(2**33)) == [GENERAL]
    # A halo in front of a huge buffer.
    assert names(fault(-5), buffer(2**32 - 5)) == [GENERAL]


def report(address: int, size: int, width: int = 4, **more: object) -> SanitizerFault:
    given: dict[str, object] = {
        "kernel": "_Z1kPfi", "short": "k", "place": PLACE, "access": "read", "space": "global", "width": width,
        "allocation": Allocation(POINTER, size, 1, "after"), "threads": ONE,
    }  # fmt: skip
    text = f"Invalid __global__ read of size {width} bytes"
    kind = str(more.pop("kind", "out-of-bounds"))
    return SanitizerFault("memcheck", kind, text, address=address, **{**given, **more})  # type: ignore[arg-type]


def test_memcheck_alone_tells_a_wrap_by_the_allocation() -> None:
    near = POINTER - 4 * 1_794_967_296
    assert names(report(near, 4 * 2_500_000_001)) == [WRAP]
    assert names(report(near, 4 * 2_500_000_000)) == [GENERAL]
    assert names(report(near + 2, 4 * 2_500_000_001)) == [GENERAL]


@pytest.mark.parametrize(
    ("index", "name"), [(2**31 - 1, "INT32_MAX"), (2**32 - 1, "UINT32_MAX"), (-(2**31), "INT32_MIN")]
)
def test_fillers_are_named(index: int, name: str) -> None:
    (finding,) = conclude([fault(index)]).findings
    assert finding.cause.name == FILLER
    assert name in finding.sentence


@pytest.mark.parametrize("index", [-1, 2**31 - 2, 2**31, 2**32, 100])
def test_other_numbers_are_none(index: int) -> None:
    assert names(fault(index)) == [GENERAL]


def test_a_lost_address_with_known_low_bits() -> None:
    known = replace(fault(0), address=None, filler=Filler(("INT32_MAX", "UINT32_MAX (-1)"), 0, 4, 30))
    (finding,) = conclude([known]).findings
    assert finding.cause.name == FILLER
    assert (
        "`x` (float*) at index INT32_MAX or UINT32_MAX (-1) in thread (5,0,0) of block (9,0,0)"
        in finding.sentence
    )
    assert names(replace(known, filler=None)) == [GENERAL]


# -- at the end ------------------------------------------------------------------------

RECORD = LaunchRecord(1, "kernel", "_Z1kPfi", 0, grid=(64, 1, 1), block=(128, 1, 1))
SIZE = 4 * 1_000_003  # a prime number of elements: no thread counts there


def test_one_thread_in_the_middle_reads_just_behind_the_last() -> None:
    (finding,) = conclude([report(POINTER + SIZE, SIZE), RECORD]).findings
    assert finding.cause.name == SEARCH


@pytest.mark.parametrize(
    ("one", "record"),
    [
        (report(POINTER + SIZE, SIZE), None),
        (report(POINTER + SIZE, SIZE), replace(RECORD, kernel="_Z5otherPf")),
        (report(POINTER + SIZE + 4, SIZE), RECORD),
        (report(POINTER + SIZE, SIZE, access="write"), RECORD),
        (report(POINTER + SIZE, SIZE, records=2), RECORD),
        (report(POINTER + SIZE, SIZE, threads=replace(ONE, count=2)), RECORD),
        # The last thread of its block, and a thread of the last block.
        (report(POINTER + SIZE, SIZE, threads=replace(ONE, first_thread=(127, 0, 0))), RECORD),
        (report(POINTER + SIZE, SIZE, threads=replace(ONE, first_block=(63, 0, 0))), RECORD),
        # x[i + 1] in the last of 9 x 128 + 5 + 1 threads that are let through.
        (report(POINTER + 4 * 1158, 4 * 1158), RECORD),
        # Three elements a thread, and a loop over the block's threads that runs one turn too long.
        (report(POINTER + 4 * 3474, 4 * 3474), RECORD),
        (report(POINTER + 4 * 100_101, 4 * 100_101), RECORD),
    ],
)
def test_what_counting_may_explain_is_left_to_the_general_cause(
    one: SanitizerFault, record: LaunchRecord | None
) -> None:
    assert names(one, *([record] if record is not None else [])) == [GENERAL]


# -- freed memory ----------------------------------------------------------------------


def test_memory_that_was_freed_before_the_launch() -> None:
    one = fault(5)
    record = replace(RECORD, number=3, microseconds=500)
    freed = DriverAllocation(POINTER, 4096, frames=(Frame("make", "/app/k.cu", 20),), freed=400)
    (finding,) = conclude([one, record, freed]).findings
    assert finding.cause.name == "memory/use-after-free"
    assert any("made at k.cu:20 in make" in reason for reason in finding.why)


@pytest.mark.parametrize(
    ("record", "block"),
    [
        # Freed on the way out, after the error.
        (replace(RECORD, number=3, microseconds=500), DriverAllocation(POINTER, 4096, freed=600)),
        (replace(RECORD, number=3, microseconds=500), DriverAllocation(POINTER, 4096)),
        # The address lies outside of what was freed.
        (replace(RECORD, number=3, microseconds=500), DriverAllocation(POINTER, 16, freed=400)),
        # Another launch, or one that a graph replays later.
        (replace(RECORD, number=2, microseconds=500), DriverAllocation(POINTER, 4096, freed=400)),
        (replace(RECORD, number=3, microseconds=500, flags=("captured",)), DriverAllocation(POINTER, 4096, freed=400)),
        (replace(RECORD, number=3, microseconds=500), DriverAllocation(POINTER, 4096, freed=400, process=7)),
    ],
)  # fmt: skip
def test_what_does_not_prove_a_use_after_free(record: LaunchRecord, block: DriverAllocation) -> None:
    assert names(fault(5), record, block) == [GENERAL]


def test_memory_that_was_handed_out_again_is_in_use() -> None:
    record = replace(RECORD, number=3, microseconds=500)
    again = DriverAllocation(POINTER, 4096, microseconds=450)
    assert names(fault(5), record, DriverAllocation(POINTER, 4096, freed=400), again) == [GENERAL]


def test_memchecks_own_word_for_it() -> None:
    kinds = [report(POINTER, 4096, kind="use-after-free")]
    assert names(*kinds) == ["memory/use-after-free"]

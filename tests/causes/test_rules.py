"""Rules on facts that no recorded case holds: above all, when they must say nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from cuwhy import diagnose
from cuwhy.diagnosing import conclude
from cuwhy.model.diagnosis import Diagnosis, Role
from cuwhy.model.errors import InputError
from cuwhy.model.facts import (
    Address,
    Allocation,
    Argument,
    AssertMessage,
    Distance,
    ErrorReport,
    Fact,
    Fault,
    Launch,
    SanitizerFault,
    SanitizerSummary,
    Threads,
    Wait,
    WaitKind,
)
from cuwhy.model.place import Frame, Place

POINTER = 0x7F0000000000
LAUNCH = Launch(
    "_Z1kPfi", "k(float*, int)", "k", 3, 0, grid=(4, 1, 1), block=(64, 1, 1),
    arguments=(Argument(0, 0, 8, "float*", "x", POINTER, "", True), Argument(1, 8, 4, "int", "n", 5, "", False)),
)  # fmt: skip
PLACE = Place("_Z1kPfi", 16, 0x1000, (Frame("k", "/demo/k.cu", 7),))
ONE = Threads(1, 1, 1, (0, 0, 0), (3, 0, 0), "one thread of block 0")
FAULT = Fault(LAUNCH, 14, PLACE, ONE, True, "load", "LDG")
WAIT = Wait(LAUNCH, WaitKind.SPIN, PLACE, ONE, block_threads=64)


def named(*facts: Fact, notes: tuple[str, ...] = ()) -> list[str]:
    return [f.cause.name for f in conclude(facts, (), notes).findings]


def global_address(value: int, **more: object) -> Address:
    distance = value - POINTER
    given: dict[str, object] = {"space": "global", "width": 4, "how": "evaluated", "base": 0}
    return Address(value, distances=(Distance(0, "x", distance),), low=value, high=value, **{**given, **more})  # type: ignore[arg-type]


def test_nothing_seen_gives_nothing() -> None:
    assert conclude([]) == Diagnosis()


@pytest.mark.parametrize("kind", ["load", "store", "atomic", "reduction"])
def test_out_of_bounds_with_any_access(kind: str) -> None:
    fault = replace(FAULT, access=kind, address=global_address(POINTER + (1 << 32)))
    assert named(fault) == ["memory/global-out-of-bounds"]
    finding = conclude([fault]).findings[0]
    assert "4,294,967,296 bytes (4.0 GiB) past the start of `x` (float*)" in finding.sentence


def test_a_negative_offset_is_said() -> None:
    fault = replace(FAULT, address=global_address(POINTER - (1 << 31)))
    finding = conclude([fault]).findings[0]
    assert "before the start of `x`" in finding.sentence
    assert any("negative" in reason for reason in finding.why)


def test_null_argument_is_not_called_an_overrun() -> None:
    arguments = (replace(LAUNCH.arguments[0], value=0), LAUNCH.arguments[1])
    launch = replace(LAUNCH, arguments=arguments)
    address = Address(0x10000000, "global", 4, "evaluated", base=0, distances=(Distance(0, "x", 0x10000000),))
    assert named(replace(FAULT, launch=launch, address=address)) == ["memory/null-pointer"]


def test_address_space_without_an_address_is_left_open() -> None:
    diagnosis = conclude([replace(FAULT, exception=7)])
    assert [f.cause.name for f in diagnosis.findings] == ["unknown/unexplained"]
    assert diagnosis.open


def test_illegal_instruction_needs_somebody_who_read_the_bytes() -> None:
    unread = replace(FAULT, exception=4, access="", opcode="")
    assert named(unread) == ["unknown/unexplained"]
    assert named(replace(unread, opcode="?")) == ["execution/illegal-instruction"]
    assert named(replace(unread, opcode="STS", access="store")) == ["memory/shared-out-of-bounds"]


def test_missing_disassembler_is_the_first_thing_to_get() -> None:
    diagnosis = conclude(
        [replace(FAULT, exception=7)], (), ["no SASS, no recomputed addresses: nvdisasm is not installed"]
    )
    assert diagnosis.open[0].step.startswith("pip install 'cuwhy[sass]'")


def test_a_spin_is_endless_only_when_nothing_runs() -> None:
    assert named(WAIT) == ["synchronization/endless-spin"]
    running = replace(WAIT, kind=WaitKind.RUNNING)
    assert named(WAIT, running) == []
    other = replace(running, launch=replace(LAUNCH, grid_id=4, kernel="other"))
    assert named(WAIT, other) == [], "another kernel may still write the value"
    assert any("second dump" in question.step for question in conclude([WAIT, running]).open)


def barrier(expected: int | None, arrived: int, gone: int = 0) -> Wait:
    return replace(
        WAIT,
        kind=WaitKind.BLOCK_BARRIER,
        barrier=1,
        expected=expected,
        arrived_per_block=arrived,
        exited_per_block=gone,
    )


def test_barrier_arithmetic() -> None:
    mismatch = ["synchronization/barrier-count-mismatch"]
    running = replace(WAIT, kind=WaitKind.RUNNING)
    assert named(barrier(96, 64)) == mismatch
    assert named(barrier(96, 64), running) == mismatch, "more than the block has can never come"
    assert named(barrier(64, 32, gone=32), running) == mismatch, "those that left will not come back"
    assert named(barrier(64, 32), running) == [], "the others may still arrive"
    assert named(barrier(None, 32)) == ["unknown/unexplained"]
    found = conclude([barrier(64, 32), WAIT]).findings
    assert [(f.cause.name, f.role) for f in found] == [
        ("synchronization/endless-spin", Role.PRIMARY),
        (mismatch[0], Role.CASCADE),
    ]


def test_checker_and_dump_of_one_line_are_one_finding() -> None:
    fault = replace(FAULT, address=global_address(POINTER + (1 << 32)))
    report = SanitizerFault(
        "memcheck", "out-of-bounds", "Invalid __global__ read of size 4 bytes", short="k", place=PLACE, access="read",
        space="global", width=4, address=POINTER + 4096, allocation=Allocation(POINTER, 4096, 1, "after"),
    )  # fmt: skip
    diagnosis = conclude([fault, report])
    assert [f.cause.name for f in diagnosis.findings] == ["memory/global-out-of-bounds"]
    assert set(diagnosis.findings[0].facts) == {fault, report}


def test_code_under_a_checker_is_not_the_programs_own() -> None:
    report = SanitizerFault(
        "memcheck", "misaligned", "Address is misaligned", short="k", place=PLACE, address=6, width=4
    )
    finding = conclude(
        [report, ErrorReport(719, "cudaErrorLaunchFailure", "x.cu:3: unspecified launch failure")]
    ).findings[0]
    assert finding.cause.name == "memory/misaligned-access"
    assert finding.misleading == ""


def test_error_code_alone_names_no_cause() -> None:
    diagnosis = conclude([ErrorReport(700, "cudaErrorIllegalAddress", "700")])
    assert [f.cause.name for f in diagnosis.findings] == ["unknown/unexplained"]
    assert "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1" in diagnosis.open[0].step


def test_a_report_about_another_kernel_is_not_lost_beside_a_dump() -> None:
    fault = replace(FAULT, address=global_address(POINTER + (1 << 32)))
    other = SanitizerFault(
        "memcheck", "out-of-bounds", "Invalid read", short="other", space="global", width=4,
        place=Place("other", 0, 0, (Frame("other", "/demo/other.cu", 3),)), address=POINTER + (1 << 30), high=POINTER + (1 << 30),
    )  # fmt: skip
    first, second = conclude([fault, other]).findings
    assert (first.kernel, first.role) == ("k", Role.PRIMARY)
    assert (second.kernel, second.role) == ("other", Role.LATENT)


def test_a_checker_with_another_cause_at_the_same_line_stays() -> None:
    fault = replace(FAULT, address=global_address(POINTER + (1 << 32)))
    unwritten = SanitizerFault(
        "initcheck",
        "uninitialized-read",
        "Uninitialized read",
        short="k",
        space="global",
        width=4,
        place=PLACE,
    )
    assert named(fault, unwritten) == ["memory/global-out-of-bounds", "memory/uninitialized-read"]


@pytest.mark.parametrize(
    ("address", "says"), [(0x10, "the pointer is null"), (0x9FE01234, "a pointer that was cut to 32 bits")]
)
def test_low_addresses_are_null_only_near_zero(address: int, says: str) -> None:
    report = SanitizerFault(
        "memcheck",
        "out-of-bounds",
        "Invalid read",
        short="k",
        space="global",
        width=4,
        place=PLACE,
        address=address,
    )
    (finding,) = conclude([report]).findings
    assert says in finding.sentence


def test_a_canary_is_an_overrun_of_the_frame_and_no_exhausted_stack() -> None:
    (finding,) = conclude([replace(FAULT, exception=19, access="", opcode="")]).findings
    assert finding.cause.name == "memory/local-out-of-bounds"
    assert "the instruction is" not in " ".join(finding.why)


def test_an_unknown_size_of_shared_memory_is_not_zero() -> None:
    (finding,) = conclude([replace(FAULT, exception=14, access="store", opcode="STS")]).findings
    assert "0 bytes" not in finding.sentence


def test_an_assert_of_the_users_is_not_pytorchs() -> None:
    mine = AssertMessage("/home/me/pytorch-kernels/my.cu", 33, "k", "idx < limit", ONE)
    assert named(mine) != ["memory/host-index-out-of-range"]
    theirs = replace(
        mine, file="/pytorch/aten/src/ATen/native/cuda/Indexing.cu", expression="srcIndex < srcSelectDimSize"
    )
    assert named(theirs) == ["memory/host-index-out-of-range"]


def test_what_was_not_printed_is_said() -> None:
    report = SanitizerFault(
        "memcheck", "out-of-bounds", "Invalid read", short="k", space="global", width=4, place=PLACE,
        address=POINTER, records=100, threads=replace(ONE, count=100, pattern="threads 0 to 99 of block 8"),
    )  # fmt: skip
    (finding,) = conclude([report, SanitizerSummary("memcheck", 8190)]).findings
    assert finding.threads is not None
    assert "printed 100 of 8,190 errors" in finding.threads.pattern
    assert "block 8" not in finding.threads.pattern


def test_a_folder_of_sources_that_is_not_there_is_refused(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("CUDA error: an illegal memory access was encountered\n")
    with pytest.raises(InputError, match="no folder with sources"):
        diagnose([log], sources=[tmp_path / "nowhere"])


def test_waits_that_no_rule_explains_are_listed() -> None:
    barrier = replace(WAIT, kind=WaitKind.CLUSTER_BARRIER, threads=replace(ONE, count=64))
    (finding,) = conclude([barrier]).findings
    assert finding.cause.name == "unknown/unexplained"
    assert "64 threads wait (cluster barrier)" in finding.sentence

"""Rules about launches on facts that no recorded case holds: the codes, the limits, and when to say nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cuwhy.diagnosing import conclude
from cuwhy.model.diagnosis import Role
from cuwhy.model.facts import (
    Address,
    Argument,
    CleanExit,
    ErrorReport,
    Fact,
    Fault,
    HostTraceback,
    Launch,
    LaunchRecord,
    Machine,
    RefusedLaunch,
    SanitizerFault,
    Threads,
)
from cuwhy.model.place import Frame, Place

#: Attributes of an H200 and of a kernel with 32 registers (cuFuncGetAttribute, cuDeviceGetAttribute).
LIMITS = {
    "compute_major": 9, "compute_minor": 0, "sm_count": 132, "registers": 32, "static_shared": 0,
    "function_max_threads": 1024, "max_dynamic_shared": 49152,
}  # fmt: skip
FRAMES = (
    Frame("cudaLaunchKernel", "/app/run", None),
    Frame("__device_stub__Z1kPf(float*)", "/tmp/x.cudafe1.stub.c", 13),
    Frame("k(float*)", "/app/run.cu", 7),
    Frame("main", "/app/run.cu", 31),
)
RECORD = LaunchRecord(0, "kernel", "_Z1kPf", 1, grid=(1, 1, 1), block=(128, 1, 1), frames=FRAMES)


def refused(record: LaunchRecord, **limits: int) -> RefusedLaunch:
    return RefusedLaunch(record, tuple(sorted({**LIMITS, **limits}.items())))


def only(*facts: Fact) -> tuple[str, dict[str, str], Role]:
    (finding,) = conclude(facts).findings
    assert finding.cause.name == "launch/launch-refused"
    return finding.sentence, dict(finding.details), finding.role


@pytest.mark.parametrize(
    ("record", "limits", "requested", "limit"),
    [
        (replace(RECORD, block=(32, 33, 1)), {}, "1,056", "1,024"),
        (replace(RECORD, block=(1, 1, 65)), {}, "65", "64"),
        (replace(RECORD, block=(512, 1, 1)), {"function_max_threads": 256}, "512", "256"),
        (replace(RECORD, grid=(1, 70000, 1)), {}, "70,000", "65,535"),
        (replace(RECORD, grid=(0, 1, 1)), {}, "0", "1"),
        (replace(RECORD, dynamic_shared=65536), {}, "65,536", "49,152"),
        (replace(RECORD, dynamic_shared=240_000), {"max_dynamic_shared": 232448}, "240,000", "232,448"),
        # 168 registers x 512 threads: 5,376 a warp x 16 warps.
        (
            replace(RECORD, code=701, block=(512, 1, 1)),
            {"registers": 168, "function_max_threads": 384},
            "86,016",
            "65,536",
        ),
        (replace(RECORD, code=720, kind="cooperative", grid=(3000, 1, 1)), {}, "3,000", "2,112"),
        (replace(RECORD, code=912, grid=(64, 1, 1), cluster=(32, 1, 1)), {}, "32", "16"),
    ],
)
def test_what_was_asked_stands_beside_the_limit(
    record: LaunchRecord, limits: dict[str, int], requested: str, limit: str
) -> None:
    sentence, details, role = only(refused(record, **limits))
    assert (details["requested"], details["limit"]) == (requested, limit)
    assert requested in sentence
    assert limit in sentence or limit == "16"
    assert role is Role.PRIMARY


def test_the_host_line_is_the_users_and_not_the_stub() -> None:
    finding = conclude([refused(replace(RECORD, block=(2048, 1, 1)))]).findings[0]
    assert finding.host == FRAMES[3]
    assert finding.place is not None
    assert finding.place.frames == (FRAMES[3],)
    assert finding.kernel == "k"


def test_the_same_launch_again_and_again_is_one_finding() -> None:
    one = refused(replace(RECORD, block=(2048, 1, 1)))
    sentence, _, _ = only(*[one] * 3)
    assert sentence.endswith("(3 times)")


def test_an_unknown_chip_is_judged_by_what_all_chips_have() -> None:
    future = {"compute_major": 77, "compute_minor": 3, "max_dynamic_shared": 999_999}
    assert only(refused(replace(RECORD, grid=(1, 70000, 1)), **future))[1]["limit"] == "65,535"
    _, details, _ = only(refused(replace(RECORD, dynamic_shared=500_000), **future))
    assert "limit" not in details


def test_sizes_that_fit_are_not_blamed() -> None:
    sentence, details, _ = only(refused(RECORD))
    assert "CUDA_ERROR" not in sentence
    assert "requested" not in details


@pytest.mark.parametrize("code", [0, 2, 400, 700, 719, None])
def test_an_earlier_failure_is_no_refusal(code: int | None) -> None:
    """Of a context that is lost every launch is refused, with the code of what went before."""
    assert conclude([refused(replace(RECORD, code=code))]).findings == ()


def test_a_refusal_beside_another_failure_or_a_clean_end_is_latent() -> None:
    one = refused(replace(RECORD, block=(2048, 1, 1)))
    assert only(one, CleanExit("[exit code 0]"))[2] is Role.LATENT
    report = SanitizerFault("memcheck", "misaligned", "Address is misaligned", short="k", address=6, width=4)
    found = conclude([one, report]).findings
    assert [(f.cause.name, f.role) for f in found] == [
        ("memory/misaligned-access", Role.PRIMARY),
        ("launch/launch-refused", Role.LATENT),
    ]


def test_a_library_that_tries_and_falls_back_is_latent() -> None:
    frames = (Frame("autotune", "/usr/lib/python3/site-packages/torch/_inductor/x.py", 40),)
    one = refused(replace(RECORD, block=(2048, 1, 1), frames=frames))
    assert only(one)[2] is Role.LATENT
    found = conclude([one, ErrorReport(9, "", "CUDA error: invalid configuration argument")]).findings
    assert [(f.cause.name, f.role) for f in found] == [("launch/launch-refused", Role.PRIMARY)]


@pytest.mark.parametrize("code", [9, 701, 720, 912])
def test_a_code_alone_tells_what_but_not_which(code: int) -> None:
    finding = conclude([ErrorReport(code, "", f"CUDA error {code}")]).findings[0]
    assert finding.cause.name == "launch/launch-refused"
    assert finding.kernel == ""
    assert any("cuwhy run" in reason for reason in finding.why)


def test_a_code_alone_takes_its_line_from_the_traceback() -> None:
    frame = Frame("forward", "/app/model.py", 12)
    trace = HostTraceback((frame,), "RuntimeError", "CUDA error: invalid configuration argument")
    assert conclude([ErrorReport(9, "", "9"), trace]).findings[0].host == frame


def test_a_later_code_is_not_taken_for_the_cause() -> None:
    names = [f.cause.name for f in conclude([ErrorReport(700, "", "700"), ErrorReport(9, "", "9")]).findings]
    assert names == ["unknown/unexplained"]


# -- no kernel image -----------------------------------------------------------------

LOAD = replace(RECORD, kind="load", kernel="cuLibraryGetKernel", code=209, block=(0, 0, 0), grid=(0, 0, 0))


def test_a_refused_load_names_kernel_line_and_chip() -> None:
    finding = conclude([refused(LOAD)]).findings[0]
    assert finding.cause.name == "launch/no-kernel-image"
    assert finding.sentence == "`k` cannot be loaded: the program holds no code for this chip (sm_90)"
    assert finding.host == FRAMES[3]


def test_a_load_that_failed_and_hurt_nobody_is_latent() -> None:
    finding = conclude([refused(LOAD), CleanExit("[exit code 0]")]).findings[0]
    assert finding.role is Role.LATENT


def test_209_in_the_output_is_enough() -> None:
    (finding,) = conclude([ErrorReport(209, "", "no kernel image is available")]).findings
    assert finding.cause.name == "launch/no-kernel-image"
    assert finding.kernel == ""


# -- traps and shared memory -----------------------------------------------------------

LAUNCH = Launch("_Z1kPf", "k(float*)", "k", 1, 0, grid=(4, 1, 1), block=(64, 1, 1), shared_bytes=1024,
                arguments=(Argument(0, 0, 8, "float*", "x", 1 << 40, "", True),))  # fmt: skip
PLACE = Place("_Z1kPf", 16, 0x1000, (Frame("k", "/app/run.cu", 9),), "BPT.TRAP 0x1")
ONE = Threads(1, 1, 1, (0, 0, 0), (3, 0, 0), "one thread of block 0")


def test_a_trap_is_the_architectures_only_where_nothing_else_was_compiled() -> None:
    trap = Fault(LAUNCH, 0, PLACE, ONE, access="trap", opcode="BPT", only_traps=True)
    machine = Machine(architecture="sm_90")
    (finding,) = conclude([machine, trap]).findings
    assert finding.cause.name == "launch/wrong-architecture"
    assert "sm_90" in finding.sentence
    (finding,) = conclude([machine, replace(trap, only_traps=False)]).findings
    assert finding.cause.name == "execution/trap"


def test_shared_memory_that_was_asked_for_is_overrun() -> None:
    address = Address(1024 + 400, "shared", 4, "registers", low=1024 + 400, high=1024 + 508)
    fault = Fault(LAUNCH, 5, PLACE, ONE, True, "store", "STS", address)
    (finding,) = conclude([fault]).findings
    assert finding.cause.name == "launch/dynamic-shared-not-requested"
    assert "at least 512 bytes" in finding.sentence
    (finding,) = conclude([replace(fault, launch=replace(LAUNCH, shared_bytes=1024 + 256))]).findings
    assert finding.cause.name == "memory/shared-out-of-bounds"
    (finding,) = conclude([replace(fault, launch=replace(LAUNCH, shared_bytes=-1))]).findings
    assert finding.cause.name == "memory/shared-out-of-bounds"

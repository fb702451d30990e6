"""Joining the launch log with a dump: which record, which host line, whose memory."""

from __future__ import annotations

import pytest

from cuwhy.locate.recorded import describe, host_frame, record_of
from cuwhy.model.facts import DriverAllocation, Launch, LaunchRecord
from cuwhy.model.place import Frame

LAUNCH = Launch(
    "_ZN2ns4addkIfEEvPT_i", "void ns::addk<float>(float*, int)", "addk", 7, grid=(1, 1, 1), block=(32, 1, 1)
)
STUB = "/tmp/tmpxft_00000574_00000000-6_k.cudafe1.stub.c"
#: As addr2line says it of a program that nvcc 13.0 built with -g and its static runtime.
NVCC = (
    Frame("libcudart_static_5887a27cefafb4cd438bdc166b0a6f874b079d4b", "/home/u/k"),
    Frame("cudaLaunchKernel", "/home/u/k"),
    Frame("cudaError cudaLaunchKernel<char>(char const*, dim3, dim3, void**)", "/usr/local/cuda/include/cuda_runtime.h", 216),
    Frame("__device_stub__ZN2ns4addkIfEEvPT_i(float*, int)", STUB, 1),
    Frame("void ns::__wrapper__device_stub_addk<float>(float*&, int&)", STUB, 3),
    Frame("void ns::addk<float>(float*, int)", "/home/u/k.cu", 4),
    Frame("run(float*)", "/home/u/k.cu", 10),
    Frame("main", "/home/u/k.cu", 13),
)  # fmt: skip


def record(number: int, **more: object) -> LaunchRecord:
    fields: dict[str, object] = {"grid": (1, 1, 1), "block": (32, 1, 1), "code": 0, **more}
    return LaunchRecord(number, "kernel", str(fields.pop("kernel", LAUNCH.kernel)), **fields)  # type: ignore[arg-type]


def test_host_line_of_a_program_that_nvcc_built() -> None:
    assert host_frame(record(7, frames=NVCC), LAUNCH) == NVCC[6]


def test_host_line_without_line_tables() -> None:
    frames = [Frame(frame.function, "/home/u/k") for frame in NVCC[6:]]
    found = host_frame(record(7, frames=(*frames, Frame("+0x27249", "/lib/libc.so.6"))), LAUNCH)
    assert found == Frame("run(float*)", "/home/u/k")


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([record(6), record(7), record(8)], 1),
        # The right number, another kernel or other sizes.
        ([record(7, kernel="_Z5otherv")], None),
        ([record(7, grid=(2, 1, 1))], None),
        # The driver refused it: no kernel of it can be in a dump.
        ([record(7, code=1)], None),
        # Numbers have drifted: the last one before.
        ([record(3), record(5), record(9)], 1),
        # Two contexts.
        ([record(7, context=1), record(7, context=2)], 1),
        ([record(0, flags=("captured",))], 0),
        ([], None),
    ],
)
def test_which_record(records: list[LaunchRecord], expected: int | None) -> None:
    assert record_of(LAUNCH, records) is (None if expected is None else records[expected])


def test_own_context_first() -> None:
    launch = Launch("k", "k", "k", 7, context=1)
    ours, theirs = record(7, kernel="k", context=1), record(7, kernel="k", context=2)
    assert record_of(launch, [ours, theirs]) is ours


def test_where_an_address_lies() -> None:
    block = DriverAllocation(0x1000, 4096, frames=(Frame("main", "/home/u/main.cpp", 12),))
    assert describe(block, 0x2040) == (
        "64 bytes past the end of the 4,096-byte allocation at 0x1000, made at main.cpp:12 in main"
    )
    assert describe(block, 0xFFC).startswith("4 bytes before the 4,096-byte allocation")
    assert describe(block, 0x1010).startswith("16 bytes into the")
    freed = DriverAllocation(0x1000, 4096, freed=5, freed_frames=(Frame("drop", "/home/u/main.cpp", 40),))
    assert describe(freed, 0x1000).endswith("freed at main.cpp:40 in drop")

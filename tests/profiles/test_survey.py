"""Timelines: of PyTorch's profiler (as its exporter lays them out), Nsight Systems, and a recorded ncu report."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from cuwhy.model.errors import InputError
from cuwhy.profiles.survey import LaunchTime, read_ncu_times, read_nsys_trace, read_torch_trace, survey_of

DATA = Path(__file__).parent / "data"


def kernel(name: str, start: float, microseconds: float, **more: Any) -> dict[str, Any]:
    """A kernel as Kineto writes it."""
    args = {
        "queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": 4732, "registers per thread": 40,
        "shared memory": 4096, "blocks per SM": 4.7, "warps per SM": 75.2, "grid": [800, 1, 1], "block": [512, 1, 1],
        "est. achieved occupancy %": 100,
    }  # fmt: skip
    return {
        "ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": start, "dur": microseconds, "args": args | more
    }  # fmt: skip


def trace(*events: Any, **more: Any) -> dict[str, Any]:
    devices = [{"id": 0, "name": "NVIDIA H200", "computeMajor": 9, "computeMinor": 0, "numSms": 132}]
    return {"schemaVersion": 1, "deviceProperties": devices, "traceEvents": list(events)} | more


def test_torch(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps(
            trace(
                kernel("void at::native::fill<4, float>(int, float*)", 30.0, 10.0),
                {
                    "ph": "X",
                    "cat": "gpu_memcpy",
                    "name": "Memcpy HtoD",
                    "ts": 1.0,
                    "dur": 500.0,
                    "args": {"device": 0},
                },
                kernel("void at::native::fill<8, float>(int, float*)", 10.0, 5.0, device=1),
                kernel("gemm", 50.0, 45.0),
                {"ph": "s", "cat": "ac2g", "ts": 3.0},
                "nonsense",
            )
        )
    )
    seen = read_torch_trace(path)
    assert (seen.method, seen.architecture, seen.sms) == ("torch", "sm_90", 132)
    assert (seen.launches, seen.nanoseconds) == (3, 60_000)
    first, second = seen.kernels
    assert (first.kernel, first.share, first.launches) == ("gemm", 75.0, 1)
    assert (second.kernel, second.variants, second.launches, second.devices) == ("fill", 2, 2, (0, 1))
    # In order of time the long launch is the second.
    assert second.number == 2
    assert (second.sample.grid, second.sample.block) == ((800, 1, 1), (512, 1, 1))
    assert (second.sample.registers, second.sample.shared) == (40, 4096)


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"traceEvents": 5}', "[" * 100_000, "\ufffd\x00", '{"traceEvents": [[[]]]}']
)
def test_torch_traces_that_are_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    if text.endswith("[[[]]]}"):
        assert read_torch_trace(path).kernels == ()
        return
    with pytest.raises(InputError):
        read_torch_trace(path)


def test_torch_events_from_a_stranger(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    odd = [
        kernel("k", 1.0, 2.0, grid="x", block=[1e300, -1, None], device=-5),
        kernel("k", 1.0, -2.0),
        {"ph": "X", "cat": "kernel", "name": "k", "ts": "x", "dur": "1e400"},
        {"ph": "X", "cat": "kernel", "name": "", "dur": 1},
    ]
    path.write_text(json.dumps(trace(*odd, deviceProperties=[7])))
    (only,) = read_torch_trace(path).kernels
    assert (only.launches, only.nanoseconds, only.sample.grid, only.devices) == (1, 2000, (0, 0, 0), ())


NSYS = """\
Processing [survey.sqlite] with [/opt/nsys/reports/cuda_gpu_trace.py]...
Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),DymSMem (MB),Bytes (MB),\
Throughput (MB/s),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,Name
1000,"5,000",110,,,,,,,,,,64.000,12000,Pageable,Device,NVIDIA H200 (0),1,,7,[CUDA memcpy Host-to-Device]
9000,3000,111,128,128,1,32,8,1,28,0.004,0.000,,,,,NVIDIA H200 (0),1,,7,"rotate(const float *, float *, int)"
19000,1000,112,16,1,1,256,1,1,16,0.000,0.000,,,,,NVIDIA H200 (1),1,,7,void fill<(int)4>(float *)
"""


def test_nsys() -> None:
    seen = read_nsys_trace(NSYS)
    assert [(one.kernel, one.nanoseconds, one.share) for one in seen.kernels] == [
        ("rotate", 3000, 75.0),
        ("fill", 1000, 25.0),
    ]
    assert (seen.kernels[0].sample.grid, seen.kernels[0].sample.registers) == ((128, 128, 1), 28)
    assert seen.kernels[1].devices == (1,)
    with pytest.raises(InputError):
        read_nsys_trace("SKIPPED: survey.sqlite does not contain CUDA trace data.\n")


def test_ncu(tmp_path: Path) -> None:
    pytest.importorskip("ncu_report", reason="NVIDIA's reader exists for x86-64 Linux only")
    path = tmp_path / "perf.ncu-rep"
    path.write_bytes(lzma.decompress((DATA / "perf.ncu-rep.xz").read_bytes()))
    seen = read_ncu_times(path)
    # perf.cu launches each of its five kernels once; blocks of 256 threads.
    assert {one.kernel for one in seen.kernels} == {
        "transpose_bad", "transpose_good", "strided", "divergent", "spill"
    }  # fmt: skip
    assert seen.launches == 5
    assert (seen.architecture, seen.sms) == ("sm_90", 132)
    assert seen.kernels[0].kernel == "spill"
    assert seen.kernels[0].sample.grid == (4096 * 4096 // 256 // 16, 1, 1)
    assert sum(one.share for one in seen.kernels) == pytest.approx(100)


def test_the_launch_that_stands_for_the_others() -> None:
    def number(*durations: float) -> int:
        return survey_of("torch", [LaunchTime("k", "k", d) for d in durations]).kernels[0].number

    assert number(5) == 1
    # Small sizes first, then the long ones.
    assert number(1, 1, 100, 99, 101) == 3
    # One outlier among many equal launches is not it.
    assert number(*[10] * 30, 50, *[10] * 30) == 1
    assert number(0, 0) == 1

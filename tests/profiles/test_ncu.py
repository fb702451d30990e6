"""Reading a report that Nsight Compute 2025.3.1 wrote on an H200 (program: data/perf.cu, built with -lineinfo -O3)."""

from __future__ import annotations

import contextlib
import lzma
import random
import sys
from pathlib import Path

import pytest

import cuwhy
from cuwhy.model.errors import InputError, ToolMissing
from cuwhy.model.profile import ProfiledLaunch

DATA = Path(__file__).parent / "data"
pytest.importorskip("ncu_report", reason="NVIDIA's reader exists for x86-64 Linux only")


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ncu") / "perf.ncu-rep"
    path.write_bytes(lzma.decompress((DATA / "perf.ncu-rep.xz").read_bytes()))
    return path


@pytest.fixture(scope="session")
def launches(report: Path) -> dict[str, ProfiledLaunch]:
    return {launch.short: launch for launch in cuwhy.parse_ncu_report(report)}


def test_launches_are_those_of_the_program(launches: dict[str, ProfiledLaunch]) -> None:
    assert list(launches) == ["transpose_bad", "transpose_good", "strided", "divergent", "spill"]
    bad = launches["transpose_bad"]
    assert bad.kernel == "_Z13transpose_badPKfPfi"
    assert (bad.block, bad.architecture) == ((32, 8, 1), "sm_90")
    # __launch_bounds__(256, 8): 65,536 / 2,048 threads.
    assert launches["spill"].value("launch__registers_per_thread") == 32
    assert launches["transpose_bad"].value("launch__shared_mem_per_block_static") == 32 * 32 * 4
    assert launches["transpose_good"].value("launch__shared_mem_per_block_static") == 32 * 33 * 4


def test_counters_stand_on_their_lines(launches: dict[str, ProfiledLaunch]) -> None:
    bad = launches["transpose_bad"]
    excess = {}
    for instruction, value in bad.counted("derived__memory_l1_wavefronts_shared_excessive"):
        excess[instruction.line] = excess.get(instruction.line, 0) + value
    # The column read of the tile; Nsight Compute's own rule gives the same total in its message.
    assert {line for line, value in excess.items() if value} == {11}
    said = next(rule for rule in bad.rules if rule.rule == "UncoalescedSharedAccess" and rule.message)
    assert f"{excess[11]:.0f} excessive" in said.message
    assert not any(
        v for _, v in launches["transpose_good"].counted("derived__memory_l1_wavefronts_shared_excessive")
    )
    # One warp executes each of its instructions once: 128 x 128 blocks of 8 warps.
    first = bad.instructions[0]
    assert first.counters["inst_executed"] == 128 * 128 * 8
    assert (Path(first.file).name, first.line) == ("perf.cu", 5)
    assert first.sass.startswith("LDC R1")
    assert [i.offset for i in bad.instructions[:3]] == [0, 16, 32]


def test_what_was_not_collected_is_missing_and_not_zero(launches: dict[str, ProfiledLaunch]) -> None:
    bad = launches["transpose_bad"]
    assert bad.value("no__such_metric.sum") is None
    assert bad.value("no__such_metric.sum", "launch__grid_dim_x") == 128
    loads = [i for i in bad.instructions if i.sass.startswith("LEA")]
    assert loads
    assert all("memory_l1_wavefronts_shared" not in i.counters for i in loads)


def test_not_a_report(tmp_path: Path) -> None:
    other = tmp_path / "x.ncu-rep"
    other.write_bytes(b"PK\3\4")
    with pytest.raises(InputError, match="not a Nsight Compute report"):
        cuwhy.parse_ncu_report(other)
    with pytest.raises(InputError, match="No such file"):
        cuwhy.parse_ncu_report(tmp_path / "missing")
    other.write_bytes(b"NVR\0" + bytes(100))
    with pytest.raises(InputError):
        cuwhy.parse_ncu_report(other)


@pytest.mark.slow
def test_damaged_reports_end_in_an_error_or_in_values(report: Path, tmp_path: Path) -> None:
    whole = report.read_bytes()
    dice = random.Random(7)
    broken = tmp_path / "broken.ncu-rep"
    for cut in (100, len(whole) // 3, len(whole) - 10):
        broken.write_bytes(whole[:cut])
        with pytest.raises(InputError):
            cuwhy.parse_ncu_report(broken)
    for _ in range(6):
        content = bytearray(whole)
        for _ in range(200):
            content[dice.randrange(4, len(content))] = dice.randrange(256)
        broken.write_bytes(content)
        with contextlib.suppress(InputError):
            assert isinstance(cuwhy.parse_ncu_report(broken), list)


def test_without_the_reader_it_says_how_to_get_it(report: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ncu_report", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ToolMissing, match="pip install"):
        cuwhy.parse_ncu_report(report)

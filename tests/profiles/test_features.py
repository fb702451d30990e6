"""The feature vector and the cost on lines, on the recorded report; expectations follow from perf.cu."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

import cuwhy
from cuwhy.model.errors import InputError
from cuwhy.model.profile import Metric, ProfiledLaunch
from cuwhy.profiles.annotate import annotate_kernel_source
from cuwhy.profiles.features import Features, features_of

DATA = Path(__file__).parent / "data"
pytest.importorskip("ncu_report", reason="NVIDIA's reader exists for x86-64 Linux only")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("ncu") / "perf.ncu-rep"
    path.write_bytes(lzma.decompress((DATA / "perf.ncu-rep.xz").read_bytes()))
    return path


@pytest.fixture(scope="module")
def launches(report: Path) -> dict[str, ProfiledLaunch]:
    return {launch.short: launch for launch in cuwhy.parse_ncu_report(report)}


def test_bank_conflicts(launches: dict[str, ProfiledLaunch]) -> None:
    bad, good = features_of(launches["transpose_bad"]), features_of(launches["transpose_good"])
    # A column of a 32-word pitch: 32 wavefronts where 1 would do, beside the row writes with 1 each: 31 of 33.
    assert bad.shared_excess == pytest.approx(31 / 33 * 100, abs=0.1)
    assert good.shared_excess == 0
    assert bad.stall is not None
    assert bad.stall.reason == "mio_throttle"


def test_uncoalesced_divergent_and_spilling(launches: dict[str, ProfiledLaunch]) -> None:
    # Each lane's 4 bytes in a sector of its own: 32 sectors for 4; with the coalesced stores 28 of 36.
    assert features_of(launches["strided"]).global_excess == pytest.approx(28 / 36 * 100, abs=2)
    assert features_of(launches["transpose_good"]).global_excess == 0
    divergent = features_of(launches["divergent"])
    # A quarter of the lanes at a time.
    assert divergent.warp_execution_efficiency == pytest.approx(25, abs=1)
    assert features_of(launches["strided"]).warp_execution_efficiency == 100
    spill = features_of(launches["spill"])
    assert spill.local_share is not None
    assert spill.local_share > 80
    assert features_of(launches["strided"]).local_share == 0


def test_waves(launches: dict[str, ProfiledLaunch]) -> None:
    # 128 x 128 blocks of 256 threads, 8 an SM, 132 SMs.
    found = features_of(launches["transpose_bad"])
    assert found.waves == pytest.approx(128 * 128 / (8 * 132), abs=0.01)
    assert found.tail_loss == pytest.approx((1 - 15.515 / 16) * 100, abs=0.1)


def test_nothing_collected_gives_nothing() -> None:
    assert features_of(ProfiledLaunch(0, "_Z1kv", "k()", "k")) == Features()
    only = ProfiledLaunch(0, "_Z1kv", "k()", "k", metrics={"l1tex__t_sector_hit_rate.pct": Metric(0.0, "%")})
    assert features_of(only) == Features(l1_hit=0.0)


def test_cost_on_lines(report: Path) -> None:
    found = annotate_kernel_source(report, "transpose_bad", sources=[DATA])
    (worst,) = found.top("shared_excess")
    assert (Path(worst.file).name, worst.line) == ("perf.cu", 11)
    assert worst.shares["shared_excess"] == 100
    assert worst.text is not None
    assert "tile[threadIdx.x][threadIdx.y + j]" in worst.text
    assert sum(line.shares.get("samples", 0) for line in found.lines) == pytest.approx(100)
    assert sum(len(line.sass) for line in found.lines) == len(found.launch.instructions)
    assert found.notes == ()


def test_a_source_that_has_changed_is_said(report: Path, tmp_path: Path) -> None:
    (tmp_path / "perf.cu").write_text("int main() {}\n")
    found = annotate_kernel_source(report, "spill", sources=[tmp_path])
    assert any("has changed" in note for note in found.notes)


def test_a_source_whose_lines_have_moved_is_said(report: Path, tmp_path: Path) -> None:
    text = (DATA / "perf.cu").read_text()
    (tmp_path / "perf.cu").write_text(text.replace("  __syncthreads();\n", "\n  __syncthreads();\n", 1))
    moved = annotate_kernel_source(report, "transpose_bad", sources=[tmp_path])
    assert [note.partition(" is no code")[0] for note in moved.notes] == ["perf.cu:9"]


def test_no_such_kernel(report: Path) -> None:
    with pytest.raises(InputError, match="it has transpose_bad"):
        annotate_kernel_source(report, "softmax")

"""Profiles of faulty programs and their repaired twins, recorded on an H200: the feature that should tell them apart does."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from cuwhy import annotate_kernel_source, parse_ncu_report
from cuwhy.profiles.features import Features, features_of

pytest.importorskip("ncu_report", reason="NVIDIA's reader exists for x86-64 Linux only")
TWINS = Path(__file__).parent / "data" / "twins"
CASES = sorted(path.parent for path in TWINS.glob("*/*/report.ncu-rep.xz"))


def report_of(case: Path, folder: Path) -> Path:
    path = folder / "report.ncu-rep"
    path.write_bytes(lzma.decompress((case / "report.ncu-rep.xz").read_bytes()))
    return path


def features(case: Path, folder: Path) -> Features:
    (launch,) = parse_ncu_report(report_of(case, folder))
    return features_of(launch)


def test_there_are_twins() -> None:
    assert {case.name.split("_", 1)[1] for case in CASES} >= {
        "tile_column",
        "row_pitch",
        "strided_read",
        "row_reduction",
    }


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_feature_tells_the_twins_apart(case: Path, tmp_path: Path) -> None:
    found, bad = features(case, tmp_path), case.name.startswith("bad_")
    if case.parent.name == "shared-bank-conflict":
        assert found.shared_excess is not None
        # 31 of 32 wavefronts, less what the conflict-free accesses need.
        assert found.shared_excess > 90 if bad else found.shared_excess == 0
    elif case.parent.name == "uncoalesced-access":
        assert found.global_excess is not None
        # 7 of the 8 words of a sector are not used.
        assert found.global_excess > 75 if bad else found.global_excess == 0
    assert found.microseconds is not None
    # Under the profiler the clocks are the same and the caches cold.
    timed = float((case / "log.txt").read_text().split()[0])
    assert found.microseconds == pytest.approx(timed, rel=0.35)


@pytest.mark.parametrize(
    ("name", "counter", "text"),
    [
        ("shared-bank-conflict/bad_tile_column", "shared_excess", "tile[threadIdx.x][j]"),
        ("shared-bank-conflict/bad_row_pitch", "shared_excess", "rows[t][c]"),
        ("uncoalesced-access/bad_strided_read", "global_excess", "particles[(size_t)i * 8 + 6]"),
        ("uncoalesced-access/bad_row_reduction", "global_excess", "in[(size_t)row * width + c]"),
    ],
)
def test_the_cost_stands_on_the_faulty_line(name: str, counter: str, text: str, tmp_path: Path) -> None:
    case = TWINS / name
    found = annotate_kernel_source(report_of(case, tmp_path), sources=[case])
    worst = found.top(counter)[0]
    assert worst.shares[counter] > 99
    assert worst.text is not None
    assert text in worst.text


def test_the_repaired_twin_is_faster(tmp_path: Path) -> None:
    for case in CASES:
        if case.name.startswith("bad_"):
            twin = case.parent / case.name.replace("bad_", "ok_", 1)
            slow, fast = (float((c / "log.txt").read_text().split()[0]) for c in (case, twin))
            assert fast < 0.6 * slow, case.name

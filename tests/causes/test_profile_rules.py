"""Causes that a profile shows: the bound that is printed, against the time of the repaired twin."""

from __future__ import annotations

import lzma
from pathlib import Path

import pytest

from cuwhy import diagnose
from cuwhy.causes.profiled import LEAST_GAIN, bound
from cuwhy.model.diagnosis import Diagnosis, Finding
from cuwhy.model.errors import InputError
from cuwhy.model.facts import Launch, LaunchProfile
from cuwhy.report.text import render

ROOT = Path(__file__).resolve().parents[2]
CORPUS = ROOT / "corpus"
DATA = ROOT / "tests" / "profiles" / "data"
BAD = sorted(
    path.parent for path in CORPUS.glob("*/*/bad_*/truth.toml") if '"ncu"' in path.read_text("utf-8")
)
pytest.importorskip("ncu_report")


def of(case: Path) -> Diagnosis:
    return diagnose([case / "evidence.cuwhy"], sources=[case])


def profile_of(diagnosis: Diagnosis) -> LaunchProfile:
    (found,) = (fact for fact in diagnosis.facts if isinstance(fact, LaunchProfile))
    return found


def gain_of(finding: Finding) -> float:
    return float(dict(finding.details)["gain"].removeprefix("at most ").partition(" ")[0])


@pytest.mark.parametrize("case", BAD, ids=lambda case: case.name)
def test_the_bound_holds_for_the_repaired_twin_and_is_worth_the_work(case: Path) -> None:
    bad = of(case)
    repaired = of(case.with_name(case.name.replace("bad_", "ok_", 1)))
    before, after = (profile_of(one).value("microseconds") for one in (bad, repaired))
    assert before is not None
    assert after is not None
    assert bad.primary is not None
    measured = before / after
    assert LEAST_GAIN < measured <= gain_of(bad.primary) < 2 * measured
    assert repaired.findings == ()


def test_there_are_cases() -> None:
    assert len(BAD) >= 5


def test_a_report_of_several_launches(tmp_path: Path) -> None:
    report = tmp_path / "perf.ncu-rep"
    report.write_bytes(lzma.decompress((DATA / "perf.ncu-rep.xz").read_bytes()))
    found = {one.kernel: one for one in diagnose([report], sources=[DATA]).findings}
    # Known from perf.cu: the column of a tile of 32 rows of 32 floats, and a stride of 8 floats.
    tile, stride = found.pop("transpose_bad"), found.pop("strided")
    assert found == {}
    assert tile.cause.name == "access-pattern/shared-bank-conflict"
    assert tile.place is not None
    assert tile.other is not None
    assert (tile.place.short, tile.other.short) == ("perf.cu:11", "perf.cu:6")
    assert "`tile[T][T + 1]`" in tile.fixes[0].text or "[T + 1]" in tile.fixes[0].text
    assert "32 wavefronts where 1 would do" in tile.sentence
    assert stride.cause.name == "access-pattern/uncoalesced-access"
    assert stride.place is not None
    assert stride.place.short == "perf.cu:23"


def test_an_atomic_in_a_header_is_placed_in_the_users_file() -> None:
    finding = of(CORPUS / "execution/atomic-contention/bad_one_counter").primary
    assert finding is not None
    assert finding.place is not None
    assert finding.place.innermost is not None
    assert finding.place.innermost.short == "device_atomic_functions.hpp:107"
    assert finding.place.short == "count.cu:30"
    assert any("instruction before it" in why for why in finding.why)


def test_a_copy_near_the_roof_is_said_to_be_there() -> None:
    diagnosis = of(CORPUS / "access-pattern/uncoalesced-access/ok_copy_near_roof")
    text = " ".join(render(diagnosis).split())
    assert "no cause of the catalogue" in text
    assert "copy: 247.9 us, device memory at 88 %" in text


def test_without_sources_the_line_is_still_named() -> None:
    case = CORPUS / "access-pattern/shared-bank-conflict/bad_tile_column"
    finding = diagnose([case / "evidence.cuwhy"]).primary
    assert finding is not None
    assert finding.place is not None
    assert finding.place.short == "rotate.cu:35"
    assert finding.other is None
    assert "pad each row" in finding.fixes[0].text


def test_what_was_not_collected_gives_no_finding_and_no_roof() -> None:
    empty = LaunchProfile(Launch("k", "k()", "k"))
    assert bound(empty, 0.0) == 1.0
    assert bound(empty, 0.75) == 4.0
    half = LaunchProfile(Launch("k", "k()", "k"), (("dram_throughput", 50.0),))
    assert bound(half, 0.75) == 2.0


def test_a_damaged_report_is_one_clear_error(tmp_path: Path) -> None:
    report = tmp_path / "x.ncu-rep"
    report.write_bytes(b"NVR\0" + b"\1" * 50)
    with pytest.raises(InputError, match="cut off or damaged"):
        diagnose([report])

"""Register pressure of a compiled program, against what ptxas said when it compiled it."""

from __future__ import annotations

import json
import lzma
import re
import shutil
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from cuwhy.cli.main import main
from cuwhy.locate.unloaded import unloaded_lines
from cuwhy.model.errors import InputError
from cuwhy.read.cubin import Cubin
from cuwhy.registers.analysis import RegisterReport, analyse, step_of
from cuwhy.registers.liveness import parse_live_ranges

DATA = Path(__file__).parent / "data"
CUBIN = DATA / "pressure.cubin"  # unpacked here, ignored by git
CUBIN.write_bytes(lzma.decompress((DATA / "pressure.cubin.xz").read_bytes()))
KERNELS = {"crowded": "_Z7crowdedPKfPfi", "tiled": "_Z5tiledPKfPf", "indexed": "_Z7indexedPKiPi"}


def said_by_ptxas(symbol: str) -> dict[str, int]:
    text = (DATA / "pressure.ptxas.txt").read_text()
    part = text.split(f"Compiling entry function '{symbol}'")[1].split("Compiling entry")[0]
    patterns = {
        "registers": r"Used (\d+) registers",
        "stack": r"(\d+) bytes stack frame",
        "stores": r"(\d+) bytes spill stores",
        "loads": r"(\d+) bytes spill loads",
        "shared": r"(\d+) bytes smem",
    }
    return {key: int(m[1]) if (m := re.search(p, part)) else 0 for key, p in patterns.items()}


@pytest.fixture(scope="module")
def reports() -> dict[str, RegisterReport]:
    return {report.name: report for report in analyse(CUBIN.read_bytes(), CUBIN.name)}


@pytest.mark.parametrize("name", KERNELS)
def test_resources_are_those_of_the_compiler(name: str, reports: dict[str, RegisterReport]) -> None:
    report, said = reports[name], said_by_ptxas(KERNELS[name])
    resources = report.resources
    assert (resources.registers, resources.frame_bytes, resources.shared_bytes) == (
        said["registers"],
        said["stack"],
        said["shared"],
    )
    spills = [t for t in report.local if not t.indexed]
    assert sum(t.store_bytes for t in spills) == said["stores"]
    assert sum(t.load_bytes for t in spills) == said["loads"]
    # The peak cannot exceed what was allocated.
    assert 0 < report.peak <= said["registers"]


@pytest.mark.parametrize("name", KERNELS)
def test_rows_agree_with_themselves(name: str, reports: dict[str, RegisterReport]) -> None:
    report = reports[name]
    assert [row.instruction.offset for row in report.rows] == list(range(0, 16 * len(report.rows), 16))
    # nvdisasm counts the live registers itself; the marks were read from other columns.
    assert [row.live for row in report.rows] == [len(row.marks) for row in report.rows]
    assert sum(h.count for h in report.holders) == report.peak == report.rows[report.at].live


def test_spills_are_put_on_their_lines(reports: dict[str, RegisterReport]) -> None:
    lines = {t.line[1] for t in reports["crowded"].local if t.line is not None}
    assert {6, 9, 12} <= lines
    assert {Path(t.line[0]).name for t in reports["crowded"].local if t.line} == {"pressure.cu"}
    arrays = [t for t in reports["indexed"].local if t.indexed]
    assert {t.line[1] for t in arrays if t.line} == {25, 26, 27}


def test_steps(reports: dict[str, RegisterReport]) -> None:
    # __launch_bounds__(512, 4): 16 warps a block; 4 of them a partition and block, 16,384 registers a partition.
    crowded = reports["crowded"]
    assert (crowded.threads, crowded.assumed) == (512, False)
    assert [(s.registers, s.blocks) for s in crowded.steps] == [(128, 1), (64, 2), (40, 3), (32, 4)]
    assert crowded.steps[step_of(crowded)].blocks == 4
    assert reports["tiled"].assumed


def test_lines_of_an_unloaded_cubin_agree_with_nvdisasm() -> None:
    lines = unloaded_lines(Cubin(CUBIN.read_bytes()))
    # nvdisasm -g -c pressure.cubin: the store of tile[] and the barrier.
    assert lines.chain("_Z5tiledPKfPf", 0)[0].line == 16
    assert {lines.chain("_Z5tiledPKfPf", 16 * i)[0].line for i in range(20)} >= {16, 18, 19, 20}
    assert lines.chain("nothing", 0) == []


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    svg = tmp_path / "map.svg"
    assert main(["registers", str(CUBIN), "--kernel", "crowded", "--svg", str(svg)]) == 0
    out = capsys.readouterr().out
    assert "32 registers a thread" in out
    assert "1,184 bytes a thread stored, 1,348 loaded" in out
    assert "pressure.cu:9" in out
    assert "kept[k] = kept[k] * kept[(k + 7)" not in out.splitlines()[0]
    assert max(map(len, out.splitlines()[:-1])) <= 80
    root = ElementTree.fromstring(svg.read_text())  # noqa: S314
    assert root.tag.endswith("svg")
    assert svg.stat().st_size < 150_000
    assert main(["registers", str(CUBIN), "--svg", str(svg)]) == 2
    assert "exists" in capsys.readouterr().err
    assert main(["registers", str(CUBIN), "--json", "--kernel", "tiled"]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["kernels"]
    assert kernel["name"] == "tiled"
    assert kernel["static_shared_bytes"] == 1024


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["missing.cubin"], "no such file"),
        (["/dev/null"], "not a regular file"),
        ([str(CUBIN), "--kernel", "no\x1bsuch"], "no kernel called"),
        ([str(CUBIN), "--block", "4096"], "1 to 1,024"),
        ([str(DATA / "pressure.ptxas.txt")], "neither a cubin"),
        (["/bin/sh"], "a host program"),
    ],
)
def test_bad_input(argv: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["registers", *argv]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert "\x1b" not in error
    assert len(error.splitlines()) == 1


def test_a_source_needs_nvcc(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_args, **_more: None)
    assert main(["registers", str(DATA / "pressure.cu")]) == 2
    assert "nvcc is not installed" in capsys.readouterr().err


@pytest.mark.parametrize("cut", [0, 100, 5_000, 30_000, 60_000])
def test_damaged_cubins(cut: int) -> None:
    whole = CUBIN.read_bytes()
    damaged = whole[:cut] + bytes(len(whole) - cut) if cut else whole[:2000]
    with pytest.raises(InputError):
        analyse(damaged, "damaged")


def test_hostile_listings_are_not_believed() -> None:
    assert parse_live_ranges("") == {}
    assert parse_live_ranges("//--- .text.x ---\n" + "// |" * 10_000) == {}
    assert parse_live_ranges("\n".join(["/*0000*/ MOV R1, R2 ; // | 1 ^"] * 1000)) == {}


def test_a_case_with_a_dump(capsys: pytest.CaptureFixture[str]) -> None:
    case = (
        Path(__file__).parent.parent.parent
        / "corpus/memory/global-out-of-bounds/bad_starter_oob/evidence.cuwhy"
    )
    assert main(["registers", str(case), "--kernel", "scale_tail"]) == 0
    assert "scale_tail (sm_90): " in capsys.readouterr().out

"""Residency compared with what NVIDIA's own header, and the driver on an H200, answered."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from cuwhy.launching.occupancy import occupancy
from cuwhy.model.architecture import ARCHITECTURES, architecture_of

DATA = Path(__file__).parent.parent / "data" / "occupancy"
TABLES = sorted(DATA.glob("*.csv"))


@pytest.mark.parametrize("table", TABLES, ids=lambda path: path.stem)
def test_blocks_equal_the_recorded_answers(table: Path) -> None:
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert len(rows) >= 500
    wrong = []
    for row in rows:
        static, dynamic, most = (int(row[f"{name}_shared"]) for name in ("static", "dynamic", "max_dynamic"))
        if table.stem == "header" and most < dynamic <= 48 * 1024 - static:
            # Here the driver and the header differ, and the driver is right.
            continue
        found = occupancy(
            ARCHITECTURES[row["arch"]],
            int(row["threads"]),
            int(row["registers"]),
            int(row["static_shared"]),
            int(row["dynamic_shared"]),
            max_dynamic_shared=int(row["max_dynamic_shared"]),
        )
        if found.blocks != int(row["blocks"]):
            wrong.append((row, found))
    assert not wrong, f"{len(wrong)} of {len(rows)} differ, first {wrong[0]}"


def test_the_tables_cover_every_architecture_and_both_outcomes() -> None:
    rows = [row for table in TABLES for row in csv.DictReader(table.read_text().splitlines())]
    assert {row["arch"] for row in rows} == set(ARCHITECTURES)
    assert {row["blocks"] == "0" for row in rows} == {True, False}


@pytest.mark.parametrize("text", ["sm_90", "sm_90a", "compute_90", "9.0", "90", " SM_90 "])
def test_names_of_an_architecture(text: str) -> None:
    assert architecture_of(text) is ARCHITECTURES["sm_90"]


@pytest.mark.parametrize("text", ["", "sm_", "sm_99", "9", "hopper", "9.0.0", "sm_90\x1b[0m", "9" * 500])
def test_unknown_architectures(text: str) -> None:
    assert architecture_of(text) is None


def test_a_block_without_threads_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one thread"):
        occupancy(ARCHITECTURES["sm_90"], 0)

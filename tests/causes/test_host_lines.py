"""The host line is the user's, whichever of a checker's reports has it."""

from __future__ import annotations

from pathlib import Path

from cuwhy import diagnose
from cuwhy.case import open_case

CASE = (
    Path(__file__).parent.parent.parent / "corpus/memory/global-out-of-bounds/bad_masked_rows/evidence.cuwhy"
)


def test_triton_launcher_is_nobodys_line(tmp_path: Path) -> None:
    with open_case(CASE) as case:
        for name in ("memcheck.txt", "memcheck.xml"):
            (tmp_path / name).write_bytes(case.read(name))
    for files in (["memcheck.txt"], ["memcheck.xml"], ["memcheck.txt", "memcheck.xml"]):
        primary = diagnose([tmp_path / name for name in files]).primary
        assert primary is not None
        assert primary.host is not None
        assert (primary.host.short, primary.host.function) == ("row_norm.py:22", "row_norms"), files

"""The wheel holds what the program reads at run time, and needs no compiler."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_wheel(tmp_path: Path) -> None:
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "wheel",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "-w",
            tmp_path,
            ROOT,
        ],
        check=True,
        timeout=300,
    )
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    readmes = {str(p.relative_to(ROOT / "src")) for p in ROOT.glob("src/cuwhy/causes/*/*/README.md")}
    assert len(readmes) >= 17
    assert readmes <= names
    assert {"cuwhy/py.typed", "cuwhy/causes/confidence.json"} <= names
    native = {str(p.relative_to(ROOT / "src")) for p in ROOT.glob("src/cuwhy/capture/native/*")}
    assert "cuwhy/capture/native/recorder.c" in native
    assert native <= names
    assert not [name for name in names if name.startswith(("tests/", "corpus/", "scripts/"))]
    assert not [name for name in names if name.endswith((".so", ".o", ".cuwhy", ".pyc"))]
    metadata = next(name for name in names if name.endswith("METADATA"))
    with zipfile.ZipFile(wheel) as archive:
        required = [
            line for line in archive.read(metadata).decode().splitlines() if line.startswith("Requires-Dist")
        ]
    assert all("extra ==" in line for line in required), "the base install has no dependency"

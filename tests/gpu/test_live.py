"""On a machine with a GPU: build corpus programs, let them fail, diagnose the fresh evidence whole.

Recorded evidence says what happened once; this says that it still does.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from cuwhy import diagnose

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent.parent
CORPUS = ROOT / "corpus"
NEEDED = ("nvcc", "nvidia-smi", "compute-sanitizer")
CASES = [
    "memory/global-out-of-bounds/bad_row_stride",
    "memory/global-out-of-bounds/ok_row_stride",
    "memory/misaligned-access/bad_odd_pitch",
    "memory/null-pointer/bad_unset_cache",
    "memory/shared-out-of-bounds/bad_histogram_bins",
    "memory/stack-overflow/bad_leaf_marker",
    "execution/device-assert/bad_token_range",
    "execution/trap/bad_blend_mode",
    "synchronization/barrier-count-mismatch/bad_pipeline_threads",
    "synchronization/endless-spin/bad_unset_flag",
    "synchronization/shared-memory-race/bad_block_sum",
    "synchronization/shared-memory-race/ok_block_sum",
]


def has_gpu() -> bool:
    if any(shutil.which(tool) is None for tool in NEEDED):
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return listed.returncode == 0 and "GPU 0" in listed.stdout


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU and the CUDA toolkit"),
]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fresh evidence of all cases, as the recorder leaves it."""
    out = tmp_path_factory.mktemp("recorded")
    corpus = out / "corpus"
    for case in CASES:
        shutil.copytree(CORPUS / case, corpus / case)
    subprocess.run(
        [
            sys.executable,
            ROOT / "scripts" / "record_corpus.py",
            "--corpus",
            corpus,
            "--out",
            out,
            "--budget",
            "200",
        ],
        check=True,
        timeout=400,
    )
    for tarball in out.glob("evidence-*.tar.xz"):
        with tarfile.open(tarball) as archive:
            archive.extractall(out / "evidence", filter="data")
    return out / "evidence"


@pytest.mark.parametrize("case", CASES)
def test_fresh_evidence(case: str, recorded: Path) -> None:
    truth = tomllib.loads((CORPUS / case / "truth.toml").read_text("utf-8"))
    files = [
        path
        for path in sorted((recorded / case / "evidence").iterdir())
        if path.suffix in (".xml", ".nvcudmp") or path.name == "log.txt"
    ]
    diagnosis = diagnose(files, sources=[CORPUS / case])
    if not truth["cause"]:
        assert diagnosis.findings == ()
        return
    assert diagnosis.primary is not None
    assert diagnosis.primary.cause.name == truth["cause"]
    places = [p for p in (diagnosis.primary.place, diagnosis.primary.other) if p is not None]
    lines = {f.line for p in places for f in p.frames}
    wanted = {truth.get("line"), truth.get("call_line"), *truth.get("lines", ())} - {None}
    assert lines & wanted

"""On a machine with a GPU: `cuwhy run` on programs that fail, with recorder and PyTorch hook."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cuwhy import Diagnosis, diagnose
from cuwhy.model.facts import LaunchRecord, TensorFact

ROOT = Path(__file__).parent.parent.parent
CORPUS = ROOT / "corpus"


def has_gpu() -> bool:
    if any(shutil.which(tool) is None for tool in ("nvcc", "nvidia-smi", "cc")):
        return False
    listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    return listed.returncode == 0 and "GPU 0" in listed.stdout


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not has_gpu(), reason="needs an NVIDIA GPU, the CUDA toolkit and a C compiler"),
]


def run(
    folder: Path, command: list[str], *options: str
) -> tuple[subprocess.CompletedProcess[str], Diagnosis]:
    case = folder / "out.cuwhy"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "cuwhy",
            "run",
            "--budget",
            "0",
            "--case",
            str(case),
            *options,
            "--",
            *command,
        ],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
    )
    return done, diagnose(case, sources=[folder])


def test_the_host_line_of_a_cpp_launch(tmp_path: Path) -> None:
    source = CORPUS / "memory/global-out-of-bounds/bad_row_stride/gather.cu"
    shutil.copy(source, tmp_path)
    subprocess.run(
        ["nvcc", "-arch=native", "-lineinfo", "-g", "gather.cu", "-o", "gather"],
        cwd=tmp_path, check=True, timeout=120,
    )  # fmt: skip
    _, diagnosis = run(tmp_path, ["./gather"])
    finding = diagnosis.primary
    assert finding is not None
    assert finding.cause.name == "memory/global-out-of-bounds"
    launch = next(i for i, text in enumerate(source.read_text().splitlines(), 1) if "<<<" in text)
    assert finding.host is not None
    assert (Path(finding.host.file or "").name, finding.host.line) == ("gather.cu", launch)
    assert any(isinstance(fact, LaunchRecord) and fact.number for fact in diagnosis.facts)


def test_the_tensor_behind_an_argument(tmp_path: Path) -> None:
    source = CORPUS / "memory/global-out-of-bounds/bad_masked_rows/row_norm.py"
    shutil.copy(source, tmp_path)
    done, diagnosis = run(tmp_path, [sys.executable, "row_norm.py"])
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    finding = diagnosis.primary
    assert finding is not None
    assert finding.cause.name == "memory/global-out-of-bounds"
    assert any(isinstance(fact, TensorFact) for fact in diagnosis.facts)
    launch = next(
        i for i, text in enumerate(source.read_text().splitlines(), 1) if "row_norm_kernel[" in text
    )
    assert finding.host is not None
    assert (Path(finding.host.file or "").name, finding.host.line) == ("row_norm.py", launch)


def test_a_program_that_works_is_left_alone(tmp_path: Path) -> None:
    source = CORPUS / "memory/global-out-of-bounds/ok_masked_rows/row_norm.py"
    shutil.copy(source, tmp_path)
    plain = subprocess.run(
        [sys.executable, "row_norm.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    done, diagnosis = run(tmp_path, [sys.executable, "row_norm.py"])
    assert (done.returncode, done.stdout) == (plain.returncode, plain.stdout)
    assert not diagnosis.findings

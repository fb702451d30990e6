"""``cuwhy numerics`` and ``cuwhy.numerics()`` on real PyTorch, on the CPU; skipped where torch is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import cuwhy
from cuwhy.case import open_case
from cuwhy.cli.main import main
from cuwhy.diagnosing import diagnose

torch = pytest.importorskip("torch")


def run(tmp_path: Path, program: str, *options: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "program.py").write_text(textwrap.dedent(program), "utf-8")
    return subprocess.run(
        [sys.executable, "-m", "cuwhy", "numerics", *options, "--", sys.executable, "program.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


def test_output_and_exit_code_are_the_programs_own(tmp_path: Path) -> None:
    done = run(tmp_path, "import sys, torch\nprint(torch.zeros(3).log().sum().item())\nsys.exit(7)\n")
    assert (done.returncode, done.stdout) == (7, "-inf\n")
    assert "log" in done.stderr


def test_results_are_bit_for_bit_the_same(tmp_path: Path) -> None:
    program = """
        import torch
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU(), torch.nn.Dropout(0.5), torch.nn.Linear(8, 1))
        best = torch.optim.AdamW(model.parameters())
        for _ in range(3):
            best.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
            best.step()
        print([p.double().sum().item().hex() for p in model.parameters()])
        """
    watched = run(tmp_path, program)
    plain = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert watched.returncode == 0, watched.stderr
    assert watched.stdout == plain.stdout
    assert "nothing found" in watched.stderr
    assert not list(tmp_path.glob("*.cuwhy"))


def test_a_program_without_torch_is_told_so(tmp_path: Path) -> None:
    done = run(tmp_path, "print(1)\n")
    assert (done.returncode, done.stdout) == (0, "1\n")
    assert "imported torch" in done.stderr


def test_a_crash_after_the_event_keeps_it(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import os, torch\nx = torch.full((3,), 300.0).half()\ny = x * x\nos.kill(os.getpid(), 9)\n",
        "--case", "out.cuwhy",
    )  # fmt: skip
    assert done.returncode in (-9, 137)
    finding = diagnose(tmp_path / "out.cuwhy").primary
    assert finding is not None
    assert finding.cause.name == "numeric/half-overflow"
    assert finding.host is not None
    assert finding.host.line == 3


def test_nothing_of_a_tensor_but_its_range_is_written(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        "import torch\nx = torch.tensor([1.0, 1234.5678, 60000.0]).half()\n(x + x).sum()\n",
        "--case", "out.cuwhy",
    )  # fmt: skip
    assert done.returncode == 0
    with open_case(tmp_path / "out.cuwhy") as case:
        text = b"".join(bytes(case.read(e.path)) for e in case.artefacts if e.kind == "numerics")
    assert b"60000.0" in text
    assert b"1234" not in text
    assert b"1235" not in text


def test_autocast_shows_the_type_that_really_ran() -> None:
    model = torch.nn.Linear(64, 1)
    with cuwhy.numerics() as watch, torch.autocast("cpu", torch.float16):
        model.weight.data.fill_(60.0)
        model(torch.full((2, 64), 60.0))
    finding = watch.diagnosis.primary
    assert finding is not None
    assert finding.cause.name == "numeric/half-overflow"
    assert dict(finding.details)["module"] == "Linear"
    assert "numeric/half-overflow" in str(watch)


def test_after_the_block_nothing_is_watched(tmp_path: Path) -> None:
    with cuwhy.numerics() as watch:
        torch.ones(2) + 1
    seen = watch.diagnosis
    torch.zeros(2) / torch.zeros(2)
    assert watch.diagnosis == seen
    watch.save(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text("utf-8"))["events"] == []
    assert diagnose(tmp_path / "trace.json").findings == ()


def test_a_case_is_diagnosed_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "import torch\ntorch.zeros(2) / torch.zeros(2)\n", "--case", "out.cuwhy")
    assert main(["diagnose", str(tmp_path / "out.cuwhy")]) == 0
    assert "numeric/division-by-zero" in capsys.readouterr().out


def test_masks_of_minus_inf_are_no_event() -> None:
    with cuwhy.numerics() as watch:
        scores = torch.randn(4, 4)
        mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
        causal = torch.full((4, 4), float("-inf")).triu(1)
        torch.softmax(scores.masked_fill(mask, float("-inf")), -1)
        torch.softmax(scores + causal, -1)
        torch.nn.functional.scaled_dot_product_attention(
            torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), torch.randn(1, 1, 4, 8), is_causal=True
        )
    assert watch.diagnosis.findings == ()


TRAINING = """
    import torch
    from torch import nn

    class Norm(nn.Module):
        def forward(self, x):
            return x / x.pow(2).sum(-1, keepdim=True).sqrt()

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 16), nn.GELU(), Norm(), nn.Linear(16, 1))
    best = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(50):
        x = torch.randn(8, 16)
        if step == BAD_STEP:
            with torch.no_grad():
                model[0].weight.zero_()
                model[0].bias.zero_()
        loss = model(x).square().mean()
        best.zero_grad()
        loss.backward()
        best.step()
    print("loss", loss.item())
    """


def test_cheap_names_the_call_and_then_the_operation(tmp_path: Path) -> None:
    done = run(tmp_path, TRAINING.replace("BAD_STEP", "37"), "--cheap", "--case", "out.cuwhy")
    # The second run's output is not the program's.
    assert (done.returncode, done.stdout) == (0, "loss nan\n")
    assert "call 38 of the outermost module" in done.stderr
    finding = diagnose(tmp_path / "out.cuwhy").primary
    assert finding is not None
    assert finding.cause.name == "numeric/division-by-zero"
    assert finding.host is not None
    assert finding.host.line == 7
    assert dict(finding.details)["module"] == "Sequential.2"


def test_cheap_changes_no_result_and_runs_once_when_all_is_finite(tmp_path: Path) -> None:
    program = "open('runs', 'a').write('x')\n" + textwrap.dedent(TRAINING.replace("BAD_STEP", "-1"))
    done = run(tmp_path, program, "--cheap")
    plain = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == plain.stdout
    assert (tmp_path / "runs").read_text() == "xx"
    assert "all was finite" in done.stderr


def test_cheap_without_modules_says_that_it_saw_nothing(tmp_path: Path) -> None:
    done = run(tmp_path, "import torch\ntorch.zeros(2) / torch.zeros(2)\n", "--cheap")
    assert done.returncode == 0
    assert "run it without" in done.stderr

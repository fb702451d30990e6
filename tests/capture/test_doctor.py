"""``cuwhy doctor`` on machines with nothing, with everything, and with tools that hang or talk nonsense."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cuwhy.capture import doctor

SMI = """#!/bin/sh
echo "NVIDIA H200, 580.159.04, 9.0, Default"
echo "NVIDIA H200, 580.159.04, 9.0, Default"
"""


def tool(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(text if text.startswith("#!") else f"#!/bin/sh\necho '{text}'\n")
    (folder / name).chmod(0o755)


def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/usr/bin:/bin", "TMPDIR": str(path), "XDG_RUNTIME_DIR": str(path)}
    environment |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return subprocess.run(
        [sys.executable, "-m", "cuwhy", "doctor", *arguments],
        capture_output=True, text=True, env=environment, timeout=60, check=False,
    )  # fmt: skip


def checks(text: str) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in json.loads(text)["checks"]}


def test_a_machine_with_nothing(tmp_path: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU")
    ended = run(tmp_path)
    assert ended.returncode == 1
    assert ended.stderr == ""
    assert "GPU core dumps cannot work here" in ended.stdout
    assert "get: pip install py-spy" in ended.stdout
    found = checks(run(tmp_path, "--json").stdout)
    assert found["driver"]["state"] == "missing"
    # Whatever is missing is missing with a way to get it.
    assert all(check["fix"] for check in found.values() if check["state"] == "missing")


def test_a_machine_with_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, "nvidia-smi", SMI)
    tool(tmp_path, "compute-sanitizer", "NVIDIA (R) Compute Sanitizer\nVersion 2025.3.1.0 (build 1)")
    tool(tmp_path, "cuda-gdb", "NVIDIA (R) cuda-gdb 13.0")
    tool(tmp_path, "ncu", "Version 2025.3.1.0 (build 36398880)")
    tool(tmp_path, "py-spy", "py-spy 0.4.1")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(doctor, "_gpu_access", lambda: doctor.Check("device nodes", "ok", "1 found", ""))
    found = doctor.examine()
    by_name = {check.name: check for check in found}
    assert doctor.dumps_work(found)
    assert by_name["driver"].found == "2 GPUs: NVIDIA H200 (sm_90), driver 580.159.04"
    assert by_name["compute-sanitizer"].found.startswith("2025.3.1.0 (")
    assert by_name["py-spy"].found.startswith("0.4.1 (")


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ("NVIDIA A100, 470.82.01, 8.0, Default", "limited"),
        ("No devices were found", "missing"),
        ("#!/bin/sh\nexit 9\n", "missing"),
        ("#!/bin/sh\nhead -c 300000 /dev/urandom\n", "missing"),
    ],
)
def test_odd_drivers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, state: str) -> None:
    tool(tmp_path, "nvidia-smi", answer)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert doctor._driver(time.monotonic() + 10).state == state


def test_a_driver_that_hangs_does_not_hang_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool(tmp_path, "nvidia-smi", "#!/bin/sh\nsleep 60\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    begin = time.monotonic()
    assert doctor._driver(begin + 0.5).state == "missing"
    assert time.monotonic() - begin < 3


def test_one_command_gets_what_packages_can_give(tmp_path: Path) -> None:
    ended = run(tmp_path)
    line = next(
        line for line in ended.stdout.splitlines() if line.startswith("to get what packages can give")
    )
    assert "pip install nvidia-cuda-sanitizer-api py-spy" in line
    some = [
        doctor.Check("a", "missing", "", "", "sudo apt-get install gcc"),
        doctor.Check("b", "limited", "", "", "sudo apt-get install gcc libc6-dev"),
        doctor.Check("c", "ok", "", "", "pip install x"),
        doctor.Check("d", "missing", "", "", "pip install 'cuwhy[sass]'"),
    ]
    assert doctor.one_command(some) == "sudo apt-get install gcc libc6-dev && pip install 'cuwhy[sass]'"


def test_a_recorder_that_cannot_be_built_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    check = doctor._recorder()
    assert check.state == "missing"
    assert "no C compiler" in check.found
    assert check.fix == "sudo apt-get install gcc libc6-dev"


def test_names_from_tools_cannot_steer_the_terminal(tmp_path: Path) -> None:
    tool(tmp_path, "nvidia-smi", "#!/bin/sh\nprintf 'GPU \\033[2J, 580.1, 9.0, x\\n'\n")
    ended = run(tmp_path)
    assert "580.1" in ended.stdout
    assert "\x1b" not in ended.stdout

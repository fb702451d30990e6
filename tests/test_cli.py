"""The command line as a user meets it: exit codes, one-line errors, no traceback, quick start."""

from __future__ import annotations

import json
import os
import stat
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cuwhy.cli.main import main

ROOT = Path(__file__).parent.parent
CASE = ROOT / "corpus" / "memory" / "misaligned-access" / "bad_odd_pitch"
OK = ROOT / "corpus" / "memory" / "misaligned-access" / "ok_odd_pitch"


def cuwhy(*arguments: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    settings: dict[str, object] = {
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
        **options,
    }
    command = [sys.executable, "-m", "cuwhy", *map(str, arguments)]
    return subprocess.run(command, check=False, timeout=60, **settings)  # type: ignore[call-overload,no-any-return]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> str:
    """Run in-process; exit code 2, nothing on stdout, one line on stderr, which is returned."""
    assert main([str(a) for a in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cuwhy: ")
    assert captured.err.count("\n") == 1
    return captured.err


def test_named_cause_gives_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(CASE / "evidence.cuwhy")]) == 0
    assert capsys.readouterr().out.startswith("memory/misaligned-access")


def test_nothing_found_gives_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diagnose", str(OK / "evidence.cuwhy")]) == 1
    assert capsys.readouterr().out.startswith("nothing found")


def test_unnamed_failure_gives_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.txt"
    log.write_text("RuntimeError: CUDA error: an illegal memory access was encountered\n")
    assert main(["diagnose", str(log)]) == 1
    out = capsys.readouterr().out
    assert out.startswith("unknown/unexplained")
    assert "CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1" in out.replace("\n           ", "")


def test_several_files_are_one_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = tmp_path / "out"
    assert main(["case", "extract", str(CASE / "evidence.cuwhy"), str(into)]) == 0
    capsys.readouterr()
    files = [str(p) for p in sorted(into.rglob("*")) if p.suffix in (".nvcudmp", ".xml", ".txt")]
    assert len(files) >= 3
    assert main(["diagnose", "--json", "--source", str(CASE), *files]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [f["cause"] for f in data["findings"]] == ["memory/misaligned-access"]
    assert data["findings"][0]["launch"]["arguments"][0]["name"] == "samples"
    assert main(["diagnose", str(into)]) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "empty"),
        (b"\x80\x04\x95abc", "pickle"),
        (b"NVR\0" + bytes(100), "cuwhy: file: "),
        (bytes(range(256)) * 8, "neither"),
        (b"\x7fELF" + bytes(100), "neither"),
        (b"PK\x03\x04" + bytes(40), ""),
    ],
    ids=["empty", "pickle", "ncu", "binary", "elf", "zip"],
)
def test_wrong_file(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes, said: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert said in refused(capsys, "diagnose", path)


def test_truncated_dump(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    into = tmp_path / "out"
    main(["case", "extract", str(CASE / "evidence.cuwhy"), str(into)])
    capsys.readouterr()
    dump = next(into.rglob("*.nvcudmp"))
    dump.write_bytes(dump.read_bytes()[:5000])
    assert "truncated or damaged" in refused(capsys, "diagnose", dump)


def test_no_such_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "No such file" in refused(capsys, "diagnose", tmp_path / "gone")


def test_special_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    refused(capsys, "diagnose", fifo)
    refused(capsys, "diagnose", "/dev/zero")
    refused(capsys, "diagnose", tmp_path)


def test_huge_sparse_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "huge"
    with path.open("wb") as file:
        file.truncate(5 << 30)
    assert "GiB" in refused(capsys, "diagnose", path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "secret"
    path.write_text("x")
    path.chmod(0)
    assert "Permission" in refused(capsys, "diagnose", path)
    path.chmod(stat.S_IRUSR | stat.S_IWUSR)


def test_control_characters_in_a_file_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a\x1b[31m\nb"
    path.write_bytes(b"\x80\x04\x95")
    assert "\x1b" not in refused(capsys, "diagnose", path)


def test_no_verb_and_wrong_verb() -> None:
    for arguments in ((), ("frobnicate",), ("diagnose",)):
        done = cuwhy(*arguments)
        assert done.returncode == 2
        assert "usage:" in done.stderr
        assert "Traceback" not in done.stderr


def test_ascii_terminal() -> None:
    done = cuwhy(
        "diagnose",
        "-v",
        CASE / "evidence.cuwhy",
        env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
    )
    assert done.returncode == 0
    assert done.stderr == ""


def test_reader_that_goes_away() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "cuwhy", "diagnose", "-v", CASE / "evidence.cuwhy"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert b"Traceback" not in process.stderr.read()
    assert process.wait(30) in (0, 1)


def test_full_disk() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full")
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = cuwhy("diagnose", CASE / "evidence.cuwhy", stdout=full)
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt() -> None:
    code = "import cuwhy.cli.main as m, sys\ndef f(a): raise KeyboardInterrupt\nm._parser().parse_args\n"
    code += "import argparse\nm._parser = lambda: type('P', (), {'parse_args': lambda s, a: argparse.Namespace(run=f)})()\nsys.exit(m.main([]))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr


def test_causes_and_explain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["causes"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) >= 17
    assert main(["causes", "--json"]) == 0
    assert {row["name"] for row in json.loads(capsys.readouterr().out)} == {line.split()[0] for line in lines}
    assert main(["explain", "shared-out-of-bounds"]) == 0
    assert capsys.readouterr().out.startswith("# memory/shared-out-of-bounds")
    assert "did you mean" in refused(capsys, "explain", "shared-out-of-bound")


def test_version() -> None:
    assert cuwhy("--version").stdout == "cuwhy 0.1.0\n"


def test_help_is_instant_and_imports_little() -> None:
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        done = cuwhy("--help")
        seconds.append(time.perf_counter() - start)
        assert "exit codes" in done.stdout
    # The benchmark holds the real limit of 0.12 s; a loaded test machine gets some room.
    assert statistics.median(seconds) < 0.25
    code = "import sys; sys.argv = ['cuwhy', '--help']\ntry:\n import cuwhy.cli.main as m; m.main()\nexcept SystemExit: pass\n"
    code += (
        "print(sorted(set(sys.modules) & {'zipfile', 'json', 'hashlib', 'subprocess', 'mmap', 'tempfile'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_dump_of_another_kind_of_core(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A CPU core file is an ELF core too, but not ours."""
    header = b"\x7fELF\x02\x01\x01\x00" + bytes(8) + struct.pack("<HH", 4, 62) + bytes(44)
    path = tmp_path / "core.1234"
    path.write_bytes(header)
    assert "neither a GPU core dump" in refused(capsys, "diagnose", path)

"""Files that change, streams that are closed or full: one line and a documented exit code, never a signal."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cuwhy.cli.main import main
from cuwhy.diagnosing import diagnose
from cuwhy.model.errors import InputError

CASE = Path(__file__).parent.parent / "corpus" / "memory" / "global-out-of-bounds" / "bad_starter_oob"


def cuwhy(*args: object, shell: str = "") -> subprocess.CompletedProcess[str]:
    command = f'exec "$0" -m cuwhy "$@" {shell}'
    return subprocess.run(
        ["sh", "-c", command, sys.executable, *map(str, args)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    assert main(["case", "extract", str(CASE / "evidence.cuwhy"), str(tmp_path / "out")]) == 0
    return next((tmp_path / "out").rglob("*.nvcudmp"))


def test_a_dump_that_is_cut_off_while_it_is_read(dump: Path) -> None:
    """The program writes its dump again over the old one: a map of the file would end in SIGBUS."""
    program = (
        "import sys, os, cuwhy.diagnosing as d\n"
        "read = d.recognize\n"
        "def cut(data):\n"
        "    os.truncate(sys.argv[1], 100)\n"
        "    return read(data)\n"
        "first = []\n"
        "d.recognize = lambda data: read(data) if not first and not first.append(1) else cut(data)\n"
        "print(len(d.diagnose(sys.argv[1]).findings))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(dump)], capture_output=True, check=False, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert dump.stat().st_size == 100


def test_a_log_that_grows_while_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("CUDA error: an illegal memory access was encountered\n")
    stop = threading.Event()

    def write() -> None:
        with path.open("a") as file:
            while not stop.wait(0.001):
                file.write("x" * 10_000 + "\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            diagnosis = diagnose(path)
            assert diagnosis.primary is not None
    finally:
        stop.set()
        writer.join()


def test_a_file_that_becomes_a_fifo_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log"
    path.write_text("text")
    regular = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda *_a, **_k: regular)
    with pytest.raises(InputError):
        diagnose(path)


@pytest.mark.parametrize("shell", [">&-", ">&- 2>&-", "2>&-"])
def test_closed_streams(shell: str) -> None:
    assert cuwhy("diagnose", "-v", CASE / "evidence.cuwhy", shell=shell).returncode == 0
    assert cuwhy("diagnose", "/nonexistent", shell=shell).returncode == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_full_streams() -> None:
    assert cuwhy("diagnose", "/nonexistent", shell="2>/dev/full").returncode == 2
    done = cuwhy("case", "show", CASE / "evidence.cuwhy", shell=">/dev/full")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)


def test_every_refusal_says_what_to_do_next(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        diagnose("/dev/zero")
    assert caught.value.hint
    with pytest.raises(InputError) as caught:
        diagnose("a\0b")
    assert caught.value.hint
    with pytest.raises(InputError) as caught:
        diagnose([tmp_path / "x"] * 65)
    assert caught.value.hint

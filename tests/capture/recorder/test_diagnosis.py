"""``cuwhy run`` over the stub driver with a real core dump: the launch is named, the memory too."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .conftest import HERE, Bench
from .test_recorder import line_of


def run(bench: Bench, folder: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    for name in ("tmp", "work"):
        (folder / name).mkdir()
    environment = bench.environment({"TMPDIR": str(folder / "tmp"), "STUB_BASE": "0x7f6793e00000"})
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    return subprocess.run(
        [sys.executable, "-m", "cuwhy", "run", *map(str, arguments)],
        env=environment,
        cwd=folder / "work",
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=120,
        check=False,
    )


def test_host_line_and_allocation(bench: Bench, tmp_path: Path, dump_named: Callable[[str], Any]) -> None:
    # The seventh launch of its context, a Triton kernel of 64 blocks of 128 threads, recorded on an H200.
    dump = tmp_path / "dump"
    dump.write_bytes(dump_named("bad_starter_crash").data)
    done = run(
        bench, tmp_path, "--case", "out.cuwhy", "--", sys.executable, HERE / "host.py", dump, "add_kernel"
    )
    assert done.returncode == 1, done.stderr
    line = line_of("# SEVENTH", "host.py")
    assert f"host     host.py:{line} in " in done.stderr
    # 0x7f67c1a6c900 against [0x7f6793e00000, + 262144).
    words = " ".join(done.stderr.split())
    made = line_of("# MADE HERE", "host.py")
    assert "767,740,160 bytes past the end of the 262,144-byte allocation at 0x7f6793e00000" in words
    assert f"made at host.py:{made} in make" in words
    assert list((tmp_path / "tmp").iterdir()) == []

    # The case says the same without the program, the stub or the recorder.
    case = tmp_path / "work" / "out.cuwhy"
    replay = subprocess.run(
        [sys.executable, "-m", "cuwhy", "diagnose", "--json", str(case)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    content = json.loads(replay.stdout)
    first = content["findings"][0]
    assert first["host"]["line"] == line
    assert first["host"]["file"].endswith("host.py")
    (record,) = [fact for fact in content["facts"] if fact["type"] == "LaunchRecord"]
    assert (record["number"], record["kernel"], record["grid"]) == (7, "add_kernel", [64, 1, 1])


def test_a_refused_launch_needs_no_core_dump(bench: Bench, tmp_path: Path) -> None:
    program = f"{bench.folder / 'program'} proc tour; exit 3"
    done = run(bench, tmp_path, "--budget", "0", "--", "sh", "-c", program)
    assert done.returncode == 3, done.stderr
    words = " ".join(done.stderr.split())
    assert "launch/launch-refused" in words
    assert "the launch of `mul` was refused: the block has 2,048 on axis x; the limit is 1,024" in words
    assert f"host program.c:{line_of('/* REFUSED 1 */')} in " in words
    assert "no failure" not in words
    assert "core dump" not in words


def test_no_recorder(bench: Bench, tmp_path: Path, dump_named: Callable[[str], Any]) -> None:
    dump = tmp_path / "dump"
    dump.write_bytes(dump_named("bad_starter_crash").data)
    done = run(bench, tmp_path, "--no-recorder", "--", sys.executable, HERE / "host.py", dump, "add_kernel")
    assert done.returncode == 1
    assert "host.py" not in done.stderr
    assert "memory/global-out-of-bounds" in done.stderr


def test_another_kernel_is_not_taken_for_it(
    bench: Bench, tmp_path: Path, dump_named: Callable[[str], Any]
) -> None:
    """A record with the right number but another kernel says nothing about this launch."""
    dump = tmp_path / "dump"
    dump.write_bytes(dump_named("bad_starter_crash").data)
    done = run(bench, tmp_path, "--", sys.executable, HERE / "host.py", dump, "other_kernel")
    assert done.returncode == 1
    assert "host.py:" not in done.stderr.replace("made at host.py:", "")


def test_launching_without_a_word_is_no_hang(bench: Bench, tmp_path: Path) -> None:
    arguments = ("--hang-after", "0.6s", "--", sys.executable, HERE / "stress.py", "2")
    done = run(bench, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    # The same program, not recorded, has been silent for too long.
    (tmp_path / "again").mkdir()
    assert run(bench, tmp_path / "again", "--no-recorder", *arguments).returncode == 124

"""Builds a stand-in for the driver and a program that uses it, and runs programs under the recorder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cuwhy.capture.launches import slim
from cuwhy.capture.recorder import Control, prepare
from cuwhy.read.launchlog import LaunchLog, read_launchlog
from cuwhy.read.rawlog import RawLog

HERE = Path(__file__).parent
CC = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


@dataclass
class Recorded:
    """What a program left: exit code, output, one log for each process."""

    code: int
    out: str
    err: str
    raw: list[RawLog]

    @property
    def log(self) -> LaunchLog:
        (raw,) = self.raw
        return read_launchlog(slim(raw), "launches.json")


@dataclass
class Bench:
    """The built stub and programs."""

    folder: Path
    cache: Path

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUWHY", "LD_"))}
        return {**kept, "LD_LIBRARY_PATH": str(self.folder), **(extra or {})}

    def start(
        self, into: Path, *argv: str | Path, control: Control | None = None, **options: object
    ) -> subprocess.Popen[str]:
        environment = self.environment(options.pop("env", None))  # type: ignore[arg-type]
        into.mkdir(exist_ok=True)
        recorder = prepare(into, environment, control)
        assert recorder.note == ""
        command = [str(self.folder / argv[0]) if argv[0] in ("program", "linked") else str(argv[0])]
        return subprocess.Popen(
            [*command, *map(str, argv[1:])],
            env={**environment, **recorder.environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            **options,  # type: ignore[call-overload]
        )

    def run(self, into: Path, *argv: str | Path, **options: object) -> Recorded:
        process = self.start(into, *argv, **options)  # type: ignore[arg-type]
        try:
            out, err = process.communicate(timeout=120)
        finally:
            process.kill()
        return Recorded(process.returncode, out, err, logs_in(into))

    def bare(self, *argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / argv[0]), *argv[1:]],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


def logs_in(folder: Path) -> list[RawLog]:
    return [RawLog(path.read_bytes(), path.name) for path in sorted(folder.glob("launches.*.bin"))]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if CC is None or sys.platform != "linux":
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("stub")
    for argv in (
        [
            "-shared",
            "-fPIC",
            "-Wl,-Bsymbolic,-soname,libcuda.so.1",
            "-o",
            "libcuda.so.1",
            HERE / "stub.c",
            "-ldl",
        ],
        ["-o", "program", HERE / "program.c", "-ldl", "-lpthread"],
        ["-DLINKED", "-o", "linked", HERE / "program.c", "./libcuda.so.1", "-ldl", "-lpthread"],
    ):
        subprocess.run([CC, "-g", "-O1", "-w", *map(str, argv)], cwd=folder, check=True, timeout=120)
    return folder


@pytest.fixture
def bench(built: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Bench:
    # One cache for the session: the library is built once.
    cache = built / "cache"
    cache.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    return Bench(built, cache)

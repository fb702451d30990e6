"""Runs ``cuwhy run`` as users do: a process of its own, with pipes, files or a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

FAKE = Path(__file__).parent / "fake_driver.py"


@dataclass
class Place:
    """A folder to run in, with its own folders for temporary and control files."""

    folder: Path
    dumps: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("CUDA_", "CUWHY", "RANK", "LOCAL_RANK"))
        }
        return {**kept, "TMPDIR": str(self.folder / "tmp"), "XDG_RUNTIME_DIR": str(self.folder / "runtime")}

    def start(self, *arguments: str | Path, **options: Any) -> subprocess.Popen[bytes]:
        command: Sequence[str] = [sys.executable, "-m", "cuwhy", *map(str, arguments)]
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("cwd", self.folder / "work")
        environment = self.environment | options.pop("env", {})
        return subprocess.Popen(command, env=environment, start_new_session=True, **options)

    def run(self, *arguments: str | Path, send: bytes | None = None, **options: Any) -> Ended:
        if send is not None:
            options["stdin"] = subprocess.PIPE
        process = self.start("run", *arguments, **options)
        try:
            out, err = process.communicate(send, timeout=30)
        finally:
            process.kill()
        return Ended(process.returncode, out, err.decode() if err is not None else "")

    def python(self, code: str) -> tuple[str, ...]:
        return ("--", sys.executable, "-c", code)

    def fake(self, dump: str, *what: str) -> tuple[str | Path, ...]:
        return ("--", sys.executable, FAKE, self.dumps / dump, *what)

    def left(self) -> list[str]:
        """Temporary files and control files that are still there."""
        return sorted(
            [path.name for path in (self.folder / "tmp").iterdir()]
            + [path.name for path in (self.folder / "runtime").rglob("*.json")]
        )

    def cases(self) -> list[Path]:
        return sorted((self.folder / "work").glob("*.cuwhy"))


@dataclass
class Ended:
    code: int
    out: bytes
    err: str


@pytest.fixture(scope="session")
def dump_files(tmp_path_factory: pytest.TempPathFactory, dump_named: Callable[[str], Any]) -> Path:
    """Real core dumps, each with the listing that stands beside it in its case."""
    folder = tmp_path_factory.mktemp("dumps")
    for name in ("bad_starter_misaligned", "bad_starter_spin", "bad_starter_assert"):
        (folder / name.removeprefix("bad_starter_")).write_bytes(dump_named(name).data)
    return folder


@pytest.fixture
def place(tmp_path: Path, dump_files: Path) -> Iterator[Place]:
    for name in ("tmp", "runtime", "work"):
        (tmp_path / name).mkdir(mode=0o700)
    yield Place(tmp_path, dump_files)
    marked = [pid for pid in os.listdir("/proc") if pid.isdigit() and _runs_in(int(pid), tmp_path)]
    assert not marked, "a process of the run is left"


def _runs_in(pid: int, folder: Path) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return f"TMPDIR={folder}/".encode() in environment

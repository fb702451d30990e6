"""Runs programs with the hook in them, as ``cuwhy run`` starts them, and the same without it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from cuwhy.capture.hook import hook_variables

HERE = Path(__file__).parent
FAKE = HERE / "fake"
SNAPSHOT = HERE / "snapshot_crash.json"


@dataclass
class Outcome:
    code: int
    out: bytes
    err: bytes


@dataclass
class Bench:
    """A folder of a run, and a program's own folder."""

    run: Path
    work: Path

    def environment(self, history: str = "off", **more: str) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("CUDA", "CUWHY", "PYTHON", "RANK"))}
        base = {**kept, "PYTHONPATH": str(FAKE), "TERM": "dumb", **more}
        return base | hook_variables(base, self.run, history)

    def program(self, code: str, name: str = "program.py") -> Path:
        path = self.work / name
        path.write_text(code)
        return path

    def start(
        self, code: str, *options: str, hooked: bool = True, history: str = "off", **more: str
    ) -> Outcome:
        path = self.program(code)
        environment = self.environment(history, **more)
        if not hooked:
            del environment["CUWHY_HOOK"]
            environment["PYTHONPATH"] = more.get("PYTHONPATH", str(FAKE))
        done = subprocess.run(
            [sys.executable, *options, str(path)], cwd=self.work, env=environment,
            capture_output=True, timeout=60, check=False,
        )  # fmt: skip
        return Outcome(done.returncode, done.stdout, done.stderr)

    def both(self, code: str, *options: str, **more: str) -> Outcome:
        """With the hook; what shows outside is the same without it, byte for byte."""
        hooked = self.start(code, *options, **more)
        assert hooked == self.start(code, *options, hooked=False, **more)
        return hooked

    @property
    def written(self) -> list[dict[str, Any]]:
        return [json.loads(path.read_bytes()) for path in sorted(self.run.glob("tensors.*.json"))]

    def names(self) -> list[str]:
        (content,) = self.written
        return [tensor["name"] for tensor in content["tensors"]]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    for name in ("run", "work"):
        (tmp_path / name).mkdir()
    return Bench(tmp_path / "run", tmp_path / "work")

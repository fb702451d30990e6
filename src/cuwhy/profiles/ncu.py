"""Nsight Compute reports (``.ncu-rep``), through NVIDIA's own reader in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import sys
from pathlib import Path
from typing import Any, BinaryIO

from cuwhy.locate.demangle import demangle
from cuwhy.model.errors import InputError, ToolMissing
from cuwhy.model.facts import Dim3
from cuwhy.model.profile import InstructionCost, Metric, ProfiledLaunch, RuleResult
from cuwhy.process import Running

_MAX_FILE_BYTES = 1 << 30
_MAX_OUTPUT = 512 << 20
_SECONDS = 120.0
_MAX_MESSAGES = 1_000_000
_MAGIC = b"NVR\0"
#: IRuleResult message types of ncu_report.
_KINDS = {0: "info", 1: "ok", 2: "optimization", 3: "warning", 4: "error"}


def parse_ncu_report(path: str | os.PathLike[str]) -> list[ProfiledLaunch]:
    """Return the profiled launches of a report, in the order of the report.

    Args:
        path: a ``.ncu-rep`` file.

    Raises:
        InputError: it is no report, or damaged.
        ToolMissing: the package ``ncu-report`` is not installed.
    """
    return _launches(Path(path), [])


def parse_ncu_times(path: str | os.PathLike[str]) -> list[ProfiledLaunch]:
    """Return the launches of a report, of however many, with their duration and configuration only.

    Raises:
        InputError, ToolMissing: as :func:`parse_ncu_report`.
    """
    return _launches(Path(path), ["times"])


def _launches(file: Path, what: list[str]) -> list[ProfiledLaunch]:
    content = _content(file, what)
    try:
        launches = [_launch(row) for row in content["launches"]]
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(
            f"{file}: NVIDIA's reader gave something unexpected ({type(error).__name__})",
            hint="is it the report of another tool?",
        ) from error
    if not launches:
        raise InputError(f"{file}: no profiled launch in it", hint="did the kernel filter match anything?")
    return launches


def _content(file: Path, what: list[str]) -> dict[str, Any]:
    """What the child says of a report, checked to be a table."""
    try:
        size = file.stat().st_size
        with file.open("rb") as opened:
            head = opened.read(4)
            whole = head == _MAGIC and _is_whole(opened, size)
    except OSError as error:
        raise InputError(f"{file}: {error.strerror or error}") from error
    if head != _MAGIC:
        raise InputError(f"{file}: not a Nsight Compute report", hint="ncu -o NAME writes one")
    if size > _MAX_FILE_BYTES:
        raise InputError(f"{file}: {size >> 20} MB; at most {_MAX_FILE_BYTES >> 20} MB are read")
    if not whole:
        raise InputError(f"{file}: cut off or damaged", hint="was ncu interrupted while it wrote?")
    if importlib.util.find_spec("ncu_report") is None:
        raise ToolMissing(
            f"{file}: reading a Nsight Compute report needs NVIDIA's reader",
            hint="pip install 'cuwhy[profile]' or ncu-report",
        )
    # The child searches exactly where we do, and never the folder that it is started in.
    command = [sys.executable, "-m", "cuwhy.profiles.child", str(file.absolute()), *what]
    environment = {
        **os.environ,
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": os.pathsep.join(p for p in sys.path if p),
    }
    done = Running(command, env=environment).finish(_SECONDS, _MAX_OUTPUT)
    if done.code is None:
        raise InputError(f"{file}: reading took longer than {_SECONDS:g} s or gave too much")
    try:
        content = json.loads(done.out) if done.ok else None
    except ValueError:
        content = None
    if not isinstance(content, dict):
        said = done.err.decode("utf-8", "replace").strip().splitlines()
        reason = said[-1][:200] if said else f"NVIDIA's reader ended with {done.code}"
        raise InputError(f"{file}: damaged ({reason})", hint="was ncu interrupted while it wrote?")
    return content


def _is_whole(opened: BinaryIO, size: int) -> bool:
    """Tell whether the messages, each behind its length (32 bits), end exactly where the file does.

    NVIDIA's reader takes a report that was cut off for one with fewer launches.
    """
    position = len(_MAGIC)
    for _ in range(_MAX_MESSAGES):
        if position == size:
            return True
        opened.seek(position)
        length = opened.read(4)
        if len(length) < 4:
            return False
        position += 4 + int.from_bytes(length, "little")
    return False


def _launch(row: dict[str, Any]) -> ProfiledLaunch:
    metrics = {
        name: Metric(value, unit)
        for name, (value, unit) in row["metrics"].items()
        if not (isinstance(value, float) and not math.isfinite(value))
    }
    kernel = str(row["kernel"])
    return ProfiledLaunch(
        index=int(row["index"]),
        kernel=kernel,
        name=str(row["name"]),
        short=demangle(kernel).short or str(row["short"]),
        grid=_dim(metrics, "launch__grid_dim"),
        block=_dim(metrics, "launch__block_dim"),
        cluster=_dim(metrics, "launch__cluster_dim"),
        metrics=metrics,
        rules=tuple(
            RuleResult(
                rule["rule"],
                rule["section"],
                rule["title"],
                rule["message"],
                _KINDS.get(rule["type"], "info"),
                float(rule["speedup"]) if rule["speedup"] is not None else None,
            )
            for rule in row["rules"]
        ),
        instructions=_instructions(row),
    )


def _dim(metrics: dict[str, Metric], name: str) -> Dim3:
    values = [metrics.get(f"{name}_{axis}") for axis in "xyz"]
    numbers = [int(m.value) if m is not None and not isinstance(m.value, str) else 0 for m in values]
    return numbers[0], numbers[1], numbers[2]


def _instructions(row: dict[str, Any]) -> tuple[InstructionCost, ...]:
    pcs: list[int] = row["pcs"]
    counters: list[dict[str, float]] = [{} for _ in pcs]
    for name, pairs in row["counters"].items():
        for at, value in pairs:
            counters[at][name] = float(value)
    found = []
    for i, pc in enumerate(pcs):
        place = row["lines"][i]
        file, line = (row["files"][place[0]], int(place[1])) if place else ("", 0)
        found.append(InstructionCost(pc - pcs[0], row["sass"][i], file, line, counters[i]))
    return tuple(found)

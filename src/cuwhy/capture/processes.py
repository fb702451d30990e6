"""The processes of one run, out of /proc (proc(5))."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path

#: Set in the program's environment, so that workers in sessions of their own are found too.
MARK = "CUWHY_RUN"
_RANKS = ("RANK", "LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")
_NUMBER = re.compile(r"[0-9]{1,9}\Z")
_MAX_ENVIRONMENT = 1 << 20
_PYTHON = re.compile(r"(?:python|pypy)[0-9.]*\Z")


def environment_of(pid: int) -> dict[str, str]:
    """Return the environment that a process was started with; empty when it cannot be read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            data = file.read(_MAX_ENVIRONMENT)
    except OSError:
        return {}
    pairs = (item.partition(b"=") for item in data.split(b"\0") if b"=" in item)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, _, value in pairs}


def rank_of(environment: Mapping[str, str]) -> str:
    """Return "rank 3", "rank 11, local rank 3" or an empty string."""
    ranks = {name: environment.get(name, "") for name in _RANKS}
    rank = next((v for n, v in ranks.items() if n != "LOCAL_RANK" and _NUMBER.match(v)), "")
    local = ranks["LOCAL_RANK"] if _NUMBER.match(ranks["LOCAL_RANK"]) else ""
    if not rank:
        return f"local rank {local}" if local else ""
    return f"rank {rank}" + (f", local rank {local}" if local and local != rank else "")


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 when there is none."""
    fields = _stat(pid)
    return int(fields[19]) if fields is not None else 0


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the third on (the second may hold anything)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read(4096).rpartition(")")[2].split()
    except OSError:
        return None
    return fields if len(fields) > 19 else None


def processes_of(root: int, mark: str) -> list[int]:
    """Return the living processes of a run: ``root``, all that descend from it, all that carry its mark."""
    parents: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields is not None and fields[0] not in "ZX":
                parents[int(name)] = int(fields[1])
    ours = {root}
    grew = True
    while grew:
        found = {pid for pid, parent in parents.items() if parent in ours} - ours
        ours |= found
        grew = bool(found)
    for pid in parents:
        if pid not in ours and environment_of(pid).get(MARK) == mark:
            ours.add(pid)
    ours.discard(os.getpid())
    return sorted(ours & parents.keys())


def signal_all(pids: list[int], number: signal.Signals) -> None:
    """Send a signal to each."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def catches(pid: int, number: int) -> bool:
    """Tell whether a process has a handler of its own for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            line = next((line for line in file if line.startswith("SigCgt:")), "")
        return int(line.partition(":")[2], 16) >> (number - 1) & 1 == 1
    except (OSError, ValueError):
        return False


def is_python(pid: int) -> bool:
    """Tell whether a process runs a Python interpreter."""
    try:
        return _PYTHON.match(Path(os.readlink(f"/proc/{pid}/exe")).name) is not None
    except OSError:
        return False

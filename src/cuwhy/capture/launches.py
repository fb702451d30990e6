"""The recorder's log of one process -> a small artefact, with native frames resolved to lines.

Resolved here and now, because the binaries are at hand here and now; the case is read elsewhere.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cuwhy.model.errors import InputError
from cuwhy.read import rawlog
from cuwhy.read.launchlog import KINDS, MARK
from cuwhy.read.rawlog import RawEvent, RawFrame, RawLaunch, RawLog

#: The driver's queue holds 1,024 launches, so a failing one is among the last 2,048.
_LAST = 2048
_ALLOCATIONS = 1024
_MAX_BYTES = 300_000
_MAX_FILES = 64
#: Larger ones take addr2line too long.
_MAX_BINARY = 256 << 20
_RESOLVE_SECONDS = 20.0
#: Binaries of packages have no line tables, and are large.
_PACKAGES = ("/site-packages/", "/dist-packages/")
_SYSTEM = ("/lib/", "/lib64/", "/usr/lib/", "/usr/lib64/", "/usr/local/cuda")


def launch_logs(folder: Path) -> dict[str, bytes]:
    """Return the artefacts of all processes that launched something, by name."""
    found: dict[str, bytes] = {}
    paths = sorted(folder.glob("launches.*.bin"), key=lambda path: path.name)
    for path in paths[:_MAX_FILES]:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode) or status.st_size > rawlog.MAX_BYTES:
            continue
        try:
            log = RawLog(path.read_bytes(), path.name)
        except (InputError, OSError):
            continue
        if log.launch_count or log.memory_count:
            found[path.name.removesuffix(".bin") + ".json"] = slim(log)
    return found


def launches_so_far(folder: Path) -> int:
    """Return how many launches all processes have made, from the counters alone."""
    total = 0
    for number, entry in enumerate(folder.glob("launches.*.bin")):
        if number >= _MAX_FILES:
            break
        try:
            with entry.open("rb") as file:
                file.seek(rawlog.LAUNCH_COUNTER_AT)
                total += int.from_bytes(file.read(8), "little")
        except OSError:
            continue
    return total


def highest_number(folder: Path) -> int:
    """Return the highest launch number in the logs of a folder, over all processes and contexts; 0 without any."""
    highest = 0
    for path in sorted(folder.glob("launches.*.bin"))[:_MAX_FILES]:
        try:
            if path.lstat().st_size <= rawlog.MAX_BYTES:
                highest = max([highest, *RawLog(path.read_bytes(), path.name).numbers.values()])
        except (InputError, OSError):
            continue
    return highest


def slim(log: RawLog) -> bytes:
    """Return the JSON text of a log: the last launches, what was refused or failed, and memory."""
    launches, events = log.launches(), log.events()
    last, allocations = _LAST, _ALLOCATIONS
    while True:
        text = _Writer(log).text(launches, events, last, allocations)
        if len(text) <= _MAX_BYTES or last <= 64:
            return text
        last, allocations = last // 2, allocations // 2


class _Writer:
    """Tables under construction: strings, frames and stacks stand once."""

    def __init__(self, log: RawLog) -> None:
        self.log = log
        self.names: dict[str, int] = {}
        self.frames: dict[tuple[int, int, int], int] = {}
        self.stacks: dict[int, int] = {}
        self.used: list[tuple[RawFrame, ...]] = []

    def text(self, launches: list[RawLaunch], events: list[RawEvent], last: int, allocations: int) -> bytes:
        log = self.log
        failed = [launch for launch in launches[:-last] if launch.code][:64]
        rows = [self._launch(launch) for launch in [*failed, *launches[-last:]]]
        refused = [[*self._launch(launch), limits] for launch, limits in log.refused()]
        memory = [self._block(*block) for block in _blocks(events, allocations)]
        resolved = _resolve(frame for stack in self.used for frame in stack if frame.native)
        stacks = [[self._frame(frame) for frame in _expand(stack, resolved)] for stack in self.used]
        content = {
            MARK: 1,
            "process": log.pid,
            "counts": {
                "launches": log.launch_count,
                "memory": log.memory_count,
                "refused": log.refused_count,
                "lost": sum(log.lost),
            },
            "launches": rows,
            "refused": refused,
            "allocations": memory,
            "stacks": stacks,
            "frames": [list(frame) for frame in self.frames],
            "names": list(self.names),
        }
        return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()

    def _launch(self, launch: RawLaunch) -> list[Any]:
        return [
            launch.number,
            KINDS[launch.kind],
            self._name(self.log.function(launch.function)),
            launch.code,
            launch.flags,
            launch.context,
            launch.stream,
            launch.thread,
            launch.dynamic_shared,
            *launch.grid,
            *launch.block,
            *launch.cluster,
            self._stack(launch.stack),
            (launch.time_ns - self.log.monotonic_ns) // 1000,
        ]

    def _block(self, made: RawEvent, freed: RawEvent | None) -> list[Any]:
        return [
            made.address,
            made.size,
            made.context,
            made.stream,
            self._stack(made.stack),
            (made.time_ns - self.log.monotonic_ns) // 1000,
            None if freed is None else (freed.time_ns - self.log.monotonic_ns) // 1000,
            None if freed is None else self._stack(freed.stack),
        ]

    def _name(self, text: str) -> int:
        return self.names.setdefault(text, len(self.names))

    def _stack(self, number: int) -> int:
        """Position of a stack in the artefact, -1 when there is none."""
        if number not in self.stacks:
            frames = self.log.stack(number)
            self.stacks[number] = len(self.used) if frames else -1
            if frames:
                self.used.append(frames)
        return self.stacks[number]

    def _frame(self, frame: tuple[str, str, int]) -> int:
        function, file, line = frame
        return self.frames.setdefault((self._name(function), self._name(file), line), len(self.frames))


def _blocks(events: list[RawEvent], limit: int) -> list[tuple[RawEvent, RawEvent | None]]:
    """The allocations that were alive at the end, the newest last, and the latest that were freed."""
    live: dict[int, RawEvent] = {}
    freed: list[tuple[RawEvent, RawEvent | None]] = []
    for event in events:
        if event.kind in (rawlog.ALLOC, rawlog.MAP):
            live[event.address] = event
        elif event.kind == rawlog.FREE and event.address in live:
            freed.append((live.pop(event.address), event))
        elif event.kind == rawlog.UNMAP:
            end = event.address + event.size
            for address in [a for a in live if event.address <= a < end and live[a].kind == rawlog.MAP]:
                freed.append((live.pop(address), event))
    alive: list[tuple[RawEvent, RawEvent | None]] = [(block, None) for block in live.values()]
    return [*freed[-(limit // 2) :], *alive[-limit:]]


_Resolved = dict[tuple[str, int], list[tuple[str, str, int]]]


def _expand(stack: tuple[RawFrame, ...], resolved: _Resolved) -> list[tuple[str, str, int]]:
    """(function, file, line) of each frame, those inlined into it first."""
    frames: list[tuple[str, str, int]] = []
    for frame in stack:
        if frame.native:
            unknown = [(f"+{frame.value:#x}", frame.file, 0)]
            frames += resolved.get((frame.file, frame.value), unknown)
        else:
            frames.append((frame.function, frame.file, min(frame.value, 1 << 31)))
    return frames


def _resolve(frames: Iterable[RawFrame]) -> _Resolved:
    """Look up offsets in the modules' own line tables, with the system's addr2line where there is one."""
    tool = shutil.which("addr2line")
    modules: dict[str, set[int]] = {}
    for frame in frames:
        modules.setdefault(frame.file, set()).add(frame.value)
    resolved: _Resolved = {}
    for module, offsets in modules.items():
        if tool is None or module.startswith(_SYSTEM) or not _readable(module):
            continue
        ordered = sorted(offsets)
        for offset, found in zip(ordered, _addr2line(tool, module, ordered), strict=False):
            resolved[module, offset] = [
                (function, file or module, line) for function, file, line in found
            ] or [(f"+{offset:#x}", module, 0)]
    return resolved


def _readable(module: str) -> bool:
    try:
        status = os.stat(module)
    except (OSError, ValueError):
        return False
    if not module.startswith("/") or any(mark in module for mark in _PACKAGES):
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BINARY


def _addr2line(tool: str, module: str, offsets: list[int]) -> list[list[tuple[str, str, int]]]:
    from cuwhy.process import Running

    argv = [tool, "-a", "-f", "-i", "-C", "-e", module, *(f"{offset:#x}" for offset in offsets)]
    try:
        finished = Running(argv).finish(_RESOLVE_SECONDS, limit=16 << 20)
    except OSError:
        return []
    if not finished.ok:
        return []
    answers: list[list[tuple[str, str, int]]] = []
    lines = iter(finished.out.decode("utf-8", "replace").splitlines())
    for line in lines:
        # "-a" prints the address before each answer; then pairs of function and file:line.
        if line.startswith("0x") and ":" not in line:
            answers.append([])
            continue
        place = next(lines, "")
        file, _, number = place.partition(" (")[0].rpartition(":")
        known = file not in ("", "??")
        if answers and (known or line != "??"):
            answers[-1].append(
                (
                    line if line != "??" else "",
                    os.path.normpath(file) if known else "",
                    int(number) if number.isdigit() else 0,
                )
            )
    return answers

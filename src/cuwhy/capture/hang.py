"""What a hung program can still tell: Python stacks, and a GPU core dump on request."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from cuwhy.capture.coredump_env import Pattern
from cuwhy.capture.processes import is_python
from cuwhy.process import Running

_STACK_SECONDS = 10.0
_STACKS_SECONDS = 30.0
_MAX_STACKS = 16
#: A driver that is not yet ready reads its fifo within this time, or never.
_ASK_SECONDS = 2.0
_MAX_STACK_BYTES = 4 << 20


def python_stacks(pids: Iterable[int], folder: Path) -> tuple[list[Path], str]:
    """Write the Python stacks of all threads, one ``stacks.PID.txt`` for each process.

    Returns:
        The files, and a sentence on what is missing and how to get it (empty: nothing).
    """
    interpreters = [pid for pid in pids if is_python(pid)][:_MAX_STACKS]
    if not interpreters:
        return [], ""
    tool = shutil.which("py-spy")
    if tool is None:
        return [], (
            "the Python stacks of the hung processes were not taken: `pip install py-spy` and run again, "
            "or set PYTHONFAULTHANDLER=1 and send SIGABRT"
        )
    written: list[Path] = []
    problem = ""
    end = time.monotonic() + _STACKS_SECONDS
    for pid in interpreters:
        limit = min(_STACK_SECONDS, end - time.monotonic())
        if limit <= 0:
            break
        try:
            done = Running([tool, "dump", "--pid", str(pid)]).finish(limit)
        except OSError as error:
            return written, f"py-spy could not be started: {error.strerror}"
        if done.ok and done.out:
            path = folder / f"stacks.{pid}.txt"
            try:
                path.write_bytes(done.out[:_MAX_STACK_BYTES])
            except OSError as error:
                return written, f"the Python stacks could not be written: {error.strerror}"
            written.append(path)
        elif b"ermission" in done.err or b"EPERM" in done.err:
            problem = (
                f"py-spy may not look into process {pid}: "
                "`sudo sysctl kernel.yama.ptrace_scope=0`, or run as root"
            )
        else:
            last = done.err.decode("utf-8", "replace").strip().splitlines()
            problem = f"py-spy gave no stacks of process {pid}" + (f": {last[-1][:200]}" if last else "")
    return written, problem


def ask_for_dumps(pipes: Pattern, pause: Callable[[float], bool]) -> list[int | None]:
    """Write one byte to each process's fifo; the driver then writes that process's dump.

    Args:
        pipes: where the driver makes its fifos.
        pause: waits some seconds; False means to give up.

    Returns:
        The processes that took it (None: the name does not say which).
    """
    asked: dict[Path, int | None] = {}
    end = time.monotonic() + _ASK_SECONDS
    while True:
        waiting = False
        for path, pid in pipes.find():
            if path not in asked:
                if _ask(path):
                    asked[path] = pid
                else:
                    waiting = True
        if not waiting or time.monotonic() > end or not pause(0.05):
            return list(asked.values())


def _ask(path: Path) -> bool:
    try:
        status = path.lstat()
        if not stat.S_ISFIFO(status.st_mode) or status.st_uid != os.getuid():
            return False
        # ENXIO: nobody reads it (yet).  Never blocking: a fifo without reader would hold us for ever.
        fifo = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        with contextlib.suppress(OSError):
            return os.write(fifo, b"1") == 1
        return False
    finally:
        os.close(fifo)

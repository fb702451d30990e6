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
from cuwhy.capture.hook import STACKS
from cuwhy.capture.processes import catches, is_python
from cuwhy.process import Running

_STACK_SECONDS = 10.0
_STACKS_SECONDS = 30.0
#: A process writes its own stacks in a millisecond; one that is stopped, never.
_OWN_SECONDS = 1.0
_MAX_STACKS = 16
#: A driver that is not yet ready reads its fifo within this time, or never.
_ASK_SECONDS = 2.0
_MAX_STACK_BYTES = 4 << 20


def python_stacks(pids: Iterable[int], folder: Path) -> tuple[list[Path], str]:
    """Write the Python stacks of all threads, one ``stacks.PID.txt`` for each process.

    py-spy takes them if it is installed; else, or where it may not look, the process's own
    faulthandler does, which the hook has set up.

    Returns:
        The files, and a sentence on what is missing and how to get it (empty: nothing).
    """
    interpreters = [pid for pid in pids if is_python(pid)][:_MAX_STACKS]
    tool = shutil.which("py-spy")
    written: list[Path] = []
    missing: list[int] = []
    problem = ""
    end = time.monotonic() + _STACKS_SECONDS
    for pid in interpreters:
        data = b""
        limit = min(_STACK_SECONDS, end - time.monotonic())
        if tool is not None and limit > 0:
            data, problem = _py_spy(tool, pid, limit)
        path = folder / f"stacks.{pid}.txt"
        try:
            if data:
                path.write_bytes(data[:_MAX_STACK_BYTES])
            elif not _own_stacks(pid, path):
                missing.append(pid)
                continue
        except OSError as error:
            return written, f"the Python stacks could not be written: {error.strerror}"
        written.append(path)
    if not missing:
        return written, ""
    some = "the hung processes" if not written else "some of the hung processes"
    return written, problem or (
        f"the Python stacks of {some} were not taken: `pip install py-spy` and run again, "
        "or set PYTHONFAULTHANDLER=1 and send SIGABRT"
    )


def _py_spy(tool: str, pid: int, limit: float) -> tuple[bytes, str]:
    """What py-spy printed, or nothing and a sentence on why."""
    try:
        done = Running([tool, "dump", "--pid", str(pid)]).finish(limit)
    except OSError as error:
        return b"", f"py-spy could not be started: {error.strerror}"
    if done.ok and done.out:
        return done.out, ""
    if b"ermission" in done.err or b"EPERM" in done.err:
        return b"", (
            f"py-spy may not look into process {pid}: "
            "`sudo sysctl kernel.yama.ptrace_scope=0`, or run as root"
        )
    last = done.err.decode("utf-8", "replace").strip().splitlines()
    return b"", f"py-spy gave no stacks of process {pid}" + (f": {last[-1][:200]}" if last else "")


def _own_stacks(pid: int, path: Path) -> bool:
    """Have the process's faulthandler write its stacks; False when it has none or does not answer."""
    # Without a handler the signal would end the process; the file shows that the handler is the hook's.
    if not STACKS or path.is_symlink() or not path.is_file() or not catches(pid, STACKS):
        return False
    try:
        os.kill(pid, STACKS)
    except OSError:
        return False
    size = -1
    end = time.monotonic() + _OWN_SECONDS
    while time.monotonic() < end:
        time.sleep(0.02)
        if 0 < (now := path.stat().st_size) == size:
            return True
        size = now
    return size > 0


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

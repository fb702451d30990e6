"""Run a command to its end, its output into files, within a time; leave nothing behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuwhy.capture.processes import MARK, processes_of, signal_all
from cuwhy.process import Child

_TICK = 0.02
_TERM_SECONDS = 2.0
_KILL_SECONDS = 10.0
#: A file of output beyond this ends the run: the disk is the user's.
MAX_OUTPUT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code, negative for a signal.
        seconds: how long it took.
        stdout, stderr: files with what it wrote.
        ended: why cuwhy ended it, empty when it ended by itself.
    """

    code: int
    seconds: float
    stdout: Path
    stderr: Path
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """Standard input of a rerun: the file that the first run had, from where it began; else nothing.

    Attributes:
        path: of the file.
        offset: bytes before the first that the program was given.
    """

    path: str = os.devnull
    offset: int = 0

    @classmethod
    def now(cls) -> Input:
        """Look at our own standard input, before the program reads from it."""
        import stat

        try:
            if stat.S_ISREG(os.fstat(0).st_mode):
                return cls("/proc/self/fd/0", os.lseek(0, 0, os.SEEK_CUR))
        except OSError:
            pass
        return cls()


def execute(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    seconds: float,
    standard_input: Input = Input(),
    live: bool = False,
) -> Ended:
    """Run ``argv`` in the current directory, in a process group of its own.

    Args:
        argv: program and arguments.
        environment: its whole environment.
        folder: for ``stdout`` and ``stderr``.
        seconds: how long it may take; then it and all that it started are ended.
        standard_input: what it reads.
        live: its output goes where ours goes, and the files stay empty.

    Raises:
        OSError: it cannot be started, or a file not opened.
    """
    mark = f"{folder.name}-{os.urandom(4).hex()}"
    paths = folder / "stdout", folder / "stderr"
    source = os.open(standard_input.path, os.O_RDONLY)
    descriptors = [source]
    try:
        if standard_input.offset:
            os.lseek(source, standard_input.offset, os.SEEK_SET)
        for path in paths:
            descriptors.append(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600))
        child = Child(
            argv,
            env={**environment, MARK: mark},
            stdin=source,
            stdout=1 if live else descriptors[1],
            stderr=2 if live else descriptors[2],
            own_group=True,
        )
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    begin = time.monotonic()
    ended = ""
    try:
        while child.ended() is None and not ended:
            time.sleep(_TICK)
            if time.monotonic() - begin >= seconds:
                ended = f"not finished after {seconds:.0f} s"
            elif any(path.stat().st_size > MAX_OUTPUT_BYTES for path in paths):
                ended = f"more than {MAX_OUTPUT_BYTES >> 20} MB of output"
    finally:
        # Also when the user interrupts; and what the program left running would disturb the next run.
        took = time.monotonic() - begin
        _end_all(child, mark)
    code = child.ended()
    if code is not None:
        child.reap()
    return Ended(code if code is not None else -signal.SIGKILL, took, *paths, ended)


def _end_all(child: Child, mark: str) -> None:
    if child.ended() is not None and not processes_of(child.pid, mark):
        return
    for number, limit in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        end = time.monotonic() + limit
        while (left := processes_of(child.pid, mark)) and time.monotonic() < end:
            signal_all(left, number)
            time.sleep(0.05)
        if not left:
            return

"""How ``cuwhy poke`` in another terminal finds a run and asks it for a dump.

A run leaves a small file in a folder that only its user can enter, and waits for one signal.
The file says when the process started, so that a signal never meets a stranger that got the
same number later.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cuwhy.capture.processes import MARK, environment_of, start_time
from cuwhy.model.errors import InputError

#: A real-time signal: nothing else sends it, and no program's meaning of it is lost.
POKE = signal.SIGRTMIN + 9 if hasattr(signal, "SIGRTMIN") else 0
_MAX_BYTES = 16_384
_MAX_FILES = 1000


@dataclass(frozen=True, slots=True)
class RunningRun:
    """A run that can be poked: process ids of cuwhy and of the program, the run's mark, the command line."""

    cuwhy: int
    program: int
    mark: str
    command: tuple[str, ...]


def control_folder() -> Path:
    """Return the folder of control files, made if need be.

    Raises:
        InputError: it belongs to somebody else or is open to others.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    folder = Path(base) / "cuwhy" if base and Path(base).is_dir() else Path(f"/tmp/cuwhy-{os.getuid()}")
    try:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror or error}") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise InputError(f"{folder} is not a folder of yours alone", hint="remove it, or set XDG_RUNTIME_DIR")
    return folder


@contextlib.contextmanager
def announced(program: int, mark: str, command: Sequence[str]) -> Iterator[None]:
    """Let this run be found while the block lasts; a run that cannot be found still runs."""
    path = None
    content = {
        "cuwhy": os.getpid(),
        "started": start_time(os.getpid()),
        "program": program,
        "mark": mark,
        "command": [argument[:200] for argument in command[:20]],
    }
    try:
        path = control_folder() / f"{os.getpid()}.json"
        with contextlib.suppress(FileNotFoundError):
            path.unlink()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file)
    except (OSError, InputError):
        path = None
    try:
        yield
    finally:
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink()


def running() -> list[RunningRun]:
    """Return the runs of this user; files that a killed run left are removed.

    Raises:
        InputError: the folder of control files cannot be trusted.
    """
    found = []
    for number, path in enumerate(sorted(control_folder().glob("*.json"))):
        if number >= _MAX_FILES:
            break
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            with path.open("rb") as file:
                content = json.loads(file.read(_MAX_BYTES))
            pid, started = int(content["cuwhy"]), int(content["started"])
            if not started or start_time(pid) != started:
                path.unlink()
                continue
            command = tuple(str(argument) for argument in content["command"])
            found.append(RunningRun(pid, int(content["program"]), str(content["mark"]), command))
    return found


def poke(pid: int) -> RunningRun:
    """Ask the run that process ``pid`` belongs to (cuwhy's own, or any of the program's) for a dump.

    Raises:
        InputError: no run of this user has such a process.
    """
    for run in running():
        if pid in (run.cuwhy, run.program) or environment_of(pid).get(MARK) == run.mark:
            os.kill(run.cuwhy, POKE)
            return run
    raise InputError(f"process {pid} belongs to no `cuwhy run` of yours", hint="`cuwhy poke` lists them")

"""The variables that make the CUDA driver write a core dump, and where its files will be.

Source of names, defaults and the ``%`` specifiers: CUDA-GDB documentation, "GPU core dump
support".  ``%h`` is the host, ``%p`` the process id, ``%t`` the time in seconds.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

#: No memory contents: they make dumps large, and a report should not carry the user's data.
LIGHT_FLAGS = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
#: With it the driver does not abort the process, so that a Python traceback still appears.  Only for
#: Python: C++ programs on an H200 (driver 580) were then told "success" by every checked call after
#: the fault, went on, printed wrong results and ended with 0.
KEEP_ALIVE = "skip_abort"
_DEFAULT_FILE = "core_%t_%h_%p.nvcudmp"
_DEFAULT_PIPE = "corepipe.cuda.%h.%p"
_OFF = ("", "0")
_MAX_FILES = 256
_SPECIFIER = re.compile(r"%([hpt])")
_MATCH = {"h": ".+?", "p": "(?P<pid>[0-9]{1,10})", "t": "[0-9]{1,20}"}


@dataclass(frozen=True, slots=True)
class Pattern:
    """A file name as the driver takes it, with specifiers."""

    text: str

    def find(self) -> list[tuple[Path, int | None]]:
        """Return the files that it can have become, with the process id where the name says it."""
        pieces = _SPECIFIER.split(self.text)
        wild = "".join("*" if i % 2 else glob.escape(piece) for i, piece in enumerate(pieces))
        seen_pid = False
        expression = ""
        for i, piece in enumerate(pieces):
            if i % 2 == 0:
                expression += re.escape(piece)
            elif piece == "p" and seen_pid:
                expression += "(?P=pid)"
            else:
                expression += _MATCH[piece]
                seen_pid = seen_pid or piece == "p"
        matcher = re.compile(expression + r"\Z")
        found: list[tuple[Path, int | None]] = []
        for number, name in enumerate(glob.iglob(wild)):
            if number >= _MAX_FILES:
                break
            match = matcher.match(name)
            if match is not None:
                found.append((Path(name), int(match["pid"]) if seen_pid else None))
        return found


@dataclass(frozen=True, slots=True)
class DumpSettings:
    """What to add to the environment, and where to look afterwards.

    Attributes:
        environment: variables to add.
        dumps: name of dump files; pipes: name of the fifos that ask for one.
        notes: what the user's own settings prevent, one sentence each.
    """

    environment: Mapping[str, str]
    dumps: Pattern
    pipes: Pattern
    notes: tuple[str, ...] = ()


def dump_settings(environment: Mapping[str, str], folder: Path, *, keep_alive: bool) -> DumpSettings:
    """Return what makes the driver write its dumps, without touching what the user has set.

    Args:
        environment: the program's; the user's own settings in it win.
        folder: where dumps and fifos go when the user says nothing else.
        keep_alive: True lets the program live on after its dump.
    """
    add: dict[str, str] = {}
    notes = []
    base = Path(os.path.abspath("."))

    on_exception = environment.get("CUDA_ENABLE_COREDUMP_ON_EXCEPTION")
    file = environment.get("CUDA_COREDUMP_FILE", "")
    if on_exception is None:
        add["CUDA_ENABLE_COREDUMP_ON_EXCEPTION"] = "1"
        if not file:
            file = add["CUDA_COREDUMP_FILE"] = f"{folder}/core.%p.nvcudmp"
        if not environment.keys() & {"CUDA_COREDUMP_GENERATION_FLAGS", "CUDA_ENABLE_LIGHTWEIGHT_COREDUMP"}:
            add["CUDA_COREDUMP_GENERATION_FLAGS"] = (
                f"{LIGHT_FLAGS},{KEEP_ALIVE}" if keep_alive else LIGHT_FLAGS
            )
    elif on_exception.strip() in _OFF:
        notes.append("CUDA_ENABLE_COREDUMP_ON_EXCEPTION is off in your environment: no core dump on a fault")

    asked = environment.get("CUDA_ENABLE_USER_TRIGGERED_COREDUMP")
    pipe = environment.get("CUDA_COREDUMP_PIPE", "")
    if asked is None:
        add["CUDA_ENABLE_USER_TRIGGERED_COREDUMP"] = "1"
        if not pipe:
            pipe = add["CUDA_COREDUMP_PIPE"] = f"{folder}/pipe.%p"
    elif asked.strip() in _OFF:
        notes.append("CUDA_ENABLE_USER_TRIGGERED_COREDUMP is off in your environment: a hang leaves no dump")

    return DumpSettings(
        add,
        Pattern(os.path.join(base, file or _DEFAULT_FILE)),
        Pattern(os.path.join(base, pipe or _DEFAULT_PIPE)),
        tuple(notes),
    )


def is_python(command: Sequence[str]) -> bool:
    """Tell whether a command runs Python: an interpreter, or a script whose first line names one."""
    if not command:
        return False
    program = shutil.which(command[0]) or command[0]
    if re.match(r"(?:python|pypy)[0-9.]*\Z", os.path.basename(program)):
        return True
    if os.path.basename(program) in (
        "env",
        "nice",
        "nohup",
        "time",
        "timeout",
        "stdbuf",
        "numactl",
        "taskset",
    ):
        # A launcher in front: the first word that is a program decides.
        rest = [
            word
            for word in command[1:]
            if not word.startswith("-") and "=" not in word and shutil.which(word)
        ]
        return is_python(rest[:1])
    try:
        with open(program, "rb") as file:
            first = file.readline(256)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def complete(path: Path) -> bool:
    """Tell whether a dump is whole: an ELF file whose section table lies within it."""
    try:
        with path.open("rb") as file:
            head = file.read(64)
            size = os.fstat(file.fileno()).st_size
            if len(head) < 64 or head[:4] != b"\x7fELF":
                return False
            table = int.from_bytes(head[40:48], "little")
            entry, count = int.from_bytes(head[58:60], "little"), int.from_bytes(head[60:62], "little")
            if not 0 < table < size:
                return False
            if not count:
                # More than 65,280 sections: the ELF specification puts their number into section 0.
                file.seek(table + 32)
                count = int.from_bytes(file.read(8), "little")
    except OSError:
        return False
    return count > 0 and table + count * entry <= size


def regular(path: Path, since: float) -> os.stat_result | None:
    """Return the status of a regular, non-empty file that was written after ``since``, else None."""
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or not status.st_size or status.st_mtime < since:
        return None
    return status

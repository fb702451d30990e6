"""Build the launch recorder, and what to add to a program's environment so that it is loaded.

The library is compiled on the machine where it runs, at first use, and kept in the user's cache:
it then fits that machine's C library and architecture, and the wheel stays free of binaries.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_NATIVE = Path(__file__).with_name("native")
_SOURCES = ("recorder.c", "log.h", "stack_native.h", "stack_python.h")
_FLAGS = ("-O2", "-std=gnu11", "-shared", "-fPIC", "-fvisibility=hidden")
_COMPILERS = ("cc", "gcc", "clang")
_BUILD_SECONDS = 60.0
_MAX_SCAN = 4 << 20
#: Runtimes that insist on being the first library, and end the program when they are not.
_JEALOUS = (b"libasan.so", b"libtsan.so", b"libhwasan.so")

#: An inclusive range of launch numbers.
Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Control:
    """What the recorder does to chosen launches in a controlled rerun.

    Attributes:
        sync: before these launches the whole context is synchronised; inclusive ranges of
            launch numbers, counted per context.
        delay: before these launches a pause is put into their stream.
        microseconds: how long that pause is.
    """

    sync: tuple[Range, ...] = ()
    delay: tuple[Range, ...] = ()
    microseconds: int = 1000


@dataclass(frozen=True, slots=True)
class Recorder:
    """What :func:`prepare` found.

    Attributes:
        environment: variables to set for the program; empty without a recorder.
        note: what is lost and why, one sentence; empty when the recorder will be loaded.
    """

    environment: Mapping[str, str]
    note: str = ""


class _NoRecorderError(Exception):
    """Why there is none."""


def prepare(
    folder: Path,
    environment: Mapping[str, str],
    control: Control | None = None,
    command: Sequence[str] = (),
) -> Recorder:
    """Return what loads the recorder into a program.

    Args:
        folder: where each process of the program will write ``launches.PID.bin``; must exist.
        environment: the program's own; its ``LD_PRELOAD`` stays in force behind ours.
        control: for a controlled rerun.
        command: the program's argv, to leave alone those that would not start with a preloaded library.
    """
    try:
        if command and (runtime := _jealous(command[0])):
            raise _NoRecorderError(f"{command[0]} uses {runtime}, which must be loaded first")
        library = _library(folder)
    except _NoRecorderError as error:
        return Recorder({}, f"launches are not recorded, so no host line of a launch is known: {error}")
    before = environment.get("LD_PRELOAD", "")
    add = {
        "LD_PRELOAD": f"{library}:{before}" if before else str(library),
        "CUWHY_RECORDER": str(folder),
    }
    if control is not None:
        if control.sync:
            add["CUWHY_RECORDER_SYNC"] = _ranges(control.sync)
        if control.delay:
            add["CUWHY_RECORDER_DELAY"] = f"{_ranges(control.delay)}:{control.microseconds}"
    return Recorder(add)


def _ranges(ranges: Sequence[Range]) -> str:
    return ",".join(f"{first}-{last}" for first, last in ranges)


def _jealous(program: str) -> str:
    """The sanitizer runtime that an executable is linked with, empty when none."""
    path = shutil.which(program)
    if path is None:
        return ""
    try:
        with open(path, "rb") as file:
            head = file.read(_MAX_SCAN)
    except OSError:
        return ""
    return next((name.decode() for name in _JEALOUS if head[:4] == b"\x7fELF" and name in head), "")


def _library(folder: Path) -> Path:
    compiler = next((path for name in _COMPILERS if (path := shutil.which(name))), None)
    name = f"recorder-{_key(compiler)}.so"
    cache = _cache()
    if cache is not None and _trusted(cache / name):
        return cache / name
    if compiler is None:
        raise _NoRecorderError("no C compiler found; install one (apt install gcc)")
    for place in (cache, folder):
        if place is not None and not (set(str(place)) & set(" :\n\t$")) and os.access(place, os.W_OK):
            return _build(compiler, place / name)
    raise _NoRecorderError(f"the dynamic linker cannot take a path like {folder}; set TMPDIR")


def _key(compiler: str | None) -> str:
    """What the binary depends on: sources, compiler, C library, machine."""
    digest = hashlib.sha256(repr((_FLAGS, os.uname().machine, _libc())).encode())
    for source in _SOURCES:
        digest.update((_NATIVE / source).read_bytes())
    if compiler is not None:
        real = os.path.realpath(compiler)
        status = os.stat(real)
        digest.update(repr((real, status.st_size, int(status.st_mtime))).encode())
    return digest.hexdigest()[:20]


def _libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _cache() -> Path | None:
    """The user's own folder for it, None where there can be none."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        folder = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "cuwhy"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder if _own(folder) else None


def _own(path: Path) -> bool:
    """Tell whether nobody but this user (or root) can have put it there."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return (
        status.st_uid in (os.getuid(), 0) and not stat.S_ISLNK(status.st_mode) and not status.st_mode & 0o022
    )


def _trusted(path: Path) -> bool:
    return _own(path) and path.is_file()


def _build(compiler: str, target: Path) -> Path:
    from cuwhy.process import Running

    part = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    argv = [compiler, *_FLAGS, "-o", str(part), str(_NATIVE / "recorder.c"), "-ldl", "-lpthread"]
    # The user's preloads and library paths are the program's business, not the compiler's.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("LD_")}
    try:
        built = Running(argv, env=environment).finish(_BUILD_SECONDS)
        if not built.ok:
            lines = [line for line in built.err.decode("utf-8", "replace").splitlines() if "error" in line]
            reason = (lines or ["it does not say why"])[0][:200]
            raise _NoRecorderError(
                f"{compiler} could not build the recorder ({reason}); is libc6-dev installed?"
            )
        if (true := shutil.which("true")) is not None:
            # The dynamic linker says on stderr what it cannot load.
            tried = Running([true], env={**environment, "LD_PRELOAD": str(part)}).finish(10.0)
            if not tried.ok or tried.err:
                reason = tried.err.decode("utf-8", "replace").strip()[:200]
                raise _NoRecorderError(f"the recorder cannot be loaded ({reason})")
        part.chmod(0o700)
        os.replace(part, target)
    except OSError as error:
        raise _NoRecorderError(f"the recorder could not be built: {error.strerror or error}") from error
    finally:
        part.unlink(missing_ok=True)
    return target

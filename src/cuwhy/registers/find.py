"""From what a user has (cubin, source, core dump, case) to the cubins in it."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from cuwhy.model.architecture import architecture_of
from cuwhy.model.errors import CuwhyError, InputError, ToolMissing
from cuwhy.process import Running
from cuwhy.read.coredump import CoreDump
from cuwhy.read.recognize import recognize
from cuwhy.registers.analysis import RegisterReport, analyse

_MAX_FILE_BYTES = 256 << 20
_MAX_SOURCE_BYTES = 4 << 20
_MAX_MODULES = 64
#: Larger images are libraries, in which the user's kernel is not.
_MAX_IMAGE_BYTES = 2 << 20
_NVCC_SECONDS = 300.0
_EM_CUDA = 190


def kernels_of(
    path: Path, *, threads: int = 0, kernel: str = "", architecture: str = "sm_90", options: str = ""
) -> list[RegisterReport]:
    """Return a report for each kernel that a file holds, most registers first.

    Args:
        path: a cubin, a CUDA source file, a core dump or a case.
        threads: block size for residency, 0: what the kernel was compiled for.
        kernel: only kernels whose name contains this.
        architecture: to compile a source file for.
        options: further options for nvcc, as on a command line.

    Raises:
        InputError: nothing usable in it, or a source that does not compile.
        ToolMissing: nvdisasm or nvcc is not there.
    """
    reports: list[RegisterReport] = []
    problem: CuwhyError | None = None
    for data, what in _cubins(path, architecture, options):
        try:
            reports += analyse(data, what, threads=threads, kernel=kernel)
        except ToolMissing:
            raise
        except CuwhyError as error:
            problem = problem or error
    if not reports:
        raise problem or InputError(f"{path}: no GPU code in it")
    return sorted(reports, key=lambda report: (-report.resources.registers, report.kernel))


def _cubins(path: Path, architecture: str, options: str) -> Iterator[tuple[bytes | memoryview, str]]:
    try:
        if path.is_dir():
            yield from _from_case(path)
            return
        if not path.is_file():
            raise InputError(f"{path}: " + ("not a regular file" if path.exists() else "no such file"))
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise InputError(
                f"{path}: more than {_MAX_FILE_BYTES >> 20} MB", hint="slim it: `cuwhy case slim`"
            )
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    kind = recognize(data)
    if kind == "case":
        yield from _from_case(path)
    elif kind == "coredump":
        yield from _from_dump(data, path.name)
    elif data[:4] == b"\x7fELF":
        if int.from_bytes(data[18:20], "little") != _EM_CUDA:
            raise InputError(
                f"{path}: a host program",
                hint=f"take the GPU code out of it: cuobjdump -xelf all {path.name}",
            )
        yield data, path.name
    elif path.suffix.lower() in (".cu", ".ptx"):
        yield _compiled(path, data, architecture, options), path.name
    else:
        raise InputError(f"{path}: neither a cubin, a .cu file, a core dump nor a case")


def _from_dump(data: bytes | memoryview, what: str) -> Iterator[tuple[memoryview, str]]:
    dump = CoreDump(data, what)
    for index, module in enumerate(dump.modules[:_MAX_MODULES]):
        image = dump.image(module)
        if 0 < len(image) <= _MAX_IMAGE_BYTES:
            yield image, f"{what}, module {index}"


def _from_case(path: Path) -> Iterator[tuple[memoryview, str]]:
    from cuwhy.case import open_case

    found = False
    with open_case(path) as case:
        for entry in case.artefacts:
            data = case.read(entry.path)
            if data and recognize(data) == "coredump":
                found = True
                yield from _from_dump(data, entry.path)
    if not found:
        raise InputError(f"{path}: the case holds no core dump, so no GPU code")


def _compiled(path: Path, source: bytes, architecture: str, options: str) -> bytes:
    chip = architecture_of(architecture)
    if chip is None:
        raise InputError(f"architecture {architecture[:40]!r} is not known", hint="for instance --arch sm_90")
    if len(source) > _MAX_SOURCE_BYTES:
        raise InputError(f"{path}: a source file of {len(source) >> 20} MB")
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    if nvcc is None:
        raise ToolMissing("nvcc is not installed", hint="give a cubin, or install the CUDA toolkit")
    with tempfile.TemporaryDirectory(prefix="cuwhy-") as folder:
        target = os.path.join(folder, "kernel.cubin")
        command = [nvcc, "-cubin", "-lineinfo", f"-arch={chip.name}", *shlex.split(options)]
        # An absolute path cannot be taken for an option.
        done = Running([*command, "-o", target, str(path.absolute())]).finish(_NVCC_SECONDS)
        if not done.ok or not os.path.isfile(target):
            lines = [line for line in done.err.decode("utf-8", "replace").splitlines() if "error" in line]
            what = lines[0][:300] if lines else "no cubin was written"
            raise InputError(f"{path}: nvcc failed ({what})", hint="--nvcc passes further options")
        return Path(target).read_bytes()

"""What a run left -> a case, step by step, so that one failing step loses one artefact."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from cuwhy.capture.launches import launch_logs
from cuwhy.capture.run import Dump, Observed, Tensors
from cuwhy.model.errors import CuwhyError, InputError

#: Below the case format's own limits, so that the rest still fits.
_MAX_DUMP_BYTES = 256 << 20
_MAX_CASE_BYTES = 900 << 20
#: Three times what the hook writes at most.
_MAX_TENSOR_BYTES = 15_000_000
_TEXT_KINDS = ("log", "sanitizer-text", "sanitizer-xml")


class _Contents:
    """Artefacts of the case under construction."""

    def __init__(self) -> None:
        self.artefacts: dict[str, bytes | Path] = {}
        self.kinds: dict[str, str] = {}
        self.tools: dict[str, tuple[str, str]] = {}
        self.notes: dict[str, str] = {}
        self.size = 0

    def add(self, name: str, content: bytes, kind: str, note: str = "", tool: str = "") -> None:
        """Add one artefact.

        Raises:
            InputError: the case would become too large.
        """
        if self.size + len(content) > _MAX_CASE_BYTES:
            raise InputError(f"the case would be larger than {_MAX_CASE_BYTES >> 20} MB")
        self.size += len(content)
        self.artefacts[name], self.kinds[name] = content, kind
        if note:
            self.notes[name] = note
        if tool:
            self.tools[name] = (tool, "")


def keep(
    seen: Observed,
    targets: list[tuple[Path, bool]],
    extra: Mapping[str, tuple[bytes, str]] | None = None,
) -> tuple[Path | None, list[str]]:
    """Write the case to the first target that takes it.

    Args:
        seen: what the run left.
        targets: file names and whether one that exists is replaced, best first.
        extra: further artefacts, content and kind by name.

    Returns:
        The case, or None where no target took it, and what could not be kept, one sentence each.
    """
    from cuwhy.case import MachineEntry, write_case

    contents = _Contents()
    problems: list[str] = []
    for what, step in _steps(seen, contents):
        try:
            step()
        except (CuwhyError, OSError, MemoryError) as error:
            problems.append(f"{what} is not in the case: {_reason(error)}")
        except Exception as error:
            # A damaged dump must not cost the log; the folder still has it with --keep.
            problems.append(f"{what} is not in the case: {type(error).__name__}: {error}"[:300])
    for name, (data, kind) in (extra or {}).items():
        contents.add(name, data, kind, tool="cuwhy")
    if not contents.artefacts:
        return None, problems
    system = os.uname()
    for path, replace in targets:
        try:
            write_case(
                path,
                contents.artefacts,
                kinds=contents.kinds,
                tools=contents.tools,
                notes=contents.notes,
                machine=MachineEntry(system.sysname, system.machine),
                command=seen.command,
                directory=_folder_name(),
                environment=seen.environment,
                note=_note(seen, problems),
                overwrite=replace,
            )
            return path, problems
        except (CuwhyError, OSError, MemoryError) as error:
            problems.append(f"{path} could not be written: {_reason(error)}")
    return None, problems


def default_targets(command: tuple[str, ...]) -> list[tuple[Path, bool]]:
    """Return ``cuwhy-COMMAND-TIME.cuwhy`` in the current folder, and in the one for temporary files."""
    words = [word for word in command[:4] if not word.startswith("-")]
    # "python3 train.py" is about train.py.
    interpreter = re.match(r"(?:python|bash|sh|env|torchrun|accelerate)[0-9.]*\Z", os.path.basename(words[0]))
    name = os.path.basename(words[1] if interpreter and len(words) > 1 else command[0])
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).removesuffix(".py").strip("._-")[:40] or "run"
    file = f"cuwhy-{stem}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.cuwhy"
    return [(Path(file), False), (Path(os.environ.get("TMPDIR") or "/tmp") / file, False)]


def _steps(seen: Observed, contents: _Contents) -> Iterator[tuple[str, Callable[[], None]]]:
    names: set[str] = set()
    for dump in seen.dumps:
        name = f"core.{dump.pid}.nvcudmp" if dump.pid is not None else "core.nvcudmp"
        number = 2
        while name in names:
            name = f"core.{dump.pid or 0}-{number}.nvcudmp"
            number += 1
        names.add(name)
        yield f"the core dump of {dump.label}", lambda d=dump, n=name: _add_dump(contents, d, n)  # type: ignore[misc]
    for name, data in seen.logs.items():
        yield f"the copy of {name}", lambda d=data, n=name: _add_log(contents, n, d)  # type: ignore[misc]
    for name, data in (seen.launches or launch_logs(seen.folder)).items():
        yield f"the launch log {name}", lambda d=data, n=name: contents.add(n, d, "launchlog", tool="cuwhy")  # type: ignore[misc]
    for item in seen.tensors:
        yield item.path.name, lambda t=item: _add_tensors(contents, t)  # type: ignore[misc]
    for path in seen.stacks:
        yield path.name, lambda p=path: contents.add(p.name, p.read_bytes(), "log")  # type: ignore[misc]


def _add_dump(contents: _Contents, dump: Dump, name: str) -> None:
    from cuwhy.case import clean_name
    from cuwhy.case.labels import ProcessLabel
    from cuwhy.locate.listings import sass_artefacts
    from cuwhy.read.slim import slim_coredump

    size = dump.path.stat().st_size
    if size > _MAX_DUMP_BYTES:
        raise InputError(f"it has {size >> 20} MB, more than {_MAX_DUMP_BYTES >> 20}: {dump.path}")
    data = dump.path.read_bytes()
    note = ProcessLabel(dump.label, dump.written, dump.asked).note
    try:
        slim = slim_coredump(data)
    except InputError as error:
        contents.add(
            clean_name(name), data, "coredump", f"{note}; not slimmed: {error.message}", "CUDA driver"
        )
        return
    contents.add(clean_name(name), slim, "coredump", f"{note}; slimmed from {size} bytes", "CUDA driver")
    for listing, text in sass_artefacts(name, slim).items():
        contents.add(listing, text, "sass")


def _add_tensors(contents: _Contents, item: Tensors) -> None:
    with item.path.open("rb") as file:
        data = file.read(_MAX_TENSOR_BYTES)
    contents.add(item.path.name, data, "tensors", f"{item.label}, at its first CUDA error", "cuwhy")


def _add_log(contents: _Contents, name: str, data: bytes) -> None:
    log, kind, note = log_artefact(data)
    contents.add(f"{name}.log", log, kind, note)


def log_artefact(data: bytes) -> tuple[bytes, str, str]:
    """Return a program's output as an artefact: slimmed content, kind, and a note on what was changed."""
    from cuwhy.case import slim_log
    from cuwhy.read.recognize import recognize

    log = slim_log(data)
    kind = recognize(log) if log else "log"
    if kind in _TEXT_KINDS:
        return log, kind, ""
    # A reader goes by content: binary output would pass for something else, and hide the errors in it.
    head = b"[cuwhy: this program prints binary data; zero bytes are replaced]\n"
    return head + log.replace(b"\0", b"?"), "log", "zero bytes replaced by question marks"


def log_kind(data: bytes) -> bool:
    """Tell whether a diagnosis can read this output as it is."""
    from cuwhy.read.recognize import recognize

    return recognize(data) in _TEXT_KINDS


def _note(seen: Observed, problems: list[str]) -> str:
    end = f"killed by signal {-seen.code}" if seen.code < 0 else f"exit code {seen.code}"
    parts = [f"{end} after {seen.seconds:.1f} s"]
    if seen.ended:
        parts.append(f"ended by cuwhy: {seen.ended}")
    if len(seen.dumps) > 1:
        parts.append(f"first core dump: {seen.dumps[0].label}; later: {_labels(seen.dumps[1:])}")
    return "; ".join([*parts, *seen.notes, *problems])


def _labels(dumps: list[Dump]) -> str:
    return ", ".join(dump.label for dump in dumps[:16]) + (" …" if len(dumps) > 16 else "")


def _folder_name() -> str:
    try:
        return os.getcwd()
    except OSError:
        return ""


def _reason(error: BaseException) -> str:
    if isinstance(error, CuwhyError):
        return error.message
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "not enough memory"

"""Make a case smaller without losing what a diagnosis needs."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cuwhy.case.files import refuse_existing, write_pieces
from cuwhy.case.manifest import ArtefactEntry
from cuwhy.case.names import MAX_READ_BYTES, quoted
from cuwhy.case.store import Case, open_case, write_case
from cuwhy.model.errors import InputError

# One line per SM that the driver writes while a dump is taken; they carry nothing
# else.  A line that something else begins with is kept: programs share the stream.
_PROGRESS = re.compile(
    rb"^(?:\[[0-9:.]{1,32}\] )?coredump: SM [0-9]{1,6}/[0-9]{1,6} has finished state collection\r?(?:\n|\Z)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class SlimArtefact:
    """What slimming did to one artefact; sizes in bytes, unpacked.

    Attributes:
        path: its name in the case.
        before, after: equal when it was left as it is.
        problem: why it could not be slimmed, empty when nothing was wrong.
    """

    path: str
    before: int
    after: int
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SlimResult:
    """What slimming did to a case.

    Attributes:
        before, after: bytes of the case as a file (of all its files, for a folder).
        artefacts: one each, sorted by path.
    """

    before: int
    after: int
    artefacts: tuple[SlimArtefact, ...]


def slim_log(data: bytes) -> bytes:
    """Return a log without the driver's "SM n/m has finished state collection" lines."""
    return _PROGRESS.sub(b"", data)


def slim_case(
    src: Path,
    dst: Path,
    *,
    overwrite: bool = False,
    listings: Callable[[str, bytes], Mapping[str, bytes]] | None = None,
) -> SlimResult:
    """Write a smaller copy of a case.

    Core dumps lose what :func:`cuwhy.read.slim.slim_coredump` drops, logs the
    driver's progress lines; all else is copied.  A changed artefact's note says
    from what it was made.

    Args:
        src: zip or folder; stays as it is.
        dst: the zip to write.
        overwrite: True replaces an existing file.
        listings: gives further artefacts (of kind "sass") for a core dump, by its name and content.

    Raises:
        InputError: ``src`` cannot be trusted, or ``dst`` cannot be written.
    """
    refuse_existing(dst, overwrite=overwrite)
    with open_case(src) as case, _scratch(dst) as folder:
        manifest = case.manifest
        files: dict[str, bytes | Path] = {}
        notes = {}
        artefacts = []
        kinds = {entry.path: entry.kind for entry in manifest.artefacts}
        known = frozenset(kinds)
        for number, entry in enumerate(manifest.artefacts):
            # On disk, one at a time: a case can be larger than memory allows.
            files[entry.path] = file = folder / str(number)
            content, problem = _slimmed(case, entry)
            notes[entry.path] = entry.note
            if content is None:
                write_pieces(file, case.chunks(entry.path))
            else:
                write_pieces(file, iter((content,)))
                notes[entry.path] = _note(entry)
            after = entry.size if content is None else len(content)
            artefacts.append(SlimArtefact(entry.path, entry.size, after, problem))
            if listings is not None and entry.kind == "coredump" and content is not None:
                for path, text in listings(entry.path, content).items():
                    if path not in known:
                        files[path] = text
                        kinds[path] = "sass"
        write_case(
            dst,
            files,
            kinds=kinds,
            tools={entry.path: (entry.tool, entry.version) for entry in manifest.artefacts},
            notes=notes,
            machine=manifest.machine,
            driver=manifest.driver,
            device=manifest.device,
            command=manifest.command,
            directory=manifest.directory,
            environment=dict(manifest.environment),
            note=manifest.note,
            created=manifest.created,
            overwrite=overwrite,
        )
        before = sum(entry.size for entry in case.artefacts) if src.is_dir() else src.stat().st_size
        return SlimResult(before, dst.stat().st_size, tuple(artefacts))


def _slimmed(case: Case, entry: ArtefactEntry) -> tuple[bytes | None, str]:
    """Return the slimmed content, or None and why there is none (empty: nothing to gain)."""
    if entry.kind not in ("coredump", "log"):
        return None, ""
    if entry.size > MAX_READ_BYTES:
        return None, f"larger than {MAX_READ_BYTES >> 20} MiB"
    data = case.read(entry.path)
    if entry.kind == "log":
        content = slim_log(data)
    else:
        from cuwhy.read.slim import slim_coredump

        try:
            content = slim_coredump(data)
        except InputError as error:
            # A damaged dump may still tell something; whoever sends it must know it is whole.
            return None, error.message
    return (content, "") if len(content) < len(data) else (None, "")


def _note(entry: ArtefactEntry) -> str:
    made = f"slimmed from {entry.size} bytes with sha256 {entry.sha256}"
    return f"{entry.note}; {made}" if entry.note else made


@contextmanager
def _scratch(dst: Path) -> Iterator[Path]:
    # Beside the result: the temporary directory of a cluster node is often memory.
    folder = dst.with_name(f".{dst.name[:100]}.{secrets.token_hex(6)}.parts")
    try:
        os.mkdir(folder, 0o700)
    except OSError as error:
        raise InputError(
            f"{quoted(str(dst), 200)} cannot be written: {error.strerror or error}",
            hint="check the folder, its permissions and its free space",
        ) from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)

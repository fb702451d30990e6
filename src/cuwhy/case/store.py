"""Open, write and extract a case."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from io import BytesIO
from pathlib import Path
from types import TracebackType

from cuwhy.case.archive import ZipReader, ZipWriter, is_bomb_like
from cuwhy.case.environment import allowed_environment, clean_command, clean_name
from cuwhy.case.files import (
    FolderReader,
    chunks_of,
    has_manifest,
    new_file,
    new_folder,
    open_regular,
    write_pieces,
)
from cuwhy.case.manifest import (
    KINDS,
    MAX_NOTE,
    MAX_TEXT,
    ArtefactEntry,
    MachineEntry,
    Manifest,
    is_manifest,
    parse_manifest,
    to_json,
)
from cuwhy.case.names import (
    MANIFEST_NAME,
    MAX_ENTRY_BYTES,
    MAX_MANIFEST_BYTES,
    MAX_READ_BYTES,
    printable,
    quoted,
)
from cuwhy.model.errors import CuwhyError, InputError

_CHUNK = 1 << 18
_NOT_TRUSTED = "the case was changed after it was written; ask for it again"


class Case:
    """A case that is open for reading; a context manager.

    Attributes:
        name: base name of the file or folder.
        manifest: checked.
        notes: what was passed over, one sentence each ("extra.bin is not in the
            manifest and is ignored").

    Contents are checked when they are read, not when the case is opened.
    """

    def __init__(
        self,
        name: str,
        manifest: Manifest,
        reader: ZipReader | FolderReader,
        notes: tuple[str, ...],
        stack: ExitStack,
    ) -> None:
        self.name = name
        self.manifest = manifest
        self.notes = notes
        self._reader = reader
        self._stack = stack
        self._entries = {entry.path: entry for entry in manifest.artefacts}

    @property
    def artefacts(self) -> tuple[ArtefactEntry, ...]:
        """What is in the case, sorted by path."""
        return self.manifest.artefacts

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield an artefact's content in pieces of at most 256 KiB.

        The last piece is followed by the check of size and SHA-256: until the
        iterator ends without an error, what it gave is not to be trusted.

        Raises:
            InputError: there is no such artefact, or its content is not what the
                manifest declares.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise InputError(
                f"{self.name}: no artefact {quoted(name)}", hint="'cuwhy case show' lists what is in it"
            )
        digest = hashlib.sha256()
        size = 0
        for piece in self._reader.chunks(name):
            size += len(piece)
            if size > entry.size:
                break
            digest.update(piece)
            yield piece
        if size != entry.size or digest.hexdigest() != entry.sha256:
            raise InputError(f"{self.name}: {quoted(name)} does not match its sha256", hint=_NOT_TRUSTED)

    def read(self, name: str, limit: int = MAX_READ_BYTES) -> bytes:
        """Return an artefact's content, checked.

        Args:
            name: path of the artefact.
            limit: bytes to hold in memory at most.

        Raises:
            InputError: as :meth:`chunks`, or it is larger than ``limit``.
        """
        entry = self._entries.get(name)
        if entry is not None and entry.size > limit:
            raise InputError(
                f"{self.name}: {quoted(name)} has {entry.size} bytes, more than the {limit} read at once",
                hint="'cuwhy case slim' makes it smaller, 'cuwhy case extract' unpacks it",
            )
        # BytesIO gives its buffer away without a copy, joining a list would need twice the size.
        content = BytesIO()
        for piece in self.chunks(name):
            content.write(piece)
        return content.getvalue()

    def close(self) -> None:
        """Close the file; closing twice does no harm."""
        self._stack.close()

    def __enter__(self) -> Case:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_case(path: Path) -> Case:
    """Open a case, a zip or an unpacked folder.

    Args:
        path: the file or folder.

    Returns:
        The case; close it, or use it as a context manager.

    Raises:
        InputError: it is no case, is damaged, is of another version, or breaks a
            limit or a rule of ``docs/case-format.md``.
    """
    owner = _owner(path)
    with ExitStack() as stack:
        reader: ZipReader | FolderReader
        if path.is_dir():
            # Before the walk: a folder that is no case may be somebody's home.
            if not has_manifest(path):
                raise InputError(
                    f"{owner}: the folder holds no {MANIFEST_NAME}", hint="make a case with 'cuwhy case pack'"
                )
            reader = FolderReader(path, owner)
            sizes = reader.sizes
        else:
            reader = ZipReader(stack.enter_context(open_regular(path, owner, follow=True)), owner)
            sizes = {name: entry.size for name, entry in reader.entries.items()}
            if MANIFEST_NAME not in sizes:
                raise InputError(
                    f"{owner}: the zip holds no {MANIFEST_NAME}", hint="make a case with 'cuwhy case pack'"
                )
        manifest = parse_manifest(_manifest_bytes(reader, sizes, owner), owner)
        for entry in manifest.artefacts:
            if entry.path not in sizes:
                raise InputError(
                    f"{owner}: the artefact {quoted(entry.path)} is missing", hint="ask for the case again"
                )
            if entry.size != sizes[entry.path]:
                raise InputError(
                    f"{owner}: {quoted(entry.path)} has {sizes[entry.path]} bytes, its manifest says {entry.size}",
                    hint=_NOT_TRUSTED,
                )
        return Case(owner, manifest, reader, _notes(manifest, sizes), stack.pop_all())
    raise AssertionError("unreachable: an ExitStack of ours swallows no error")


def write_case(
    path: Path,
    artefacts: Mapping[str, bytes | Path],
    *,
    kinds: Mapping[str, str],
    tools: Mapping[str, tuple[str, str]] | None = None,
    notes: Mapping[str, str] | None = None,
    machine: MachineEntry | None = None,
    driver: str = "",
    device: str = "",
    command: Sequence[str] = (),
    directory: str = "",
    environment: Mapping[str, str] | None = None,
    note: str = "",
    created: datetime | str | None = None,
    overwrite: bool = False,
) -> Manifest:
    """Write a case as a zip, whole or not at all.

    The same arguments give the same bytes (with the same zlib).  Secrets, home
    directories and this machine's name are taken out of ``command``,
    ``directory`` is cut to its base name, and of ``environment`` only what
    :func:`cuwhy.case.environment.allowed_environment` lets through is written.
    Contents of artefacts are not changed.

    Args:
        path: the file to write.
        artefacts: content, or the file that holds it, by name inside the case.
        kinds: kind by the same names; ``other`` where one is missing.
        tools: name and version of what wrote an artefact, by name.
        notes: free text by name.
        machine: where the program ran; driver and device likewise; unknown when not given.
        driver: version of the NVIDIA driver.
        device: name of the GPU.
        command: argv of the program.
        directory: its working directory.
        environment: its environment.
        note: free text about the case.
        created: time of recording, now when not given; a text has the manifest's form.
        overwrite: True replaces an existing file.

    Returns:
        The manifest that was written.

    Raises:
        InputError: the name is taken, an artefact cannot be read or has a name
            that may not stand in a case, or a limit is exceeded.
    """
    entries = []
    sources: dict[str, _Source] = {}
    for name in sorted(artefacts):
        content = artefacts[name]
        sources[name] = _BytesSource(content) if isinstance(content, bytes) else _FileSource(content)
        size, digest = sources[name].measure()
        tool, version = (tools or {}).get(name, ("", ""))
        kind = kinds.get(name, "other")
        text = (notes or {}).get(name, "")
        entries.append(
            ArtefactEntry(name, kind, size, digest, tool[:MAX_TEXT], version[:MAX_TEXT], text[:MAX_NOTE])
        )
    manifest = Manifest(
        artefacts=tuple(entries),
        created=created if isinstance(created, str) else _utc(created),
        cuwhy=_version(),
        machine=machine or MachineEntry(),
        driver=driver[:MAX_TEXT],
        device=device[:MAX_TEXT],
        command=clean_command(command),
        directory=clean_name(_base_name(directory))[:MAX_TEXT],
        environment=tuple(allowed_environment(environment or {}).items()),
        note=note[:MAX_NOTE],
    )
    data = to_json(manifest)
    # What is written must be readable: the reader's own rules decide.
    parse_manifest(data, _owner(path))
    with new_file(path, overwrite=overwrite) as file:
        writer = ZipWriter(file)
        writer.add(MANIFEST_NAME, (data,))
        for entry in manifest.artefacts:
            source = sources[entry.path]
            written = writer.add(entry.path, source.checked(entry))
            if is_bomb_like(written):
                writer.undo(written)
                writer.add(entry.path, source.checked(entry), store=True)
        writer.finish()
    return manifest


def extract_case(path: Path, into: Path, *, overwrite: bool = False) -> Manifest:
    """Unpack a case into a folder, which is then a case too; whole or not at all.

    Args:
        path: zip or folder.
        into: a new or empty folder.
        overwrite: True allows a folder with content; files of the same names are
            replaced.

    Returns:
        The manifest.

    Raises:
        InputError: the case cannot be trusted, or the folder cannot be written.
    """
    with open_case(path) as case, new_folder(into, overwrite=overwrite) as folder:
        write_pieces(folder / MANIFEST_NAME, iter((to_json(case.manifest),)))
        for entry in case.artefacts:
            write_pieces(folder / entry.path, case.chunks(entry.path))
        return case.manifest


def is_case(head: bytes) -> bool:
    """Tell from a file's first bytes (or all of them) whether it is a zip with a manifest.

    A case that cuwhy wrote has its manifest first.  In one that another program
    zipped it may stand behind ``head``: :func:`is_case_path` tells for sure.
    """
    mark, name = b"PK\3\4", MANIFEST_NAME.encode("ascii")
    if not head.startswith(mark):
        return False
    at = head.find(name)
    while at >= 0:
        # The name follows the 30 bytes of a local header, its length is at 26.
        if (
            at >= 30
            and head[at - 30 : at - 26] == mark
            and head[at - 4 : at - 2] == len(name).to_bytes(2, "little")
        ):
            return True
        at = head.find(name, at + 1)
    return False


def is_case_path(path: Path) -> bool:
    """Tell whether a file or folder claims to be a case; its contents are not checked."""
    owner = _owner(path)
    try:
        if path.is_dir():
            if not has_manifest(path):
                return False
            with open_regular(path / MANIFEST_NAME, owner, follow=False) as file:
                return is_manifest(file.read(MAX_MANIFEST_BYTES + 1))
        with open_regular(path, owner, follow=True) as file:
            if file.read(4) != b"PK\3\4":
                return False
            reader = ZipReader(file, owner)
            sizes = {name: entry.size for name, entry in reader.entries.items()}
            return MANIFEST_NAME in sizes and is_manifest(_manifest_bytes(reader, sizes, owner))
    except (CuwhyError, OSError, ValueError):
        return False


class _Source:
    """Content to be written, read twice: once for the manifest, once into the zip."""

    what = "the artefact"

    def pieces(self) -> Iterable[bytes]:
        raise NotImplementedError

    def measure(self) -> tuple[int, str]:
        digest = hashlib.sha256()
        size = 0
        for piece in self.pieces():
            digest.update(piece)
            size += len(piece)
            if size > MAX_ENTRY_BYTES:
                raise InputError(
                    f"{self.what} has more than the {MAX_ENTRY_BYTES >> 20} MiB allowed in a case",
                    hint="record without global memory, or slim the file first",
                )
        return size, digest.hexdigest()

    def checked(self, entry: ArtefactEntry) -> Iterator[bytes]:
        digest = hashlib.sha256()
        for piece in self.pieces():
            digest.update(piece)
            yield piece
        if digest.hexdigest() != entry.sha256:
            raise InputError(
                f"{self.what} changed while it was packed",
                hint="wait until its writer has ended, then pack again",
            )


class _BytesSource(_Source):
    def __init__(self, content: bytes) -> None:
        self._content = content

    def pieces(self) -> Iterable[bytes]:
        view = memoryview(self._content)
        return (bytes(view[at : at + _CHUNK]) for at in range(0, len(view), _CHUNK))


class _FileSource(_Source):
    def __init__(self, path: Path) -> None:
        self.what = quoted(str(path), 200)
        self._path = path

    def pieces(self) -> Iterable[bytes]:
        # Opened each time: thousands of files would exceed what a process may hold open.
        with open_regular(self._path, self.what, follow=True) as file:
            yield from chunks_of(file, self.what)


def _manifest_bytes(reader: ZipReader | FolderReader, sizes: Mapping[str, int], owner: str) -> bytes:
    if sizes.get(MANIFEST_NAME, 0) > MAX_MANIFEST_BYTES:
        raise InputError(
            f"{owner}: the manifest is larger than {MAX_MANIFEST_BYTES} bytes", hint="do not trust it"
        )
    data = b""
    for piece in reader.chunks(MANIFEST_NAME):
        data += piece
        if len(data) > MAX_MANIFEST_BYTES:
            raise InputError(f"{owner}: the manifest is too large", hint="do not trust it")
    return data


def _notes(manifest: Manifest, sizes: Mapping[str, int]) -> tuple[str, ...]:
    notes = [
        f"{quoted(entry.path)} is of a kind that this cuwhy does not know ({entry.kind}); it is kept and ignored"
        for entry in manifest.artefacts
        if entry.kind not in KINDS
    ]
    listed = {entry.path for entry in manifest.artefacts} | {MANIFEST_NAME}
    unlisted = sorted(name for name in sizes if name not in listed)
    if unlisted:
        more = f" and {len(unlisted) - 1} more" if len(unlisted) > 1 else ""
        notes.append(f"{quoted(unlisted[0])}{more}: not in the manifest and ignored")
    return tuple(notes)


def _utc(created: datetime | None) -> str:
    if created is None:
        created = datetime.now(timezone.utc)
    elif created.tzinfo is None:
        raise ValueError("the time of a case needs a time zone")
    return created.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def _version() -> str:
    # The package itself offers the layers above this one, so it must not be imported
    # from here; it is always loaded.
    return str(sys.modules["cuwhy"].__version__)


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]


def _owner(path: Path) -> str:
    return printable(path.name or str(path))

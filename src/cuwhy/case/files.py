"""Files and folders: opening what cannot be trusted, writing all or nothing."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from cuwhy.case.names import MANIFEST_NAME, MAX_COMPONENTS, MAX_ENTRIES, quoted
from cuwhy.model.errors import InputError

_CHUNK = 1 << 18
_FORCE = "choose another name, or add --force"


def open_regular(path: Path, owner: str, *, follow: bool) -> BinaryIO:
    """Open a regular file for reading.

    Args:
        path: the file; a fifo or a device is refused without waiting for it.
        owner: what to call it in messages.
        follow: False refuses a symbolic link.

    Raises:
        InputError: it does not exist, is not a regular file, or cannot be read.
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    if not follow:
        flags |= getattr(os, "O_NOFOLLOW", 0)
    try:
        if not follow and path.is_symlink():
            raise InputError(f"{owner}: {quoted(path.name)} is a symbolic link", hint="copy the file instead")
        handle = os.open(path, flags)
    except (OSError, ValueError) as error:
        raise _unreadable(owner, error) from error
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise InputError(f"{owner}: not a regular file", hint="name a file")
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def chunks_of(file: BinaryIO, owner: str) -> Iterator[bytes]:
    """Yield a file's content from its start in pieces of 256 KiB.

    Raises:
        InputError: it cannot be read.
    """
    try:
        file.seek(0)
        while piece := file.read(_CHUNK):
            yield piece
    except OSError as error:
        raise _unreadable(owner, error) from error


class FolderReader:
    """The files of an unpacked case; none is reached through a link.

    Args:
        folder: holds ``manifest.json``.
        owner: the case's name, for messages.

    Raises:
        InputError: it holds a link or a special file, or too many files.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        #: Size in bytes by relative path.
        self.sizes: dict[str, int] = {}
        self._seen = 0
        self._walk(folder, "", 0)

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the content of one file; ``name`` was checked and is in ``sizes``.

        Raises:
            InputError: it cannot be read, or was replaced by a link.
        """
        with open_regular(self._folder / name, self._owner, follow=False) as file:
            yield from chunks_of(file, f"{self._owner}: {quoted(name)}")

    def _walk(self, folder: Path, prefix: str, depth: int) -> None:
        if depth > MAX_COMPONENTS:
            raise InputError(
                f"{self._owner}: the folders are nested too deeply", hint="name the case's own folder"
            )
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    name = prefix + entry.name
                    self._seen += 1
                    if self._seen > MAX_ENTRIES:
                        raise InputError(
                            f"{self._owner}: more than {MAX_ENTRIES} files", hint="name the case's own folder"
                        )
                    if entry.is_symlink():
                        raise InputError(
                            f"{self._owner}: {quoted(name)} is a symbolic link", hint="copy the file instead"
                        )
                    if entry.is_dir(follow_symlinks=False):
                        self._walk(folder / entry.name, name + "/", depth + 1)
                    elif entry.is_file(follow_symlinks=False):
                        self.sizes[name] = entry.stat(follow_symlinks=False).st_size
                    else:
                        raise InputError(
                            f"{self._owner}: {quoted(name)} is not a regular file",
                            hint="remove it from the folder",
                        )
        except OSError as error:
            raise _unreadable(self._owner, error) from error


@contextmanager
def new_file(path: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Give a file to write, which takes its name only when the block ends well.

    Args:
        path: the name; its folder must exist.
        overwrite: True replaces a file of that name.

    Raises:
        InputError: the name is taken, or the file cannot be written.
    """
    refuse_existing(path, overwrite=overwrite)
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        try:
            with open(draft, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _take_name(draft, path, overwrite=overwrite)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        with suppress(OSError):
            draft.unlink()


@contextmanager
def new_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """Give a folder to fill, whose files move to ``path`` only when the block ends well.

    Args:
        path: does not exist or is an empty folder; with ``overwrite`` its files
            of the same names are replaced and all others stay.
        overwrite: as above.

    Raises:
        InputError: the folder is in use, or cannot be written.
    """
    try:
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            raise InputError(f"{quoted(str(path))} is not a folder", hint="name a new folder")
        merge = path.is_dir() and any(path.iterdir())
        if merge and not overwrite:
            raise InputError(f"{quoted(str(path))} is not empty", hint=_FORCE)
        path.parent.mkdir(parents=True, exist_ok=True)
        # A sibling, so that moving is renaming; resolve() because '.' has no name.
        target = path.resolve()
        draft = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
        draft.mkdir()
    except OSError as error:
        raise _unwritable(path, error) from error
    try:
        yield draft
        try:
            if merge:
                _move_files(draft, target)
            else:
                if target.exists():
                    target.rmdir()
                draft.rename(target)
        except OSError as error:
            raise _unwritable(path, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool) -> None:
    """Refuse a name that is taken, before any work is done.

    Raises:
        InputError: the name is taken, or it is one that no file can have.
    """
    if not path.name or path.is_dir():
        raise InputError(f"{quoted(str(path))} is a folder", hint="name a file, for example case.cuwhy")
    if not overwrite and (path.exists() or path.is_symlink()):
        raise InputError(f"{quoted(str(path))} exists already", hint=_FORCE)


def write_pieces(path: Path, pieces: Iterator[bytes]) -> None:
    """Write a new file below a folder of :func:`new_folder`, with its folders.

    Raises:
        InputError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "xb") as file:
            for piece in pieces:
                file.write(piece)
    except OSError as error:
        raise _unwritable(path, error) from error


def has_manifest(folder: Path) -> bool:
    """Tell whether the folder holds a regular file of the manifest's name."""
    try:
        return stat.S_ISREG((folder / MANIFEST_NAME).lstat().st_mode)
    except (OSError, ValueError):
        return False


def _take_name(draft: Path, path: Path, *, overwrite: bool) -> None:
    if not overwrite:
        try:
            # Linking fails when the name was taken meanwhile; renaming would replace it.
            os.link(draft, path)
            return
        except FileExistsError:
            refuse_existing(path, overwrite=False)
            raise
        except (OSError, NotImplementedError, AttributeError):
            # File systems without hard links: check once more, then rename.
            refuse_existing(path, overwrite=False)
    os.replace(draft, path)


def _move_files(source: Path, target: Path) -> None:
    for folder, _, names in os.walk(source):
        relative = Path(folder).relative_to(source)
        place = target
        for part in relative.parts:
            place = place / part
            if place.is_symlink():
                raise InputError(f"{quoted(str(place))} is a symbolic link", hint="name a new folder")
            place.mkdir(exist_ok=True)
        for name in names:
            os.replace(Path(folder) / name, place / name)


def _unreadable(owner: str, error: OSError | ValueError) -> InputError:
    if isinstance(error, FileNotFoundError):
        return InputError(f"{owner}: no such file", hint="check the path")
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return InputError(f"{owner}: is a symbolic link", hint="copy the file instead")
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return InputError(f"{owner}: cannot be read: {reason}", hint="check the path and its permissions")


def _unwritable(path: Path, error: OSError) -> InputError:
    return InputError(
        f"{quoted(str(path), 200)} cannot be written: {error.strerror or error}",
        hint="check the folder, its permissions and its free space",
    )

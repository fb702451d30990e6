"""Reports that go into a file."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from cuwhy.model.errors import InputError


def write_report(path: str, content: str) -> None:
    """Write a report so that ``path`` holds the whole of it or what it held before; say so on stderr.

    Args:
        path: of the file, ``-`` for standard output.
        content: of the report.

    Raises:
        InputError: it cannot be written.
    """
    if path == "-":
        sys.stdout.write(content)
        return
    target = Path(path)
    temporary = ""
    try:
        if target.exists() and not target.is_file():
            # A device or a pipe cannot be replaced, only written to.
            target.write_text(content, "utf-8")
        else:
            handle, temporary = tempfile.mkstemp(prefix=".cuwhy-", dir=target.parent)
            with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
                file.write(content)
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(temporary, 0o666 & ~umask)
            os.replace(temporary, target)
    except OSError as error:
        if temporary and os.path.exists(temporary):
            os.unlink(temporary)
        raise InputError(
            f"{path}: {error.strerror or error}", hint="name a file in a folder that can be written to"
        ) from error
    print(f"cuwhy: wrote {path} ({len(content.encode()) / 1000:.0f} KB)", file=sys.stderr)

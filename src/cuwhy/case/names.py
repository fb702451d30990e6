"""Limits of a case, and which names may stand in one.

A case is sent between strangers.  Every name in it is checked once, here, by the
strictest rule of all the systems that it may be unpacked on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

from cuwhy.model.errors import InputError

#: Name of the manifest inside a case.
MANIFEST_NAME = "manifest.json"

#: Entries in one case, the manifest included.
MAX_ENTRIES = 10_000
#: Unpacked bytes of one entry, and of all entries together.
MAX_ENTRY_BYTES = 512 << 20
MAX_TOTAL_BYTES = 1 << 30
#: Bytes that :meth:`cuwhy.case.Case.read` holds in memory at most; larger
#: artefacts can be streamed and extracted.
MAX_READ_BYTES = 256 << 20
#: Unpacked to packed, for entries above ``RATIO_FLOOR_BYTES``.  Core dumps reach
#: 100; a file of zeros reaches 1,029, close to what deflate can do at all.
MAX_RATIO = 1000
RATIO_FLOOR_BYTES = 1 << 20
#: Bytes of the manifest, and how deep its JSON may nest (ours needs 3).
MAX_MANIFEST_BYTES = 1 << 20
MAX_JSON_DEPTH = 8
#: Characters of a name, UTF-8 bytes of one component, components.
MAX_NAME_CHARACTERS = 240
MAX_COMPONENT_BYTES = 200
MAX_COMPONENTS = 16

_DEVICES = frozenset(
    ("con", "prn", "aux", "nul", *(f"com{n}" for n in range(10)), *(f"lpt{n}" for n in range(10)))
)


def printable(text: str) -> str:
    r"""Return ``text`` with everything that could steer a terminal escaped (``\x1b``, ``\u202e``)."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode("ascii") for c in text
    )


def quoted(text: str, limit: int = 80) -> str:
    """Return ``text`` in quotes, printable and cut to ``limit`` characters, for a message."""
    return f"'{printable(text if len(text) <= limit else text[:limit] + '…')}'"


def name_problem(name: str) -> str:
    """Return why ``name`` may not stand in a case, or an empty string when it may."""
    if not name:
        return "is empty"
    if len(name) > MAX_NAME_CHARACTERS:
        return f"is longer than {MAX_NAME_CHARACTERS} characters"
    if not name.isprintable():
        # Also catches NUL, lone surrogates and characters that reverse the text.
        return "holds control or invisible characters"
    if "\\" in name:
        return "holds a backslash"
    if ":" in name:
        return "holds a colon (a drive letter or a stream on Windows)"
    if name.startswith("/"):
        return "is an absolute path"
    parts = name.split("/")
    if len(parts) > MAX_COMPONENTS:
        return f"is more than {MAX_COMPONENTS} folders deep"
    for part in parts:
        if part in ("", ".", ".."):
            return "is not a plain relative path"
        if part[-1] in ". " or part[0] == " ":
            return "has a component that begins or ends in a space, or ends in a dot"
        if len(part.encode("utf-8")) > MAX_COMPONENT_BYTES:
            return f"has a component longer than {MAX_COMPONENT_BYTES} bytes"
        if part.split(".", 1)[0].rstrip().lower() in _DEVICES:
            return "is the name of a device on Windows"
    return ""


def check_name(name: str, owner: str) -> str:
    """Return ``name`` when it may stand in a case.

    Raises:
        InputError: it may not; ``owner`` is the case that is named in the message.
    """
    problem = name_problem(name)
    if problem:
        raise InputError(f"{owner}: the name {quoted(name)} {problem}", hint="a case is not unpacked in part")
    return name


def check_distinct(names: Iterable[str], owner: str) -> None:
    """Refuse names that would meet on some file system.

    Two names meet when they are equal without regard to case and Unicode
    normalisation, or when one of them is a folder on the way to the other.

    Raises:
        InputError: two names meet.
    """
    files: set[str] = set()
    folders: set[str] = set()
    for name in names:
        key = unicodedata.normalize("NFC", name).casefold()
        if key in files:
            raise InputError(f"{owner}: the name {quoted(name)} appears twice", hint="ask for the case again")
        files.add(key)
        cut = key.find("/")
        while cut >= 0:
            folders.add(key[:cut])
            cut = key.find("/", cut + 1)
    for key in files & folders:
        raise InputError(f"{owner}: {quoted(key)} is both a file and a folder", hint="ask for the case again")

"""Add artefacts to a case that exists, whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cuwhy.model.errors import InputError


def amend(path: Path, artefacts: Mapping[str, tuple[bytes, str]], tool: str = "") -> None:
    """Write a case anew with artefacts added; those of the same name are replaced.

    Args:
        path: the file.
        artefacts: content and kind by name.
        tool: what wrote them.

    Raises:
        InputError: it is no case that can be written, or would break a limit.
    """
    from cuwhy.case import open_case, write_case

    if path.is_dir():
        raise InputError(
            f"{path}: a folder; only a case in one file is added to", hint="`cuwhy case pack` it"
        )
    with open_case(path) as case:
        manifest = case.manifest
        contents: dict[str, bytes | Path] = {entry.path: case.read(entry.path) for entry in case.artefacts}
    kinds = {entry.path: entry.kind for entry in manifest.artefacts}
    tools = {entry.path: (entry.tool, entry.version) for entry in manifest.artefacts}
    notes = {entry.path: entry.note for entry in manifest.artefacts}
    for name, (data, kind) in artefacts.items():
        contents[name], kinds[name] = data, kind
        tools[name], notes[name] = (tool, ""), ""
    write_case(
        path,
        contents,
        kinds=kinds,
        tools=tools,
        notes=notes,
        machine=manifest.machine,
        driver=manifest.driver,
        device=manifest.device,
        command=manifest.command,
        directory=manifest.directory,
        environment=dict(manifest.environment),
        note=manifest.note,
        created=manifest.created,
        overwrite=True,
    )


def free_name(path: Path, wanted: str) -> str:
    """Return ``wanted``, or ``wanted`` with a number, whichever is not taken in the case."""
    from cuwhy.case import open_case

    with open_case(path) as case:
        taken = {entry.path.casefold() for entry in case.artefacts}
    stem, dot, suffix = wanted.rpartition(".")
    name, number = wanted, 2
    while name.casefold() in taken:
        name = f"{stem}-{number}{dot}{suffix}"
        number += 1
    return name

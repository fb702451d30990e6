"""The manifest of a case: what it says, and JSON to and fro.

The published form is ``docs/case.schema.json`` (JSON Schema 2020-12).  Reading
is stricter than the schema where the schema cannot say it (names, totals) and
looks past fields that it does not know, so that the format can grow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cuwhy.case.environment import MAX_ARGUMENTS, allowed_environment
from cuwhy.case.names import (
    MANIFEST_NAME,
    MAX_ENTRIES,
    MAX_ENTRY_BYTES,
    MAX_JSON_DEPTH,
    MAX_MANIFEST_BYTES,
    MAX_TOTAL_BYTES,
    check_distinct,
    check_name,
    quoted,
)
from cuwhy.model.errors import InputError

#: What marks a manifest as one of ours, and the version this module reads and writes.
FORMAT = "cuwhy-case"
FORMAT_VERSION = 1

#: Kinds of artefact that have a reader or a meaning; other kinds may stand in a
#: case and are kept.
KINDS = (
    "coredump",
    "sanitizer-xml",
    "sanitizer-text",
    "log",
    "launchlog",
    "sass",
    "source",
    "reruns",
    "tensors",
    "numerics",
    "other",
)

#: Characters of a one-line text and of a note.
MAX_TEXT = 256
MAX_NOTE = 4096

_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_CREATED = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z\Z")
_KIND = re.compile(r"[a-z0-9][a-z0-9.+-]{0,63}\Z")
_ASK = "ask for the case again, or pack its files anew with 'cuwhy case pack'"


@dataclass(frozen=True, slots=True)
class ArtefactEntry:
    """One artefact of a case.

    Attributes:
        path: relative, with forward slashes.
        kind: one of :data:`KINDS`, or a kind that this version does not know.
        size: bytes, unpacked; sha256: of the content, 64 lower-case hex digits.
        tool, version: what wrote it, empty when unknown.
        note: free text, may be empty.
    """

    path: str
    kind: str
    size: int
    sha256: str
    tool: str = ""
    version: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class MachineEntry:
    """The machine that the artefacts were written on, without its name.

    Attributes:
        os: "Linux", "Windows" …; architecture: of the CPU ("x86_64").
    """

    os: str = ""
    architecture: str = ""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a case says about itself.

    Attributes:
        artefacts: sorted by path.
        created: UTC, ``YYYY-MM-DDThh:mm:ssZ``.
        cuwhy: version of cuwhy that wrote it.
        machine: where the program ran; empty fields are unknown.
        driver: version of the NVIDIA driver; device: name of the GPU.
        command: argv of the program, cleaned; directory: base name of its
            working directory.
        environment: the allowed variables, sorted by name.
        note: free text, may be empty.
    """

    artefacts: tuple[ArtefactEntry, ...]
    created: str
    cuwhy: str
    machine: MachineEntry = MachineEntry()
    driver: str = ""
    device: str = ""
    command: tuple[str, ...] = ()
    directory: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    note: str = ""


def to_json(manifest: Manifest) -> bytes:
    """Return the manifest as the file's bytes: ASCII JSON, fixed order, a final newline.

    Raises:
        InputError: it would exceed the limit on manifests.
    """
    content = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "cuwhy": manifest.cuwhy,
        "created": manifest.created,
        "machine": _without_empty({"os": manifest.machine.os, "architecture": manifest.machine.architecture}),
        **_without_empty({"driver": manifest.driver, "device": manifest.device}),
        "command": list(manifest.command),
        **_without_empty({"directory": manifest.directory}),
        "environment": dict(manifest.environment),
        **_without_empty({"note": manifest.note}),
        "artefacts": [
            {
                "path": entry.path,
                "kind": entry.kind,
                "size": entry.size,
                "sha256": entry.sha256,
                **_without_empty({"tool": entry.tool, "version": entry.version, "note": entry.note}),
            }
            for entry in manifest.artefacts
        ],
    }
    # ASCII, so that printing the file itself cannot steer a terminal.
    data = (json.dumps(content, ensure_ascii=True, indent=1) + "\n").encode("ascii")
    if len(data) > MAX_MANIFEST_BYTES:
        raise InputError(
            f"the manifest would be {len(data)} bytes, more than {MAX_MANIFEST_BYTES}",
            hint="pack fewer files, or zip those that belong together",
        )
    return data


def parse_manifest(data: bytes, owner: str) -> Manifest:
    """Read a manifest that somebody sent.

    Args:
        data: the bytes of ``manifest.json``.
        owner: name of the case, for messages.

    Returns:
        The manifest.  Variables that :data:`cuwhy.case.environment.ALLOWED` does
        not list are left out: another writer may have been less careful.

    Raises:
        InputError: it is no manifest, of another version, or breaks a rule.
    """
    content = _load(data, owner)
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{owner}: its {MANIFEST_NAME} is not that of a cuwhy case", hint=_ASK)
    version = content.get("format_version")
    if type(version) is not int or version < 1:
        raise InputError(f"{owner}: the manifest names no valid format version", hint=_ASK)
    if version != FORMAT_VERSION:
        raise InputError(
            f"{owner}: the case has format version {version}, this cuwhy reads version {FORMAT_VERSION}",
            hint="update cuwhy",
        )
    fields = _Fields(content, owner, "the manifest")
    created = fields.text("created", MAX_TEXT, required=True)
    if not _CREATED.match(created):
        raise InputError(f"{owner}: the time 'created' is not of the form 2026-12-01T09:30:00Z", hint=_ASK)
    machine = _Fields(fields.object("machine"), owner, "'machine'")
    return Manifest(
        artefacts=_artefacts(content.get("artefacts"), owner),
        created=created,
        cuwhy=fields.text("cuwhy", MAX_TEXT, required=True),
        machine=MachineEntry(
            os=machine.text("os", MAX_TEXT), architecture=machine.text("architecture", MAX_TEXT)
        ),
        driver=fields.text("driver", MAX_TEXT),
        device=fields.text("device", MAX_TEXT),
        command=fields.texts("command", MAX_ARGUMENTS),
        directory=fields.text("directory", MAX_TEXT),
        environment=tuple(allowed_environment(fields.text_map("environment")).items()),
        note=fields.text("note", MAX_NOTE),
    )


def is_manifest(data: bytes) -> bool:
    """Tell whether ``data`` is JSON that claims to be a case's manifest, of any version."""
    try:
        content = _load(data, "")
    except InputError:
        return False
    return isinstance(content, dict) and content.get("format") == FORMAT


def check_kind(kind: str, owner: str) -> str:
    """Return ``kind`` when it has the form of a kind (known or not).

    Raises:
        InputError: it has not.
    """
    if not _KIND.match(kind):
        raise InputError(
            f"{owner}: {quoted(kind)} is not the name of a kind of artefact",
            hint=f"use lower-case letters, digits and '-'; known kinds are {', '.join(KINDS)}",
        )
    return kind


def _without_empty(fields: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in fields.items() if value}


def _artefacts(value: Any, owner: str) -> tuple[ArtefactEntry, ...]:
    if not isinstance(value, list) or not value:
        raise InputError(f"{owner}: the manifest lists no artefacts", hint=_ASK)
    if len(value) >= MAX_ENTRIES:
        raise InputError(f"{owner}: more than {MAX_ENTRIES - 1} artefacts", hint="split the case")
    entries = []
    total = 0
    for item in value:
        if not isinstance(item, dict):
            raise InputError(f"{owner}: an artefact in the manifest is not an object", hint=_ASK)
        fields = _Fields(item, owner, "an artefact")
        path = check_name(fields.text("path", MAX_NOTE, required=True), owner)
        if path.casefold() == MANIFEST_NAME:
            raise InputError(f"{owner}: the manifest lists itself as an artefact", hint=_ASK)
        size = item.get("size")
        if type(size) is not int or size < 0:
            raise InputError(f"{owner}: the size of {quoted(path)} is not a number of bytes", hint=_ASK)
        if size > MAX_ENTRY_BYTES:
            raise InputError(
                f"{owner}: {quoted(path)} has {size} bytes, more than the {MAX_ENTRY_BYTES >> 20} MiB allowed",
                hint="record without global memory, or slim the file first",
            )
        total += size
        digest = fields.text("sha256", MAX_TEXT, required=True)
        if not _SHA256.match(digest):
            raise InputError(f"{owner}: the sha256 of {quoted(path)} is not 64 hex digits", hint=_ASK)
        entries.append(
            ArtefactEntry(
                path=path,
                kind=check_kind(fields.text("kind", MAX_TEXT, required=True), owner),
                size=size,
                sha256=digest,
                tool=fields.text("tool", MAX_TEXT),
                version=fields.text("version", MAX_TEXT),
                note=fields.text("note", MAX_NOTE),
            )
        )
    if total > MAX_TOTAL_BYTES:
        raise InputError(
            f"{owner}: the artefacts have {total} bytes, more than the {MAX_TOTAL_BYTES >> 20} MiB allowed",
            hint="split the case, or slim it",
        )
    check_distinct((entry.path for entry in entries), owner)
    return tuple(sorted(entries, key=lambda entry: entry.path))


class _Fields:
    """Typed access to a JSON object that cannot be trusted."""

    def __init__(self, content: Mapping[str, Any], owner: str, what: str) -> None:
        self._content = content
        self._owner = owner
        self._what = what

    def text(self, name: str, limit: int, *, required: bool = False) -> str:
        value = self._content.get(name, None if required else "")
        if not isinstance(value, str) or (required and not value):
            raise InputError(f"{self._owner}: '{name}' of {self._what} is not a text", hint=_ASK)
        return self._checked(value, name, limit)

    def texts(self, name: str, limit: int) -> tuple[str, ...]:
        value = self._content.get(name, [])
        if not isinstance(value, list) or len(value) > limit:
            raise InputError(
                f"{self._owner}: '{name}' of {self._what} is not a list of at most {limit} texts", hint=_ASK
            )
        if not all(isinstance(item, str) for item in value):
            raise InputError(
                f"{self._owner}: '{name}' of {self._what} holds something that is not a text", hint=_ASK
            )
        return tuple(self._checked(item, name, MAX_NOTE) for item in value)

    def text_map(self, name: str) -> dict[str, str]:
        value = self.object(name)
        if not all(isinstance(item, str) for item in value.values()):
            raise InputError(
                f"{self._owner}: '{name}' of {self._what} holds something that is not a text", hint=_ASK
            )
        return dict(value)

    def object(self, name: str) -> Mapping[str, Any]:
        value = self._content.get(name, {})
        if not isinstance(value, dict):
            raise InputError(f"{self._owner}: '{name}' of {self._what} is not an object", hint=_ASK)
        return value

    def _checked(self, value: str, name: str, limit: int) -> str:
        if len(value) > limit:
            raise InputError(
                f"{self._owner}: '{name}' of {self._what} is longer than {limit} characters", hint=_ASK
            )
        if not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            # Half a character: it could be neither printed nor written again.
            raise InputError(f"{self._owner}: '{name}' of {self._what} holds half a character", hint=_ASK)
        return value


def _load(data: bytes, owner: str) -> Any:
    if len(data) > MAX_MANIFEST_BYTES:
        raise InputError(f"{owner}: the manifest is larger than {MAX_MANIFEST_BYTES} bytes", hint=_ASK)
    try:
        content = json.loads(
            data.decode("utf-8"),
            parse_int=_small_int,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_object,
        )
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else quoted(str(error))
        raise InputError(f"{owner}: the manifest is not valid JSON: {reason}", hint=_ASK) from None
    level: Sequence[Any] = (content,)
    for _ in range(MAX_JSON_DEPTH + 1):
        level = [
            child
            for item in level
            if isinstance(item, (dict, list))
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return content
    raise InputError(f"{owner}: the manifest is nested more than {MAX_JSON_DEPTH} deep", hint=_ASK)


def _small_int(digits: str) -> int:
    # Python before 3.10.7 takes quadratic time for long numbers.
    if len(digits) > 20:
        raise ValueError("a number with too many digits")
    return int(digits)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _unique_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Two readers may take different ones of two equal keys; so there must be none.
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key appears twice in one object")
    return content

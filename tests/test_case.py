"""Cases: what is written can be read, what is hostile is refused in one sentence."""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import os
import re
import struct
import subprocess
import sys
import time
import tracemalloc
import types
import unicodedata
import warnings
import zipfile
import zlib
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from conftest import slowdown
from cuwhy import __version__
from cuwhy.case import (
    KINDS,
    MachineEntry,
    allowed_environment,
    clean_command,
    clean_name,
    extract_case,
    is_case,
    is_case_path,
    open_case,
    slim_case,
    slim_log,
    write_case,
)
from cuwhy.case import names as limits
from cuwhy.case.environment import ALLOWED
from cuwhy.cli import case as cli
from cuwhy.model.errors import InputError

DOCS = Path(__file__).parent.parent / "docs"
WHEN = datetime(2026, 12, 1, 9, 30, tzinfo=timezone.utc)
DUMP = b"\x7fELF" + bytes(range(256)) * 40
LOG = b"started\nfailed\n"
posix = pytest.mark.skipif(os.name != "posix", reason="needs links and fifos")


def manifest_for(files: dict[str, bytes], **changes: Any) -> bytes:
    """Return a valid manifest, written by hand rather than by the code under test."""
    content: dict[str, Any] = {
        "format": "cuwhy-case",
        "format_version": 1,
        "cuwhy": "0.1.0",
        "created": "2026-12-01T09:30:00Z",
        "artefacts": [
            {"path": name, "kind": "log", "size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in files.items()
        ],
    }
    content.update(changes)
    return json.dumps(content).encode()


def zip_of(
    path: Path,
    files: dict[str, bytes],
    *,
    listed: dict[str, bytes] | None = None,
    method: int = zipfile.ZIP_DEFLATED,
    edit: Callable[[zipfile.ZipInfo], None] | None = None,
    **changes: Any,
) -> Path:
    """Write a case with Python's own zipfile; ``edit`` may change each entry's header."""
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr(limits.MANIFEST_NAME, manifest_for(files if listed is None else listed, **changes))
        for name, data in files.items():
            info = zipfile.ZipInfo(name)
            info.filename = name  # as given: ZipInfo itself would mend some names
            info.compress_type = method
            if edit is not None:
                edit(info)
            archive.writestr(info, data)
    return path


def folder_of(path: Path, files: dict[str, bytes], **changes: Any) -> Path:
    path.mkdir()
    (path / "manifest.json").write_bytes(manifest_for(files, **changes))
    for name, data in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


def patch(path: Path, mark: bytes, at: int, form: str, value: int, *, entry: int = -1) -> None:
    """Overwrite one field of the ``entry``-th header that begins with ``mark``."""
    data = bytearray(path.read_bytes())
    offsets = [match.start() for match in re.finditer(re.escape(mark), data)]
    struct.pack_into(form, data, offsets[entry] + at, value)
    path.write_bytes(data)


def read_all(path: Path) -> dict[str, bytes]:
    with open_case(path) as case:
        return {entry.path: case.read(entry.path) for entry in case.artefacts}


def refused(path: Path, *words: str) -> None:
    """Check that neither reading nor extracting gets past the case, with a message that helps."""
    with pytest.raises(InputError) as caught:
        read_all(path)
    message = str(caught.value)
    for word in words:
        assert word in message
    assert caught.value.hint
    assert message.isprintable(), "one line, nothing that steers a terminal"
    target = path.with_name("extracted")
    with pytest.raises(InputError):
        extract_case(path, target)
    assert not target.exists()
    assert not [item for item in path.parent.iterdir() if item.name.endswith(".part")]


# --- writing and reading -------------------------------------------------------------------------


def write_example(path: Path, **changes: Any) -> Any:
    arguments: dict[str, Any] = {
        "kinds": {"oob.nvcudmp": "coredump", "logs/run.log": "log"},
        "tools": {"oob.nvcudmp": ("CUDA driver", "580.159.04")},
        "notes": {"logs/run.log": "stderr only"},
        "machine": MachineEntry("Linux", "x86_64"),
        "driver": "580.159.04",
        "device": "NVIDIA H200",
        "command": ["./oob", "--size", "1000"],
        "directory": "/somewhere/demo/",
        "environment": {"CUDA_LAUNCH_BLOCKING": "1", "HOME": "/home/somebody"},
        "note": "first run",
        "created": WHEN,
    }
    arguments.update(changes)
    return write_case(path, {"oob.nvcudmp": DUMP, "logs/run.log": LOG}, **arguments)


def test_a_case_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    manifest = write_example(path)
    with open_case(path) as case:
        assert case.manifest == manifest
        assert case.notes == ()
        assert [entry.path for entry in case.artefacts] == ["logs/run.log", "oob.nvcudmp"]
        log, dump = case.artefacts
        assert (dump.kind, dump.size, dump.tool, dump.version) == (
            "coredump",
            len(DUMP),
            "CUDA driver",
            "580.159.04",
        )
        assert dump.sha256 == hashlib.sha256(DUMP).hexdigest()
        assert (log.kind, log.note) == ("log", "stderr only")
        assert case.read("oob.nvcudmp") == DUMP
        assert b"".join(case.chunks("logs/run.log")) == LOG
    assert manifest.created == "2026-12-01T09:30:00Z"
    assert manifest.cuwhy == __version__
    assert manifest.machine == MachineEntry("Linux", "x86_64")
    assert (manifest.driver, manifest.device, manifest.note) == ("580.159.04", "NVIDIA H200", "first run")
    assert manifest.command == ("./oob", "--size", "1000")
    assert manifest.directory == "demo"
    assert manifest.environment == (("CUDA_LAUNCH_BLOCKING", "1"),)


def test_any_zip_program_reads_a_case(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    write_example(path)
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == ["manifest.json", "logs/run.log", "oob.nvcudmp"]
        assert archive.read("oob.nvcudmp") == DUMP
        assert {info.date_time for info in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        assert archive.read("manifest.json").isascii()


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    first, second = tmp_path / "a.cuwhy", tmp_path / "b.cuwhy"
    stored = tmp_path / "dump"
    stored.write_bytes(DUMP)
    kinds = {"z": "coredump", "a": "log"}
    write_case(first, {"z": DUMP, "a": LOG}, kinds=kinds, created=WHEN)
    # Another order, content from a file, the same time told in another zone.
    other_zone = WHEN.astimezone(timezone(timedelta(hours=9)))
    write_case(second, {"a": LOG, "z": stored}, kinds=kinds, created=other_zone)
    assert first.read_bytes() == second.read_bytes()


def test_a_folder_is_a_case_too(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    manifest = write_example(path)
    assert extract_case(path, tmp_path / "folder") == manifest
    assert read_all(tmp_path / "folder") == {"oob.nvcudmp": DUMP, "logs/run.log": LOG}
    with open_case(tmp_path / "folder") as case:
        assert case.manifest == manifest
    with zipfile.ZipFile(path) as archive:
        assert (tmp_path / "folder" / "manifest.json").read_bytes() == archive.read("manifest.json")


def test_a_case_that_another_program_zipped_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    files = {"run.log": LOG, "größe.log": b"1"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("sub") if hasattr(archive, "mkdir") else archive.writestr("sub/", b"")
        for name, data in files.items():
            with archive.open(name, "w") as entry:
                entry.write(data)
        archive.writestr("manifest.json", manifest_for(files))
    assert read_all(path) == files
    # A stream leaves sizes out of the local headers.
    stream = io.BytesIO()

    class Pipe(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, data: Any) -> int:
            return stream.write(data)

    with zipfile.ZipFile(Pipe(), "w", zipfile.ZIP_DEFLATED) as archive:  # type: ignore[arg-type]
        archive.writestr("run.log", LOG)
        archive.writestr("manifest.json", manifest_for({"run.log": LOG}))
    path.write_bytes(stream.getvalue())
    assert read_all(path) == {"run.log": LOG}


def test_unknown_kinds_and_unlisted_files_are_ignored_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    write_case(path, {"trace.bin": b"1"}, kinds={"trace.bin": "numeric-trace"}, created=WHEN)
    with open_case(path) as case:
        assert case.read("trace.bin") == b"1"
        assert len(case.notes) == 1
        assert "trace.bin" in case.notes[0]
        assert "numeric-trace" in case.notes[0]
    zip_of(path, {"run.log": LOG, "more.bin": b"2"}, listed={"run.log": LOG})
    with open_case(path) as case:
        assert [entry.path for entry in case.artefacts] == ["run.log"]
        assert "more.bin" in case.notes[0]
        with pytest.raises(InputError, match=r"more\.bin"):
            case.read("more.bin")
    extract_case(path, tmp_path / "folder")
    assert sorted(item.name for item in (tmp_path / "folder").iterdir()) == ["manifest.json", "run.log"]


def test_unknown_fields_are_looked_past(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, later={"added": [1, 2]})
    assert read_all(path) == {"run.log": LOG}


def test_what_packs_too_well_is_stored_so_that_it_can_be_read(tmp_path: Path) -> None:
    zeros = bytes(3 << 20)
    path = tmp_path / "a.cuwhy"
    write_case(path, {"a": b"1", "zeros": zeros, "zz": b"2"}, kinds={}, created=WHEN)
    assert read_all(path) == {"a": b"1", "zeros": zeros, "zz": b"2"}
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        assert archive.getinfo("zeros").compress_type == zipfile.ZIP_STORED


def test_a_case_opens_in_a_few_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    write_case(path, {"dump": os.urandom(500_000)}, kinds={"dump": "coredump"}, created=WHEN)
    best = 1.0
    for _ in range(5):
        start = time.process_time()
        assert len(read_all(path)["dump"]) == 500_000
        best = min(best, time.process_time() - start)
    assert best < 0.02


def test_is_case(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    write_example(path)
    assert is_case(path.read_bytes()[:64])
    assert is_case_path(path)
    late = tmp_path / "late.zip"
    with zipfile.ZipFile(late, "w") as archive:
        archive.writestr("run.log", LOG)
        archive.writestr("manifest.json", manifest_for({"run.log": LOG}))
    assert is_case(late.read_bytes())
    assert is_case_path(late)
    other = tmp_path / "other.zip"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("manifest.json", '{"name": "a browser extension"}')
        archive.writestr("b", "manifest.json")
    assert not is_case_path(other)
    assert not is_case(b"")
    assert not is_case(DUMP)
    assert not is_case(b"PK\3\4" + bytes(26) + b"manifest.json"), "the name's length must fit"
    assert not is_case_path(tmp_path)
    assert not is_case_path(tmp_path / "nothing")
    assert is_case_path(folder_of(tmp_path / "folder", {"run.log": LOG}))


# --- the published schema ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> Any:
    content = json.loads((DOCS / "case.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(content)
    return jsonschema.Draft202012Validator(content)


def test_what_is_written_fits_the_schema(tmp_path: Path, schema: Any) -> None:
    write_example(tmp_path / "full.cuwhy")
    write_case(tmp_path / "least.cuwhy", {"a": b""}, kinds={})
    for name in ("full.cuwhy", "least.cuwhy"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            schema.validate(json.loads(archive.read("manifest.json")))
    schema.validate(json.loads(manifest_for({"run.log": LOG})))


BAD_FIELDS: list[dict[str, Any]] = [
    {"format": "other"},
    {"format_version": "1"},
    {"cuwhy": ""},
    {"cuwhy": 1},
    {"created": "yesterday"},
    {"created": "2026-12-01T09:30:00+09:00"},
    {"created": "2026-12-01T09:30:00Z\n"},
    {"machine": ["Linux"]},
    {"machine": {"os": 1}},
    {"driver": 580},
    {"device": "x" * 257},
    {"command": "./oob"},
    {"command": [1]},
    {"command": ["x"] * 1025},
    {"environment": ["A=1"]},
    {"environment": {"CUDA_LAUNCH_BLOCKING": 1}},
    {"note": "x" * 4097},
    {"artefacts": []},
    {"artefacts": {}},
    {"artefacts": ["run.log"]},
]
BAD_ARTEFACT: list[dict[str, Any]] = [
    {"path": 1},
    {"path": ""},
    {"path": "manifest.json"},
    {"kind": "Core Dump"},
    {"kind": ""},
    {"size": -1},
    {"size": "15"},
    {"size": True},
    {"size": 15.5},
    {"size": (512 << 20) + 1},
    {"sha256": "0" * 63},
    {"sha256": "G" * 64},
    {"tool": None},
    {"note": 5},
]


def bad_manifest(fields: dict[str, Any], artefact: dict[str, Any]) -> bytes:
    content = json.loads(manifest_for({"run.log": LOG}))
    content.update(fields)
    if artefact:
        content["artefacts"][0].update(artefact)
    return json.dumps(content).encode()


@pytest.mark.parametrize(
    ("fields", "artefact"), [*((f, {}) for f in BAD_FIELDS), *(({}, a) for a in BAD_ARTEFACT)], ids=str
)
def test_schema_and_reader_refuse_the_same(
    tmp_path: Path, schema: Any, fields: dict[str, Any], artefact: dict[str, Any]
) -> None:
    data = bad_manifest(fields, artefact)
    assert not schema.is_valid(json.loads(data))
    path = tmp_path / "a.cuwhy"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", data)
        archive.writestr("run.log", LOG)
    refused(path, "a.cuwhy")


@pytest.mark.parametrize("field", ["format", "format_version", "cuwhy", "created", "artefacts"])
def test_required_fields(tmp_path: Path, schema: Any, field: str) -> None:
    content = json.loads(manifest_for({"run.log": LOG}))
    del content[field]
    assert not schema.is_valid(content)
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    (folder / "manifest.json").write_text(json.dumps(content))
    refused(folder)


def test_a_newer_format_asks_for_an_update(tmp_path: Path) -> None:
    refused(
        zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, format_version=2), "version 2", "version 1", "update"
    )


MANIFESTS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"\x7fELF\x00\xff",
    "not UTF-8": b'{"format": "\xff"}',
    "a list": b"[]",
    "nested": b"[" * 100_000 + b"]" * 100_000,
    "nested objects": b'{"a":' * 50_000,
    "nested a little": b'{"format":"cuwhy-case","x":' + b"[" * 9 + b"]" * 9 + b"}",
    "long number": b'{"format":"cuwhy-case","format_version":' + b"9" * 900_000 + b"}",
    "NaN": manifest_for({"run.log": LOG}, x=float("nan")),
    "key twice": manifest_for({"run.log": LOG}).replace(b"{", b'{"note": "a", "note": "b", ', 1),
    "key twice deep inside": manifest_for({"run.log": LOG}).replace(b'{"path"', b'{"path": "x", "path"'),
    "half a character": manifest_for({"run.log": LOG}, note="\ud800"),
    "too large": manifest_for({"run.log": LOG}, x="y" * (1 << 20)),
}


@pytest.mark.parametrize("kind", MANIFESTS)
def test_hostile_manifests(tmp_path: Path, kind: str) -> None:
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    (folder / "manifest.json").write_bytes(MANIFESTS[kind])
    start = time.process_time()
    refused(folder, "folder", "manifest")
    assert time.process_time() - start < 2 * slowdown()
    path = tmp_path / "a.cuwhy"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("manifest.json", MANIFESTS[kind])
    refused(path, "a.cuwhy", "manifest")


# --- hostile names -------------------------------------------------------------------------------

BAD_NAMES = [
    "../out.txt",
    "a/../../out.txt",
    "..",
    ".",
    "./a",
    "a//b",
    "/etc/passwd",
    "//server/share",
    "C:/x",
    "c:x",
    "file:stream",
    "..\\out.txt",
    "a\\b",
    "a\x1b[31mb",
    "a\nb",
    "a\u202eb",
    "a\u0085b",
    "x" * 241,
    "é" * 101,
    "/".join("a" * 17),
    "nul",
    "sub/COM1.txt",
    "aux.log",
    "trailing.",
    "trailing ",
    " leading",
]


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_names_that_escape_are_refused(tmp_path: Path, name: str) -> None:
    # In the zip and the manifest, in the zip only, in the manifest only, and by the writer.
    (tmp_path / "in").mkdir()
    refused(zip_of(tmp_path / "in" / "a.cuwhy", {name: LOG}), "the name ")
    refused(
        zip_of(tmp_path / "in" / "a.cuwhy", {name: LOG, "run.log": LOG}, listed={"run.log": LOG}), "the name "
    )
    folder = folder_of(tmp_path / "in" / "folder", {"run.log": LOG})
    (folder / "manifest.json").write_bytes(manifest_for({name: LOG}))
    refused(folder, "the name ")
    with pytest.raises(InputError, match="the name "):
        write_case(tmp_path / "in" / "b.cuwhy", {name: LOG}, kinds={})
    assert sorted(item.name for item in (tmp_path / "in").iterdir()) == ["a.cuwhy", "folder"]
    assert [item.name for item in tmp_path.iterdir()] == ["in"], "nothing was written outside"


def test_nul_in_a_name(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.logX": LOG}, listed={"run.log": LOG})
    path.write_bytes(path.read_bytes().replace(b"run.logX", b"run.log\0"))
    refused(path, "control")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.logX": LOG}, listed={"run.log": LOG})
    path.write_bytes(path.read_bytes().replace(b"run.logX", b"run.log\xff"))
    refused(path, "UTF-8")


COMPOSED, DECOMPOSED = unicodedata.normalize("NFC", "é.log"), unicodedata.normalize("NFD", "é.log")


@pytest.mark.parametrize(
    ("first", "second"),
    [("run.log", "RUN.log"), (COMPOSED, DECOMPOSED), ("a", "a/b"), ("A", "a/b")],
    ids=["case", "Unicode form", "file and folder", "file and folder by case"],
)
def test_names_that_meet_are_refused(tmp_path: Path, first: str, second: str) -> None:
    assert first != second
    refused(zip_of(tmp_path / "a.cuwhy", {first: LOG, second: LOG}))
    with pytest.raises(InputError):
        write_case(tmp_path / "b.cuwhy", {first: LOG, second: LOG}, kinds={})
    assert not (tmp_path / "b.cuwhy").exists()


def test_duplicate_entries_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        archive.writestr("manifest.json", manifest_for({"run.log": LOG}))
        archive.writestr("run.log", LOG)
        archive.writestr("run.log", b"something else")
    refused(path, "run.log", "twice")
    listed = json.loads(manifest_for({"run.log": LOG}))["artefacts"] * 2
    refused(zip_of(path, {"run.log": LOG}, artefacts=listed), "run.log", "twice")


# --- hostile entries -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "system"),
    [
        (0o120777, 3),
        (0o120777, 0),
        (0o120777, 19),
        (0o010644, 3),
        (0o020644, 3),
        (0o060644, 3),
        (0o140644, 3),
    ],
    ids=[
        "link",
        "link made by DOS",
        "link made by macOS",
        "fifo",
        "character device",
        "block device",
        "socket",
    ],
)
def test_special_entries_are_refused(tmp_path: Path, mode: int, system: int) -> None:
    def edit(info: zipfile.ZipInfo) -> None:
        info.create_system = system
        info.external_attr = mode << 16

    target = b"/etc/passwd"
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": target}, edit=edit)
    refused(path, "run.log", "link" if mode == 0o120777 else "regular")
    # Not even where nobody would read it.
    refused(zip_of(path, {"x": LOG, "run.log": target}, listed={"x": LOG}, edit=edit), "'x'")


@pytest.mark.parametrize("flag", [0x1, 0x40, 0x2000])
def test_encrypted_entries_are_refused(tmp_path: Path, flag: int) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG})
    patch(path, b"PK\1\2", 8, "<H", flag)
    refused(path, "run.log", "encrypted")


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_other_compression_is_refused(tmp_path: Path, method: int) -> None:
    refused(
        zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, method=method), "compressed by method", "pack it anew"
    )


def test_a_bomb_of_zeros_is_refused(tmp_path: Path) -> None:
    zeros = bytes(8 << 20)
    refused(zip_of(tmp_path / "a.cuwhy", {"run.log": zeros}), "run.log", "1000")


def test_a_bomb_is_refused_even_when_not_listed(tmp_path: Path) -> None:
    files = {"run.log": LOG, "zeros": bytes(8 << 20)}
    refused(zip_of(tmp_path / "a.cuwhy", files, listed={"run.log": LOG}), "zeros", "1000")


def test_a_core_dumps_ratio_is_accepted(tmp_path: Path) -> None:
    # 100:1, as real dumps reach: mostly zeros, with a row that does not pack.
    row = hashlib.sha512(b"row").digest()
    data = b"".join(row[: 40 + i % 24] + bytes(9960) for i in range(400))
    path = zip_of(tmp_path / "a.cuwhy", {"dump": data})
    with zipfile.ZipFile(path) as archive:
        assert len(data) / archive.getinfo("dump").compress_size > 50
    assert read_all(path) == {"dump": data}


def test_declared_sizes_above_the_limits_are_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG})
    patch(path, b"PK\1\2", 24, "<I", (512 << 20) + 1)
    refused(path, "run.log", "512 MiB")
    many = {f"{number}.log": os.urandom(600_000) for number in range(3)}
    zip_of(path, many)
    for entry in (-1, -2, -3):
        patch(path, b"PK\1\2", 24, "<I", 400 << 20, entry=entry)
    refused(path, "1024 MiB")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED])
@pytest.mark.parametrize("declared", [1, len(LOG) * 50 - 1, len(LOG) * 50 + 1, 1_000_000])
def test_sizes_that_lie_are_found_out(tmp_path: Path, method: int, declared: int) -> None:
    data = LOG * 50
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": data}, method=method)
    patch(path, b"PK\1\2", 24, "<I", declared)
    refused(path, "run.log")
    # With a manifest that tells the same lie.
    listed = json.loads(manifest_for({"run.log": data}))["artefacts"]
    listed[0]["size"] = declared
    zip_of(path, {"run.log": data}, method=method, artefacts=listed)
    patch(path, b"PK\1\2", 24, "<I", declared)
    refused(path, "run.log")


def test_a_lie_about_the_size_costs_no_memory(tmp_path: Path) -> None:
    # 64 MiB inside, 1 MB declared twice: what is read must stay near what is declared.
    data = bytes(64 << 20)
    listed = [{"path": "zeros", "kind": "log", "size": 1_000_000, "sha256": "0" * 64}]
    path = zip_of(tmp_path / "a.cuwhy", {"zeros": data}, artefacts=listed)
    del data
    patch(path, b"PK\1\2", 24, "<I", 1_000_000)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="more than the 1000000 bytes"):
            read_all(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_too_many_entries_are_refused(tmp_path: Path) -> None:
    files = {f"{number:05}.log": b"" for number in range(20_000)}
    start = time.process_time()
    path = zip_of(tmp_path / "a.cuwhy", files, listed={"00001.log": b""})
    written = time.process_time()
    refused(path, "20001", "10000")
    # The end record says 1, the directory holds them all.
    end = path.stat().st_size - 22
    data = bytearray(path.read_bytes())
    struct.pack_into("<2H", data, end + 8, 1, 1)
    path.write_bytes(data)
    refused(path, "more than its end record says")
    assert time.process_time() - written < max(2, written - start)


def test_too_many_files_in_a_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuwhy.case.files.MAX_ENTRIES", 20)
    refused(folder_of(tmp_path / "folder", {f"{number}.log": b"" for number in range(20)}), "20")


def test_overlapping_entries_are_refused(tmp_path: Path) -> None:
    # Two entries that share one content are how a small zip unpacks to petabytes.
    path = zip_of(tmp_path / "a.cuwhy", {"a.log": LOG, "b.log": LOG})
    data = path.read_bytes()
    offsets = [match.start() for match in re.finditer(b"PK\3\4", data)]
    patch(path, b"PK\1\2", 42, "<I", offsets[1])
    refused(path, "overlaps")


def test_header_and_directory_must_agree(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG})
    good = path.read_bytes()
    at = good.find(b"run.log", good.rfind(b"PK\3\4"))
    path.write_bytes(good[:at] + b"bad.log" + good[at + 7 :])
    refused(path, "run.log", "another name")
    path.write_bytes(good)
    patch(path, b"PK\3\4", 8, "<H", 0)
    refused(path, "contradicts")


def test_what_surrounds_the_zip_is_refused(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG})
    good = path.read_bytes()
    for data in (
        b"#!/bin/sh\n" + good,
        good + b"more",
        good[:-2] + b"\4\0",
        good[:-2] + b"\4\0note",
        b"PK\3\4" + bytes(60) + good,
    ):
        path.write_bytes(data)
        refused(path)


def test_nothing_stands_before_the_first_entry(tmp_path: Path) -> None:
    # All offsets are right, as self-extracting archives have them, and the file begins like a zip.
    path = tmp_path / "a.cuwhy"
    path.write_bytes(b"PK\3\4" + bytes(60))
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("manifest.json", manifest_for({"run.log": LOG}))
        archive.writestr("run.log", LOG)
    refused(path, "before the first entry")


def test_nothing_hides_behind_an_entrys_content(tmp_path: Path) -> None:
    pack = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = pack.compress(LOG) + pack.flush()
    for extra, accepted in ((b"", True), (b"hidden", False)):
        path = zip_of(tmp_path / "a.cuwhy", {"run.log": packed + extra}, listed={"run.log": LOG}, method=0)
        patch(path, b"PK\3\4", 8, "<H", 8)
        for at, form, value in ((10, "<H", 8), (16, "<I", zlib.crc32(LOG)), (24, "<I", len(LOG))):
            patch(path, b"PK\1\2", at, form, value)
        if accepted:
            assert read_all(path) == {"run.log": LOG}
        else:
            refused(path, "run.log", "damaged")


def test_zip64_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    with zipfile.ZipFile(path, "w") as archive:
        with archive.open("run.log", "w", force_zip64=True) as entry:
            entry.write(LOG)
        archive.writestr("manifest.json", manifest_for({"run.log": LOG}))
    good = path.read_bytes()
    path.write_bytes(good[:-22] + b"PK\6\7" + bytes(16) + good[-22:])
    refused(path, "Zip64")


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    write_case(path, {"run.log": LOG * 20, "dump": DUMP}, kinds={}, created=WHEN)
    good = path.read_bytes()
    for length in [*range(0, 120), *range(120, len(good), 7), *range(len(good) - 120, len(good))]:
        path.write_bytes(good[:length])
        with pytest.raises(InputError) as caught:
            read_all(path)
        assert caught.value.hint


def test_no_damaged_byte_goes_unnoticed(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    contents = {"run.log": LOG * 20, "dump": DUMP}
    write_case(path, contents, kinds={}, created=WHEN)
    good = path.read_bytes()
    noticed = 0
    for at in range(0, len(good), 3):
        path.write_bytes(good[:at] + bytes((good[at] ^ 0x55,)) + good[at + 1 :])
        try:
            got = read_all(path)
        except InputError:
            noticed += 1
        else:
            assert got == contents, "a time stamp or an attribute may change, contents may not"
    assert noticed > 100


def test_a_wrong_hash_names_the_artefact(tmp_path: Path) -> None:
    listed = json.loads(manifest_for({"run.log": LOG}))["artefacts"]
    listed[0]["sha256"] = "0" * 64
    refused(zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, artefacts=listed), "run.log", "sha256")
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    (folder / "run.log").write_bytes(LOG.replace(b"failed", b"passed"))
    refused(folder, "run.log", "sha256")


def test_missing_or_resized_artefacts_are_named(tmp_path: Path) -> None:
    refused(zip_of(tmp_path / "a.cuwhy", {}, listed={"run.log": LOG}), "run.log", "missing")
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    (folder / "run.log").write_bytes(LOG + b"x")
    refused(folder, "run.log", "15", "16")


def test_no_case_at_all(tmp_path: Path) -> None:
    refused(tmp_path / "nothing", "no such file")
    (tmp_path / "dump").write_bytes(DUMP)
    refused(tmp_path / "dump", "not a zip")
    (tmp_path / "folder").mkdir()
    refused(tmp_path / "folder", "manifest.json")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("a", b"1")
    refused(tmp_path / "other.zip", "manifest.json")


@posix
def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    refused(tmp_path / "fifo", "regular file")
    with pytest.raises(InputError, match="regular file"):
        write_case(tmp_path / "a.cuwhy", {"x": tmp_path / "fifo"}, kinds={})
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    os.mkfifo(folder / "more")
    refused(folder, "more", "regular")
    os.unlink(folder / "more")
    (folder / "manifest.json").unlink()
    os.mkfifo(folder / "manifest.json")
    refused(folder, "manifest.json")


@posix
@pytest.mark.parametrize("listed", [True, False], ids=["listed", "not listed"])
def test_links_out_of_a_folder_are_refused(tmp_path: Path, listed: bool) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(LOG)
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    link = folder / ("run.log" if listed else "more.log")
    link.unlink(missing_ok=True)
    link.symlink_to(secret)
    refused(folder, link.name, "symbolic link")
    link.unlink()
    # A folder on the way is a link.
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.log").write_bytes(LOG)
    (folder / "sub").symlink_to(outside)
    (folder / "manifest.json").write_bytes(manifest_for({"sub/x.log": LOG}))
    refused(folder, "sub", "symbolic link")


@posix
def test_a_file_that_becomes_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(LOG)
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    with open_case(folder) as case:
        (folder / "run.log").unlink()
        (folder / "run.log").symlink_to(tmp_path / "secret")
        with pytest.raises(InputError, match="symbolic link"):
            case.read("run.log")


@posix
def test_a_manifest_that_is_a_link_is_refused(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "folder", {"run.log": LOG})
    (folder / "manifest.json").rename(tmp_path / "m")
    (folder / "manifest.json").symlink_to(tmp_path / "m")
    refused(folder, "manifest.json")


def test_reading_is_limited_where_extracting_is_not(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG})
    with open_case(path) as case:
        assert case.read("run.log", limit=len(LOG)) == LOG
        with pytest.raises(InputError, match="extract"):
            case.read("run.log", limit=len(LOG) - 1)


# --- writing whole or not at all -----------------------------------------------------------------


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.cuwhy"
    path.write_bytes(b"mine")
    with pytest.raises(InputError, match="--force"):
        write_example(path)
    assert path.read_bytes() == b"mine"
    write_example(path, overwrite=True)
    assert read_all(path)["oob.nvcudmp"] == DUMP
    with pytest.raises(InputError, match="folder"):
        write_example(tmp_path, overwrite=True)
    with pytest.raises(InputError, match="cannot be written"):
        write_example(tmp_path / "no" / "such" / "a.cuwhy")
    assert [item.name for item in tmp_path.iterdir()] == ["a.cuwhy"]


def test_a_name_taken_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    from cuwhy.case.files import new_file

    path = tmp_path / "a.cuwhy"

    def write() -> None:
        with new_file(path, overwrite=False) as file:
            file.write(b"theirs")
            path.write_bytes(b"mine")

    with pytest.raises(InputError, match="exists"):
        write()
    assert path.read_bytes() == b"mine"
    assert [item.name for item in tmp_path.iterdir()] == ["a.cuwhy"]


def test_a_failed_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.cuwhy"
    with pytest.raises(InputError, match="no such file"):
        write_case(path, {"a": b"1", "b": tmp_path / "missing"}, kinds={})
    grows = tmp_path / "grows"
    grows.write_bytes(b"1")
    from cuwhy.case.archive import ZipWriter

    add = ZipWriter.add

    def add_later(self: ZipWriter, name: str, *args: Any, **kwargs: Any) -> Any:
        grows.write_bytes(b"12")
        return add(self, name, *args, **kwargs)

    monkeypatch.setattr(ZipWriter, "add", add_later)
    with pytest.raises(InputError, match="changed while"):
        write_case(path, {"grows": grows}, kinds={})
    assert [item.name for item in tmp_path.iterdir()] == ["grows"]


def test_the_writer_keeps_the_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.cuwhy"
    monkeypatch.setattr("cuwhy.case.store.MAX_ENTRY_BYTES", 10)
    with pytest.raises(InputError, match="allowed"):
        write_case(path, {"a": b"x" * 11}, kinds={})
    with pytest.raises(InputError, match="kind"):
        write_case(path, {"a": b"x"}, kinds={"a": "Not a kind"})
    with pytest.raises(InputError, match="no artefacts"):
        write_case(path, {}, kinds={})
    with pytest.raises(InputError, match="manifest"):
        write_case(path, {f"{'n' * 200}{i}": b"" for i in range(5000)}, kinds={})
    with pytest.raises(ValueError, match="time zone"):
        write_case(path, {"a": b"x"}, kinds={}, created=datetime(2026, 12, 1))
    assert list(tmp_path.iterdir()) == []


def test_extracting_into_a_folder_in_use(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"sub/run.log": LOG})
    into = tmp_path / "into"
    (into / "sub").mkdir(parents=True)
    (into / "sub" / "run.log").write_bytes(b"mine")
    (into / "keep").write_bytes(b"mine")
    with pytest.raises(InputError, match="--force"):
        extract_case(path, into)
    assert (into / "sub" / "run.log").read_bytes() == b"mine"
    extract_case(path, into, overwrite=True)
    assert (into / "sub" / "run.log").read_bytes() == LOG
    assert (into / "keep").read_bytes() == b"mine"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.cuwhy", "into"]
    (tmp_path / "file").write_bytes(b"mine")
    with pytest.raises(InputError, match="not a folder"):
        extract_case(path, tmp_path / "file", overwrite=True)


@posix
def test_extracting_follows_no_link(tmp_path: Path) -> None:
    path = zip_of(tmp_path / "a.cuwhy", {"sub/run.log": LOG})
    outside, into = tmp_path / "outside", tmp_path / "into"
    outside.mkdir()
    into.mkdir()
    (into / "sub").symlink_to(outside)
    with pytest.raises(InputError, match="symbolic link"):
        extract_case(path, into, overwrite=True)
    assert list(outside.iterdir()) == []


# --- what may be known of the machine ------------------------------------------------------------


def test_only_listed_variables_are_kept() -> None:
    environment = {
        "CUDA_LAUNCH_BLOCKING": "1",
        "CUDA_VISIBLE_DEVICES": "0,1",
        "CUDA_COREDUMP_GENERATION_FLAGS": "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory",
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128",
        "TORCH_CUDA_ARCH_LIST": "8.0;9.0+PTX",
        "OMP_NUM_THREADS": "8",
        # Alike in name, but not in the list.
        "CUDA_HOME": "/opt/cuda",
        "CUDA_COREDUMP_FILE": "/tmp/core_%h_%p",
        "NVIDIA_API_KEY": "nvapi-0123456789",
        "TORCH_HOME": "/home/somebody/.cache",
        "TRITON_CACHE_DIR": "/home/somebody/.triton",
        "NCCL_COMM_ID": "10.0.0.1:1234",
        "HF_TOKEN": "hf_abcdefghijklmnop",
        "PATH": "/usr/bin",
        "HOSTNAME": "node17",
        "cuda_launch_blocking": "1",
    }
    assert allowed_environment(environment) == dict(sorted(list(environment.items())[:6]))


@pytest.mark.parametrize(
    "value",
    [
        "hf_abcdefghijklmnopqrstuvwx",
        "ghp_0123456789abcdefghijABCDEFGHIJ",
        "AKIAIOSFODNN7EXAMPLE",
        "x,sk-proj-abcdefgh1234",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIi",
        "0123456789abcdef0123456789abcdef01234567",
        "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6",
        "https://user:word@example.org",
        "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
        "-----BEGIN PRIVATE KEY-----",
        "/home/somebody/file",
        "C:\\Users\\somebody",
        "1\n2",
    ],
)
def test_values_that_look_like_secrets_or_paths_are_dropped(value: str) -> None:
    assert allowed_environment({"CUDA_VISIBLE_DEVICES": value, "OMP_NUM_THREADS": "8"}) == {
        "OMP_NUM_THREADS": "8"
    }


def test_values_are_cut_and_libraries_lose_their_folder() -> None:
    long = "skip_global_memory," * 100
    kept = allowed_environment(
        {
            "CUDA_COREDUMP_GENERATION_FLAGS": long,
            "LD_PRELOAD": "/home/somebody/lib/libone.so:/opt/two/libtwo.so.3 libthree.so",
            "CUDA_INJECTION64_PATH": "/opt/tools/libinject.so",
        }
    )
    assert len(kept["CUDA_COREDUMP_GENERATION_FLAGS"]) == 256
    assert long.startswith(kept["CUDA_COREDUMP_GENERATION_FLAGS"][:-1])
    assert kept["LD_PRELOAD"] == "libone.so:libtwo.so.3:libthree.so"
    assert kept["CUDA_INJECTION64_PATH"] == "libinject.so"


def test_a_careless_writers_environment_is_dropped_on_reading(tmp_path: Path) -> None:
    environment = {"AWS_SECRET_ACCESS_KEY": "x", "CUDA_LAUNCH_BLOCKING": "1", "NCCL_DEBUG": "hf_abcdefghijkl"}
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, environment=environment)
    with open_case(path) as case:
        assert case.manifest.environment == (("CUDA_LAUNCH_BLOCKING", "1"),)
    extract_case(path, tmp_path / "folder")
    assert b"AWS" not in (tmp_path / "folder" / "manifest.json").read_bytes()


COMMANDS = [
    (["./oob", "--size", "1000"], ["./oob", "--size", "1000"]),
    (["python", "t.py", "--tokenizer", "gpt2", "--max-tokens=512"], ["python", "t.py", "--tokenizer", "gpt2", "--max-tokens=512"]),
    (["t", "--hf-token", "abc", "x"], ["t", "--hf-token", "[removed]", "x"]),
    (["t", "--api-key=abc"], ["t", "--api-key=[removed]"]),
    (["t", "--hfToken=abc"], ["t", "--hfToken=[removed]"]),
    (["env", "WANDB_API_KEY=abc", "t"], ["env", "WANDB_API_KEY=[removed]", "t"]),
    (["t", "--password", "-x1"], ["t", "--password", "[removed]"]),
    (["t", "https://me:word@host/x"], ["t", "https://[removed]@host/x"]),
    (["t", "hf_abcdefghijkl"], ["t", "[removed]"]),
    (["t", "--x=ghp_0123456789abcdef"], ["t", "--x=[removed]"]),
    (["/home/somebody/bin/t", "--out=/Users/other/x", "/root/y"], ["~/bin/t", "--out=~/x", "~/y"]),
    (["t", "--master", "node17.example.org:29500", "node17", "node170"], ["t", "--master", "HOST:29500", "HOST", "node170"]),
    (["t", "\udcff"], ["t", "\\udcff"]),
]  # fmt: skip


@pytest.mark.parametrize(("given", "kept"), COMMANDS, ids=lambda value: " ".join(map(ascii, value))[:40])
def test_the_command_line_is_cleaned(given: list[str], kept: list[str]) -> None:
    once = clean_command(given, host="node17.example.org")
    assert once == tuple(kept)
    assert clean_command(once, host="node17.example.org") == once


def test_the_command_line_is_bounded() -> None:
    cleaned = clean_command(["x" * 100_000] * 5000, host="")
    assert len(cleaned) == 1024
    assert max(map(len, cleaned)) <= 4096


def test_no_host_name_gets_into_a_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cuwhy.case.environment.this_host", lambda: "node17")
    path = tmp_path / "a.cuwhy"
    write_example(
        path, command=["run", "--host=node17"], directory="/data/node17", environment={"HOSTNAME": "node17"}
    )
    assert b"node17" not in path.read_bytes()
    assert clean_name("core_1764_node17_4711.nvcudmp") == "core_1764_4711.nvcudmp"
    assert clean_name("core_1764_other-host.example_4711.nvcudmp") == "core_1764_4711.nvcudmp"
    assert clean_name("run-node17.log") == "run-HOST.log"
    assert clean_name("run.log") == "run.log"


# --- slimming ------------------------------------------------------------------------------------


@pytest.fixture
def slimmer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the core dump slimmer: keeps the first 100 bytes, refuses what is no ELF."""
    module = types.ModuleType("cuwhy.read.slim")

    def slim_coredump(data: bytes) -> bytes:
        if not data.startswith(b"\x7fELF"):
            raise InputError("not an ELF file", hint="record it again")
        return data[:100]

    module.slim_coredump = slim_coredump  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuwhy.read.slim", module)


PROGRESS = "".join(
    f"[02:55:18.43{n:04}] coredump: SM {n}/132 has finished state collection\n" for n in range(1, 133)
)
REAL_LOG = (
    "[02:55:18.429195] coredump: Starting GPU coredump generation\n"
    + PROGRESS
    + "[02:55:18.594354] coredump: Device 1/1 has finished state collection\n"
    + "result 5coredump: SM 7/132 has finished state collection\n"
    + "CUDA error 717\n"
)


def test_a_log_loses_progress_lines_only() -> None:
    slimmed = slim_log(REAL_LOG.encode()).decode()
    assert slimmed == REAL_LOG.replace(PROGRESS, "")
    assert slim_log(REAL_LOG.replace("\n", "\r\n").encode()).decode() == slimmed.replace("\n", "\r\n")
    assert slim_log(b"coredump: SM 1/132 has finished state collection") == b""
    assert slim_log(LOG) == LOG


@pytest.mark.usefixtures("slimmer")
def test_slimming_a_case(tmp_path: Path) -> None:
    src, dst = tmp_path / "a.cuwhy", tmp_path / "b.cuwhy"
    xml = b"<ComputeSanitizerOutput>" + REAL_LOG.encode() + b"</ComputeSanitizerOutput>"
    write_case(
        src,
        {"d.nvcudmp": DUMP, "broken.nvcudmp": b"torn", "run.log": REAL_LOG.encode(), "m.xml": xml},
        kinds={
            "d.nvcudmp": "coredump",
            "broken.nvcudmp": "coredump",
            "run.log": "log",
            "m.xml": "sanitizer-xml",
        },
        notes={"d.nvcudmp": "rank 3"},
        device="NVIDIA H200",
        command=["./oob"],
        created=WHEN,
    )
    result = slim_case(src, dst)
    assert (result.before, result.after) == (src.stat().st_size, dst.stat().st_size)
    assert result.after < result.before
    changes = {item.path: (item.before, item.after) for item in result.artefacts}
    kept_log = REAL_LOG.replace(PROGRESS, "").encode()
    assert changes == {
        "broken.nvcudmp": (4, 4),
        "d.nvcudmp": (len(DUMP), 100),
        "m.xml": (len(xml), len(xml)),
        "run.log": (len(REAL_LOG), len(kept_log)),
    }
    assert [item.problem for item in result.artefacts if item.problem] == ["not an ELF file"]
    assert read_all(dst) == {
        "broken.nvcudmp": b"torn",
        "d.nvcudmp": DUMP[:100],
        "m.xml": xml,
        "run.log": kept_log,
    }
    with open_case(src) as before, open_case(dst) as after:
        assert after.manifest.created == before.manifest.created
        assert after.manifest.command == ("./oob",)
        assert after.manifest.device == "NVIDIA H200"
        notes = {entry.path: entry.note for entry in after.artefacts}
    assert notes["d.nvcudmp"].startswith("rank 3; slimmed from ")
    assert hashlib.sha256(DUMP).hexdigest() in notes["d.nvcudmp"]
    assert notes["m.xml"] == ""
    # A second time there is nothing left to drop.
    again = tmp_path / "c.cuwhy"
    slim_case(dst, again)
    assert again.read_bytes() == dst.read_bytes()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.cuwhy", "b.cuwhy", "c.cuwhy"]


@pytest.mark.usefixtures("slimmer")
def test_slimming_replaces_nothing_and_trusts_nothing(tmp_path: Path) -> None:
    src = zip_of(tmp_path / "a.cuwhy", {"run.log": REAL_LOG.encode()})
    (tmp_path / "b.cuwhy").write_bytes(b"mine")
    with pytest.raises(InputError, match="--force"):
        slim_case(src, tmp_path / "b.cuwhy")
    assert (tmp_path / "b.cuwhy").read_bytes() == b"mine"
    # Onto itself, when that is what is asked for.
    slim_case(src, src, overwrite=True)
    assert read_all(src) == {"run.log": REAL_LOG.replace(PROGRESS, "").encode()}
    listed = json.loads(manifest_for({"run.log": LOG}))["artefacts"]
    listed[0]["sha256"] = "0" * 64
    zip_of(src, {"run.log": LOG}, artefacts=listed)
    with pytest.raises(InputError, match="sha256"):
        slim_case(src, tmp_path / "c.cuwhy")
    assert sorted(item.name for item in tmp_path.iterdir()) == ["a.cuwhy", "b.cuwhy"]


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def recognizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the recognizer."""
    module = types.ModuleType("cuwhy.read.recognize")

    def recognize(data: bytes) -> str:
        heads = {b"\x7fELF": "coredump", b"PK\3\4": "case", b"NVR\0": "ncu-report"}
        return heads.get(data[:4], "log")

    module.recognize = recognize  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuwhy.read.recognize", module)


def run(*arguments: object) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    args = parser.parse_args(["case", *map(str, arguments)])
    code: int = args.run(args)
    return code


@pytest.mark.usefixtures("recognizer", "slimmer")
def test_pack_show_extract_slim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    dump, log, out = tmp_path / "oob.nvcudmp", tmp_path / "run.log", tmp_path / "a.cuwhy"
    dump.write_bytes(DUMP)
    log.write_text(REAL_LOG)
    command = "HF_TOKEN=secret ./oob --name 'two words'"
    assert run("pack", out, dump, log, "--command", command, "--note", "first\x1b[31mrun") == 0
    assert "2 artefacts" in capsys.readouterr().out
    with open_case(out) as case:
        assert [(e.path, e.kind) for e in case.artefacts] == [("oob.nvcudmp", "coredump"), ("run.log", "log")]
        assert case.manifest.command == ("HF_TOKEN=[removed]", "./oob", "--name", "two words")
        # Where the files were written is not known, so it is not said.
        assert case.manifest.machine == MachineEntry()
        assert case.manifest.environment == ()

    assert run("show", out) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^oob\.nvcudmp +coredump +10\.2 kB +[0-9a-f]{12}$", shown, re.MULTILINE)
    assert "'two words'" in shown
    assert "first\\x1b[31mrun" in shown
    assert "\x1b" not in shown
    assert "secret" not in shown

    assert run("extract", out, tmp_path / "folder") == 0
    assert (tmp_path / "folder" / "oob.nvcudmp").read_bytes() == DUMP
    assert run("show", tmp_path / "folder") == 0
    capsys.readouterr()
    assert run("slim", out, tmp_path / "b.cuwhy") == 0
    assert re.search(r"^oob\.nvcudmp +10\.2 kB +-> +100 B$", capsys.readouterr().out, re.MULTILINE)
    for verb in (
        ("pack", out, dump),
        ("slim", out, tmp_path / "b.cuwhy"),
        ("extract", out, tmp_path / "folder"),
    ):
        with pytest.raises(InputError, match="--force"):
            run(*verb)
        assert run(*verb, "--force") == 0


@pytest.mark.usefixtures("recognizer")
def test_pack_here_says_where(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_LAUNCH_BLOCKING", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_abcdefghijklmnop")
    Path("run.log").write_bytes(LOG)
    assert (
        run("pack", "a.cuwhy", "run.log", "--here", "--device", "NVIDIA H200", "--driver", "580.159.04") == 0
    )
    with open_case(Path("a.cuwhy")) as case:
        assert ("CUDA_LAUNCH_BLOCKING", "1") in case.manifest.environment
        assert {name for name, _ in case.manifest.environment} <= ALLOWED
        assert case.manifest.directory == tmp_path.name
        assert case.manifest.machine.os
        assert case.manifest.machine.architecture
        assert (case.manifest.device, case.manifest.driver) == ("NVIDIA H200", "580.159.04")
    assert b"hf_abc" not in Path("a.cuwhy").read_bytes()


@pytest.mark.usefixtures("recognizer")
def test_pack_finds_names_that_may_stand_in_a_case(tmp_path: Path) -> None:
    names = [
        "one/run.log",
        "two/RUN.log",
        "three/run.log",
        "a/manifest.json",
        "b/core_1764_some-host_12.nvcudmp",
    ]
    if os.name == "posix":
        names += ["c/log 12:30:01.txt", "d/nul", "e/a\x1bb"]
    for name in names:
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(name.encode())
    assert run("pack", tmp_path / "a.cuwhy", *(tmp_path / name for name in names)) == 0
    contents = read_all(tmp_path / "a.cuwhy")
    assert sorted(contents.values()) == sorted(name.encode() for name in names)
    expected = {"run.log", "RUN-2.log", "run-3.log", "manifest-2.json", "core_1764_12.nvcudmp"}
    if os.name == "posix":
        expected |= {"log 12_30_01.txt", "file_nul", "a_b"}
    assert contents.keys() == expected


@pytest.mark.usefixtures("recognizer")
def test_pack_tells_kinds(tmp_path: Path) -> None:
    contents = {
        "k.CU": b"int x;",
        "k.py": b"x = 1",
        "k.sass": b"EXIT ;",
        "p.ncu-rep": b"NVR\0",
        "k.log": LOG,
        "c.cu": DUMP,
    }
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    assert run("pack", tmp_path / "a.cuwhy", *(tmp_path / name for name in contents)) == 0
    with open_case(tmp_path / "a.cuwhy") as case:
        assert {entry.path: entry.kind for entry in case.artefacts} == {
            "k.CU": "source",
            "k.py": "source",
            "k.sass": "sass",
            "p.ncu-rep": "other",
            "k.log": "log",
            "c.cu": "coredump",
        }
    with pytest.raises(InputError, match=r"case already.*extract"):
        run("pack", tmp_path / "b.cuwhy", tmp_path / "a.cuwhy")


@pytest.mark.usefixtures("recognizer")
def test_pack_says_what_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_bytes(LOG)
    with pytest.raises(InputError, match="no such file"):
        run("pack", tmp_path / "a.cuwhy", tmp_path / "missing")
    with pytest.raises(InputError, match="regular file"):
        run("pack", tmp_path / "a.cuwhy", tmp_path)
    with pytest.raises(InputError, match="quotes"):
        run("pack", tmp_path / "a.cuwhy", tmp_path / "run.log", "--command", "'open")
    assert [item.name for item in tmp_path.iterdir()] == ["run.log"]


def test_show_prints_hostile_texts_harmlessly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "\x1b]0;title\x07\u202e\r\n\x9b31m"
    changes = {
        "device": hostile,
        "note": hostile,
        "command": [hostile],
        "directory": hostile,
        "cuwhy": hostile,
    }
    path = zip_of(tmp_path / "a.cuwhy", {"run.log": LOG}, **changes, machine={"os": hostile})
    assert run("show", path) == 0
    shown = capsys.readouterr().out
    assert all(line.isprintable() for line in shown.split("\n"))
    assert shown.count("\\x1b]0;title\\x07\\u202e\\r\\n\\x9b31m") == 6


def test_importing_the_command_costs_nothing() -> None:
    code = "import sys; before = set(sys.modules); import cuwhy.cli.case; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded = set(done.stdout.split())
    assert "cuwhy.cli.case" in loaded
    assert not loaded & {
        "argparse",
        "json",
        "zipfile",
        "zlib",
        "hashlib",
        "pathlib",
        "dataclasses",
        "cuwhy.case",
    }


# --- the documentation ---------------------------------------------------------------------------


def test_the_documentation_lists_variables_kinds_and_limits() -> None:
    text = (DOCS / "case-format.md").read_text(encoding="utf-8")
    section = text.split("### Environment variables that may be in it")[1].split("Left out on purpose")[0]
    assert set(re.findall(r"`([A-Z0-9_]+)`", section)) == ALLOWED
    for kind in KINDS:
        assert f"`{kind}`" in text
    for limit in (
        f"{limits.MAX_ENTRIES:,}",
        f"{limits.MAX_ENTRY_BYTES >> 20} MiB",
        f"{limits.MAX_RATIO} : 1",
    ):
        assert limit in text
    left_out = text.split("Left out on purpose")[1].split("\n\n")[0]
    names = set(re.findall(r"`([A-Z0-9_]+)`", left_out)) - {"CUDA_VISIBLE_DEVICES"}
    assert names
    assert not names & ALLOWED

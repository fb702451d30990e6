"""Fixtures that several test modules share: the corpus' core dumps, NVIDIA's tools, synthetic dumps."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from cuwhy.case import open_case
from cuwhy.locate.sass import Listing, find_nvdisasm, parse_listing

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent


def slowdown() -> float:
    """How many times slower than when idle this machine computes just now, at least 1.

    Limits of time are meant for a quiet machine with two cores of 2.6 GHz; a neighbour that takes half a core
    must not make them fail.
    """
    start = time.process_time()
    table: dict[int, str] = {}
    for i in range(400_000):
        table[i % 1000] = str(i)
    return max(1.0, (time.process_time() - start) / 0.09)


CORPUS = ROOT / "corpus"

# The same examples on every machine: a failure in CI must be one at home.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    max_examples=60,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("repeatable")


# -- the corpus --------------------------------------------------------------------


@dataclass(frozen=True)
class DumpCase:
    """A corpus case with a core dump: its folder, the dump's bytes, the SASS it carries, its truth."""

    folder: Path
    data: bytes
    listings: dict[str, str]
    truth: dict[str, Any]

    @property
    def expect(self) -> dict[str, Any]:
        return dict(self.truth.get("expect", {}))


_loaded: dict[Path, DumpCase] = {}


def dump_folders() -> list[Path]:
    """Corpus cases whose manifest lists a core dump."""
    found = []
    for path in sorted(CORPUS.glob("*/*/*/evidence.cuwhy")):
        with zipfile.ZipFile(path) as archive:
            manifest = json.loads(archive.read("manifest.json"))
        if any(entry["kind"] == "coredump" for entry in manifest["artefacts"]):
            found.append(path.parent)
    return found


def load_dump(folder: Path) -> DumpCase:
    if folder not in _loaded:
        listings = {}
        data = b""
        with open_case(folder / "evidence.cuwhy") as case:
            for entry in case.artefacts:
                if entry.kind == "coredump":
                    data = bytes(case.read(entry.path))
                elif entry.kind == "sass":
                    head, _, text = bytes(case.read(entry.path)).decode().partition("\n")
                    listings[head.removeprefix("# cuwhy sass ")] = text
        truth = tomllib.loads((folder / "truth.toml").read_text("utf-8"))
        _loaded[folder] = DumpCase(folder, data, listings, truth)
    return _loaded[folder]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that asks for ``dump_case`` runs once for every dump of the corpus."""
    if "dump_case" in metafunc.fixturenames:
        folders = dump_folders()
        metafunc.parametrize("dump_case", folders, ids=lambda f: f.name, indirect=True)


@pytest.fixture
def dump_case(request: pytest.FixtureRequest) -> DumpCase:
    return load_dump(request.param)


@pytest.fixture(scope="session")
def dump_named() -> Callable[[str], DumpCase]:
    """Return the corpus case whose folder has this name."""

    def find(name: str) -> DumpCase:
        return load_dump(next(f for f in dump_folders() if f.name == name))

    return find


# -- NVIDIA's tools ----------------------------------------------------------------


@pytest.fixture(scope="session")
def nvdisasm() -> str:
    """Path of nvdisasm.  Missing, it is an error: without it nothing checks the SASS tables."""
    return find_nvdisasm()


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path, int], Path]:
    """Return a function that compiles a source for sm_N to a cubin, once."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/bin:/usr/local/cuda/bin")
    folder = tmp_path_factory.mktemp("cubins")
    done: dict[tuple[Path, int], Path] = {}

    def build(source: Path, sm: int) -> Path:
        if nvcc is None:
            pytest.skip("nvcc is not installed (it comes with the CUDA toolkit)")
        if (source, sm) not in done:
            target = folder / f"{source.stem}.sm_{sm}.cubin"
            subprocess.run(
                [nvcc, f"-arch=sm_{sm}", "-std=c++17", "-O3", "-lineinfo", "-cubin", "-o", target, source],
                check=True,
                capture_output=True,
            )
            done[source, sm] = target
        return done[source, sm]

    return build


@pytest.fixture(scope="session")
def disassembled(nvdisasm: str) -> Callable[[Path], dict[str, Listing]]:
    """Return a function from a cubin to its functions' listings, as ``nvdisasm -b`` would print each."""
    done: dict[Path, dict[str, Listing]] = {}

    def read(cubin: Path) -> dict[str, Listing]:
        if cubin not in done:
            text = subprocess.run([nvdisasm, "-c", cubin], check=True, capture_output=True, text=True).stdout
            done[cubin] = {}
            for piece in re.split(r"^\.text\.", text, flags=re.M)[1:]:
                name, _, body = piece.partition(":\n")
                listing = parse_listing(_numbered(body.split("\n//----")[0]))
                if listing is not None:
                    done[cubin][name] = listing
        return done[cubin]

    return read


def _numbered(text: str) -> str:
    """Replace the labels of ``nvdisasm -c`` by the offsets that they stand for."""
    labels: dict[str, int] = {}
    waiting: list[str] = []
    for line in text.splitlines():
        label = re.match(r"(\.L_x_\d+):", line)
        if label:
            waiting.append(label[1])
        place = re.match(r"\s*/\*([0-9a-f]{4,})\*/", line)
        if place:
            labels.update(dict.fromkeys(waiting, int(place[1], 16)))
            waiting.clear()
    return re.sub(r"`\((\.L_x_\d+)\)", lambda m: hex(labels[m[1]]) if m[1] in labels else m[0], text)


# -- ELF files made by hand ----------------------------------------------------------

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")


@dataclass
class Part:
    """One section of an ELF file that a test builds."""

    name: str = ""
    type: int = 1
    content: bytes = b""
    link: int = 0
    info: int = 0
    entry_size: int = 0
    address: int = 0
    flags: int = 0


@dataclass
class Built:
    """An ELF file under construction; section 0 is there already."""

    parts: list[Part] = field(default_factory=list)
    os_abi: int = 0x33
    type: int = 4
    machine: int = 190
    flags: int = 0

    def add(self, *args: Any, **fields: Any) -> int:
        """Add a section and return its number."""
        self.parts.append(Part(*args, **fields))
        return len(self.parts)

    def bytes(self) -> bytes:
        """Write the file; more than 0xff00 sections overflow into section 0, as the ELF specification says."""
        names = bytearray(b"\0")
        known: dict[str, int] = {"": 0}
        body = bytearray()
        rows = []
        parts = [*self.parts, Part(".shstrtab", 3)]
        for part in parts:
            if part.name not in known:
                known[part.name] = len(names)
                names += part.name.encode() + b"\0"
        parts[-1].content = bytes(names)
        for part in parts:
            rows.append(
                _SECTION.pack(
                    known[part.name], part.type, part.flags, part.address, _HEADER.size + len(body),
                    len(part.content), part.link, part.info, 1, part.entry_size,
                )
            )  # fmt: skip
            body += part.content
        count = len(rows) + 1
        large = count >= 0xFF00
        first = _SECTION.pack(0, 0, 0, 0, 0, count if large else 0, count - 1 if large else 0, 0, 0, 0)
        ident = b"\x7fELF\x02\x01\x01" + bytes([self.os_abi]) + bytes(8)
        header = _HEADER.pack(
            ident, self.type, self.machine, 1, 0, 0, _HEADER.size + len(body), self.flags, _HEADER.size, 0, 0,
            _SECTION.size, 0 if large else count, 0xFFFF if large else count - 1,
        )  # fmt: skip
        return header + bytes(body) + first + b"".join(rows)


@pytest.fixture
def elf() -> type[Built]:
    return Built


def table(layout: str, rows: Iterable[Sequence[Any]]) -> bytes:
    """Pack rows of a table."""
    return b"".join(struct.pack(layout, *row) for row in rows)

"""The ELF and cubin readers against readelf, on recorded dumps and the modules in them."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Built, DumpCase
from cuwhy.model.errors import InputError
from cuwhy.read.coredump import CoreDump
from cuwhy.read.cubin import Cubin, open_cubin
from cuwhy.read.elf import Elf, text_at
from cuwhy.read.recognize import recognize

_ROW = re.compile(
    r"^\s*\[\s*(\d+)\]\s(.*?)\s+(\S+)\s+([0-9a-f]{16}) ([0-9a-f]{6,}) ([0-9a-f]{6,}) ([0-9a-f]{2,})\s(.{3})\s+(\d+)\s+(\d+)\s+(\d+)$"
)
_SYMBOL = re.compile(r"^\s*\d+: ([0-9a-f]{16})\s+(\d+|0x[0-9a-f]+) FUNC .*? (\S+)$")


def readelf(option: str, path: Path) -> list[str]:
    tool = shutil.which("readelf")
    if tool is None:
        pytest.skip("readelf is not installed (binutils)")
    done = subprocess.run([tool, option, path], capture_output=True, check=True)
    return done.stdout.decode("utf-8", "replace").splitlines()


def images(case: DumpCase) -> list[memoryview]:
    dump = CoreDump(case.data)
    return [dump.image(module) for module in dump.modules if len(dump.image(module))]


@pytest.mark.parametrize("name", ["bad_starter_oob", "bad_starter_spin", "bad_starter_misaligned"])
def test_sections_as_readelf_lists_them(
    name: str, dump_named: Callable[[str], DumpCase], tmp_path: Path
) -> None:
    case = dump_named(name)
    for number, data in enumerate([case.data, *images(case)]):
        path = tmp_path / f"{number}.elf"
        path.write_bytes(data)
        elf = Elf(data, "x")
        rows = [match for line in readelf("-SW", path) if (match := _ROW.match(line))]
        assert len(rows) == len(elf.sections)
        for row in rows:
            index = int(row[1])
            section = elf.sections[index]
            assert elf.name(index) == row[2].strip()
            there = (section.address, section.offset, section.size, section.entry_size)
            assert there == tuple(int(row[i], 16) for i in (4, 5, 6, 7))
            assert (section.link, section.info) == (int(row[9]), int(row[10]))


def test_functions_as_readelf_lists_them(dump_named: Callable[[str], DumpCase], tmp_path: Path) -> None:
    for image in images(dump_named("bad_starter_oob")):
        path = tmp_path / "cubin"
        path.write_bytes(image)
        told = {
            (match[3], int(match[1], 16), int(match[2], 0))
            for line in readelf("-sW", path)
            if (match := _SYMBOL.match(line))
        }
        cubin = Cubin(image)
        assert {(s.text, s.address, s.size) for s in cubin.elf.functions()} == told
        for name, address, size in told:
            if not size or not cubin.covers(address):
                continue
            found = cubin.function(name)
            assert found is not None
            assert (found.address, found.size) == (address, size)
            for pc in (address, address + size - 1):
                inner = cubin.function_at(pc)
                assert inner is not None
                assert inner.address <= pc < inner.address + inner.size
            assert cubin.function_at(0) is None
    assert Cubin(images(dump_named("bad_starter_oob"))[0]).sm == 90


def test_names_in_damaged_tables() -> None:
    table = memoryview(b"\0abc\0\xff\xfe\0open")
    assert [text_at(table, at) for at in (0, 1, 2, 5, 8, 12, 1 << 40)] == [
        "", "abc", "bc", "\ufffd\ufffd", "open", "", "",
    ]  # fmt: skip


@pytest.mark.parametrize("field", [0x28, 0x3A, 0x3C, 0x3E])
@pytest.mark.parametrize("value", [0, 1, 0x7FFF, 0xFFFF])
def test_headers_that_lie(field: int, value: int, elf: type[Built]) -> None:
    """e_shoff, e_shentsize, e_shnum and e_shstrndx: either a table inside the file or one error."""
    built = elf()
    built.add(".text", 1, bytes(64))
    data = bytearray(built.bytes())
    data[field : field + 2] = value.to_bytes(2, "little")
    try:
        parsed = Elf(bytes(data), "x")
    except InputError as error:
        assert "damaged" in str(error)  # noqa: PT017
        return
    for index in range(len(parsed.sections)):
        parsed.name(index)


def test_a_symbol_table_that_names_itself(elf: type[Built]) -> None:
    """A loop in the links: the symbols' names lie in the symbol table, their section is it too."""
    built = elf()
    rows = b"".join(
        (at).to_bytes(4, "little")
        + b"\2\0\1\0"
        + (0x1000).to_bytes(8, "little")
        + (1 << 63).to_bytes(8, "little")
        for at in range(24)
    )
    built.add(".symtab", 2, rows, link=1, address=0x1000, flags=4)
    cubin = open_cubin(memoryview(built.bytes()), "x")
    assert cubin is not None
    # A size of 2**63 bytes is no function.
    assert cubin.function_at(0x1010) is None


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "log"),
        (b"\x7fELF", "binary"),
        (b"PK\x03\x04", "case"),
        (b"NVR\0", "ncu-report"),
        (b"\x80\x04\x95", "pickle"),
        (b"text\0text", "binary"),
        (b"# cuwhy sass f\n", "sass"),
        (b"========= COMPUTE-SANITIZER\n", "sanitizer-text"),
        (b'<?xml version="1.0"?><ComputeSanitizerOutput>', "sanitizer-xml"),
        ("Grüße\n".encode(), "log"),
        ("Grüße\n".encode("utf-16"), "binary"),
    ],
)
def test_kinds(data: bytes, kind: str) -> None:
    assert recognize(data) == kind
    assert recognize(memoryview(data)) == kind


def test_a_dump_is_told_from_its_first_20_bytes(dump_case: DumpCase) -> None:
    assert recognize(dump_case.data) == "coredump"
    assert recognize(dump_case.data[:20]) == "coredump"
    assert recognize(dump_case.data[:19]) == "binary"

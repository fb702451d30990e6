"""Line tables, held against ``nvdisasm -gi`` instruction by instruction."""

from __future__ import annotations

import re
import struct
import subprocess
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import DumpCase, dump_folders, load_dump, slowdown
from cuwhy.locate.lines import MAX_ROWS, InlineFrame, LineTable, read_lines
from cuwhy.read.coredump import CoreDump
from cuwhy.read.cubin import Cubin

SOURCE = Path(__file__).parent / "data" / "inline.cu"
_FILE = re.compile(r'//## File "(.*?)", line (\d+)')


def printed(nvdisasm: str, path: Path) -> Iterator[tuple[str, int, list[tuple[str, int]], bool]]:
    """Yield section, offset, chain and whether the chain is fresh, for every instruction with a line.

    nvdisasm prints a chain where the leaf's file or line changes, and keeps silent where only
    outer frames do: then only the leaf of the last chain still holds.
    """
    text = subprocess.run([nvdisasm, "-gi", "-c", path], check=True, capture_output=True, text=True).stdout
    section = ""
    chain: list[tuple[str, int]] = []
    fresh = reading = False
    for line in text.splitlines():
        if found := re.match(r"\.text\.(\S+):", line):
            section, chain, reading = found[1], [], False
        elif found := _FILE.search(line):
            if not reading:
                chain, reading = [], True
            chain.append((found[1], int(found[2])))
            fresh = True
        elif found := re.match(r"\s+/\*([0-9a-f]{4,})\*/", line):
            if chain:
                yield section, int(found[1], 16), chain, fresh
            fresh = reading = False


def compare(
    table: LineTable, nvdisasm: str, path: Path, address: Callable[[str, int], int]
) -> tuple[int, int, int]:
    """Return how many instructions were compared, how many chains were fresh, and the deepest chain."""
    compared = fresh_ones = deepest = 0
    for section, offset, wanted, fresh in printed(nvdisasm, path):
        chain = [(frame.file, frame.line) for frame in table.chain(address(section, offset))]
        assert chain[:1] == wanted[:1], (section, hex(offset))
        if fresh:
            assert chain == wanted, (section, hex(offset))
            fresh_ones += 1
            deepest = max(deepest, len(chain))
        compared += 1
    return compared, fresh_ones, deepest


def table_of(cubin: Cubin) -> LineTable:
    return read_lines(cubin.section(".debug_line"), cubin.section(".debug_str"))


def with_relocations(image: bytes) -> bytes:
    """Give a slimmed image back what nvdisasm insists on and our reader has no use for.

    Lines are printed only where ``.rela.debug_line`` ties their addresses to functions, and notes
    that were emptied are refused.
    """
    cubin = Cubin(image)
    content = bytes(cubin.section(".debug_line"))
    symbols = next(cubin.elf.content(n) for n, s in enumerate(cubin.elf.sections) if s.type == 2)
    functions = [
        (number, value, size)
        for number, (_, info, _, _, value, size) in enumerate(struct.iter_unpack("<IBBHQQ", symbols))
        if info & 15 == 2 and value
    ]
    relocations = bytearray()
    for found in re.finditer(rb"\0\x09\x02(.{8})", content, flags=re.S):
        (address,) = struct.unpack("<Q", found[1])
        for number, value, size in functions:
            if value <= address < value + size:
                relocations += struct.pack("<QQq", found.start(1), number << 32 | 2, address - value)
                break
    changed = bytearray(image)
    # Functions whose code was dropped: nvdisasm must not miss it.
    table = next(s for s in cubin.elf.sections if s.type == 2)
    for number, (_, _, _, section, _, _) in enumerate(struct.iter_unpack("<IBBHQQ", symbols)):
        if section < len(cubin.elf.sections) and cubin.elf.sections[section].type == 8:
            changed[table.offset + 24 * number : table.offset + 24 * number + 24] = bytes(24)
    (rows,) = struct.unpack_from("<Q", changed, 40)
    for number in range(len(cubin.elf.sections)):
        name = cubin.elf.name(number)
        if name == ".rela.debug_line":
            struct.pack_into("<I", changed, rows + 64 * number + 4, 4)
            struct.pack_into("<QQ", changed, rows + 64 * number + 24, len(changed), len(relocations))
        elif name.startswith((".nv.compat", ".note.", ".nv.info")) or (
            name.startswith(".text") and cubin.elf.sections[number].type == 8
        ):
            changed[rows + 64 * number : rows + 64 * number + 64] = bytes(64)
    return bytes(changed + relocations)


def test_lines_of_the_corpus(dump_case: DumpCase, tmp_path: Path, nvdisasm: str) -> None:
    """Every instruction that the case's dump still holds code of."""
    if dump_case.folder.name == "bad_patched_cubin":
        pytest.skip("nvdisasm refuses the whole function for the one instruction that the case broke")
    dump = CoreDump(dump_case.data)
    for number, module in enumerate(dump.modules):
        image = dump.image(module)
        if not len(image):
            continue
        cubin = Cubin(image)
        if not len(cubin.section(".debug_line")):
            continue
        path = tmp_path / f"{number}.cubin"
        path.write_bytes(with_relocations(bytes(image)))
        table = table_of(cubin)
        assert table.problem == ""
        # Relocated images stand at the addresses that nvdisasm prints.
        compared, fresh, _ = compare(table, nvdisasm, path, lambda section, address: address)
        assert compared > 10
        assert fresh >= 1


def relocated(cubin: Cubin) -> tuple[LineTable, dict[str, int]]:
    """Apply ``.rela.debug_line`` of an unlinked cubin, each section at an address of its own."""
    content = bytearray(cubin.section(".debug_line"))
    symbols = next(cubin.elf.content(n) for n, s in enumerate(cubin.elf.sections) if s.type == 2)
    # Older architectures keep the addend in place.
    entries = [
        *struct.iter_unpack("<QQq", cubin.section(".rela.debug_line")),
        *((*entry, 0) for entry in struct.iter_unpack("<QQ", cubin.section(".rel.debug_line"))),
    ]
    for offset, info, addend in entries:
        section, value = struct.unpack_from("<HQ", symbols, 24 * (info >> 32) + 6)
        (here,) = struct.unpack_from("<Q", content, offset)
        struct.pack_into("<Q", content, offset, (section << 24) + value + addend + here)
    places = {cubin.elf.name(n).removeprefix(".text."): n << 24 for n in range(len(cubin.elf.sections))}
    return read_lines(memoryview(content), cubin.section(".debug_str")), places


@pytest.mark.slow
@pytest.mark.parametrize("sm", [80, 90, 100])
def test_lines_of_a_compiled_file(sm: int, compiled: Callable[[Path, int], Path], nvdisasm: str) -> None:
    path = compiled(SOURCE, sm)
    table, places = relocated(Cubin(path.read_bytes()))
    assert table.problem == ""
    compared, fresh, deepest = compare(
        table, nvdisasm, path, lambda section, offset: places[section] + offset
    )
    assert compared > 200
    assert fresh > 60
    # load() in the lambda in repeat() in the kernel, at least.
    assert deepest >= 4


def source_line(text: str) -> int:
    lines = SOURCE.read_text().splitlines()
    (found,) = [n for n, line in enumerate(lines, 1) if text in line]
    return found


@pytest.mark.parametrize("sm", [80, 90, 100])
def test_chain_of_the_deepest_load(sm: int, compiled: Callable[[Path, int], Path]) -> None:
    """Files, lines and functions as the source has them."""
    table, places = relocated(Cubin(compiled(SOURCE, sm).read_bytes()))
    chains = set()
    start = places["_Z6lambdaPKfPfi"]
    for pc in range(start, start + 0x1000, 16):
        chains.add(tuple((frame.line, frame.function) for frame in table.chain(pc)))
    load, call = source_line("return p[i] * T(3)"), source_line("out[i] = repeat<3>(get)")
    one, get = source_line("sum += f(n)"), source_line("return load(in, i + k * n)")
    found = next(c for c in chains if len(c) == 4 and c[0][0] == load)
    assert [line for line, _ in found] == [load, get, one, call]
    assert found[0][1] == "_Z4loadIfET_PKS0_i"
    assert "repeat" in found[2][1]
    # The outermost level is the kernel itself: the table does not name it.
    assert found[3][1] == ""


# -- tables by hand --------------------------------------------------------------------------


def uleb(value: int) -> bytes:
    out = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        out.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(out)


def sleb(value: int) -> bytes:
    out = bytearray()
    while True:
        byte = value & 0x7F
        value >>= 7
        if (value == 0 and not byte & 0x40) or (value == -1 and byte & 0x40):
            out.append(byte)
            return bytes(out)
        out.append(byte | 0x80)


def program(*ops: bytes, files: tuple[bytes, ...] = (b"a.cu", b"b.cuh"), directory: bytes = b"/src") -> bytes:
    """A version 2 line program: special opcodes from 10 on, lines from -5, 14 lines a step."""
    head = bytes([1, 1, 0x100 - 5, 14, 10, 0, 1, 1, 1, 1, 0, 0, 0, 1]) + directory + b"\0\0"
    head += b"".join(name + b"\0\x01\0\0" for name in files) + b"\0"
    body = struct.pack("<HI", 2, len(head)) + head + b"".join(ops)
    return struct.pack("<I", len(body)) + body


def extended(code: int, payload: bytes) -> bytes:
    return b"\0" + uleb(len(payload) + 1) + bytes([code]) + payload


def at(address: int) -> bytes:
    return extended(2, struct.pack("<Q", address))


END = extended(1, b"")
COPY = b"\x01"


def advance(count: int) -> bytes:
    return b"\x02" + uleb(count)


def line(delta: int) -> bytes:
    return b"\x03" + sleb(delta)


def inlined(caller: int, name: int) -> bytes:
    return extended(0x90, uleb(caller) + uleb(name))


NAMES = memoryview(b"\0_Z5innerv\0_Z5outerv\0")


def read(*programs: bytes, names: memoryview = NAMES) -> LineTable:
    return read_lines(memoryview(b"".join(programs)), names)


def test_a_small_table() -> None:
    table = read(
        program(
            at(0x1000), line(9), COPY,  # row 1: a.cu:10
            advance(16), line(10), COPY,  # row 2: a.cu:20, a call site
            advance(16), b"\x04\x02", line(-15), inlined(2, 1), COPY,  # row 3: b.cuh:5 in inner, called at row 2
            advance(16), inlined(3, 11), COPY,  # row 4: in outer, called at row 3
            advance(16), b"\x04\x01", inlined(0, 0), COPY,  # row 5: back in the kernel
            advance(16), END,
        )
    )  # fmt: skip
    a, b = "/src/a.cu", "/src/b.cuh"
    assert table.problem == ""
    assert table.chain(0xFFF) == []
    assert table.chain(0x1000) == table.chain(0x100F) == [InlineFrame(a, 10, "")]
    assert table.chain(0x1020) == [InlineFrame(b, 5, "_Z5innerv"), InlineFrame(a, 20, "")]
    assert table.chain(0x1030) == [
        InlineFrame(b, 5, "_Z5outerv"),
        InlineFrame(b, 5, "_Z5innerv"),
        InlineFrame(a, 20, ""),
    ]
    assert table.chain(0x104F) == [InlineFrame(a, 5, "")]
    assert table.chain(0x1050) == []
    assert table.lines(0x1010, 0x1030) == {(a, 20), (b, 5)}


def test_special_opcodes_and_two_sequences() -> None:
    # 10 + 14·2 + (3 + 5): two steps on, three lines down.
    table = read(
        program(at(0x100), bytes([10 + 28 + 8]), b"\x08", COPY, b"\x09\x10\0", COPY, END, at(0x50), line(1), COPY,
                inlined(1, 1), advance(4), COPY, advance(4), END)
    )  # fmt: skip
    assert [(row.address, row.line) for row in table.rows[:2]] == [(0x102, 4), (0x102 + 17, 4)]
    # Rows of the second sequence count from its own beginning.
    assert table.chain(0x54) == [InlineFrame("/src/a.cu", 2, "_Z5innerv"), InlineFrame("/src/a.cu", 2, "")]


def test_two_programs_keep_their_files_apart() -> None:
    one = program(at(0x100), COPY, advance(16), END, files=(b"one.cu",))
    two = program(at(0x200), COPY, advance(16), END, files=(b"/abs/two.cu",))
    table = read(one, two)
    assert table.chain(0x100)[0].file == "/src/one.cu"
    assert table.chain(0x200)[0].file == "/abs/two.cu"


def test_call_sites_that_point_forward_end_the_chain() -> None:
    table = read(program(at(0), inlined(1, 1), COPY, inlined(9, 1), advance(4), COPY, advance(4), END))
    assert len(table.chain(0)) == 1
    assert len(table.chain(4)) == 1


def test_long_chains_end() -> None:
    rows = [inlined(n, 1) + advance(4) + COPY for n in range(1, 500)]
    table = read(program(at(0), COPY, *rows, END))
    assert 0 < len(table.chain(4 * 499)) <= 64


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", ""),
        (bytes(10), ""),
        (bytes(11), "truncated"),
        (struct.pack("<I", 0xFFFFFFFF) + bytes(20), "truncated"),
        (struct.pack("<IHI", 20, 5, 0) + bytes(20), "version 5"),
        (program(b"\0\0"), "damaged"),
        (program(b"\0\x7f\x02"), "damaged"),
        (program(b"\x02" + b"\x80" * 30), "damaged"),
        (program(b"\x09\x01"), "damaged"),
        (program(at(0x100), COPY, at(0x50), COPY, END), "order"),
    ],
)
def test_damaged_tables_say_so(data: bytes, problem: str) -> None:
    table = read(data)
    assert problem in table.problem
    assert bool(problem) == bool(table.problem)
    assert table.chain(0x100) == []


def test_rows_are_bounded() -> None:
    """Three million rows in 3 MB: read up to the limit, in little time and memory."""
    data = program(at(0), bytes([10 + 14 + 5]) * (MAX_ROWS * 2), END)
    started = time.process_time()
    table = read(data)
    assert time.process_time() - started < 5 * slowdown()
    assert len(table.rows) == MAX_ROWS
    assert "rows" in table.problem
    assert table.chain(1000) == [InlineFrame("/src/a.cu", 1, "")]


def test_file_names_are_bounded() -> None:
    tracemalloc.start()
    started = time.process_time()
    table = read(program(END, files=(b"x",) * 70_000))
    assert "damaged" in table.problem
    long = read(program(at(0), COPY, advance(1), END, files=(b"y" * 3_000_000,)))
    assert len(long.chain(0)[0].file) < 20_000
    assert time.process_time() - started < 5 * slowdown()
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_many_sequences_end_in_time() -> None:
    """One sequence per row, and a lookup for each: what a hostile table can do at most."""
    data = program(*(at(16 * n) + COPY + advance(16) + END for n in range(60_000)))
    started = time.process_time()
    table = read(data)
    for n in range(2_000):
        assert table.chain(16 * (59_999 - n))
    assert time.process_time() - started < 5 * slowdown()


@given(st.binary(max_size=300))
def test_any_program_ends(body: bytes) -> None:
    table = read(program(body))
    for row in table.rows[:5]:
        table.chain(row.address)
    table.lines(0, 1 << 64)


def corpus_line_sections() -> list[bytes]:
    found = []
    for folder in dump_folders()[:6]:
        dump = CoreDump(load_dump(folder).data)
        for module in dump.modules:
            image = dump.image(module)
            if len(image) and len(section := Cubin(image).section(".debug_line")) and len(section) < 20_000:
                found.append(bytes(section))
    assert found
    return found


@given(st.data())
def test_mutated_tables_never_raise(data: st.DataObject) -> None:
    section = bytearray(data.draw(st.sampled_from(corpus_line_sections())))
    for _ in range(data.draw(st.integers(1, 8))):
        position = data.draw(st.integers(0, len(section) - 1))
        section[position] = data.draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0x90, 0xFF]))
    cut = data.draw(st.integers(0, len(section)))
    table = read_lines(memoryview(bytes(section[: cut or None])), NAMES)
    for low, high, _, _ in table.sequences[:20]:
        table.chain(low)
        table.chain(high - 1)

"""The core-dump reader on recorded dumps, on older and newer layouts, and on damaged ones."""

from __future__ import annotations

import contextlib
import random
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import slowdown
from cuwhy.case import open_case
from cuwhy.diagnosing import conclude, read_coredump
from cuwhy.model.errors import InputError
from cuwhy.read.coredump import SHT_BLOCKS, SHT_LANES, SHT_SMS, SHT_WARPS, CoreDump, looks_like_coredump
from cuwhy.read.elf import Elf, Section
from cuwhy.read.groups import MAX_SAMPLED, exception_groups, sampled
from cuwhy.read.slim import slim_coredump
from cuwhy.report.json import render as render_json
from cuwhy.report.text import render

CORPUS = Path(__file__).parent.parent.parent / "corpus"
_HEADER = 64
_ROW = struct.Struct("<IIQQQQIIQQ")


def dump_of(case: str) -> bytes:
    with open_case(CORPUS / case / "evidence.cuwhy") as opened:
        return opened.read("core.nvcudmp")


OOB = "memory/global-out-of-bounds/bad_starter_oob"
MISALIGNED = "memory/misaligned-access/bad_starter_misaligned"
SPIN = "synchronization/endless-spin/bad_starter_spin"
SMALL = [MISALIGNED, SPIN, "memory/stack-overflow/bad_starter_stack", "execution/trap/bad_starter_trap"]


def rebuilt(data: bytes, change: Callable[[Section, bytes], tuple[Section, bytes]]) -> bytes:
    """Write a dump anew with every section passed through ``change``."""
    elf = Elf(data, "x")
    body, rows = bytearray(_HEADER), []
    for index in range(len(elf.sections)):
        section = elf.sections[index]
        if index:
            section, content = change(section, bytes(elf.content(index)))
            section = section._replace(offset=len(body), size=len(content))
            body += content + bytes(-len(content) % 8)
        rows.append(section)
    header = bytearray(data[:_HEADER])
    struct.pack_into("<Q", header, 40, len(body))
    body[:_HEADER] = header
    return bytes(body) + b"".join(_ROW.pack(*row) for row in rows)


def diagnosed(data: bytes) -> str | None:
    facts, notes = read_coredump(data, "x")
    diagnosis = conclude(facts, (), notes)
    assert render(diagnosis, verbose=True)
    assert render_json(diagnosis)
    return diagnosis.primary.cause.name if diagnosis.primary is not None else None


def test_tables_of_a_known_program() -> None:
    """misc.cu: misaligned<<<1, 32>>>((char*)f, f), the first launch, on an H200."""
    dump = CoreDump(dump_of(MISALIGNED))
    assert [(d.name, d.architecture, d.sm_count) for d in dump.devices] == [("NVIDIA H200", "sm_90", 132)]
    assert (dump.driver, dump.cuda) == ("580.159", "13.0")
    (grid,) = dump.grids
    assert (grid.id, grid.grid, grid.block, grid.cluster) == (1, (1, 1, 1), (32, 1, 1), (0, 0, 0))
    first, second = struct.unpack("<QQ", grid.parameters)
    assert first == second
    (block,) = dump.blocks
    (warp,) = block.warps
    assert [lane.thread for lane in warp.lanes] == [(x, 0, 0) for x in range(32)]
    assert {lane.exception for lane in warp.lanes} == {6}
    assert warp.error_pc is not None
    assert len(dump.registers(warp, warp.lanes[0])) >= 8


def test_grid_of_64_blocks() -> None:
    dump = CoreDump(dump_of(OOB))
    assert sorted(b.index for b in dump.blocks) == [(x, 0, 0) for x in range(64)]
    assert sum(len(b.warps) for b in dump.blocks) == 256
    (group,) = exception_groups(dump)
    assert len(group.lanes) == 2048
    assert (group.exception, group.others) == (14, (7,))
    assert len(sampled(group, dump)) == MAX_SAMPLED


@pytest.mark.parametrize("case", SMALL)
def test_rows_of_an_older_and_of_a_newer_driver(case: str) -> None:
    """Fields that a driver appends later may be missing, or more than this version knows."""
    data = dump_of(case)
    cause = diagnosed(data)
    grown = {SHT_BLOCKS: 8, SHT_WARPS: 16, SHT_LANES: 24, SHT_SMS: 32}
    shrunk = {SHT_BLOCKS: 40, SHT_WARPS: 48, SHT_LANES: 48, SHT_SMS: 40}

    def more(section: Section, content: bytes) -> tuple[Section, bytes]:
        size, extra = section.entry_size, grown.get(section.type)
        if extra is None:
            return section, content
        rows = [content[i : i + size] + b"\xee" * extra for i in range(0, len(content), size)]
        return section._replace(entry_size=size + extra), b"".join(rows)

    def less(section: Section, content: bytes) -> tuple[Section, bytes]:
        size, keep = section.entry_size, shrunk.get(section.type)
        if keep is None:
            return section, content
        rows = [content[i : i + size][:keep] for i in range(0, len(content), size)]
        return section._replace(entry_size=keep), b"".join(rows)

    assert diagnosed(rebuilt(data, more)) == cause
    assert diagnosed(rebuilt(data, less)) == cause


def test_more_sections_than_the_header_can_count() -> None:
    data = bytearray(dump_of(MISALIGNED))
    elf = Elf(bytes(data), "x")
    rows = [_ROW.pack(*row) for row in elf.sections]
    count = 70_000
    names = struct.unpack_from("<H", data, 62)[0]
    rows[0] = _ROW.pack(0, 0, 0, 0, 0, count, names, 0, 0, 0)
    rows += [_ROW.pack(0, 1, 0, 0, 0, 0, 0, 0, 0, 0)] * (count - len(rows))
    struct.pack_into("<Q", data, 40, len(data))
    struct.pack_into("<HH", data, 60, 0, 0xFFFF)
    assert diagnosed(bytes(data) + b"".join(rows)) == "memory/misaligned-access"


@pytest.mark.parametrize("case", SMALL)
def test_slimming_again_changes_nothing(case: str) -> None:
    data = dump_of(case)
    slim = slim_coredump(data)
    assert slim == data, "the corpus holds slimmed dumps"


def test_slimming_drops_what_no_lane_is_in() -> None:
    """Modules and memory that a diagnosis does not read go; the diagnosis stays."""
    data = dump_of(MISALIGNED)
    elf = Elf(data, "x")
    parents = [i for i, s in enumerate(elf.sections) if s.type == 0x80000010]
    images = [s.info for s in elf.sections if s.type == 0x80000007]
    absent = next(i for i in range(64) if i not in images)
    extra = Section(0, 0x80000007, 0, 0, len(data), 4096, parents[0], absent, 0, 0)
    memory = Section(0, 0x80000002, 0, 0x7F0000000000, len(data), 4096, 0, 0, 0, 0)
    rows = b"".join(_ROW.pack(*row) for row in (*elf.sections, extra, memory))
    grown = bytearray(data + bytes(4096) + rows)
    struct.pack_into("<Q", grown, 40, len(data) + 4096)
    struct.pack_into("<H", grown, 60, len(elf.sections) + 2)
    slim = slim_coredump(bytes(grown))
    assert len(Elf(slim, "x").sections) == len(elf.sections)
    assert diagnosed(slim) == diagnosed(bytes(grown)) == "memory/misaligned-access"


@pytest.mark.parametrize("case", SMALL)
def test_truncated_anywhere(case: str) -> None:
    data = dump_of(case)
    for size in [*range(0, 200, 7), *range(200, len(data), max(1, len(data) // 60))]:
        with pytest.raises(InputError):
            read_coredump(data[:size], "x")


@pytest.mark.parametrize("seed", range(12))
def test_damage(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flipped bytes, huge and circular section fields: facts or one InputError, quickly."""
    monkeypatch.setenv("CUWHY_NVDISASM", "/nonexistent")
    chance = random.Random(seed)
    original = dump_of(chance.choice(SMALL))
    table = struct.unpack_from("<Q", original, 40)[0]
    count = struct.unpack_from("<H", original, 60)[0]
    huge = (0, 1, 8, 0xFFFF, 0xFFFFFFFF, 2**63, 2**64 - 1)
    for _ in range(40):
        data = bytearray(original)
        for _ in range(chance.randrange(1, 9)):
            if chance.random() < 0.5:
                data[chance.randrange(len(data))] = chance.randrange(256)
            else:
                row = table + _ROW.size * chance.randrange(count)
                offset, form = chance.choice(
                    [(4, "<I"), (16, "<Q"), (24, "<Q"), (32, "<Q"), (40, "<I"), (44, "<I"), (56, "<Q")]
                )
                value = chance.choice((*huge, chance.randrange(count), 0x80000000 + chance.randrange(1, 25)))
                struct.pack_into(
                    form, data, row + offset, value & (0xFFFFFFFF if form == "<I" else 2**64 - 1)
                )
        start = time.process_time()
        with contextlib.suppress(InputError):
            diagnosed(bytes(data))
        assert time.process_time() - start < 5 * slowdown()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.binary(max_size=400))
def test_any_bytes(data: bytes) -> None:
    header = dump_of(MISALIGNED)[:_HEADER]
    for content in (data, header + data):
        try:
            CoreDump(content)
        except InputError:
            continue
    assert looks_like_coredump(header)
    assert not looks_like_coredump(data)


_EXTREME = """
import resource, sys
sys.path.insert(0, "tests")
from tests.read.test_coredump import *
kind, times = int(sys.argv[1]), int(sys.argv[2])
data = rebuilt(dump_of(MISALIGNED), lambda s, c: (s, c * times) if s.type == kind else (s, c))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.process_time()
try:
    diagnosed(data)
except InputError:
    pass
print(time.process_time() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "times"),
    [
        (SHT_LANES, 20_000),
        (SHT_WARPS, 200_000),
        (SHT_BLOCKS, 200_000),
        (SHT_SMS, 2_000),
        (0x8000000C, 50_000),
        (0x80000010, 500_000),
    ],
    ids=["lanes", "warps", "blocks", "sms", "grids", "modules"],
)
def test_tables_of_absurd_length(kind: int, times: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EXTREME, str(kind), str(times)],
        cwd=CORPUS.parent, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    seconds, megabytes = map(float, done.stdout.split())
    assert seconds < 5
    assert megabytes < 300

"""SASS: the opcode table, what instructions write, where they lead, and a tool that misbehaves."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import DumpCase
from cuwhy.diagnosing import read_coredump
from cuwhy.locate import sass
from cuwhy.locate.flow import ANYTHING, Flow, destinations
from cuwhy.locate.places import CodeMap
from cuwhy.locate.sass import (
    Disassembly,
    Listing,
    access_of,
    find_nvdisasm,
    format_listing,
    opcode_of,
    parse_instruction,
    parse_listing,
)
from cuwhy.model.errors import ToolMissing
from cuwhy.model.facts import Fault
from cuwhy.read.coredump import CoreDump
from cuwhy.read.cubin import Cubin

WIDE = Path(__file__).parent / "data" / "wide.cu"
ARCHITECTURES = (80, 90, 100, 120)
posix = pytest.mark.skipif(os.name != "posix", reason="the stand-ins for nvdisasm are shell scripts")


# -- the opcode table -------------------------------------------------------------------


def check_opcodes(code: bytes | memoryview, listing: Listing) -> int:
    """Check every opcode that the table knows, and that it knows those that matter."""
    known = 0
    for instruction in listing.instructions:
        told = opcode_of(code, instruction.offset)
        # One encoding is printed as RED up to sm_89 and as REDG behind.
        assert told in ("", instruction.base) or (told, instruction.base) == ("RED", "REDG"), instruction.text
        known += bool(told)
        if instruction.base in (
            "LDG",
            "STG",
            "LDS",
            "STS",
            "LDL",
            "STL",
            "BAR",
            "BRA",
            "BSYNC",
            "EXIT",
            "CALL",
            "BPT",
        ):
            assert told, instruction.text
    return known


def test_opcodes_in_the_corpus(dump_case: DumpCase) -> None:
    """The mnemonic from the bits is the one in the SASS that the case carries."""
    dump = CoreDump(dump_case.data)
    checked = 0
    for module in dump.modules:
        image = dump.image(module)
        cubin = Cubin(image) if len(image) else None
        for symbol, text in dump_case.listings.items():
            function = cubin.function(symbol) if cubin is not None else None
            listing = parse_listing(text)
            if function is not None and listing is not None and len(function.text):
                checked += check_opcodes(function.text, listing)
    assert checked > 0 or not dump_case.listings


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_opcodes_of_many_kernels(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    path = compiled(WIDE, sm)
    cubin = Cubin(path.read_bytes())
    known = 0
    for name, listing in disassembled(path).items():
        function = cubin.function(name)
        assert function is not None
        section = cubin.section(f".text.{name}")
        known += check_opcodes(section, listing)
    assert known > 400


def test_opcode_outside_the_code() -> None:
    assert opcode_of(b"\x81\x79" + bytes(14), 0) == "LDG"
    for offset in (-16, -1, 1, 16, 1 << 70):
        assert opcode_of(b"\x81\x79" + bytes(14), offset) == ""
    assert opcode_of(b"", 0) == ""


# -- what an instruction writes ---------------------------------------------------------


def life_ranges(nvdisasm: str, path: Path) -> Iterator[tuple[str, set[str]]]:
    """Yield every instruction with the registers that ``nvdisasm -plr`` says it assigns."""
    text = subprocess.run([nvdisasm, "-c", "-plr", path], check=True, capture_output=True, text=True).stdout
    kinds = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}
    heads = ""
    columns: list[tuple[int, int, str]] = []
    for line in text.splitlines():
        body, bar, cells = line.partition("// |")
        if not bar:
            continue
        if "GPR" in cells:
            heads = cells
        elif re.match(r"\s+#\s", cells):
            names = [name.strip() for name in heads.strip().strip("|").split("|")]
            edges = [0, *(n + 1 for n, char in enumerate(cells) if char == "|")]
            columns = [
                (start + found.start(), start + found.end(), kinds[names[n]] + found[0])
                for n, (start, end) in enumerate(pairwise(edges))
                for found in re.finditer(r"\d+", cells[start:end])
            ]
        elif found := re.match(r"\s*/\*([0-9a-f]+)\*/\s+(.*?)\s*;", body):
            # "^" assigns, "x" reads and assigns.
            yield found[2], {name for start, end, name in columns if cells[start:end].strip() in ("^", "x")}


@pytest.mark.slow
@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_no_write_is_overlooked(sm: int, compiled: Callable[[Path, int], Path], nvdisasm: str) -> None:
    """A register that is thought whole and is not would make a wrong address."""
    bases = set()
    for text, written in life_ranges(nvdisasm, compiled(WIDE, sm)):
        instruction = parse_instruction(0, text)
        told = destinations(instruction)
        assert ANYTHING in told or written <= told, (text, written, told)
        bases.add(instruction.base)
    assert len(bases) > 80


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_few_writes_are_made_up(sm: int, compiled: Callable[[Path, int], Path], nvdisasm: str) -> None:
    """Claiming too much is safe, but only rare instructions may do it, or nothing could be recomputed."""
    generous = {
        "HMMA",
        "IMMA",
        "DMMA",
        "TEX",
        "TLD",
        "TLD4",
        "SULD",
        "I2F",
        "F2F",
        "F2I",
        "VOTE",
        "VOTEU",
        "R2P",
    }
    for text, written in life_ranges(nvdisasm, compiled(WIDE, sm)):
        instruction = parse_instruction(0, text)
        told = destinations(instruction)
        if instruction.base != "CALL" and instruction.base not in generous:
            assert told == written, text


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("IADD3 R8, P0, P1, R2, R4, R5", {"R8", "P0", "P1"}),
        ("IADD3.X R9, R2, R3, RZ, P0, P1", {"R9"}),
        ("ISETP.GE.AND P1, PT, R2, R3, P2", {"P1"}),
        ("ISETP.GE.AND P1, P3, R2, R3, P2", {"P1", "P3"}),
        ("LDG.E.128.CONSTANT R4, desc[UR4][R2.64]", {"R4", "R5", "R6", "R7"}),
        ("LDG.E.U8 R4, desc[UR4][R2.64]", {"R4"}),
        ("LDG.E.LTC128B R4, desc[UR4][R2.64]", {"R4"}),
        ("LDG.E.ENL2.256 R4, R12, desc[UR4][R2.64]", {f"R{n}" for n in range(4, 20)}),
        ("STG.E.64 desc[UR4][R2.64], R8", set()),
        ("RED.E.ADD.STRONG.GPU desc[UR4][R2.64], R8", set()),
        ("LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64]", set()),
        ("SHFL.BFLY P2, R4, R5, 0x1, 0x1f", {"P2", "R4"}),
        ("R2P PR, R0, 0x7f", {f"P{n}" for n in range(8)}),
        ("BMOV.32.CLEAR R16, B6", {"R16"}),
        ("BMOV.32 B6, R16", set()),
        ("CS2R R4, SRZ", {"R4", "R5"}),
        ("CS2R.32 R4, SR_CLOCKLO", {"R4"}),
        ("MOV RZ, R4", set()),
        ("UMOV UR4, URZ", {"UR4"}),
        ("HGMMA.64x256x16.F32 R24, gdesc[UR8], R24", {"*"}),
        ("CALL.ABS.NOINC R14", {"*"}),
        ("NEVERSEEN R1, R2", {"*"}),
        ("", {"*"}),
    ],
)
def test_destinations(text: str, written: set[str]) -> None:
    assert destinations(parse_instruction(0, text)) == written


# -- where control leads -----------------------------------------------------------------


@pytest.mark.parametrize("sm", ARCHITECTURES)
def test_branches_lead_where_they_say(
    sm: int, compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """Every direct branch reaches its target; only a lone unconditional one does not fall through."""
    seen = 0
    for listing in disassembled(compiled(WIDE, sm)).values():
        flow = Flow(listing)
        for position, instruction in enumerate(listing.instructions):
            if instruction.base != "BRA" or instruction.target is None:
                continue
            seen += 1
            target = listing.index(instruction.target)
            assert position in flow.before(target)
            alone = (
                not instruction.predicate and len(instruction.operands) == 1 and instruction.opcode == "BRA"
            )
            assert (position in flow.before(position + 1)) != (alone and target != position + 1)
            assert instruction.target in flow.targets or target == position + 1
    assert seen > 50


def test_reconvergence_leads_to_its_bssy() -> None:
    lines = ("BSSY B0, 0x40", "@P0 BRA 0x30", "BSYNC B0", "BSYNC B0", "NOP", "EXIT")
    flow = Flow(Listing(tuple(parse_instruction(16 * n, line) for n, line in enumerate(lines))))
    # The second BSYNC stands right before the place that BSSY names; the first one jumps there.
    assert set(flow.before(4)) == {2, 3}


# -- text -----------------------------------------------------------------------------------


def test_corpus_listings_survive_a_round_trip(dump_case: DumpCase) -> None:
    for text in dump_case.listings.values():
        listing = parse_listing(text)
        assert listing is not None
        assert format_listing(listing) == text
        assert parse_listing(format_listing(listing)) == listing
        assert [i.offset for i in listing.instructions] == list(range(0, 16 * len(listing.instructions), 16))


@given(st.text(alphabet="/*0123456789abcdefR@!P .,;[]()\n\x00é", max_size=400))
def test_any_text_is_a_listing_or_none(text: str) -> None:
    listing = parse_listing(text)
    if listing is not None:
        again = parse_listing(format_listing(listing))
        assert again is not None
        assert again.instructions[0].offset == listing.instructions[0].offset


@given(st.text(max_size=100))
def test_any_text_is_an_instruction(text: str) -> None:
    instruction = parse_instruction(0, text)
    destinations(instruction)
    access_of(instruction)
    _ = instruction.target, instruction.modifiers


@pytest.mark.parametrize(
    ("text", "kind", "space", "width"),
    [
        ("LDG.E R4, desc[UR4][R2.64]", "load", "global", 4),
        ("LDG.E.64.CONSTANT R4, desc[UR4][R2.64]", "load", "global", 8),
        ("STS.U8 [R2], R4", "store", "shared", 1),
        ("LDL.128 R4, [R1]", "load", "local", 16),
        ("ST.E.U16 desc[UR4][R2.64], R4", "store", "generic", 2),
        ("ATOMG.E.CAS.64.STRONG.GPU PT, R4, [R2], R6, R8", "atomic", "global", 8),
        ("REDG.E.ADD.F64.RN.STRONG.GPU desc[UR4][R2.64], R4", "reduction", "global", 8),
        ("REDG.E.ADD.F32x2.RN.STRONG.GPU desc[UR4][R2.64], R4", "reduction", "global", 8),
        ("REDG.E.ADD.F32x4.RN.STRONG.GPU desc[UR4][R2.64], R4", "reduction", "global", 16),
        ("LDSM.16.M88.4 R4, [R2]", "load", "shared", 16),
        ("LDGSTS.E.BYPASS.128 [R7], desc[UR4][R2.64]", "load", "global", 16),
    ],
)
def test_accesses(text: str, kind: str, space: str, width: int) -> None:
    access = access_of(parse_instruction(0, text))
    assert access is not None
    assert (access.kind, access.space, access.width) == (kind, space, width)
    assert access_of(parse_instruction(0, "IADD3 R1, R2, R3, RZ")) is None


# -- the tool ---------------------------------------------------------------------------------


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


@posix
def test_where_nvdisasm_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = script(tmp_path / "mine", "exit 0")
    (tmp_path / "site/nvidia/cu12/bin").mkdir(parents=True)
    (tmp_path / "site/nvidia/cu13/bin").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    old = script(tmp_path / "site/nvidia/cu12/bin/nvdisasm", "exit 0")
    new = script(tmp_path / "site/nvidia/cu13/bin/nvdisasm", "exit 0")
    on_path = script(tmp_path / "bin/nvdisasm", "exit 0")
    monkeypatch.setenv("CUWHY_NVDISASM", str(chosen))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "nowhere")])
    assert find_nvdisasm() == str(chosen)
    monkeypatch.delenv("CUWHY_NVDISASM")
    assert find_nvdisasm() == str(new)
    new.unlink()
    assert find_nvdisasm() == str(old)
    old.unlink()
    assert find_nvdisasm() == str(on_path)
    on_path.unlink()
    monkeypatch.setattr(sass.shutil, "which", lambda name, path=None: None)
    with pytest.raises(ToolMissing, match=r"cuwhy\[sass\]"):
        find_nvdisasm()
    monkeypatch.setenv("CUWHY_NVDISASM", str(tmp_path / "gone"))
    with pytest.raises(ToolMissing, match="CUWHY_NVDISASM"):
        find_nvdisasm()
    # An empty setting is a wrong one, not a request to look elsewhere.
    monkeypatch.setenv("CUWHY_NVDISASM", "")
    with pytest.raises(ToolMissing, match="CUWHY_NVDISASM"):
        find_nvdisasm()


MISBEHAVIOUR = {
    "fails": "exit 1",
    "is killed": "kill -9 $$",
    "prints nothing": "exit 0",
    "prints garbage": "head -c 100000 /dev/urandom",
    "prints text": "echo 'nvdisasm fatal: unsupported architecture'",
    "prints 100 MB": "head -c 100000000 /dev/zero",
    "prints for ever": "exec yes '/*0000*/ NOP ;'",
    "complains for ever": "exec yes >&2",
    "sleeps": "sleep 60",
    "leaves a child": "sleep 60 & exit 1",
    "is no program": None,
}


@posix
@pytest.mark.slow
@pytest.mark.parametrize("what", MISBEHAVIOUR, ids=lambda w: w.replace(" ", "-"))
def test_a_tool_that_misbehaves_costs_a_note(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump_named: Callable[[str], DumpCase]
) -> None:
    """The dump is read all the same: exception, line and threads, without SASS, and a note says so."""
    body = MISBEHAVIOUR[what]
    tool = script(tmp_path / "nvdisasm", body or "")
    if body is None:
        tool.write_bytes(b"\x7fELF not really")
    monkeypatch.setenv("CUWHY_NVDISASM", str(tool))
    monkeypatch.setattr("cuwhy.locate.places.SECONDS", 1.0)
    started = time.monotonic()
    facts, notes = read_coredump(dump_named("bad_starter_oob").data, "core")
    assert time.monotonic() - started < 4.0
    (fault,) = (fact for fact in facts if isinstance(fact, Fault))
    assert fault.place is not None
    assert fault.place.short == "oob.cu:5"
    assert fault.place.sass is None
    assert fault.address is None
    assert fault.opcode == "LDG"
    assert any("nvdisasm" in note or "SASS" in note for note in notes)


@posix
def test_temporary_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dump_named: Callable[[str], DumpCase]
) -> None:
    monkeypatch.setattr(sass.tempfile, "tempdir", str(tmp_path))
    data = dump_named("bad_starter_oob").data
    read_coredump(data, "core")
    assert list(tmp_path.iterdir()) == []
    Disassembly(bytes(64), 90).cancel()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(sass.tempfile, "tempdir", str(tmp_path / "gone"))
    facts, notes = read_coredump(data, "core")
    assert any("temporary" in note for note in notes)
    assert any(isinstance(fact, Fault) for fact in facts)


def test_disassembly_of_a_function_is_that_of_its_module(
    compiled: Callable[[Path, int], Path], disassembled: Callable[[Path], dict[str, Listing]]
) -> None:
    """What the product runs, ``nvdisasm -b`` on a function's bytes, prints what ``nvdisasm -c`` does."""
    path = compiled(WIDE, 90)
    cubin = Cubin(path.read_bytes())
    for name, whole in disassembled(path).items():
        if "simd" not in name and "locals" not in name:
            continue
        function = cubin.function(name)
        assert function is not None
        listing = Disassembly(function.text, cubin.sm).listing()
        assert listing is not None
        assert [i.text for i in listing.instructions] == [i.text for i in whole.instructions]


def test_large_function_is_cut_around_the_place(monkeypatch: pytest.MonkeyPatch, nvdisasm: str) -> None:
    monkeypatch.setattr(sass, "MAX_WINDOW", 64)
    nop = bytes.fromhex("18790000000000000000000000c00f00")
    listing = Disassembly(nop * 100, 90, around=800).listing()
    assert listing is not None
    assert [i.offset for i in listing.instructions] == [752, 768, 784, 800]
    assert listing.at(800) is not None
    assert listing.at(736) is None
    assert Flow(listing).partial


def test_code_map_closes_what_nobody_waited_for(dump_named: Callable[[str], DumpCase]) -> None:
    dump = CoreDump(dump_named("bad_starter_oob").data)
    code = CodeMap(dump)
    code.start_listing(dump.grids[0].entry)
    code.close()
    assert code.notes == []

"""The hook's file: read strictly, and joined with the addresses of the dump of the same process."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cuwhy import diagnose
from cuwhy.locate.tensors import describe, whereabouts, with_tensors
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.errors import InputError
from cuwhy.model.facts import Address, Argument, BlockFact, Fault, Launch, Origin, TensorFact, Threads
from cuwhy.read.recognize import recognize
from cuwhy.read.tensors import MAX_BYTES, MemoryMap, read_tensors
from cuwhy.report.json import to_dict
from cuwhy.report.text import render

ROOT = Path(__file__).parent.parent.parent
# The allocator's part is what a real PyTorch gave after the fault of this very dump.
FILE = Path(__file__).parent / "data" / "tensors.crash.json"
CASE = ROOT / "corpus/memory/global-out-of-bounds/bad_starter_crash/evidence.cuwhy"
GOOD: dict[str, Any] = json.loads(FILE.read_bytes())


def read(content: object) -> MemoryMap:
    return read_tensors(json.dumps(content).encode(), "t.json")


def changed(*path: str | int, to: object) -> dict[str, Any]:
    content = copy.deepcopy(GOOD)
    at: Any = content
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = to
    return content


def test_it_is_recognized_and_fits_the_published_schema() -> None:
    assert recognize(FILE.read_bytes()) == "tensors"
    schema = json.loads((ROOT / "docs" / "tensors.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(GOOD)


def test_what_is_read() -> None:
    memory = read(GOOD)
    assert (memory.process, memory.rank, memory.complete) == (71, None, True)
    (x,) = memory.tensors
    assert (x.text, x.pointer, x.bytes) == ("`x` float32 [256, 256]", 0x7F67AFE40400, 1 << 18)
    assert [len(memory.blocks), len(memory.freed)] == [8, 6]
    target = memory.target(0x7F67AFE40400 + 5)
    assert target is not None
    assert target.tensor == x
    assert target.block is not None
    assert (target.block.size, target.block.in_use) == (1 << 18, True)
    assert target.block.allocated[0].short == "crash.py:13"
    assert memory.target(0x1000) is None
    # PyTorch's gap between what was asked for and the block's end belongs to no tensor.
    assert memory.target(0x7F67AFE40400 + (1 << 18)) != target


@pytest.mark.parametrize(
    ("shape", "stride", "bytes"),
    [
        ([], [], 4),
        ([0, 5], [5, 1], 0),
        ([4, 3], [1, 4], 48),
        ([4, 3], [100, 1], 4 * 303),
        ([7, 3], [0, 1], 12),
        ([3], [-1], 4),
    ],
)
def test_the_extent_of_views(shape: list[int], stride: list[int], bytes: int) -> None:
    content = changed("tensors", 0, "shape", to=shape)
    content["tensors"][0]["stride"] = stride
    assert read(content).tensors[0].bytes == bytes


BROKEN = [
    ("version", 2),
    ("format", "x"),
    ("pid", -1),
    ("pid", True),
    ("frames", {}),
    ("frames", [["a", 1]]),
    ("frames", [[1, 1, "f"]]),
    ("tensors", None),
    ("tensors", [None]),
    ("stacks", [[99999]]),
    ("stacks", [[0] * 65]),
    ("segments", []),
    ("blocks", [1]),
    ("freed", "x"),
    ("rank", "0"),
    ("message", "x" * 401),
    ("history", None),
]


@pytest.mark.parametrize(("key", "value"), BROKEN)
def test_what_breaks_the_schema_is_one_line(key: str, value: object) -> None:
    with pytest.raises(InputError, match=r"t\.json: "):
        read(changed(key, to=value))


@pytest.mark.parametrize(
    ("key", "value"),
    [("pointer", "7f"), ("pointer", 5), ("pointer", "0x" + "f" * 17), ("shape", [1]), ("shape", [-1, 1]),
     ("stride", [1 << 64, 1]), ("itemsize", 1.5), ("frame", -1), ("name", 5), ("device", None)],
)  # fmt: skip
def test_a_broken_tensor(key: str, value: object) -> None:
    with pytest.raises(InputError):
        read(changed("tensors", 0, key, to=value))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"format": "cuwhy-tensors", "version": 1}',
        b'{"format": "cuwhy-tensors", "version": 1, "pid": ' + b"9" * 5000 + b"}",
        b'{"format": "cuwhy-tensors", "version": NaN}',
        b'{"format": "cuwhy-tensors", "x": ' + b"[" * 100_000,
        b'{"format": "cuwhy-tensors\xff',
        b" " * (MAX_BYTES + 1),
    ],
)
def test_hostile_bytes(data: bytes) -> None:
    with pytest.raises(InputError):
        read_tensors(data, "t.json")


def paths_of(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path] * bool(path) + [p for key, item in inner for p in paths_of(item, (*path, key))]


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(paths_of(GOOD)), anything)
def test_any_value_anywhere_is_read_or_refused(path: tuple[str | int, ...], value: object) -> None:
    try:
        memory = read(changed(*path, to=value))
    except InputError:
        return
    for address in (0, 0x7F67AFE40400, 1 << 63):
        target = memory.target(address)
        assert target is None or isinstance(describe(target), str)


# -- joined with the dump ---------------------------------------------------------------


def joined() -> Diagnosis:
    return diagnose([CASE, FILE])


def test_arguments_of_the_real_dump_get_names() -> None:
    diagnosis = joined()
    finding = diagnosis.primary
    assert finding is not None
    assert finding.launch is not None
    first, second, third, count = finding.launch.arguments[:4]
    assert second.target is not None
    assert describe(second.target) == (
        "`x` float32 [256, 256] (block of 262,144 bytes, allocated at crash.py:13 in main)"
    )
    assert third.target is not None
    assert describe(third.target) == "block of 262,144 bytes, allocated at crash.py:9 in forward"
    # The error was noticed ten lines later: what the first pointer belonged to had been freed by then.
    assert first.target is not None
    assert "was free when the error was noticed" in describe(first.target)
    assert "262,144 bytes, allocated at crash.py:8 in forward" in describe(first.target)
    assert count.target is None


def test_screen_and_json_say_it() -> None:
    diagnosis = joined()
    short = " ".join(render(diagnosis).split())
    assert "tensor computed from a pointer to a block of 2,097,152 bytes that was free" in short
    assert "in no memory of PyTorch's allocator" in short
    text = " ".join(render(diagnosis, verbose=True).split())
    assert "`x` float32 [256, 256] (block of 262,144 bytes, allocated at crash.py:13 in main)" in text
    data = to_dict(diagnosis)
    schema = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    argument = data["findings"][0]["launch"]["arguments"][1]
    assert (
        argument["target"]["tensor"]["pointer"] == argument["target"]["block"]["address"] == "0x7f67afe40400"
    )
    assert {f["type"] for f in data["facts"]} >= {"TensorFact", "BlockFact"}


def test_another_process_has_other_addresses() -> None:
    """Two maps, none of the dump's process: the names would be a guess."""
    launch = Launch(
        "k", "k", "k", arguments=(Argument(0, 0, 8, "float*", value=0x7F67AFE40400, is_pointer=True),),
        origin=Origin("core.5.nvcudmp"),
    )  # fmt: skip
    other, own = replace(read(GOOD), process=6), replace(read(GOOD), process=5)
    (named, *_) = with_tensors([launch], [other, own])
    assert isinstance(named, Launch)
    assert named.arguments[0].target is not None
    assert with_tensors([launch], [other, replace(other, process=7)]) == [launch]


def memory_of(*blocks: BlockFact, tensors: tuple[TensorFact, ...] = ()) -> MemoryMap:
    return replace(read(GOOD), blocks=blocks, tensors=tensors, freed=(), _starts=[b.address for b in blocks])


def said(address: int, memory: MemoryMap, base: int = 0x10000, width: int = 4) -> str:
    launch = Launch("k", "k", "k", arguments=(Argument(0, 0, 8, "float*", value=base, is_pointer=True),))
    where = Address(address, "global", width, base=0)
    (fault, *_) = with_tensors([Fault(launch, 14, None, Threads(), address=where)], [memory])
    assert isinstance(fault, Fault)
    assert fault.address is not None
    return whereabouts(fault.address, fault.launch)


A = BlockFact(0x10000, 1024, 1000, "active_allocated", segment=0x10000, segment_size=4096)
B = BlockFact(0x10400, 1024, 1024, "active_allocated", segment=0x10000, segment_size=4096)
FREE = BlockFact(0x10800, 2048, 0, "inactive", segment=0x10000, segment_size=4096)
LATE = replace(FREE, state="active_pending_free")
X = TensorFact("x", None, (250,), (1,), "float32", 4, 0, 0x10000, 1000, 1000, "cuda:0")
W = TensorFact("w", None, (512,), (1,), "float16", 2, 0, 0x10400, 1024, 1024, "cuda:0")


@pytest.mark.parametrize(
    ("address", "text"),
    [
        (0x10000 + 1000, "0 bytes (0 elements) past the end of `x`, inside its own block"),
        (0x10400 + 8, "32 bytes (8 elements) past the end of `x`, inside `w` float16 [512] (block of 1,024 bytes)"),
        (0x10800, "1,048 bytes (262 elements) past the end of `x`, in a block of 2,048 bytes that was free when "
                  "the error was noticed"),
        (0x20000, "64,536 bytes (16,134 elements) past the end of `x`, in no memory of PyTorch's allocator"),
        (0xFFFC, "4 bytes (1 element) before the start of `x`, in no memory of PyTorch's allocator"),
        (0x10004, "inside `x` float32 [250] (block of 1,000 bytes)"),
    ],
)  # fmt: skip
def test_where_an_address_lies(address: int, text: str) -> None:
    assert said(address, memory_of(A, B, FREE, tensors=(X, W))) == text


def test_memory_without_a_name_is_measured_too() -> None:
    assert said(0x10400, memory_of(A, B)) == (
        "24 bytes (6 elements) past the end of what its pointer belongs to, computed from a pointer to a block of "
        "1,000 bytes, in a block of 1,024 bytes"
    )


def test_a_block_that_waits_for_another_stream_is_told_from_a_free_one() -> None:
    assert "waited for another stream" in said(0x10900, memory_of(LATE), base=0x10800)


def test_a_tensor_on_the_cpu_is_named_as_such() -> None:
    cpu = replace(X, name="mask", device="cpu", pointer=0x5000)
    assert said(0x5000, memory_of(A, tensors=(cpu,)), base=0x5000) == "inside `mask` float32 [250] on the CPU"

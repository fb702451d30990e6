"""The launch log of a case: hostile input gives one clear error or facts, nothing else."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuwhy.model.errors import InputError
from cuwhy.read.launchlog import MAX_BYTES, read_launchlog
from cuwhy.read.recognize import recognize

ROW = [1, "kernel", 1, 0, 1, 4096, 16, 77, 128, 3, 2, 1, 64, 2, 1, 0, 0, 0, 0, 12]
GOOD: dict[str, Any] = {
    "cuwhy_launchlog": 1,
    "process": 71,
    "counts": {"launches": 9, "memory": 1, "refused": 1, "lost": 0},
    "launches": [ROW],
    "refused": [[*ROW[:3], 1, *ROW[4:], {"registers": 84}]],
    "allocations": [[4096, 64, 1, 0, -1, 5, 9, 0]],
    "stacks": [[0, 1]],
    "frames": [[2, 3, 10], [0, 0, 0]],
    "names": ["", "_Z1kv", "forward", "/home/u/model.py"],
}


def dump(content: object) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()


def test_reads_what_it_says() -> None:
    assert recognize(dump(GOOD)) == "launchlog"
    log = read_launchlog(dump(GOOD), "x")
    (launch,), (refused,), (block,) = log.launches, log.refused, log.allocations
    assert (launch.number, launch.kernel, launch.grid, launch.block) == (1, "_Z1kv", (3, 2, 1), (64, 2, 1))
    assert launch.flags == ("early start",)
    assert (launch.frames[0].function, launch.frames[0].file, launch.frames[0].line) == (
        "forward", "/home/u/model.py", 10,
    )  # fmt: skip
    assert (launch.frames[1].file, launch.frames[1].line) == (None, None)
    assert (refused.record.code, refused.limit("registers"), refused.limit("sm_count")) == (1, 84, None)
    assert (block.address, block.size, block.freed, block.frames) == (4096, 64, 9, ())
    assert (log.process, log.launch_count) == (71, 9)


def paths(value: object, before: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    found = [before] if before else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += paths(item, (*before, key))
    return found


@pytest.mark.parametrize(
    "bad", [None, -2, 1 << 64, 1.5, True, "x" * 5000, [], {}, [[]], float("nan"), "\x1b[2J"]
)
@pytest.mark.parametrize("path", paths(GOOD), ids=str)
def test_any_value_replaced(path: tuple[Any, ...], bad: object) -> None:
    content = copy.deepcopy(GOOD)
    target: Any = content
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = bad
    message = problem_of(dump(content))
    assert "\n" not in message
    assert "\x1b" not in message


def problem_of(data: bytes) -> str:
    try:
        read_launchlog(data, "x")
    except InputError as error:
        return error.message
    return ""


@given(st.binary(max_size=200))
def test_any_bytes(tail: bytes) -> None:
    for data in (tail, dump(GOOD)[: len(tail) * 3] + tail):
        with pytest.raises(InputError):
            read_launchlog(data, "x")


def test_too_deep_and_too_large() -> None:
    for data in (b'{"cuwhy_launchlog":' + b"[" * 200_000, b" " * (MAX_BYTES + 1)):
        with pytest.raises(InputError):
            read_launchlog(data, "x")

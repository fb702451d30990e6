"""Numeric traces: the recorded ones say what their programs do, and damaged or hostile ones are refused."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from cuwhy.case import open_case
from cuwhy.model.errors import InputError
from cuwhy.model.numerics import NumericEvent, NumericTrace
from cuwhy.read.numerics import MAX_BYTES, read_numerics
from cuwhy.read.recognize import recognize

ROOT = Path(__file__).resolve().parents[2]
CASES = sorted((ROOT / "corpus" / "numeric").glob("*/*/evidence.cuwhy"))


def recorded(path: Path) -> bytes:
    with open_case(path) as case:
        entry = next(e for e in case.artefacts if e.kind == "numerics")
        return bytes(case.read(entry.path))


def case(name: str) -> bytes:
    return recorded(next(p for p in CASES if p.parent.name == name))


def events(data: bytes) -> list[NumericEvent]:
    return [fact for fact in read_numerics(data, "t.json") if isinstance(fact, NumericEvent)]


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.parent.name)
def test_recorded_traces_follow_the_schema(path: Path) -> None:
    schema = json.loads((ROOT / "docs" / "numerics.schema.json").read_text("utf-8"))
    data = recorded(path)
    jsonschema.Draft202012Validator(schema).validate(json.loads(data))
    assert recognize(data) == "numerics"
    trace = read_numerics(data, "t.json")[0]
    assert isinstance(trace, NumericTrace)
    assert trace.operations > 5
    assert trace.unread == 0
    assert trace.devices == ("cpu",)
    assert len(events(data)) == trace.events
    assert (trace.events > 0) == path.parent.name.startswith("bad_")


def test_ranges_of_a_known_sum() -> None:
    """masks.py: finfo.min of float16 twice, in the 4 masked key rows and wherever no key is valid."""
    event = events(case("bad_query_and_key"))[0]
    assert (event.kind, event.operation.name, event.operation.phase) == ("inf", "add", "forward")
    assert [i.shape for i in event.operation.inputs] == [(2, 6, 1), (2, 1, 8)]
    assert all(i.low == -65504 and i.dtype == "float16" for i in event.operation.inputs)
    # The second sentence has 2 queries of padding and no key: 2 x 8 elements are masked twice.
    assert event.operation.outputs[0].minus_inf == 16
    assert event.exact is not None
    assert event.exact.low == 2 * -65504


def test_a_backward_operation_knows_its_forward_line() -> None:
    event = events(case("bad_distance_gradient"))[0]
    source = (CASES[0].parents[1] / "bad_distance_gradient" / "distance.py").read_text("utf-8").splitlines()
    assert event.operation.phase == "backward"
    forward, caller = event.operation.forward[0], event.operation.frames[0]
    assert forward.line is not None
    assert caller.line is not None
    assert ".sqrt()" in source[forward.line - 1]
    assert ".backward()" in source[caller.line - 1]
    # The six distances of a point to itself.
    assert event.operation.outputs[0].nan == 6


def test_a_hidden_overflow_names_who_hides_it() -> None:
    event = events(case("bad_rms_norm"))[0]
    assert event.absorbed is not None
    assert event.absorbed.name == "rsqrt"
    assert event.absorbed.outputs[0].low == 0
    assert event.operation.module == "Block.norm"
    assert event.operation.outputs[0].inf == 1


def test_history_is_in_order_and_ends_before_the_event() -> None:
    for path in CASES:
        for event in events(recorded(path)):
            numbers = [op.number for op in event.history]
            assert numbers == sorted(numbers)
            assert len(numbers) <= 20
            assert not numbers or numbers[-1] < event.operation.number


def test_poisoned_memory_is_counted() -> None:
    event = events(case("bad_ring_buffer"))[0]
    assert (event.kind, event.operation.inputs[0].poison) == ("uninitialized", 60)
    assert event.allocated[0].line == 10


@pytest.fixture
def content() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(case("bad_rms_norm"))
    return loaded


def change(content: dict[str, Any], path: tuple[Any, ...], value: object) -> bytes:
    changed = copy.deepcopy(content)
    spot: Any = changed
    for key in path[:-1]:
        spot = spot[key]
    spot[path[-1]] = value
    return json.dumps(changed).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("version",), 2),
        (("pid",), -1),
        (("pid",), True),
        (("events",), None),
        (("events",), [{}]),
        (("events",), [[]]),
        (("events",), [None] * 17),
        (("events", 0, "kind"), "odd"),
        (("events", 0, "phase"), "sideways"),
        (("events", 0, "op"), "x" * 401),
        (("events", 0, "op"), 3),
        (("events", 0, "frames"), [["a", 1]]),
        (("events", 0, "frames"), [["a", 1, "f"]] * 33),
        (("events", 0, "frames", 0, 1), 1 << 63),
        (("events", 0, "scalars"), []),
        (("events", 0, "scalars"), {"a": "nine"}),
        (("events", 0, "scalars"), {str(i): 1 for i in range(17)}),
        (("events", 0, "inputs", 0, "shape"), [1] * 65),
        (("events", 0, "inputs", 0, "shape"), [-1]),
        (("events", 0, "inputs", 0, "low"), "0"),
        (("events", 0, "inputs", 0, "nan"), 0.5),
        (("events", 0, "history"), [{}]),
        (("events", 0, "at"), [3]),
        (("events", 0, "exact"), []),
        (("events", 0, "absorbed"), 1),
    ],
)
def test_what_breaks_the_schema_is_refused(
    content: dict[str, Any], path: tuple[Any, ...], value: object
) -> None:
    with pytest.raises(InputError):
        read_numerics(change(content, path, value), "t.json")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b'{"format": "cuwhy-numerics"}',
        b'{"format": "cuwhy-numerics", "version": 1, "pid": ' + b"9" * 5000 + b"}",
        b'{"format": "cuwhy-numerics", "version": 1, "pid": NaN}',
        b'{"format": "cuwhy-numerics", "version": 1, "events": ' + b"[" * 100_000,
        b" " * (MAX_BYTES + 1),
    ],
)
def test_what_is_no_trace_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_numerics(data, "t.json")


def test_a_number_beyond_float_is_refused(content: dict[str, Any]) -> None:
    data = change(content, ("events", 0, "inputs", 0, "low"), 1.5).replace(b"1.5", b"1e999")
    with pytest.raises(InputError):
        read_numerics(data, "t.json")

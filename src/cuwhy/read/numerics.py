"""Where values of a PyTorch process stopped being finite (``docs/numerics.schema.json``)."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from cuwhy.model.errors import InputError
from cuwhy.model.facts import Origin
from cuwhy.model.numerics import NumericEvent, NumericOp, NumericTrace, TensorRange
from cuwhy.model.place import Frame

FORMAT = "cuwhy-numerics"
VERSION = 1
MAX_BYTES = 8 << 20
_MAX_EVENTS = 16
_MAX_HISTORY = 64
_MAX_TENSORS = 16
_MAX_FRAMES = 32
_MAX_DIMENSIONS = 64
_MAX_SCALARS = 16
_MAX_TEXT = 400
_MAX_NUMBER = (1 << 63) - 1
_KINDS = ("inf", "nan", "arrived", "uninitialized")
_MARK = re.compile(rb'\s*\{\s*"format"\s*:\s*"cuwhy-numerics"')


def looks_like_numerics(head: bytes) -> bool:
    """Tell from its beginning whether a file is a numeric trace."""
    return _MARK.match(head) is not None


def read_numerics(data: bytes | memoryview, name: str) -> list[NumericEvent | NumericTrace]:
    """Return that a process was watched, and its events in the order they happened.

    Raises:
        InputError: it is not such a file, or one that breaks a rule of the schema.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: {len(data) >> 20} MB of numeric trace is more than {MAX_BYTES >> 20}")
    try:
        content = json.loads(str(data, "utf-8"), parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InputError(f"{name}: not valid JSON", hint="the file is damaged") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{name}: not a numeric trace")
    if content.get("version") != VERSION:
        raise InputError(f"{name}: a numeric trace of another version than {VERSION}", hint="update cuwhy")
    try:
        return _facts(content, name)
    except (ValueError, TypeError, KeyError, IndexError, OverflowError, AttributeError) as error:
        raise InputError(
            f"{name}: breaks its schema ({str(error)[:80]})", hint="the file is damaged"
        ) from None


def _facts(content: dict[str, Any], name: str) -> list[NumericEvent | NumericTrace]:
    process = _number(content["pid"])
    scaled = content.get("gradient_scaler") is True
    events = [
        _event(row, Origin(name, f"events[{position}]"), process, scaled)
        for position, row in enumerate(_list(content["events"], _MAX_EVENTS))
    ]
    trace = NumericTrace(
        operations=_number(content["operations"]),
        module_calls=_number(content["module_calls"]),
        events=len(events),
        unread=_number(content.get("unread", 0)),
        poisoned=content.get("poison") is True,
        devices=tuple(_text(device) for device in _list(content.get("devices", []), 16)),
        torch=_text(content.get("torch", "")),
        process=process,
        origin=Origin(name),
    )
    return [trace, *events]


def _event(row: dict[str, Any], origin: Origin, process: int, scaled: bool) -> NumericEvent:
    if row["kind"] not in _KINDS:
        raise ValueError("no such kind of event")
    return NumericEvent(
        kind=row["kind"],
        operation=_operation(row),
        at=tuple(None if item is None else _range(item) for item in _list(row["at"], _MAX_TENSORS)),
        masked_rows=_number(row.get("masked_rows", 0)),
        exact=None if row.get("exact") is None else _range(row["exact"]),
        absorbed=None if row.get("absorbed") is None else _operation(row["absorbed"]),
        allocated=_frames(row.get("allocated", [])),
        history=tuple(_operation(item) for item in _list(row["history"], _MAX_HISTORY)),
        process=process,
        scaled=scaled,
        origin=origin,
    )


def _operation(row: dict[str, Any]) -> NumericOp:
    if row["phase"] not in ("forward", "backward"):
        raise ValueError("neither forward nor backward")
    scalars = row["scalars"]
    if len(scalars) > _MAX_SCALARS:
        raise ValueError("too many scalars")
    return NumericOp(
        number=_number(row["number"]),
        name=_text(row["op"]),
        module=_text(row["module"]),
        phase=row["phase"],
        frames=_frames(row["frames"]),
        forward=_frames(row["forward"]),
        scalars=tuple((_text(key), _scalar(value)) for key, value in scalars.items()),
        inputs=tuple(_range(item) for item in _list(row["inputs"], _MAX_TENSORS)),
        outputs=tuple(_range(item) for item in _list(row["outputs"], _MAX_TENSORS)),
    )


def _frames(rows: Any) -> tuple[Frame, ...]:
    frames = []
    for row in _list(rows, _MAX_FRAMES):
        file, line, function = row
        frames.append(Frame(_text(function) or None, _text(file) or None, _number(line) or None))
    return tuple(frames)


def _range(row: dict[str, Any]) -> TensorRange:
    counts = {key: _number(row.get(key, 0)) for key in ("nan", "inf", "minus_inf", "zeros", "poison")}
    odd = counts["nan"] + counts["inf"] + counts["minus_inf"]
    return TensorRange(
        shape=tuple(_number(size) for size in _list(row["shape"], _MAX_DIMENSIONS)),
        dtype=_text(row["dtype"]),
        device=_text(row.get("device", "")),
        low=_value(row.get("low")),
        high=_value(row.get("high")),
        tiny=_value(row.get("tiny")),
        finite=row.get("finite", True) is not False and not odd,
        **counts,
    )


def _value(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError("not a finite number")
    return float(value)


def _scalar(value: Any) -> float:
    if value in ("inf", "-inf", "nan"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError("not a number")
    return float(value)


def _integer(text: str) -> int:
    # Python's own limit on digits would be an error of another kind.
    if len(text) > 20:
        raise ValueError("a number is too long")
    return int(text)


def _refuse(text: str) -> float:
    raise ValueError(f"{text} is no JSON")


def _list(value: Any, limit: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError(f"not a list of at most {limit}")
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_NUMBER:
        raise ValueError("not a number from 0 to 2**63 - 1")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"not a text of at most {_MAX_TEXT} characters")
    return value

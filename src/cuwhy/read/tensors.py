"""The memory of a PyTorch process at its first CUDA error (``docs/tensors.schema.json``)."""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from cuwhy.model.errors import InputError
from cuwhy.model.facts import BlockFact, Origin, Target, TensorFact
from cuwhy.model.place import Frame

FORMAT = "cuwhy-tensors"
VERSION = 1
MAX_BYTES = 16 << 20
_LIMITS = {
    "frames": 200_000,
    "stacks": 100_000,
    "tensors": 10_000,
    "segments": 20_000,
    "blocks": 100_000,
    "freed": 50_000,
}
_MAX_STACK = 64
_MAX_DIMENSIONS = 64
_MAX_TEXT = 400
_MAX_NUMBER = (1 << 63) - 1
_MAX_EARLIER = 3
_MARK = re.compile(rb'\s*\{\s*"format"\s*:\s*"cuwhy-tensors"')
_HEX = re.compile(r"0x[0-9a-f]{1,16}\Z")
_T = TypeVar("_T")


def looks_like_tensors(head: bytes) -> bool:
    """Tell from its beginning whether a file is what the PyTorch hook writes."""
    return _MARK.match(head) is not None


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """The memory of one process.

    Attributes:
        process: pid; rank: None when it has none.
        time: when it was written, seconds since 1970.
        history: what the allocator recorded, see the schema.
        exception, message: of the CUDA error.
        tensors: the innermost frame's first; blocks: by address; freed: the latest first.
        complete: every segment is in it, so that an address outside is not PyTorch's.
    """

    process: int
    rank: int | None
    time: float
    history: str
    exception: str
    message: str
    tensors: tuple[TensorFact, ...]
    blocks: tuple[BlockFact, ...]
    freed: tuple[BlockFact, ...]
    complete: bool
    origin: Origin
    _starts: list[int] = field(default_factory=list, repr=False, compare=False)

    def target(self, address: int) -> Target | None:
        """Return what lies at an address; None when nothing of it is known."""
        block = self._block(address)
        earlier: tuple[BlockFact, ...] = ()
        if block is None or not block.in_use:
            held = (b for b in self.freed if b.address <= address < b.address + b.size)
            earlier = tuple(b for b, _ in zip(held, range(_MAX_EARLIER), strict=False))
        tensor = self._tensor(address)
        return Target(tensor, block, earlier) if tensor or block or earlier else None

    def _block(self, address: int) -> BlockFact | None:
        at = bisect_right(self._starts, address) - 1
        block = self.blocks[at] if at >= 0 else None
        return block if block is not None and address < block.address + block.size else None

    def _tensor(self, address: int) -> TensorFact | None:
        """The tensor that begins there (the largest of several), else one whose memory holds it."""
        begin = [t for t in self.tensors if t.pointer == address and t.bytes]
        if begin:
            return max(begin, key=lambda t: t.bytes)
        return next((t for t in self.tensors if t.pointer <= address < t.pointer + t.bytes), None)


def read_tensors(data: bytes | memoryview, name: str) -> MemoryMap:
    """Return the memory of a process.

    Raises:
        InputError: it is not such a file, or one that breaks a rule of the schema.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: {len(data) >> 20} MB of tensors is more than {MAX_BYTES >> 20}")
    try:
        content = json.loads(str(data, "utf-8"), parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InputError(f"{name}: not valid JSON", hint="the file is damaged") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{name}: does not hold the memory of a PyTorch process")
    if content.get("version") != VERSION:
        raise InputError(f"{name}: tensors of another version than {VERSION}", hint="update cuwhy")
    try:
        return _Reader(content, name).map()
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise InputError(
            f"{name}: breaks its schema ({str(error)[:80]})", hint="the file is damaged"
        ) from None


class _Reader:
    """Checks as it reads; whatever is of a wrong shape raises one of the errors that the caller knows."""

    def __init__(self, content: dict[str, Any], name: str) -> None:
        self.content = content
        self.name = name
        self.frames = self._rows("frames", self._frame)
        self.stacks = self._rows("stacks", self._stack_row)

    def map(self) -> MemoryMap:
        content = self.content
        segments = self._rows("segments", self._segment)
        blocks = sorted(self._rows("blocks", lambda row: self._block(row, segments)), key=lambda b: b.address)
        left_out = content.get("left_out")
        lost = left_out.get("segments", 0) if isinstance(left_out, dict) else 0
        rank = content.get("rank")
        time = content.get("time", 0)
        return MemoryMap(
            process=_number(content["pid"]),
            rank=None if rank is None else _number(rank),
            time=float(time) if isinstance(time, (int, float)) and 0 <= time < 1e11 else 0.0,
            history=_text(content.get("history", "")),
            exception=_text(content.get("exception", "")),
            message=_text(content.get("message", "")),
            tensors=tuple(self._rows("tensors", self._tensor)),
            blocks=tuple(blocks),
            freed=tuple(self._rows("freed", self._freed)),
            complete=bool(segments) and not lost,
            origin=Origin(self.name),
            _starts=[block.address for block in blocks],
        )

    def _rows(self, key: str, read: Callable[[Any], _T]) -> list[_T]:
        rows = self.content[key]
        if not isinstance(rows, list) or len(rows) > _LIMITS[key]:
            raise ValueError(f"'{key}' is not a list of at most {_LIMITS[key]}")
        return [read(row) for row in rows]

    def _frame(self, row: Any) -> Frame:
        file, line, function = _list(row, 3)
        return Frame(_text(function) or None, _text(file) or None, _number(line) or None)

    def _stack_row(self, row: Any) -> tuple[Frame, ...]:
        return tuple(self.frames[_number(index)] for index in _list(row, _MAX_STACK))

    def _stack(self, number: Any) -> tuple[Frame, ...]:
        return () if number is None else self.stacks[_number(number)]

    def _tensor(self, row: dict[str, Any]) -> TensorFact:
        shape = tuple(_number(n) for n in _list(row["shape"], _MAX_DIMENSIONS))
        stride = tuple(_signed(n) for n in _list(row["stride"], _MAX_DIMENSIONS))
        if len(shape) != len(stride):
            raise ValueError("shape and stride differ in length")
        itemsize = _number(row["itemsize"])
        last = sum((n - 1) * step for n, step in zip(shape, stride, strict=True) if step > 0)
        return TensorFact(
            name=_text(row["name"]),
            frame=self.frames[_number(row["frame"])],
            shape=shape,
            stride=stride,
            dtype=_text(row["dtype"]),
            itemsize=itemsize,
            offset=_number(row["offset"]),
            pointer=_address(row["pointer"]),
            bytes=(last + 1) * itemsize if all(shape) else 0,
            storage_bytes=_number(row["storage_bytes"]),
            device=_text(row["device"]),
            requires_grad=row.get("requires_grad") is True,
            origin=Origin(self.name),
        )

    def _segment(self, row: dict[str, Any]) -> tuple[int, int, int, int]:
        return _address(row["address"]), _number(row["size"]), _number(row["device"]), _address(row["stream"])

    def _block(self, row: dict[str, Any], segments: list[tuple[int, int, int, int]]) -> BlockFact:
        start, size, device, stream = segments[_number(row["segment"])]
        return BlockFact(
            address=_address(row["address"]),
            size=_number(row["size"]),
            requested=_number(row["requested"]),
            state=_text(row["state"]),
            device=device,
            stream=stream,
            segment=start,
            segment_size=size,
            allocated=self._stack(row.get("stack")),
            origin=Origin(self.name),
        )

    def _freed(self, row: dict[str, Any]) -> BlockFact:
        size = _number(row["size"])
        return BlockFact(
            address=_address(row["address"]),
            size=size,
            requested=size,
            state="freed",
            device=_number(row["device"]),
            stream=_address(row["stream"]),
            allocated=self._stack(row.get("allocated")),
            freed=self._stack(row.get("freed")),
            origin=Origin(self.name),
        )


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


def _signed(value: Any) -> int:
    if type(value) is not int or abs(value) > _MAX_NUMBER:
        raise ValueError("not a number below 2**63")
    return value


def _address(value: Any) -> int:
    if not isinstance(value, str) or not _HEX.match(value):
        raise ValueError("not an address like 0x7f0000000000")
    return int(value, 16)


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT:
        raise ValueError(f"not a text of at most {_MAX_TEXT} characters")
    return value

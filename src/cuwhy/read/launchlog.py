"""Launch logs, as ``cuwhy run`` puts them into a case: JSON -> the launches, refusals and allocations."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cuwhy.model.errors import InputError
from cuwhy.model.facts import DriverAllocation, LaunchRecord, Origin, RefusedLaunch
from cuwhy.model.place import Frame

#: First key of the file.
MARK = "cuwhy_launchlog"
MAX_BYTES = 8 << 20
#: Number of a kind in the recorder's own file -> the word for it.
KINDS = {1: "kernel", 2: "cooperative", 3: "graph", 4: "load"}
_FLAGS = {1: "early start", 2: "captured", 4: "per-thread stream", 8: "synced", 16: "delayed"}
_MAX_ROWS = 1 << 16
_MAX_STACK = 64
_MAX_NAME = 4096
_WORD = 1 << 64


@dataclass(frozen=True, slots=True)
class LaunchLog:
    """The log of one process.

    Attributes:
        process: pid; 0 when unknown.
        launches: oldest first; refused: those with what could have been asked; allocations.
        launch_count: launches of the whole run, of which ``launches`` are the last.
    """

    process: int
    launches: tuple[LaunchRecord, ...]
    refused: tuple[RefusedLaunch, ...]
    allocations: tuple[DriverAllocation, ...]
    launch_count: int
    origin: Origin


def read_launchlog(data: bytes, name: str) -> LaunchLog:
    """Read one log.

    Raises:
        InputError: it is too large, or not what :mod:`cuwhy.capture.launches` writes.
    """
    if len(data) > MAX_BYTES:
        raise InputError(f"{name}: a launch log of {len(data) >> 20} MB; at most {MAX_BYTES >> 20}")
    try:
        content = json.loads(data)
        if content[MARK] != 1:
            raise InputError(
                f"{name}: a launch log of version {content[MARK]!r:.20}", hint="use a newer cuwhy"
            )
        return _Reader(content, name).log()
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise InputError(f"{name}: the launch log is damaged ({type(error).__name__})") from error


class _Reader:
    """Checks as it reads; any of the errors of a wrong shape is caught by the caller."""

    def __init__(self, content: dict[str, Any], name: str) -> None:
        self.content = content
        self.name = name
        self.names = [_text(value) for value in _rows(content["names"])]
        frames = [self._frame(*row) for row in _rows(content["frames"])]
        self.stacks = [
            tuple(frames[_number(i, len(frames))] for i in _rows(stack, _MAX_STACK))
            for stack in _rows(content["stacks"])
        ]

    def log(self) -> LaunchLog:
        content = self.content
        return LaunchLog(
            process=_number(content["process"]),
            launches=tuple(self._launch(row, i) for i, row in enumerate(_rows(content["launches"]))),
            refused=tuple(
                RefusedLaunch(
                    self._launch(row[:-1], i),
                    tuple(sorted((_text(k), _signed(v)) for k, v in row[-1].items()))[:64],
                    Origin(self.name, f"refused launch {i + 1}"),
                )
                for i, row in enumerate(_rows(content["refused"], 4096))
            ),
            allocations=tuple(
                self._allocation(row, i) for i, row in enumerate(_rows(content["allocations"]))
            ),
            launch_count=_number(content["counts"]["launches"]),
            origin=Origin(self.name),
        )

    def _frame(self, function: object, file: object, line: object) -> Frame:
        names = self.names
        return Frame(
            names[_number(function, len(names))] or None,
            names[_number(file, len(names))] or None,
            _number(line, 1 << 32) or None,
        )

    def _launch(self, row: list[Any], index: int) -> LaunchRecord:
        number, kind, function, code, flags, context, stream, thread, shared = row[:9]
        dims = [_number(value, 1 << 32) for value in row[9:18]]
        stack, time = row[18:20]
        if kind not in KINDS.values():
            raise ValueError(kind)
        return LaunchRecord(
            number=_number(number),
            kind=kind,
            kernel=self.names[_number(function, len(self.names))],
            code=None if code is None else _signed(code),
            flags=tuple(word for bit, word in _FLAGS.items() if _number(flags) & bit),
            context=_number(context),
            stream=_number(stream),
            thread=_number(thread),
            dynamic_shared=_number(shared),
            grid=(dims[0], dims[1], dims[2]),
            block=(dims[3], dims[4], dims[5]),
            cluster=(dims[6], dims[7], dims[8]),
            frames=self._stack(stack),
            microseconds=_signed(time),
            process=_number(self.content["process"]),
            origin=Origin(self.name, f"launch record {index + 1}"),
        )

    def _allocation(self, row: list[Any], index: int) -> DriverAllocation:
        address, size, context, stream, stack, made, freed, freed_stack = row
        return DriverAllocation(
            address=_number(address),
            size=_number(size),
            context=_number(context),
            stream=_number(stream),
            frames=self._stack(stack),
            microseconds=_signed(made),
            freed=None if freed is None else _signed(freed),
            freed_frames=() if freed_stack is None else self._stack(freed_stack),
            process=_number(self.content["process"]),
            origin=Origin(self.name, f"allocation {index + 1}"),
        )

    def _stack(self, number: object) -> tuple[Frame, ...]:
        return () if number == -1 else self.stacks[_number(number, len(self.stacks))]


def _rows(value: object, limit: int = _MAX_ROWS) -> list[Any]:
    if not isinstance(value, list) or len(value) > limit:
        raise ValueError("list")
    return value


def _number(value: object, limit: int = _WORD) -> int:
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError("number")
    return value


def _signed(value: object) -> int:
    if type(value) is not int or abs(value) >= _WORD:
        raise ValueError("number")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_NAME:
        raise ValueError("text")
    return value

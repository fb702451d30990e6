"""The launch recorder's own file -> tables; ``capture/native/README.md`` describes the format.

The file is written by a library inside the user's program, which may have been killed at any
instruction, or may have scribbled over it: every offset and count is checked, a record that does
not hold is passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cuwhy.model.errors import InputError
from cuwhy.model.facts import Dim3

MAGIC = b"CUWHYLL1"
#: Largest file that is read; the recorder makes one of 9 MB.
MAX_BYTES = 64 << 20
UNKNOWN = -(1 << 31)
#: Frames of one stack that are read.
_MAX_FRAMES = 64
_MAX_TEXT = 4096
_HEADER = struct.Struct("<8s4IQQ")
_AREA = struct.Struct("<QII")
_LAUNCH = struct.Struct("<6Q2I3I3I3I2IiBB2x20x")
_MEMORY = struct.Struct("<6Q2IiB3x")
_FUNCTION = struct.Struct("<IIQ")
_STACK = struct.Struct("<4I2Q")
_FRAME = struct.Struct("<IIQ")
_RECORD_SIZES = (_LAUNCH.size, _MEMORY.size, 256, _FUNCTION.size, _STACK.size, 1)
_LAUNCHES, _EVENTS, _REFUSED, _FUNCTIONS, _STACKS, _TEXT = range(6)
_AREAS_AT, _LOST_AT = 40, 448
#: The number of launches so far, a 64-bit word.
LAUNCH_COUNTER_AT = 192
#: Of struct context: handle, launches, graphs, reserved.
_CONTEXTS_AT = 1024

KERNEL, COOPERATIVE, GRAPH, LOAD = 1, 2, 3, 4
ALLOC, FREE, MAP, UNMAP = 1, 2, 3, 4
EARLY_START, CAPTURED, PER_THREAD, SYNCED, DELAYED = 1, 2, 4, 8, 16
PYTHON, NATIVE = 1, 2

#: What a refused launch could have had, in the order of the file (``read_limits`` in recorder.c).
LIMITS = (
    "function_max_threads",
    "static_shared",
    "local_bytes",
    "registers",
    "ptx_version",
    "binary_version",
    "max_dynamic_shared",
    "device_max_threads",
    "max_block_x",
    "max_block_y",
    "max_block_z",
    "max_grid_x",
    "max_grid_y",
    "max_grid_z",
    "shared_per_block",
    "registers_per_block",
    "sm_count",
    "compute_major",
    "compute_minor",
    "cooperative",
    "shared_per_block_optin",
    "shared_per_sm",
    "blocks_per_sm",
)


@dataclass(frozen=True, slots=True)
class RawLaunch:
    """A record as the file has it; ``code`` is None when the driver had not returned."""

    index: int
    number: int
    handle: int
    stream: int
    context: int
    time_ns: int
    function: int
    stack: int
    grid: Dim3
    block: Dim3
    cluster: Dim3
    dynamic_shared: int
    thread: int
    code: int | None
    kind: int
    flags: int


@dataclass(frozen=True, slots=True)
class RawEvent:
    """An allocation, free, map or unmap."""

    index: int
    kind: int
    address: int
    size: int
    stream: int
    context: int
    time_ns: int
    thread: int
    stack: int


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame: a Python line, or (``native``) an offset in a module."""

    native: bool
    file: str
    function: str
    value: int


class RawLog:
    """A launch log.

    Attributes:
        pid: of the process that wrote it.
        realtime_ns, monotonic_ns: when it began, on both clocks.
        launch_count, memory_count, refused_count: how many there were, lost ones included.
        lost: records, functions, stacks and handles that found no room.
    """

    def __init__(self, data: bytes, name: str = "launch log") -> None:
        """Check the header.

        Raises:
            InputError: it is no launch log, or one of another version, or cut off.
        """
        if len(data) > MAX_BYTES:
            raise InputError(f"{name}: {len(data) >> 20} MB is no launch log")
        if len(data) < 4096 or data[:8] != MAGIC:
            raise InputError(f"{name}: not a launch log")
        _, version, header, self.pid, _, self.realtime_ns, self.monotonic_ns = _HEADER.unpack_from(data)
        if version != 1 or header != 4096:
            raise InputError(f"{name}: a launch log of version {version}", hint="use a newer cuwhy")
        self._data = data
        self._areas: list[tuple[int, int]] = []
        for i, size in enumerate(_RECORD_SIZES):
            offset, record, count = _AREA.unpack_from(data, _AREAS_AT + i * _AREA.size)
            if record != size or offset < 4096 or offset + record * count > len(data):
                raise InputError(f"{name}: the launch log is damaged")
            self._areas.append((offset, count))
        counters = struct.unpack_from("<Q56xQ56xQ56x", data, LAUNCH_COUNTER_AT)
        self.launch_count, self.memory_count, self.refused_count = counters
        self.lost: tuple[int, ...] = struct.unpack_from("<4Q", data, _LOST_AT)

    @property
    def numbers(self) -> dict[int, int]:
        """The highest launch number of each context, by its handle; whatever the ring still holds."""
        pairs = (struct.unpack_from("<QQ", self._data, _CONTEXTS_AT + i * 32) for i in range(64))
        return {handle: launches for handle, launches in pairs if handle}

    def launches(self) -> list[RawLaunch]:
        """Return the launches that are still in the ring, oldest first."""
        offset, count = self._areas[_LAUNCHES]
        found = (self._launch(offset + i * _LAUNCH.size) for i in range(count))
        return sorted((launch for launch in found if launch is not None), key=lambda launch: launch.index)

    def events(self) -> list[RawEvent]:
        """Return what happened to memory and is still in the ring, oldest first."""
        offset, count = self._areas[_EVENTS]
        found = []
        for i in range(count):
            seq, address, size, stream, context, time, thread, stack, _, kind = _MEMORY.unpack_from(
                self._data, offset + i * _MEMORY.size
            )
            if seq >= 2 and ALLOC <= kind <= UNMAP:
                found.append(
                    RawEvent((seq >> 1) - 1, kind, address, size, stream, context, time, thread, stack)
                )
        return sorted(found, key=lambda event: event.index)

    def refused(self) -> Iterator[tuple[RawLaunch, dict[str, int]]]:
        """Yield refused launches with the limits that the driver told."""
        offset, count = self._areas[_REFUSED]
        for i in range(min(count, self.refused_count)):
            launch = self._launch(offset + i * 256)
            if launch is not None:
                values = struct.unpack_from(f"<{len(LIMITS)}i", self._data, offset + i * 256 + _LAUNCH.size)
                yield launch, {k: v for k, v in zip(LIMITS, values, strict=True) if v != UNKNOWN}

    def function(self, number: int) -> str:
        """Return the mangled name of a function, empty when unknown."""
        offset, count = self._areas[_FUNCTIONS]
        if not 1 <= number <= count:
            return ""
        state, text, _ = _FUNCTION.unpack_from(self._data, offset + (number - 1) * _FUNCTION.size)
        return self._text(text) if state == 2 else ""

    def stack(self, number: int) -> tuple[RawFrame, ...]:
        """Return the frames of a stack, innermost first; none when unknown."""
        offset, count = self._areas[_STACKS]
        if not 1 <= number <= count:
            return ()
        state, kind, depth, at, _, _ = _STACK.unpack_from(self._data, offset + (number - 1) * _STACK.size)
        text, size = self._areas[_TEXT]
        depth = min(depth, _MAX_FRAMES)
        if state != 2 or at + depth * _FRAME.size > size:
            return ()
        frames = (_FRAME.unpack_from(self._data, text + at + i * _FRAME.size) for i in range(depth))
        return tuple(RawFrame(kind == NATIVE, self._text(f), self._text(n), v) for f, n, v in frames)

    def _text(self, at: int) -> str:
        offset, size = self._areas[_TEXT]
        if not at or at + 4 > size:
            return ""
        (length,) = struct.unpack_from("<I", self._data, offset + at)
        if length > min(_MAX_TEXT, size - at - 4):
            return ""
        return self._data[offset + at + 4 : offset + at + 4 + length].decode("utf-8", "replace")

    def _launch(self, offset: int) -> RawLaunch | None:
        v = _LAUNCH.unpack_from(self._data, offset)
        seq, kind = v[0], v[20]
        if seq < 2 or not KERNEL <= kind <= LOAD:
            return None
        return RawLaunch(
            index=(seq >> 1) - 1,
            number=v[1],
            handle=v[2],
            stream=v[3],
            context=v[4],
            time_ns=v[5],
            function=v[6],
            stack=v[7],
            grid=(v[8], v[9], v[10]),
            block=(v[11], v[12], v[13]),
            cluster=(v[14], v[15], v[16]),
            dynamic_shared=v[17],
            thread=v[18],
            code=v[19] if seq & 1 and v[19] != UNKNOWN else None,
            kind=kind,
            flags=v[21],
        )

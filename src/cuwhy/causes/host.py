"""The host side of a launch that the recorder saw and no dump shows: its lines as a place, its sizes as a launch."""

from __future__ import annotations

import re
from dataclasses import replace

from cuwhy.locate.demangle import demangle
from cuwhy.locate.recorded import host_frame
from cuwhy.model.facts import Launch, LaunchRecord
from cuwhy.model.place import Frame, Place

#: The function that nvcc writes around a launch; behind the prefix stands the kernel's symbol.
_STUB = re.compile(r"__device_stub_(_Z\w+)")


def named(record: LaunchRecord) -> LaunchRecord:
    """Return the record of a load with the kernel that it was for, which the stub in its stack names."""
    if record.kind != "load":
        return record
    stubs = (_STUB.match(frame.function) for frame in record.frames if frame.function)
    symbol = next((stub[1] for stub in stubs if stub is not None), "")
    return replace(record, kernel=symbol)


def launch_of(record: LaunchRecord) -> Launch:
    """Return what the record says of a launch; registers and arguments stay unknown."""
    names = demangle(record.kernel)
    return Launch(
        kernel=record.kernel,
        name=names.text or "(unknown kernel)",
        short=names.short or "(unknown kernel)",
        grid_id=record.number,
        context=record.context,
        grid=record.grid,
        block=record.block,
        cluster=record.cluster,
        origin=record.origin,
    )


def host_line(record: LaunchRecord | None) -> Frame | None:
    """Return the innermost line of the user's own that launched it, None when no frame has one."""
    if record is None:
        return None
    frame = host_frame(record, launch_of(record) if record.kernel else None)
    return frame if frame is not None and frame.line is not None else None


def host_place(record: LaunchRecord | None) -> Place | None:
    """Return the host lines of a launch, from the user's own outwards; None when no frame has a line."""
    first = host_line(record)
    if record is None or first is None:
        return None
    behind = record.frames[record.frames.index(first) :]
    frames = tuple(f for f in behind if f.file is not None and f.line is not None and not f.is_library)
    return Place(record.kernel, frames=frames or (first,), name=launch_of(record).short)

"""What the launch recorder knows of a launch or an address that a core dump shows."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from cuwhy.locate.demangle import demangle
from cuwhy.model.facts import DriverAllocation, Fact, Fault, Launch, LaunchRecord, SanitizerFault, Wait
from cuwhy.model.place import Frame
from cuwhy.read.launchlog import LaunchLog

#: Beyond this an allocation says nothing about an address.
_NEAR = 64 << 20
_MAX_FACTS = 64
_MAX_OF_REPORTS = 8
#: Modules whose frames are nobody's line to change.
_SYSTEM = ("/lib/", "/lib64/", "/usr/", "/opt/nvidia/")
#: Between a ``kernel<<<>>>`` and the driver: the runtime, and the stub that nvcc writes.
_RUNTIME = re.compile(r"(?:__)?cuda[A-Z_]|(?:__|lib)?cudart|.*__device_stub|\+0x")


def recorded_facts(facts: Sequence[Fact], logs: Sequence[LaunchLog]) -> list[Fact]:
    """Return what the logs know about the faults and waits among ``facts``, and what was refused."""
    found: list[Fact] = []
    for fact in facts:
        if not isinstance(fact, (Fault, Wait)) or fact.launch is None:
            continue
        ours = _logs_of(fact.launch, logs)
        record = record_of(fact.launch, [launch for log in ours for launch in log.launches])
        if record is not None and record not in found:
            found.append(record)
        blocks = [block for log in ours for block in log.allocations]
        pointers = [a.value for a in fact.launch.arguments if a.is_pointer and isinstance(a.value, int)]
        near = [_holding(pointer, blocks) for pointer in pointers]
        if fact.address is not None:
            near.append(allocation_of(fact, blocks))
        found += [block for block in dict.fromkeys(near) if block is not None and block not in found]
        if len(found) >= _MAX_FACTS:
            break
    found += [record for record in _of_reports(facts, logs) if record not in found]
    for log in logs:
        found += log.refused[:_MAX_FACTS]
    return found


def _of_reports(facts: Sequence[Fact], logs: Sequence[LaunchLog]) -> list[LaunchRecord]:
    """The last launch, for each of its sizes, of the kernels that a checker reports and no dump shows."""
    shown = {
        fact.launch.short for fact in facts if isinstance(fact, (Fault, Wait)) and fact.launch is not None
    }
    wanted = {fact.short for fact in facts if isinstance(fact, SanitizerFault)} - shown - {""}
    if not wanted or len(logs) != 1:
        return []
    names = {record.kernel: demangle(record.kernel).short for record in logs[0].launches if record.kernel}
    last = {
        (record.kernel, record.grid, record.block): record
        for record in logs[0].launches
        if record.kind in ("kernel", "cooperative") and not record.code and names.get(record.kernel) in wanted
    }
    return list(last.values())[-_MAX_OF_REPORTS:]


def _logs_of(launch: Launch, logs: Sequence[LaunchLog]) -> Sequence[LaunchLog]:
    """The logs of the process whose dump this is, as far as the dump's name tells."""
    numbers = {int(text) for text in re.findall(r"[0-9]{1,10}", launch.origin.artefact.rsplit("/", 1)[-1])}
    own = [log for log in logs if log.process in numbers]
    return own or (logs if len(logs) == 1 else [])


def record_of(launch: Launch, records: Iterable[LaunchRecord]) -> LaunchRecord | None:
    """Return the record of a launch that a dump shows, None when there is none.

    The dump's grid id is the launch's number.  It is not taken on trust: kernel and sizes must
    agree, and where the numbers have drifted (kernels that the driver launched for itself, replayed
    graphs, a context that was reset) the last launch with the same kernel and sizes counts.
    """
    same = [
        record
        for record in records
        if record.kind in ("kernel", "cooperative")
        and not record.code
        and record.kernel in ("", launch.kernel)
        and (launch.grid == (0, 0, 0) or record.grid == launch.grid)
        and (launch.block == (0, 0, 0) or record.block == launch.block)
    ]
    exact = [record for record in same if launch.grid_id and record.number == launch.grid_id]
    here = [record for record in exact if record.context == launch.context]
    if exact:
        return (here or exact)[-1]
    named = [record for record in same if record.kernel]
    before = [record for record in named if 0 < record.number <= launch.grid_id]
    captured = [record for record in named if "captured" in record.flags]
    # A context that was reset counts from 1 again; the recorder may not have seen that.
    later = [record for record in named if record.number > launch.grid_id]
    for group in (before, captured, later):
        if group:
            return group[-1]
    return None


def host_frame(record: LaunchRecord, launch: Launch | None = None) -> Frame | None:
    """Return the innermost frame of a launch that is the user's own, None when no frame has a line."""
    kernel = launch.short if launch is not None else demangle(record.kernel).short if record.kernel else ""
    for with_line in (True, False):
        for frame in record.frames:
            if frame.file is None or frame.is_library or (frame.line is not None) != with_line:
                continue
            function = frame.function or ""
            if _RUNTIME.match(function) or frame.file.endswith(".stub.c"):
                continue
            if not with_line and frame.file.startswith(_SYSTEM):
                continue
            # nvcc makes a host function of the kernel's name that does the launch.
            if kernel and frame.file.endswith((".cu", ".cuh")) and _base(function) == kernel:
                continue
            return frame
    return next((frame for frame in record.frames if frame.line is not None), None)


def _base(function: str) -> str:
    return function.partition("(")[0].partition("<")[0].rpartition("::")[2].rpartition(" ")[2]


def allocation_of(fault: Fault | Wait, blocks: Sequence[DriverAllocation]) -> DriverAllocation | None:
    """Return the allocation that a faulting address is to be measured from, None when none is near.

    That of the pointer argument which the address was computed from, else the one that holds it, else
    the nearest.
    """
    address = fault.address
    if address is None or address.space not in ("global", "generic", ""):
        return None
    if address.base is not None and fault.launch is not None:
        value = next((a.value for a in fault.launch.arguments if a.position == address.base), None)
        if isinstance(value, int) and (block := _holding(value, blocks)) is not None:
            return block
    if (block := _holding(address.value, blocks)) is not None:
        return block
    near = [block for block in blocks if block.freed is None and _distance(block, address.value) <= _NEAR]
    return min(near, key=lambda block: _distance(block, address.value), default=None)


def handed_out_again(
    blocks: Sequence[DriverAllocation],
) -> list[tuple[DriverAllocation, DriverAllocation]]:
    """Return stream-ordered memory that was freed, each with the first allocation after it that overlaps it.

    What cuMemAlloc gave is left out: cuMemFree waits for the device before it gives memory back.
    """
    events = [(block.microseconds, 1, i) for i, block in enumerate(blocks)]
    events += [(b.freed, 0, i) for i, b in enumerate(blocks) if b.stream and b.freed is not None]
    found = []
    # By process: where freed memory that nobody has taken yet begins, ascending and disjoint, and its index.
    waiting: dict[int, list[tuple[int, int]]] = {}
    for _, is_taken, index in sorted(events):
        block = blocks[index]
        freed = waiting.setdefault(block.process, [])
        first = last = bisect_left(freed, (block.address, 0))
        if first and block.address < blocks[freed[first - 1][1]].address + blocks[freed[first - 1][1]].size:
            first -= 1
        while last < len(freed) and freed[last][0] < block.address + block.size:
            last += 1
        if is_taken:
            # One that was made and freed within a microsecond is not its own successor.
            found += [(i, index) for _, i in freed[first:last] if i != index]
            freed[first:last] = [entry for entry in freed[first:last] if entry[1] == index]
        else:
            freed[first:last] = [(block.address, index)]
    found.sort(key=lambda pair: (blocks[pair[0]].microseconds, pair))
    return [(blocks[old], blocks[new]) for old, new in found]


def _holding(address: int, blocks: Sequence[DriverAllocation]) -> DriverAllocation | None:
    """The living block that holds an address, else the one freed last."""
    held = [block for block in blocks if block.address <= address < block.address + block.size]
    return max(
        held, key=lambda block: (block.freed is None, block.freed or 0, block.microseconds), default=None
    )


def _distance(block: DriverAllocation, address: int) -> int:
    return max(block.address - address, address - block.address - block.size)


def describe(block: DriverAllocation, address: int) -> str:
    """Return where an address lies with respect to an allocation: "64 bytes past the end of the …"."""
    end = block.address + block.size
    if address >= end:
        where = f"{address - end:,} bytes past the end of"
    elif address < block.address:
        where = f"{block.address - address:,} bytes before"
    else:
        where = f"{address - block.address:,} bytes into"
    text = f"{where} the {block.size:,}-byte allocation at {block.address:#x}"
    made = _user(block.frames)
    if made is not None:
        text += f", made at {_frame_text(made)}"
    if block.freed is not None:
        freed = _user(block.freed_frames)
        text += ", freed" + (f" at {_frame_text(freed)}" if freed is not None else " before the end")
    return text


def _user(frames: tuple[Frame, ...]) -> Frame | None:
    return host_frame(LaunchRecord(0, "kernel", "", frames=frames))


def _frame_text(frame: Frame) -> str:
    return f"{frame.short} in {frame.function}" if frame.function else frame.short

"""Lanes of a core dump grouped by what happened to them, and which of them to look at closely."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from cuwhy.model.facts import Dim3
from cuwhy.read.coredump import CoreDump, Lane, Warp

#: CUDBG_EXCEPTION_WARP_ASSERT (cudadebugger.h).
EXCEPTION_ASSERT = 12
#: One bad address raises 7 in warps that hit a memory window and 14 (or 10, 1) in the rest.
_SAME_FAULT = frozenset({1, 7, 10, 14})
_INSTRUCTION_BYTES = 16
#: Farther away than any function is long.
_NEAR = 1 << 24
_MAX_GROUPS = 64
#: Lanes of one group whose registers are read; slimming keeps just these.
MAX_SAMPLED = 160
_WHOLE_WARPS = 64


def linear(index: Dim3, size: Dim3) -> int:
    """Return the linear number of an index, x fastest, as the hardware counts."""
    return index[0] + size[0] * (index[1] + size[1] * index[2])


@dataclass(slots=True)
class Group:
    """Lanes of one launch that share an exception and a pc.

    Attributes:
        exception: CUDBG code that most lanes hold, 0 for a trap or for lanes that merely wait.
        others: further codes of the same fault, ascending.
        pc: address of the instruction, None when the dump does not say.
        grid_id: the launch, -1 when only the SM's record is left.
        precise: True when ``pc`` is the hardware's error pc.
        sm_only: True when the warps had gone.
        lanes: in the order of the file.
        where: spot in the file of the first lane.
    """

    exception: int
    pc: int | None
    grid_id: int
    precise: bool = True
    sm_only: bool = False
    lanes: list[tuple[Warp, Lane]] = field(default_factory=list)
    where: str = ""
    others: tuple[int, ...] = ()


def exception_groups(dump: CoreDump) -> list[Group]:
    """Return the groups of lanes that hold an exception or stand behind a trap, largest first."""
    groups: dict[tuple[int, int, int | None], Group] = {}
    covered: set[tuple[int, int]] = set()
    for block in dump.blocks:
        for warp in block.warps:
            raised = [lane for lane in warp.lanes if lane.exception]
            if raised:
                covered.add((warp.device, warp.sm))
            for lane in raised:
                _add(
                    groups, warp, lane, lane.exception, _fault_pc(dump, warp, lane), warp.error_pc is not None
                )
            if warp.broken and not raised:
                # A trap leaves no exception code: only a stopped warp whose active lanes stand behind it.
                for lane in warp.lanes:
                    if warp.active >> lane.lane & 1:
                        _add(groups, warp, lane, 0, lane.pc - _INSTRUCTION_BYTES, True)
    for sm in dump.sms:
        if sm.exception and (sm.device, sm.id) not in covered:
            # The warps had left before the dump was taken; the SM still knows the instruction.
            key = (-1, sm.exception, sm.error_pc)
            group = groups.setdefault(key, Group(sm.exception, sm.error_pc, -1, sm_only=True))
            group.where = group.where or f"SM {sm.id}"
    for group in groups.values():
        counted = Counter(lane.exception for _, lane in group.lanes)
        if len(counted) > 1:
            group.exception = counted.most_common(1)[0][0]
            group.others = tuple(sorted(set(counted) - {group.exception}))
    return sorted(groups.values(), key=lambda g: (-len(g.lanes), g.pc or 0))[:_MAX_GROUPS]


def _add(
    groups: dict[tuple[int, int, int | None], Group],
    warp: Warp,
    lane: Lane,
    exception: int,
    pc: int,
    precise: bool,
) -> None:
    key = (warp.grid_id, min(_SAME_FAULT) if exception in _SAME_FAULT else exception, pc)
    group = groups.setdefault(key, Group(exception, pc, warp.grid_id, precise=precise))
    group.where = group.where or f"SM {warp.sm}, warp {warp.id}, lane {lane.lane}"
    group.lanes.append((warp, lane))


def _fault_pc(dump: CoreDump, warp: Warp, lane: Lane) -> int:
    if warp.error_pc is not None:
        return warp.error_pc
    if lane.exception != EXCEPTION_ASSERT:
        return lane.pc
    # An assert is a call that does not return: the lane's own pc may have moved on, but the
    # ABI's return address in R20:R21 still points behind the call.
    registers = dump.registers(warp, lane)
    if len(registers) > 21:
        returns = registers[21] << 32 | registers[20]
        if abs(returns - lane.pc) < _NEAR:
            return returns - _INSTRUCTION_BYTES
    return lane.pc - _INSTRUCTION_BYTES


def standing_groups(dump: CoreDump, grid_id: int) -> list[Group]:
    """Return the groups of a launch's lanes by the pc they stand at (for hangs)."""
    spots: dict[int, Group] = {}
    for block in dump.blocks:
        if block.grid_id != grid_id:
            continue
        for warp in block.warps:
            for lane in warp.lanes:
                if warp.valid >> lane.lane & 1:
                    spots.setdefault(lane.pc, Group(0, lane.pc, grid_id)).lanes.append((warp, lane))
    return list(spots.values())[:_MAX_GROUPS]


def sampled(group: Group, dump: CoreDump) -> list[tuple[Warp, Lane]]:
    """Return the lanes of a group to look at closely, in order of block and thread.

    All when they are few; else the first two warps whole and then evenly over the rest.
    """
    grid = next((g for g in dump.grids if g.id == group.grid_id), dump.grids[0] if dump.grids else None)
    shape = (grid.grid, grid.block) if grid is not None else ((1, 1, 1), (1, 1, 1))
    ordered = sorted(group.lanes, key=lambda p: (linear(p[0].block, shape[0]), linear(p[1].thread, shape[1])))
    if len(ordered) <= MAX_SAMPLED:
        return ordered
    rest = ordered[_WHOLE_WARPS:-1]
    room = MAX_SAMPLED - _WHOLE_WARPS - 1
    step = max(1, -(-len(rest) // room))
    return ordered[:_WHOLE_WARPS] + rest[::step][:room] + ordered[-1:]

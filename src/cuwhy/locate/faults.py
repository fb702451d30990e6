"""The exceptions in a core dump as facts: who, where, and at which address."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from cuwhy.locate.evaluate import AddressResult, Evaluator, Thread
from cuwhy.locate.indices import IndexEvaluator
from cuwhy.locate.launches import argument_finder, pointer_words
from cuwhy.locate.places import CodeMap, previous
from cuwhy.locate.sass import Access, access_of, parse_instruction
from cuwhy.locate.threads import summarise
from cuwhy.model.cuda import KNOWN_CONSTANTS
from cuwhy.model.facts import Address, Dim3, Distance, Fault, Filler, Launch, Origin, Overflow
from cuwhy.model.place import Place
from cuwhy.read.coredump import Context, CoreDump, Grid, Lane, Warp
from cuwhy.read.groups import Group, exception_groups, linear, sampled

#: Generic addresses that fall into these windows reach shared or local memory.
#: The sizes were read off the exceptions of the starter evidence (sm_90).
SHARED_WINDOW_BYTES = 1 << 32
LOCAL_WINDOW_BYTES = 1 << 24

_MISALIGNED, _ADDRESS_SPACE = 6, 7
#: Exceptions that only global memory raises.
_UNMAPPED = frozenset({1, 10, 14})
_MAX_STACK = 16
#: An operand in the bank that holds the parameters, with its offset where that is a number.
_PARAMETER_BANK = re.compile(r"c\[0x0\]\[(?:(0x[0-9a-f]+)\]|)")


#: CLUSTER_OUT_OF_RANGE_ADDRESS and CLUSTER_BLOCK_NOT_PRESENT (cudadebugger.h).
_CLUSTER = (17, 18)


def dump_faults(
    dump: CoreDump, launches: dict[int, tuple[Grid, Launch]], code: CodeMap, artefact: str
) -> list[Fault]:
    """Return one fact per launch, exception and instruction, first block first."""
    groups = exception_groups(dump)
    modules = {grid.id: grid.module for grid, _ in launches.values()}
    for group in groups:
        if group.pc is not None:
            code.start_listing(group.pc, modules.get(group.grid_id, 0))
    return [_fault(group, dump, launches, code, artefact) for group in groups]


def _fault(
    group: Group,
    dump: CoreDump,
    launches: dict[int, tuple[Grid, Launch]],
    code: CodeMap,
    artefact: str,
) -> Fault:
    grid, launch = launches.get(group.grid_id, (None, None))
    if grid is None and len(launches) == 1:
        grid, launch = next(iter(launches.values()))
    module = grid.module if grid is not None else 0
    place = opcode = None
    access: Access | None = None
    if group.pc is not None:
        opcode = code.opcode(group.pc, module)
        instruction = code.instruction(group.pc, module)
        access = access_of(instruction) if instruction is not None else _access_of_opcode(opcode)
        place = code.place(group.pc, module)
        if access is None and group.exception in _CLUSTER:
            place, access = _peer_access(code, group.pc, module) or (place, None)
    lanes = group.lanes
    address = filler = None
    # LDGSTS touches global and shared memory: with other exceptions it may be the shared side.
    one_sided = opcode != "LDGSTS" or group.exception in _UNMAPPED
    if grid is not None and launch is not None and lanes and access is not None and one_sided:
        address, guilty = _address(group, dump, grid, launch, code, access)
        if address is None and access.space == "global" and group.exception in _UNMAPPED:
            filler, guilty = _filler(group, dump, grid, launch, code)
        lanes = guilty or lanes
    kind = access.kind if access is not None else ""
    if opcode == "BPT":
        kind = "trap"
    elif opcode == "BAR":
        kind = "barrier"
    elif opcode in ("CALL", "RET", "BRX"):
        kind = "call"
    threads: dict[Dim3, list[Dim3]] = {}
    for warp, lane in lanes:
        threads.setdefault(warp.block, []).append(lane.thread)
    seen = [b.index for b in dump.blocks if grid is not None and b.grid_id == grid.id]
    shape = (grid.grid, grid.block) if grid is not None else ((1, 1, 1), (1, 1, 1))
    first = _first(lanes, *shape) if lanes else None
    who = summarise(threads, *shape, seen)
    if address is not None and lanes is group.lanes and not group.sm_only and len(lanes) > 1:
        # The exception marks whole warps; only the thread with the address is known to be one that did it.
        who = replace(
            who, first_block=address.block or who.first_block, first_thread=address.thread or who.first_thread,
            pattern=f"{who.pattern}; the hardware marks whole warps",
        )  # fmt: skip
    return Fault(
        launch=replace(launch, shared_bytes=first[0].shared_bytes)
        if launch is not None and first
        else launch,
        exception=group.exception,
        place=place,
        threads=who,
        precise=group.precise,
        access=kind,
        opcode=opcode or "",
        address=address,
        call_depth=first[1].call_depth if first else 0,
        sm_only=group.sm_only,
        stack=_stack(dump, code, module, *first) if first else (),
        stack_pointer=_stack_pointer(dump, *first) if first else 0,
        alternatives=group.others,
        recursive=code.is_recursive(group.pc, module) if group.pc is not None else False,
        only_traps=kind == "trap"
        and group.pc is not None
        and grid is not None
        and _only_traps(code, group.pc, grid),
        filler=filler,
        origin=Origin(artefact, group.where),
    )


def _peer_access(code: CodeMap, pc: int, module: int) -> tuple[Place, Access] | None:
    """The access to another block's shared memory, where only one source line of the function makes any.

    The warps run on until the answer comes, so the pc of an exception of the cluster says little.
    """
    found = code.find(pc, module)
    flow = code.flow(pc, module)
    if found is None or flow is None:
        return None
    lines: dict[object, tuple[Place, Access]] = {}
    for instruction in flow.listing.instructions:
        access = access_of(instruction)
        if access is not None and access.space in ("generic", "distributed shared"):
            place = code.place(found[1].address + instruction.offset, module)
            if place is not None and place.user is not None:
                lines.setdefault((place.user.file, place.user.line), (place, access))
    return next(iter(lines.values())) if len(lines) == 1 else None


def _only_traps(code: CodeMap, pc: int, grid: Grid) -> bool:
    """True when the function at ``pc`` is a kernel with parameters that it never reads, and has no memory access."""
    found, flow = code.find(pc, grid.module), code.flow(pc, grid.module)
    if (
        found is None
        or flow is None
        or flow.listing.start
        or found[1].address != grid.entry
        or not grid.parameters
    ):
        return False
    first = grid.constant_bank_offset
    for instruction in flow.listing.instructions:
        touched = access_of(instruction)
        if touched is not None and touched.space != "constant":
            return False
        for operand in instruction.operands:
            bank = _PARAMETER_BANK.search(operand)
            # An index in a register may reach anything; what lies below the parameters is the launch's own.
            if bank is not None and (bank[1] is None or int(bank[1], 16) >= first):
                return False
    return True


def _access_of_opcode(opcode: str) -> Access | None:
    return replace(found, width=0) if (found := access_of(parse_instruction(0, opcode))) else None


def _first(lanes: Iterable[tuple[Warp, Lane]], grid: Dim3, block: Dim3) -> tuple[Warp, Lane]:
    return min(lanes, key=lambda pair: (linear(pair[0].block, grid), linear(pair[1].thread, block)))


def _stack_pointer(dump: CoreDump, warp: Warp, lane: Lane) -> int:
    registers = dump.registers(warp, lane)
    return registers[1] if len(registers) > 1 else 0


def _stack(dump: CoreDump, code: CodeMap, module: int, warp: Warp, lane: Lane) -> tuple[Place, ...]:
    """Call sites below the faulting function, innermost first."""
    places = []
    for frame in dump.backtrace(warp, lane)[:_MAX_STACK]:
        place = code.place(previous(frame.return_pc), module)
        if place is not None:
            places.append(place)
    return tuple(places)


# -- addresses ---------------------------------------------------------------------


def _address(
    group: Group, dump: CoreDump, grid: Grid, launch: Launch, code: CodeMap, access: Access
) -> tuple[Address | None, list[tuple[Warp, Lane]]]:
    """Return the address of the first thread at fault, and the threads at fault.

    A warp's exception marks all its lanes.  Where addresses tell which of them
    broke the rule, only those are kept.
    """
    assert group.pc is not None
    found = code.find(group.pc, grid.module)
    flow = code.flow(group.pc, grid.module)
    if found is None or flow is None:
        return None, []
    context = dump.context(grid.context)
    entry = found[1].address
    results: list[tuple[Warp, Lane, AddressResult]] = []
    looked_at = sampled(group, dump)
    for warp, lane in looked_at:
        thread = thread_state(dump, grid, launch, warp, lane, lane.pc - entry)
        outcome = Evaluator(flow, thread, group.pc - entry).address()
        if outcome is not None:
            results.append((warp, lane, outcome))
    if not results:
        return None, []
    window = context.shared_window if context is not None else 0
    local = context.local_window if context is not None else 0

    def in_window(value: int) -> str:
        if access.space not in ("global", "generic"):
            return ""
        if window and window <= value < window + SHARED_WINDOW_BYTES:
            return "shared"
        if local and local <= value < local + LOCAL_WINDOW_BYTES:
            return "local"
        return ""

    def is_guilty(warp: Warp, lane: Lane, value: int) -> bool:
        width = max(access.width, 1)
        if lane.exception == _MISALIGNED:
            return value % width != 0
        if lane.exception == _ADDRESS_SPACE:
            # In a warp that hit a window, the lanes beside it may be out of bounds or innocent.
            return in_window(value) != ""
        if access.space == "shared" and warp.shared_bytes > 0:
            return value + width > warp.shared_bytes
        return True

    guilty = [row for row in results if is_guilty(row[0], row[1], row[2].value)] or results
    warp, lane = _first(((row[0], row[1]) for row in guilty), grid.grid, grid.block)
    result = next(row[2] for row in guilty if row[0] is warp and row[1] is lane)
    pointers = pointer_words(launch, grid.parameters) if access.space in ("global", "generic") else []
    distances = sorted(
        (Distance(position, label, _signed(result.value - value)) for position, label, value in pointers),
        key=lambda d: abs(d.bytes),
    )
    base = _base(result, distances, pointers)
    values = [r.value for _, _, r in guilty]
    address = Address(
        value=result.value,
        space=access.space,
        width=access.width,
        how=result.how,
        block=warp.block,
        thread=lane.thread,
        base=base,
        distances=tuple(distances[:8]),
        known_as=_known(result.value, distances, base, access.width),
        window=in_window(result.value),
        low=min(values),
        high=max(values),
        overflow=_overflow(group, dump, grid, launch, code, warp, lane) if base is not None else None,
    )
    complete = len(looked_at) == len(group.lanes) == len(results)
    return address, [(row[0], row[1]) for row in guilty] if complete else []


def _overflow(
    group: Group, dump: CoreDump, grid: Grid, launch: Launch, code: CodeMap, warp: Warp, lane: Lane
) -> Overflow | None:
    """The 32-bit arithmetic of one thread that wrapped."""
    assert group.pc is not None
    found, flow = code.find(group.pc, grid.module), code.flow(group.pc, grid.module)
    if found is None or flow is None:
        return None
    entry = found[1].address
    thread = thread_state(dump, grid, launch, warp, lane, lane.pc - entry)
    return IndexEvaluator(flow, thread, group.pc - entry).overflow()


def _filler(
    group: Group, dump: CoreDump, grid: Grid, launch: Launch, code: CodeMap
) -> tuple[Filler | None, list[tuple[Warp, Lane]]]:
    """An index with all bits set, and the threads that used it, where the addresses themselves are lost."""
    assert group.pc is not None
    found, flow = code.find(group.pc, grid.module), code.flow(group.pc, grid.module)
    if found is None or flow is None:
        return None, []
    entry = found[1].address
    pointers = {value: position for position, _, value in pointer_words(launch, grid.parameters)}
    fillers: dict[Filler, list[tuple[Warp, Lane]]] = {}
    for warp, lane in sampled(group, dump):
        thread = thread_state(dump, grid, launch, warp, lane, lane.pc - entry)
        low = IndexEvaluator(flow, thread, group.pc - entry).low_index()
        if low is not None and low.base in pointers:
            filler = Filler(low.names, pointers[low.base], low.scale, low.bits)
            fillers.setdefault(filler, []).append((warp, lane))
    if len(fillers) != 1:
        return None, []
    return next(iter(fillers.items()))


def thread_state(dump: CoreDump, grid: Grid, launch: Launch, warp: Warp, lane: Lane, pc: int) -> Thread:
    """Return what the dump knows of one thread, taken to stand at offset ``pc`` of its function."""
    return Thread(
        pc=pc,
        registers=dump.registers(warp, lane),
        uniform=dump.uniform_registers(warp),
        predicates=dump.predicates(warp, lane),
        thread=lane.thread,
        block=warp.block,
        block_dim=grid.block,
        grid_dim=grid.grid if grid.grid_certain else None,
        parameters=grid.parameters,
        parameter_base=grid.constant_bank_offset,
        argument_at=argument_finder(launch),
        lane=lane.lane,
        initial=special_registers(grid, dump.context(grid.context)),
    )


def special_registers(grid: Grid, context: Context | None) -> dict[str, int]:
    """Special registers with the same value in every thread of a launch."""
    known = {}
    if grid.cluster in ((0, 0, 0), (1, 1, 1)):
        known["SR_CgaCtaId"] = 0
    if context is not None:
        known |= {"SR_SWINHI": context.shared_window >> 32, "SR_SWINLO": context.shared_window & 0xFFFFFFFF}
        known |= {"SR_LWINHI": context.local_window >> 32, "SR_LWINLO": context.local_window & 0xFFFFFFFF}
    return known


def _base(
    result: AddressResult, distances: list[Distance], pointers: list[tuple[int, str, int]]
) -> int | None:
    """The pointer argument that flowed into the address, if it is only one."""
    positions = {position for position, _, _ in pointers}
    inside = [position for position in sorted(result.arguments) if position in positions]
    return inside[0] if len(inside) == 1 else None


def _known(value: int, distances: list[Distance], base: int | None, width: int) -> str:
    if value in KNOWN_CONSTANTS and value > 0xFFFF:
        return KNOWN_CONSTANTS[value]
    for distance in distances:
        if distance.argument == base and width:
            index, rest = divmod(distance.bytes, width)
            if rest == 0:
                if index == -1:
                    return "index -1"
                if index in KNOWN_CONSTANTS and index > 0xFFFF:
                    return f"index {KNOWN_CONSTANTS[index]}"
    return ""


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value

"""A dump without exceptions is that of a hang: which warps wait, where and for what."""

from __future__ import annotations

import re
from dataclasses import replace

from cuwhy.locate.evaluate import Evaluator, Thread
from cuwhy.locate.faults import thread_state
from cuwhy.locate.flow import PREDICATE, Flow
from cuwhy.locate.launches import argument_finder, pointer_words
from cuwhy.locate.places import CodeMap, previous
from cuwhy.locate.sass import INSTRUCTION_BYTES, Instruction, access_of
from cuwhy.locate.threads import summarise
from cuwhy.model.facts import Address, Dim3, Distance, Launch, Origin, Residency, Wait, WaitKind
from cuwhy.model.place import Place
from cuwhy.read.coredump import CoreDump, Grid, Lane, Warp
from cuwhy.read.groups import Group, linear, standing_groups

#: A spin loop is short; a longer loop is work.
_MAX_LOOP = 96
#: How far a warp is looked for in front of a barrier that it has not passed.
_RUN_AHEAD = 8
_STORES = ("store", "atomic", "reduction")


def dump_waits(
    dump: CoreDump, launches: dict[int, tuple[Grid, Launch]], code: CodeMap, artefact: str
) -> list[Wait | Residency]:
    """Return where the threads of every resident launch stand, and how many blocks are resident."""
    facts: list[Wait | Residency] = []
    for grid, launch in launches.values():
        blocks = [b for b in dump.blocks if b.grid_id == grid.id]
        total = grid.grid[0] * grid.grid[1] * grid.grid[2]
        left = max(0, total - len(blocks)) if grid.grid_certain else 0
        facts.append(Residency(launch, total if grid.grid_certain else 0, len(blocks), left, launch.origin))
        spots = standing_groups(dump, grid.id)
        for spot in spots:
            code.start_listing(_pc(spot), grid.module)
        found = [_wait(spot, dump, grid, launch, code, artefact) for spot in spots]
        merged = _merge(found, spots, dump, grid)
        merged.sort(key=lambda wait: -wait.threads.count)
        facts.extend(merged)
    return facts


def _wait(spot: Group, dump: CoreDump, grid: Grid, launch: Launch, code: CodeMap, artefact: str) -> Wait:
    at = code.instruction(_pc(spot), grid.module)
    before = code.instruction(previous(_pc(spot)), grid.module)
    opcode = at.base if at is not None else code.opcode(_pc(spot), grid.module)
    behind = before.base if before is not None else code.opcode(previous(_pc(spot)), grid.module)
    pc, kind, barrier, expected = _pc(spot), WaitKind.RUNNING, None, None
    address: Address | None = None
    loop: tuple[Place, ...] = ()
    writers: tuple[Place, ...] = ()
    deferred = _deferred_barrier(_pc(spot), grid, code)
    if deferred is not None or (behind == "BAR" and (before is None or "ARV" not in before.modifiers)):
        pc = deferred if deferred is not None else previous(_pc(spot))
        kind = WaitKind.BLOCK_BARRIER
        barrier, expected = _barrier(code.instruction(pc, grid.module), pc, spot, dump, grid, launch, code)
    elif opcode in ("WARPSYNC", "BSYNC") or behind == "WARPSYNC":
        kind = WaitKind.WARP_BARRIER
        pc = (
            previous(_pc(spot)) if behind == "WARPSYNC" and opcode not in ("WARPSYNC", "BSYNC") else _pc(spot)
        )
    elif opcode.startswith("UCGABAR") or behind.startswith("UCGABAR"):
        kind = WaitKind.CLUSTER_BARRIER
    else:
        flow = code.flow(_pc(spot), grid.module)
        found = code.find(_pc(spot), grid.module)
        if flow is not None and found is not None:
            span = _loop(flow, _pc(spot) - found[1].address)
            polled = _polled(flow, span) if span is not None else None
            if span is not None and polled is not None:
                entry = found[1].address
                kind = WaitKind.SPIN
                pc = entry + polled.offset
                loop = tuple(
                    p for offset in span if (p := code.place(entry + offset, grid.module)) is not None
                )
                address = _polled_address(spot, dump, grid, launch, code, pc, flow, entry)
                writers = _writers(flow, entry, span, address, grid, launch, code)
            elif _needs_load(flow, flow.listing.index(_pc(spot) - found[1].address)):
                kind = WaitKind.MEMORY
    place = code.place(pc, grid.module)
    if (
        kind is WaitKind.SPIN
        and place is not None
        and any(_is_grid_sync(f.function, f.file) for f in place.frames)
    ):
        kind = WaitKind.GRID_BARRIER
    seen = [b.index for b in dump.blocks if b.grid_id == grid.id]
    threads: dict[Dim3, list[Dim3]] = {}
    for warp, lane in spot.lanes:
        threads.setdefault(warp.block, []).append(lane.thread)
    first = min(threads, key=lambda b: linear(b, grid.grid))
    size = grid.block[0] * grid.block[1] * grid.block[2]
    present = sum(
        bin(w.valid).count("1")
        for b in dump.blocks
        if b.grid_id == grid.id and b.index == first
        for w in b.warps
    )
    warp, lane = spot.lanes[0]
    return Wait(
        launch=launch,
        kind=kind,
        place=place,
        threads=summarise(threads, grid.grid, grid.block, seen),
        barrier=barrier,
        expected=expected,
        address=address,
        arrived_per_block=len(threads[first]),
        block_threads=size,
        exited_per_block=max(0, size - present),
        loop=loop,
        writers=writers,
        origin=Origin(artefact, f"SM {warp.sm}, warp {warp.id}, lane {lane.lane}"),
    )


def _deferred_barrier(pc: int, grid: Grid, code: CodeMap) -> int | None:
    """Address of the barrier that the warp at ``pc`` has issued and not passed, None when there is none.

    ``BAR.SYNC.DEFER_BLOCKING`` lets a warp run on over arithmetic; it stops at the next
    instruction that touches memory (seen on sm_90: two to four instructions behind).  Where
    control can come to ``pc`` without a barrier on the way, a warp that stands there may have
    passed it long ago (a loop right behind it): then nothing is said.
    """
    flow, found = code.flow(pc, grid.module), code.find(pc, grid.module)
    if flow is None or found is None:
        return None
    position = flow.listing.index(pc - found[1].address)
    instructions = flow.listing.instructions
    for back in range(position - 1, max(-1, position - 1 - _RUN_AHEAD), -1):
        instruction = instructions[back]
        if instruction.base == "BAR":
            if "ARV" in instruction.modifiers or not _only_behind_barriers(flow, position):
                return None
            return found[1].address + instruction.offset
        if instruction.target is not None or instruction.base in ("EXIT", "RET", "BRX", "MEMBAR", "WARPSYNC"):
            return None
        access = access_of(instruction)
        if access is not None and access.space != "constant":
            return None
    return None


def _needs_load(flow: Flow, position: int) -> bool:
    """True when the instruction at ``position`` uses what a load a few instructions before has asked for.

    A warp is met there while the answer is on its way; that it has come already, a dump cannot tell.
    """
    if position < 0:
        return False
    for name in flow.reads(position):
        for where in flow.definitions(name, position):
            if where < 0 or not 0 < position - where <= _LOAD_DISTANCE:
                continue
            access = access_of(flow.listing.instructions[where])
            if access is not None and access.kind in ("load", "atomic") and access.space != "constant":
                return True
    return False


def _only_behind_barriers(flow: Flow, position: int) -> bool:
    """True when every way to ``position``, also from itself, leads over a barrier of the block."""
    waiting: list[int] = [position]
    seen: set[int] = set()
    while waiting:
        here = waiting.pop()
        if here == 0:
            return False
        for before in flow.before(here):
            instruction = flow.listing.instructions[before] if before >= 0 else None
            if instruction is None or before == position:
                return False
            # The way around a divergent warp: one thread makes the barrier for all, the others go on behind it.
            collective = instruction.base == "WARPSYNC" and "COLLECTIVE" in instruction.modifiers
            if before not in seen and instruction.base != "BAR" and not collective:
                seen.add(before)
                waiting.append(before)
    return True


#: Instructions between a load and the use that a warp waits at, at most.
_LOAD_DISTANCE = 32


def _pc(spot: Group) -> int:
    assert spot.pc is not None
    return spot.pc


def _is_grid_sync(function: str | None, file: str | None) -> bool:
    return "cooperative_groups" in (file or "") or "sync_grids" in (function or "")


def _merge(waits: list[Wait], spots: list[Group], dump: CoreDump, grid: Grid) -> list[Wait]:
    """Join waits of one loop (lanes stand at different instructions of it) and of one barrier."""
    joined: dict[tuple[object, ...], tuple[Wait, list[tuple[Warp, Lane]]]] = {}
    for wait, spot in zip(waits, spots, strict=True):
        pc = wait.place.pc if wait.place is not None else _pc(spot)
        key = (wait.kind, pc)
        if key in joined:
            joined[key][1].extend(spot.lanes)
        else:
            joined[key] = (wait, list(spot.lanes))
    merged = []
    seen = [b.index for b in dump.blocks if b.grid_id == grid.id]
    for wait, lanes in joined.values():
        threads: dict[Dim3, list[Dim3]] = {}
        for warp, lane in lanes:
            threads.setdefault(warp.block, []).append(lane.thread)
        first = min(threads, key=lambda b: linear(b, grid.grid))
        merged.append(
            replace(
                wait,
                threads=summarise(threads, grid.grid, grid.block, seen),
                arrived_per_block=len(threads[first]),
            )
        )
    return merged


def _thread(spot: Group, dump: CoreDump, grid: Grid, launch: Launch, entry: int, at: int) -> Thread:
    warp, lane = spot.lanes[0]
    return thread_state(dump, grid, launch, warp, lane, at - entry)


def _barrier(
    instruction: Instruction | None,
    pc: int,
    spot: Group,
    dump: CoreDump,
    grid: Grid,
    launch: Launch,
    code: CodeMap,
) -> tuple[int | None, int | None]:
    """Number of a barrier and how many threads it expects (None: the whole block)."""
    if instruction is None:
        return _barrier_of_ptx(code.place(pc, grid.module))
    values: list[int | None] = []
    found = code.find(pc, grid.module)
    flow = code.flow(pc, grid.module)
    for operand in instruction.operands[:2]:
        if re.fullmatch(r"0x[0-9a-f]+", operand):
            values.append(int(operand, 16))
        elif re.fullmatch(r"U?R\d+", operand) and flow is not None and found is not None:
            entry = found[1].address
            known = Evaluator(flow, _thread(spot, dump, grid, launch, entry, _pc(spot)), pc - entry).register(
                operand
            )
            values.append(known.bits if known is not None else None)
        else:
            values.append(0 if operand == "RZ" else None)
    number = values[0] if values else None
    # With a register operand the count may be packed above the number.
    if number is not None and number > 15:
        return number & 15, number >> 16 or None
    return number, values[1] if len(values) > 1 else None


def _barrier_of_ptx(place: Place | None) -> tuple[int | None, int | None]:
    """Number and count of a barrier from the embedded PTX: ``bar.sync 1, 96`` (PTX ISA, bar)."""
    found = (
        re.match(r"(?:@!?%\w+ )?bar(?:rier)?(?:\.\w+)* (\d+)(?:, ?(\d+))?;", place.ptx or "")
        if place
        else None
    )
    if found is None:
        return None, None
    return int(found[1]), int(found[2]) if found[2] else None


def _loop(flow: Flow, offset: int) -> range | None:
    """The smallest backward jump that encloses ``offset``, as a range of offsets."""
    best: range | None = None
    for instruction in flow.listing.instructions:
        target = instruction.target
        if instruction.base != "BRA" or target is None or target > instruction.offset:
            continue
        if target == instruction.offset:
            continue
        if target <= offset <= instruction.offset + INSTRUCTION_BYTES:
            span = range(target, instruction.offset + INSTRUCTION_BYTES, INSTRUCTION_BYTES)
            if best is None or len(span) < len(best):
                best = span
    return best if best is not None and len(best) <= _MAX_LOOP else None


def _polled(flow: Flow, span: range) -> Instruction | None:
    """The load (or atomic) whose result alone decides when the loop ends, None when the loop does other work.

    A loop over data has a load and an exit too, but its exit, or the address it loads from,
    depends on something that each turn changes; a spin asks the same address again and again.
    """
    inside = range(flow.listing.index(span[0]), flow.listing.index(span[-1]) + 1)
    if inside.start < 0 or inside.stop <= 0:
        return None
    wanted: list[tuple[str, int]] = []
    for position in inside:
        instruction = flow.listing.instructions[position]
        access = access_of(instruction)
        if (
            access is not None
            and access.kind in ("store", "reduction")
            and "STRONG" not in instruction.modifiers
        ):
            return None
        if any(after not in inside for after in flow.after(position)) or instruction.base == "EXIT":
            wanted += [(name, position) for name in _conditions(instruction)]
    return _same_value_asked(flow, inside, wanted)


def _conditions(instruction: Instruction) -> list[str]:
    """Predicates that decide whether a branch is taken: ``@P0 BRA``, ``BRA.U UP0``, ``BRA P1``."""
    names = [instruction.predicate, *(operand.lstrip("!") for operand in instruction.operands)]
    return [name for name in names if PREDICATE.match(name) and not name.endswith("PT")]


def _same_value_asked(flow: Flow, inside: range, wanted: list[tuple[str, int]]) -> Instruction | None:
    """The first load that values depend on, if no value depends on an earlier turn of the loop.

    Args:
        flow: the function.
        inside: positions of the loop.
        wanted: registers and predicates, each with the position that reads it.
    """
    needs: dict[int, set[int]] = {}
    polled: set[int] = set()
    first: set[int] = set()
    seen: set[tuple[str, int]] = set()
    waiting = [(name, position, -1) for name, position in wanted]
    while waiting:
        name, position, user = waiting.pop()
        for where in flow.definitions(name, position):
            if where == -2:
                return None
            if where not in inside:
                continue
            (needs.setdefault(user, set()) if user >= 0 else first).add(where)
            instruction = flow.listing.instructions[where]
            access = access_of(instruction)
            if instruction.base in _CLOCKS and any(
                "CLOCK" in o or "TIMER" in o for o in instruction.operands
            ):
                return None
            if instruction.base == "SYNCS" or (access is not None and access.space != "constant"):
                if access is not None and _changes_what_it_reads(instruction):
                    return None
                polled.add(where)
            for source in flow.reads(where):
                if (source, where) not in seen:
                    seen.add((source, where))
                    waiting.append((source, where, where))
    if not polled or _has_cycle(needs, first):
        return None
    return flow.listing.instructions[min(polled)]


_CLOCKS = frozenset({"CS2R", "S2R", "S2UR", "CS2UR"})


def _changes_what_it_reads(instruction: Instruction) -> bool:
    """True for an atomic that counts: each turn changes the value that it returns."""
    if not {"ADD", "INC", "DEC"} & set(instruction.modifiers):
        return False
    # The operand is the last register; RZ adds nothing, as in atomicAdd(p, 0).
    return instruction.operands[-1] != "RZ"


def _has_cycle(needs: dict[int, set[int]], starts: set[int]) -> bool:
    """True when an instruction needs its own result of the turn before."""
    done: set[int] = set()
    for start in starts:
        path: list[tuple[int, list[int]]] = [(start, list(needs.get(start, ())))]
        on_path = {start}
        while path:
            node, rest = path[-1]
            if not rest:
                path.pop()
                on_path.discard(node)
                done.add(node)
                continue
            after = rest.pop()
            if after in on_path:
                return True
            if after not in done:
                on_path.add(after)
                path.append((after, list(needs.get(after, ()))))
    return False


def _polled_address(
    spot: Group, dump: CoreDump, grid: Grid, launch: Launch, code: CodeMap, pc: int, flow: Flow, entry: int
) -> Address | None:
    instruction = flow.listing.at(pc - entry)
    access = access_of(instruction) if instruction is not None else None
    if access is None:
        return None
    # The load is answered and runs again: what a turn of the loop writes is not what it was.
    warp, lane = spot.lanes[0]
    thread = _thread(spot, dump, grid, launch, entry, _pc(spot))
    result = Evaluator(flow, thread, pc - entry, repeats=True).address()
    if result is None:
        return None
    pointers = pointer_words(launch, grid.parameters)
    distances = sorted(
        (Distance(position, label, result.value - value) for position, label, value in pointers),
        key=lambda d: abs(d.bytes),
    )
    inside = sorted(p for p in result.arguments if p in {position for position, _, _ in pointers})
    return Address(
        value=result.value,
        space=access.space,
        width=access.width,
        how=result.how,
        block=warp.block,
        thread=lane.thread,
        base=inside[0] if len(inside) == 1 else None,
        distances=tuple(distances[:8]),
        low=result.value,
        high=result.value,
    )


def _writers(
    flow: Flow, entry: int, span: range, address: Address | None, grid: Grid, launch: Launch, code: CodeMap
) -> tuple[Place, ...]:
    """Stores of the same kernel, outside the loop, to the memory the loop reads; unknown bases are left out."""
    if address is None or address.base is None:
        return ()
    places: list[Place] = []
    polled = [code.place(entry + offset, grid.module) for offset in span]
    loop_lines = {p.short for p in polled if p is not None}
    grid_dim = grid.grid if grid.grid_certain else None
    zero = Thread(0, (), (), (), (0, 0, 0), (0, 0, 0), grid.block, grid_dim, grid.parameters,
                  grid.constant_bank_offset, argument_finder(launch))  # fmt: skip
    for instruction in flow.listing.instructions:
        access = access_of(instruction)
        if access is None or access.kind not in _STORES or instruction.offset in span:
            continue
        if access.space not in ("global", "generic"):
            continue
        result = Evaluator(flow, zero, instruction.offset).address()
        if result is not None and address.base in result.arguments:
            place = code.place(entry + instruction.offset, grid.module)
            if place is not None and place.short not in {p.short for p in places} | loop_lines:
                places.append(place)
    return tuple(places[:8])

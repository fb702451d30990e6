"""Sets of threads, counted and described in words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from cuwhy.model.facts import MAX_RANGES, Dim3, Threads
from cuwhy.read.groups import linear

_WARP = 32


def dim(value: Dim3) -> str:
    """Return "8" for (8, 0, 0) and "(8, 2, 0)" otherwise."""
    return str(value[0]) if value[1] == value[2] == 0 else f"({value[0]}, {value[1]}, {value[2]})"


def summarise(
    threads: Mapping[Dim3, Collection[Dim3]],
    grid: Dim3,
    block: Dim3,
    blocks_seen: Iterable[Dim3],
) -> Threads:
    """Summarise threads that share a property.

    Args:
        threads: block index -> indices of its threads with the property.
        grid: blocks in the launch.
        block: threads in a block.
        blocks_seen: every block that was on the chip to be looked at.
    """
    if not threads:
        return Threads()
    ordered = sorted(threads, key=lambda b: linear(b, grid))
    first_block = ordered[0]
    lanes = sorted(threads[first_block], key=lambda t: linear(t, block))
    count = sum(len(found) for found in threads.values())
    warps = sum(len({linear(t, block) // _WARP for t in found}) for found in threads.values())
    seen = sorted(blocks_seen, key=lambda b: linear(b, grid))
    return Threads(
        count=count,
        warps=warps,
        blocks=len(ordered),
        first_block=first_block,
        first_thread=lanes[0] if lanes else None,
        pattern=_pattern(threads, ordered, seen, grid, block),
        blocks_seen=len(seen),
        block_ranges=_runs(linear(b, grid) for b in ordered),
        seen_ranges=_runs(linear(b, grid) for b in seen),
        thread_ranges=_runs(linear(t, block) for t in lanes),
    )


def _runs(numbers: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """Ascending numbers as runs; empty when there are too many to keep."""
    runs: list[tuple[int, int]] = []
    for number in numbers:
        if runs and number <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], number)
        elif len(runs) == MAX_RANGES:
            return ()
        else:
            runs.append((number, number))
    return tuple(runs)


def _pattern(
    threads: Mapping[Dim3, Collection[Dim3]], ordered: list[Dim3], seen: list[Dim3], grid: Dim3, block: Dim3
) -> str:
    size = block[0] * block[1] * block[2]
    inside = _inside(threads[ordered[0]], block, size)
    same = all(_inside(threads[b], block, size) == inside for b in ordered)
    inside = inside if same else "some threads"
    if len(ordered) == 1:
        where = f"of block {dim(ordered[0])}" if grid != (1, 1, 1) else "of the only block"
        return f"{inside} {where}"
    numbers = [linear(b, grid) for b in ordered]
    total = grid[0] * grid[1] * grid[2]
    if len(ordered) == total:
        return f"{inside} of every block"
    resident = [linear(b, grid) for b in seen]
    if numbers == [n for n in resident if n >= numbers[0]] and numbers[0] > resident[0]:
        tail = "" if numbers[-1] == total - 1 else f" to {dim(ordered[-1])}"
        return f"{inside} of every block from {dim(ordered[0])}{tail or ' on'}"
    if numbers == resident:
        return f"{inside} of every block on the chip ({len(ordered)} of {total:,})"
    return (
        f"{inside} of {len(ordered)} of {len(seen)} blocks on the chip, the first is block {dim(ordered[0])}"
    )


def _inside(found: Collection[Dim3], block: Dim3, size: int) -> str:
    numbers = sorted({linear(t, block) for t in found})
    if len(numbers) == size and size > 1:
        return "all threads"
    if len(numbers) == 1:
        return "one thread"
    warps = {n // _WARP for n in numbers}
    spread = f"threads {numbers[0]} to {numbers[-1]}"
    contiguous = numbers[-1] - numbers[0] + 1 == len(numbers)
    if len(warps) == 1:
        warp = numbers[0] // _WARP
        full = min(_WARP, size - warp * _WARP)
        return (
            f"all of warp {warp}"
            if len(numbers) == full
            else spread
            if contiguous
            else f"{len(numbers)} lanes of warp {warp}"
        )
    return spread if contiguous else f"{len(numbers)} threads in {len(warps)} warps"

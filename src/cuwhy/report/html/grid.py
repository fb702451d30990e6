"""Which blocks of a launch, and which threads of the first of them, a finding is about."""

from __future__ import annotations

from collections.abc import Sequence

from cuwhy.model.facts import Dim3, Launch, Threads
from cuwhy.report.html.markup import Markup, el, join, text

_WIDTH = 900.0
#: More blocks than this share cells.
_MAX_CELLS = 1024
_WARP = 32
_MAX_THREADS = 1024


def grid_picture(launch: Launch | None, threads: Threads | None) -> Markup | None:
    """Return the pictures of the grid and of its first block, None when nothing is known."""
    if launch is None or threads is None or not threads.block_ranges:
        return None
    blocks = _count(launch.grid)
    parts = []
    if blocks > 1 and launch.grid_certain:
        parts.append(_blocks(launch.grid, blocks, threads))
    size = _count(launch.block)
    if 1 < size <= _MAX_THREADS and threads.thread_ranges:
        parts.append(_lanes(launch.block, size, threads))
    return join(*parts) if parts else None


def _count(size: Dim3) -> int:
    return size[0] * size[1] * size[2]


def _hit(ranges: Sequence[tuple[int, int]], first: int, last: int) -> bool:
    return any(start <= last and first <= end for start, end in ranges)


def _cells(columns: int, side: float, kinds: list[str], names: str) -> Markup:
    gap = 1.0 if side > 4 else 0.4
    shapes = [
        el(
            "rect", x=(number % columns) * side, y=(number // columns) * side, width=side - gap,
            height=side - gap, class_=kind,
        )
        for number, kind in enumerate(kinds)
    ]  # fmt: skip
    rows = (len(kinds) + columns - 1) // columns
    return el(
        "svg", *shapes, viewBox=f"0 0 {columns * side:.0f} {rows * side:.0f}", role="img", aria_label=names,
        width=f"{columns * side:.0f}",
    )  # fmt: skip


def _blocks(grid: Dim3, blocks: int, threads: Threads) -> Markup:
    per_cell = -(-blocks // _MAX_CELLS)
    count = -(-blocks // per_cell)
    columns = min(count, 64 if count > 64 else 32)
    if per_cell == 1 and 4 <= grid[0] <= 64:
        columns = grid[0]
    kinds = []
    for cell in range(count):
        first, last = cell * per_cell, min(blocks, (cell + 1) * per_cell) - 1
        kinds.append(
            "bad"
            if _hit(threads.block_ranges, first, last)
            else "seen"
            if _hit(threads.seen_ranges, first, last)
            else "unseen"
        )
    side = min(16.0, _WIDTH / columns)
    words = f"{threads.blocks:,} of {blocks:,} blocks are concerned, {threads.blocks_seen:,} were on the chip"
    picture = _cells(columns, side, kinds, f"grid {list(grid)}: {words}")
    each = "each cell one block" if per_cell == 1 else f"each cell {per_cell} blocks"
    return el(
        "figure", el("div", picture, class_="scroll"),
        el(
            "figcaption",
            el(
                "span",
                _key("bad", "concerned"),
                _key("seen", "on the chip, not concerned"),
                _key("unseen", "not on the chip: finished, or not begun"),
                class_="legend",
            ),
            text(f"Grid of {grid[0]} × {grid[1]} × {grid[2]} blocks, {each}, x fastest: {words}."),
        ),
    )  # fmt: skip


def _key(kind: str, words: str) -> Markup:
    return el("span", el("span", class_=f"key {kind}", aria_hidden="true"), text(words), class_="item")


def _lanes(block: Dim3, size: int, threads: Threads) -> Markup:
    kinds = ["bad" if _hit(threads.thread_ranges, n, n) else "seen" for n in range(size)]
    concerned = sum(last - first + 1 for first, last in threads.thread_ranges)
    first = threads.first_block or (0, 0, 0)
    words = f"{concerned:,} of its {size:,} threads are concerned"
    picture = _cells(_WARP, 14.0, kinds, f"block {list(first)}: {words}")
    return el(
        "figure", el("div", picture, class_="scroll"),
        el(
            "figcaption",
            text(f"Block ({first[0]}, {first[1]}, {first[2]}), one warp a row, lane 0 at the left: {words}."),
        ),
    )  # fmt: skip

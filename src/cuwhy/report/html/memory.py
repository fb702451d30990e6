"""The memory around a faulting address, to scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cuwhy.model.diagnosis import Diagnosis, Finding
from cuwhy.model.facts import Address, Allocation, BlockFact, DriverAllocation, Fault, Launch, SanitizerFault
from cuwhy.report.html.markup import Markup, el, text

_WIDTH = 900.0
_LEFT, _RIGHT = 8.0, 8.0
_TOP, _BAR, _ROW = 46.0, 30.0, 17.0
#: A gap longer than this part of what is drawn is broken.
_LONGEST_GAP = 0.5
_BREAK = 70.0
_MAX_REGIONS = 6
_MAX_LABEL = 110
#: Up to so many bytes are one access, wider than any instruction makes none.
_ONE_ACCESS = 16
#: Regions farther away from the address are not its neighbourhood.
_NEAR = 1 << 40


@dataclass(frozen=True, slots=True)
class Region:
    """Bytes from ``start`` to before ``end`` with a name.

    Attributes:
        free: nobody holds them; pointer: only ``start`` is known, ``end`` is not.
    """

    start: int
    end: int
    name: str
    free: bool = False
    pointer: bool = False

    @property
    def text(self) -> str:
        """Where it is and what it is."""
        if self.pointer:
            return f"{self.start:#x}: {self.name} points here, its size is not known"
        return f"{self.start:#x} to {self.end:#x}: {self.name}"


def memory_picture(diagnosis: Diagnosis, finding: Finding) -> Markup | None:
    """Return the picture of a finding's address and its neighbours, None when there is nothing to draw."""
    for fact in finding.facts:
        if isinstance(fact, Fault) and fact.address is not None:
            picture = _of_fault(diagnosis, fact, fact.address)
        elif isinstance(fact, SanitizerFault) and fact.address is not None and fact.allocation is not None:
            picture = _of_report(fact, fact.address, fact.allocation)
        else:
            continue
        if picture is not None:
            return picture
    return None


def _of_fault(diagnosis: Diagnosis, fault: Fault, address: Address) -> Markup | None:
    width = max(1, address.width)
    low, high = address.low or address.value, (address.high or address.value) + width
    if not low <= address.value < high:
        low, high = address.value, address.value + width
    launch = fault.launch
    if address.space == "shared" or address.window == "shared":
        if launch is None or launch.shared_bytes <= 0 or address.value > 1 << 24:
            return None
        region = Region(
            0,
            launch.shared_bytes,
            f"shared memory of a block with the driver's part, {launch.shared_bytes:,} bytes",
        )
        return _draw([region], low, high, "faulting accesses", "offset in shared memory")
    if address.space not in ("global", "generic", ""):
        return None
    regions = _neighbours(diagnosis, launch, address)
    if not regions:
        return None
    return _draw(regions, low, high, "faulting accesses", "device address")


def _of_report(fault: SanitizerFault, address: int, allocation: Allocation) -> Markup | None:
    if allocation.size <= 0 or abs(address - allocation.address) > _NEAR:
        return None
    region = Region(
        allocation.address,
        allocation.address + allocation.size,
        f"nearest allocation, {allocation.size:,} bytes",
        free=fault.kind == "use-after-free",
    )
    low, high = fault.low or address, max(fault.high, address) + max(1, fault.width)
    return _draw([region], min(low, address), high, "reported accesses", "device address")


def _neighbours(diagnosis: Diagnosis, launch: Launch | None, address: Address) -> list[Region]:
    """What is known of the memory near an address: tensors, blocks of the allocator, driver allocations."""
    found: dict[tuple[int, int], Region] = {}

    def add(start: int, size: int, name: str, free: bool = False) -> None:
        if size > 0 and abs(start - address.value) < _NEAR:
            found.setdefault((start, start + size), Region(start, start + size, name, free))

    targets = [a.target for a in launch.arguments if a.target is not None] if launch is not None else []
    for target in [*targets, *([address.target] if address.target is not None else [])]:
        if target.tensor is not None:
            add(target.tensor.pointer, target.tensor.bytes, target.tensor.text)
        elif target.block is not None:
            block: BlockFact = target.block
            add(
                block.address,
                block.requested or block.size,
                f"PyTorch block, {block.state}",
                not block.in_use,
            )
    labels = {a.value: a.label for a in launch.arguments if a.is_pointer} if launch is not None else {}
    for fact in diagnosis.facts:
        if isinstance(fact, DriverAllocation):
            pointed = [
                label
                for value, label in labels.items()
                if isinstance(value, int) and fact.address <= value < fact.address + fact.size
            ]
            name = f"`{pointed[0]}`, " if pointed else ""
            freed = fact.freed is not None
            add(fact.address, fact.size, f"{name}{fact.size:,} bytes{', freed' if freed else ''}", freed)
    if launch is not None and not found:
        # Sizes are unknown, but where the arguments point is not.
        for argument in launch.arguments:
            if argument.is_pointer and isinstance(argument.value, int) and argument.value:
                start = argument.value
                if abs(start - address.value) < _NEAR:
                    found.setdefault(
                        (start, start), Region(start, start + 1, f"`{argument.label}`", pointer=True)
                    )
        base = next((a.value for a in launch.arguments if a.position == address.base), None)
        if isinstance(base, int) and (base, base) in found:
            # The others say nothing about an address that was computed from this one.
            return [found[base, base]]
    regions = sorted(found.values(), key=lambda r: _gap(r, address.value))[:_MAX_REGIONS]
    return sorted(regions, key=lambda r: (r.start, r.end))


def _gap(region: Region, address: int) -> int:
    return max(region.start - address, address - region.end, 0)


class _Scale:
    """Addresses -> x, with long gaps cut out."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        joined: list[list[int]] = []
        for start, end in sorted(spans):
            if joined and start <= joined[-1][1]:
                joined[-1][1] = max(joined[-1][1], end)
            else:
                joined.append([start, end])
        content = sum(end - start for start, end in joined)
        self.pieces: list[tuple[int, int]] = []
        self.broken: list[int] = []
        for start, end in joined:
            if self.pieces and start - self.pieces[-1][1] <= content * _LONGEST_GAP:
                self.pieces[-1] = (self.pieces[-1][0], end)
            else:
                if self.pieces:
                    self.broken.append(start - self.pieces[-1][1])
                self.pieces.append((start, end))
        room = _WIDTH - _LEFT - _RIGHT - _BREAK * len(self.broken)
        # A piece that would vanish beside a large one keeps a visible width.
        least = room * 0.06
        total = sum(end - start for start, end in self.pieces)
        sizes = [max(least, room * (end - start) / total) for start, end in self.pieces]
        self.widths = [size * room / sum(sizes) for size in sizes]
        self.even = len(self.pieces) == 1

    def x(self, address: int) -> float:
        """Return the x of an address inside a piece."""
        at = _LEFT
        for (start, end), width in zip(self.pieces, self.widths, strict=True):
            if address <= end:
                return at + width * max(0, address - start) / (end - start)
            at += width + _BREAK
        return _WIDTH - _RIGHT

    def breaks(self) -> list[tuple[float, int]]:
        """Return the left x of each cut and the bytes that were cut out."""
        at, found = _LEFT, []
        for width, gap in zip(self.widths, self.broken, strict=False):
            at += width
            found.append((at, gap))
            at += _BREAK
        return found


def size_text(count: int) -> str:
    """Return a number of bytes as a person says it: ``12 bytes``, ``4.0 KiB``, ``1.5 GiB``."""
    if count < 1024:
        return f"{count} byte{'s' if count != 1 else ''}"
    power = min(4, (count.bit_length() - 1) // 10)
    return f"{count / 1024**power:.1f} {('KiB', 'MiB', 'GiB', 'TiB')[power - 1]}"


def _draw(regions: list[Region], low: int, high: int, hits: str, axis: str) -> Markup:
    scale = _Scale([*((r.start, r.end) for r in regions), (low, high)])
    spread = f"{low:#x}" if high - low <= _ONE_ACCESS else f"{low:#x} to {high - 1:#x}"
    shapes = [shape for x, gap in scale.breaks() for shape in _cut(x, gap)]
    row = _TOP + _BAR + _ROW
    for number, region in enumerate(regions, 1):
        shapes += _region(scale, region, number, row)
        row += _ROW
    shapes += _hits(scale, low, high, f"{hits}: {spread}")
    nearest = min(regions, key=lambda r: min(_gap(r, low), _gap(r, high)))
    relation = _relation(nearest, low, high)
    svg = el(
        "svg",
        *shapes,
        viewBox=f"0 0 {_WIDTH:.0f} {row + 2:.0f}",
        role="img",
        aria_label=f"{hits} at {spread}; {relation}",
    )
    how = "to scale" if scale.even else "each piece to its own scale, gaps cut where marked"
    lines = [text(f"{axis}, {how}. {relation[:1].upper()}{relation[1:]}.")]
    if high - low > _ONE_ACCESS:
        lines.append(text(" The band spans the lowest to the highest address seen, not every byte between."))
    return el("figure", el("div", svg, class_="scroll"), el("figcaption", *lines))


def _cut(x: float, gap: int) -> list[Markup]:
    middle = _TOP + _BAR / 2
    label = {"text_anchor": "middle", "class_": "soft"}
    return [
        el("line", x1=x + 4, x2=x + _BREAK - 4, y1=middle, y2=middle, class_="break"),
        el("text", size_text(gap), x=x + _BREAK / 2, y=middle - 5, **label),
    ]


def _region(scale: _Scale, region: Region, number: int, row: float) -> list[Markup]:
    left, right = scale.x(region.start), scale.x(region.end)
    if region.pointer:
        shapes = [el("line", x1=left, x2=left, y1=_TOP - 4, y2=_TOP + _BAR + 4, class_="pointer")]
    else:
        kind = "free" if region.free else "own"
        shapes = [el("rect", x=left, y=_TOP, width=max(1.5, right - left), height=_BAR, class_=kind)]
        if right - left > 12:
            middle = (left + right) / 2
            shapes.append(el("text", str(number), x=middle, y=_TOP + _BAR / 2 + 4, text_anchor="middle"))
    return [
        *shapes,
        el("text", str(number), x=_LEFT, y=row + 2),
        el("text", region.text[:_MAX_LABEL], x=_LEFT + 20, y=row + 2, class_="soft"),
    ]


def _hits(scale: _Scale, low: int, high: int, label: str) -> list[Markup]:
    left, right = scale.x(low), scale.x(high)
    middle = (left + right) / 2
    anchor = "start" if middle < 250 else "end" if middle > _WIDTH - 250 else "middle"
    top, height = _TOP - 6, _BAR + 12
    shapes = [el("rect", x=left, y=top, width=max(2.5, right - left), height=height, class_="hit")]
    shapes += [el("line", x1=x, x2=x, y1=top, y2=top + height, class_="edge") for x in (left, right)]
    return [
        *shapes,
        el("line", x1=middle, x2=middle, y1=top - 14, y2=top, class_="axis"),
        el(
            "text",
            label,
            x=max(_LEFT, min(_WIDTH - _RIGHT, middle)),
            y=top - 18,
            text_anchor=anchor,
            class_="bad",
        ),
    ]


def _relation(region: Region, low: int, high: int) -> str:
    """Say how the accesses lie to the nearest region."""
    name = region.name
    if region.pointer:
        if low >= region.start:
            return f"the lowest access is {size_text(low - region.start)} past where {name} points"
        return f"the highest access is {size_text(region.start - high)} before where {name} points"
    if high <= region.start:
        gap = region.start - high
        return (
            f"the accesses end {size_text(gap)} before {name}"
            if gap
            else f"the accesses end right before {name}"
        )
    if low >= region.end:
        gap = low - region.end
        return f"the accesses begin {size_text(gap) + ' after' if gap else 'right at'} the end of {name}"
    if low >= region.start and high <= region.end:
        return f"the accesses lie inside {name}"
    return f"the accesses reach out of {name}"

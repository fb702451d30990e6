"""Would this launch be accepted, and what of the chip would it waste."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cuwhy.launching.occupancy import Occupancy, fits_registers, occupancy, registers_per_warp
from cuwhy.model.architecture import (
    ARCHITECTURES,
    DEFAULT_SHARED_PER_BLOCK,
    MAX_BLOCK,
    MAX_CLUSTER,
    MAX_GRID,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    PORTABLE_CLUSTER,
    REGISTERS_PER_BLOCK,
    WARP_SIZE,
    Architecture,
    architecture_of,
)
from cuwhy.model.errors import InputError
from cuwhy.model.facts import Dim3

#: Part of the chip's time that a last, partly filled wave may leave idle before it is worth a word.
TAIL_LOSS = 0.10
#: Residency below which more warps can be expected to hide more latency.
LOW_OCCUPANCY = 0.25


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing about a launch.

    Attributes:
        error: True when the launch is refused, False when it only wastes.
        code: stable name ("threads-per-block").
        text: one sentence with the numbers.
        requested, limit: the two numbers where there are two, else None.
        fix: what to change, one sentence.
    """

    error: bool
    code: str
    text: str
    requested: int | None = None
    limit: int | None = None
    fix: str = ""


@dataclass(frozen=True, slots=True)
class LaunchCheck:
    """The answer of :func:`validate_launch_config`.

    Attributes:
        architecture: "sm_90".
        problems: errors first.
        occupancy: residency on one SM; None when there is no valid block.
        waves: grid size over the blocks that the whole chip holds at once; None without
            a number of SMs, or when clusters decide what fits.
        tail_loss: part of the chip's time that the last wave leaves idle if all blocks take
            equally long, 0 to 1; None when unknown.
    """

    architecture: str
    problems: tuple[Problem, ...]
    occupancy: Occupancy | None
    waves: float | None
    tail_loss: float | None

    @property
    def errors(self) -> tuple[Problem, ...]:
        """What would keep it from launching."""
        return tuple(p for p in self.problems if p.error)

    @property
    def warnings(self) -> tuple[Problem, ...]:
        """What it would waste."""
        return tuple(p for p in self.problems if not p.error)

    @property
    def launches(self) -> bool:
        """True when nothing would keep it from launching."""
        return not self.errors


@dataclass(frozen=True, slots=True)
class _Launch:
    grid: Dim3
    block: Dim3
    cluster: Dim3
    registers: int
    static: int
    dynamic: int
    max_dynamic: int | None
    max_threads: int
    cooperative: bool
    sm_count: int

    @property
    def threads(self) -> int:
        return _product(self.block)

    @property
    def blocks(self) -> int:
        return _product(self.grid)


def validate_launch_config(
    architecture: str,
    *,
    grid: int | Iterable[int] = 1,
    block: int | Iterable[int],
    cluster: int | Iterable[int] = 1,
    registers: int = 0,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    max_dynamic_shared: int | None = None,
    max_threads_per_block: int = MAX_THREADS_PER_BLOCK,
    cooperative: bool = False,
    sm_count: int = 0,
) -> LaunchCheck:
    """Check a launch configuration against an architecture's limits; needs no GPU.

    Args:
        architecture: "sm_90", "9.0" or similar.
        grid: blocks, one to three numbers, x first.
        block: threads, likewise.
        cluster: blocks of a cluster, likewise.
        registers: registers of a thread (``ptxas -v``), 0 when not known.
        static_shared: bytes of shared memory that the kernel declares.
        dynamic_shared: bytes that the launch asks for.
        max_dynamic_shared: what ``cudaFuncAttributeMaxDynamicSharedMemorySize`` was set to; None: set as
            needed where the architecture can.
        max_threads_per_block: the kernel's ``__launch_bounds__``.
        cooperative: launched by ``cudaLaunchCooperativeKernel``: all blocks must be resident at once.
        sm_count: SMs of the chip, 0 when not known; waves and cooperative size need it.

    Raises:
        InputError: the architecture is unknown, or a number cannot be one.
    """
    chip = architecture_of(architecture)
    if chip is None:
        known = ", ".join(ARCHITECTURES)
        raise InputError(f"architecture {architecture!r} is not known", hint=f"known are {known}")
    for name, number in (
        ("registers", registers),
        ("static shared memory", static_shared),
        ("dynamic shared memory", dynamic_shared),
        ("the dynamic shared memory limit", max_dynamic_shared or 0),
        ("the number of SMs", sm_count),
    ):
        if number < 0:
            raise InputError(f"{name} is negative: {number}")
    launch = _Launch(
        _dim3("grid", grid),
        _dim3("block", block),
        _dim3("cluster", cluster),
        registers,
        static_shared,
        dynamic_shared,
        max_dynamic_shared,
        max_threads_per_block,
        cooperative,
        sm_count,
    )
    problems = [
        *_block_errors(launch),
        *_grid_errors(launch),
        *_register_errors(launch),
        *_shared_errors(launch, chip),
        *_cluster_errors(launch, chip),
    ]
    resident = None
    if 0 < launch.threads <= MAX_THREADS_PER_BLOCK:
        resident = occupancy(
            chip,
            launch.threads,
            registers,
            static_shared,
            dynamic_shared,
            max_dynamic_shared=max_dynamic_shared,
        )
        problems += _cooperative_errors(launch, resident)
    waves = tail = None
    clustered = _product(launch.cluster) > 1
    if not any(p.error for p in problems) and resident is not None and resident.blocks:
        if sm_count and not clustered and not cooperative:
            waves = launch.blocks / (resident.blocks * sm_count)
            tail = 1 - waves / -(-waves // 1)
        problems += _warnings(launch, chip, resident, waves, tail)
    return LaunchCheck(chip.name, tuple(problems), resident, waves, tail)


def _product(dim: Dim3) -> int:
    return dim[0] * dim[1] * dim[2]


def _dim3(name: str, value: int | Iterable[int]) -> Dim3:
    numbers = [value] if isinstance(value, int) else list(value)
    if not 1 <= len(numbers) <= 3:
        raise InputError(f"{name} has {len(numbers)} axes; it has one to three")
    numbers += [1] * (3 - len(numbers))
    if any(abs(number) >= 1 << 63 for number in numbers):
        raise InputError(f"{name} {'x'.join(map(str, numbers))[:80]}: no such number of anything")
    return numbers[0], numbers[1], numbers[2]


def _axes(name: str, dim: Dim3, limits: Dim3) -> Iterator[Problem]:
    for axis, size, limit in zip("xyz", dim, limits, strict=True):
        if size < 1:
            yield Problem(
                True,
                f"{name}-axis",
                f"the {name} has {size:,} on axis {axis}; at least 1 is needed",
                size,
                1,
                f"skip the launch when there is nothing to do, or round the {name} up",
            )
        elif size > limit:
            fix = (
                "move this axis to x, which reaches 2,147,483,647, or loop over it in the kernel"
                if name == "grid" and axis != "x"
                else "use fewer, and loop in the kernel"
            )
            yield Problem(
                True,
                f"{name}-axis",
                f"the {name} has {size:,} on axis {axis}; the limit is {limit:,}",
                size,
                limit,
                fix,
            )


def _block_errors(launch: _Launch) -> Iterator[Problem]:
    yield from _axes("block", launch.block, MAX_BLOCK)
    if min(launch.block) < 1:
        return
    if launch.threads > MAX_THREADS_PER_BLOCK:
        yield Problem(
            True,
            "threads-per-block",
            f"{launch.threads:,} threads in a block; the limit is {MAX_THREADS_PER_BLOCK:,}",
            launch.threads,
            MAX_THREADS_PER_BLOCK,
            "use smaller blocks and more of them",
        )
    elif launch.threads > launch.max_threads:
        yield Problem(
            True,
            "launch-bounds",
            f"{launch.threads:,} threads in a block; the kernel was compiled for at most {launch.max_threads:,}",
            launch.threads,
            launch.max_threads,
            "raise __launch_bounds__ or launch smaller blocks",
        )


def _grid_errors(launch: _Launch) -> Iterator[Problem]:
    yield from _axes("grid", launch.grid, MAX_GRID)


def _register_errors(launch: _Launch) -> Iterator[Problem]:
    registers, threads = launch.registers, launch.threads
    if not registers or not 0 < threads <= MAX_THREADS_PER_BLOCK or fits_registers(threads, registers):
        return
    if registers > MAX_REGISTERS_PER_THREAD:
        yield Problem(
            True,
            "registers-per-thread",
            f"{registers} registers a thread; the limit is {MAX_REGISTERS_PER_THREAD}",
            registers,
            MAX_REGISTERS_PER_THREAD,
        )
        return
    warps = -(-threads // WARP_SIZE)
    counted = -(-warps // 4) * 4
    needed = registers_per_warp(registers) * counted
    most = REGISTERS_PER_BLOCK // registers_per_warp(registers) // 4 * 4 * WARP_SIZE
    yield Problem(
        True,
        "registers-per-block",
        f"{registers} registers x {threads:,} threads need {needed:,} registers "
        f"({registers_per_warp(registers):,} a warp x {counted} warps); a block can have {REGISTERS_PER_BLOCK:,}",
        needed,
        REGISTERS_PER_BLOCK,
        f"launch at most {most} threads, or compile with __launch_bounds__({threads})",
    )


def _shared_errors(launch: _Launch, chip: Architecture) -> Iterator[Problem]:
    total = launch.static + launch.dynamic
    if launch.static > DEFAULT_SHARED_PER_BLOCK:
        yield Problem(
            True,
            "static-shared-memory",
            f"{launch.static:,} bytes of static shared memory; the limit is {DEFAULT_SHARED_PER_BLOCK:,}",
            launch.static,
            DEFAULT_SHARED_PER_BLOCK,
            "declare it extern and give the size at the launch",
        )
    elif total > chip.shared_per_block:
        yield Problem(
            True,
            "shared-memory",
            f"{total:,} bytes of shared memory ({launch.static:,} static, {launch.dynamic:,} dynamic); "
            f"a block on {chip.name} can have {chip.shared_per_block:,}",
            total,
            chip.shared_per_block,
            "use a smaller tile or fewer stages",
        )
    elif launch.max_dynamic is None:
        return
    elif launch.dynamic > launch.max_dynamic and total > DEFAULT_SHARED_PER_BLOCK:
        yield Problem(
            True,
            "dynamic-shared-memory",
            f"{launch.dynamic:,} bytes of dynamic shared memory; the kernel's limit is set to {launch.max_dynamic:,}",
            launch.dynamic,
            launch.max_dynamic,
            "raise it: cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)",
        )


def _cluster_errors(launch: _Launch, chip: Architecture) -> Iterator[Problem]:
    size = _product(launch.cluster)
    if launch.cluster == (1, 1, 1):
        return
    if min(launch.cluster) < 1:
        yield Problem(True, "cluster-axis", "a cluster has at least 1 block on each axis", size, 1)
        return
    if not chip.clusters:
        yield Problem(
            True,
            "clusters-unsupported",
            f"a cluster of {size} blocks; {chip.name} has no clusters",
            size,
            1,
            "launch without the cluster attribute here",
        )
        return
    if size > MAX_CLUSTER:
        yield Problem(
            True,
            "cluster-size",
            f"a cluster of {size:,} blocks; the limit is {PORTABLE_CLUSTER}, "
            f"and {MAX_CLUSTER} where the chip and the kernel allow it",
            size,
            MAX_CLUSTER,
            "use smaller clusters",
        )
    for axis, blocks, by in zip("xyz", launch.grid, launch.cluster, strict=True):
        if blocks % by:
            yield Problem(
                True,
                "cluster-shape",
                f"the grid has {blocks:,} blocks on axis {axis}, no multiple of the cluster's {by}",
                blocks,
                by,
                "round the grid up to whole clusters, and let the extra blocks do nothing",
            )


def _cooperative_errors(launch: _Launch, resident: Occupancy) -> Iterator[Problem]:
    if not launch.cooperative or not launch.sm_count or not resident.blocks:
        return
    most = resident.blocks * launch.sm_count
    if launch.blocks > most:
        yield Problem(
            True,
            "cooperative-grid",
            f"{launch.blocks:,} blocks in a cooperative launch; {launch.sm_count} SMs x {resident.blocks} blocks "
            f"hold {most:,} at once",
            launch.blocks,
            most,
            "size the grid with cudaOccupancyMaxActiveBlocksPerMultiprocessor and loop in the kernel",
        )


def _lift(launch: _Launch, chip: Architecture, resident: Occupancy) -> str:
    """What would make room for more blocks, where one resource alone is in the way."""
    more = resident.blocks + 1
    if resident.limited_by == ("registers",):
        for registers in range(launch.registers - 1, 0, -1):
            found = occupancy(chip, launch.threads, registers, launch.static, launch.dynamic)
            if found.blocks > resident.blocks:
                return (
                    f"{registers} registers instead of {launch.registers} make room for {found.blocks} blocks: "
                    f"__launch_bounds__({launch.threads}, {found.blocks}), if that does not spill"
                )
    if resident.limited_by == ("shared memory",):
        room = chip.shared_per_sm // more // chip.shared_unit * chip.shared_unit - chip.reserved_shared
        if room > 0:
            return f"{room:,} bytes of shared memory a block instead of {launch.static + launch.dynamic:,} make room for {more}"
    return ""


def _warnings(
    launch: _Launch, chip: Architecture, resident: Occupancy, waves: float | None, tail: float | None
) -> Iterator[Problem]:
    if launch.threads % WARP_SIZE:
        idle = -launch.threads % WARP_SIZE
        yield Problem(
            False,
            "partial-warp",
            f"{launch.threads:,} threads are no multiple of 32: {idle} of the last warp's lanes never work",
            launch.threads,
            WARP_SIZE,
            "use a multiple of 32 threads",
        )
    if launch.cluster != (1, 1, 1) and _product(launch.cluster) > PORTABLE_CLUSTER:
        yield Problem(
            False,
            "cluster-not-portable",
            f"a cluster of {_product(launch.cluster)} blocks launches only with "
            "cudaFuncAttributeNonPortableClusterSizeAllowed, and not on every chip",
            _product(launch.cluster),
            PORTABLE_CLUSTER,
        )
    if launch.max_dynamic is None and launch.static + launch.dynamic > DEFAULT_SHARED_PER_BLOCK:
        yield Problem(
            False,
            "shared-memory-opt-in",
            f"{launch.static + launch.dynamic:,} bytes of shared memory are more than {DEFAULT_SHARED_PER_BLOCK:,}: "
            "refused unless the kernel's limit is raised before",
            launch.static + launch.dynamic,
            DEFAULT_SHARED_PER_BLOCK,
            f"cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, {launch.dynamic})",
        )
    if resident.fraction < LOW_OCCUPANCY:
        yield Problem(
            False,
            "occupancy",
            f"{resident.warps} of {chip.warps_per_sm} warps resident ({resident.fraction:.0%}), "
            f"limited by {' and '.join(resident.limited_by)}",
            resident.warps,
            chip.warps_per_sm,
            _lift(launch, chip, resident),
        )
    if waves is not None and tail is not None and launch.sm_count:
        if launch.blocks < launch.sm_count:
            yield Problem(
                False,
                "idle-sms",
                f"{launch.blocks:,} blocks on {launch.sm_count} SMs: {launch.sm_count - launch.blocks} never work",
                launch.blocks,
                launch.sm_count,
                "split the work into more blocks",
            )
        elif tail > TAIL_LOSS:
            yield Problem(
                False,
                "tail-wave",
                f"{waves:.2f} waves: the last one leaves {tail:.0%} of the chip's time idle if all blocks "
                "take equally long",
                launch.blocks,
                resident.blocks * launch.sm_count,
                "change the tile so that the last wave is full, or let resident blocks loop over the tiles",
            )

"""How many blocks of a kernel are resident on an SM, and what limits them.

The arithmetic is that of ``cuda_occupancy.h`` (CUDA 13.0 toolkit), equal to it for 300 random configurations of
each architecture, and to ``cuOccupancyMaxActiveBlocksPerMultiprocessor`` for 900 on an H200 (driver 580.159.04;
``tests/data/occupancy``).
"""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.model.architecture import (
    DEFAULT_SHARED_PER_BLOCK,
    MAX_REGISTERS_PER_THREAD,
    MAX_THREADS_PER_BLOCK,
    PARTITIONS_PER_SM,
    REGISTER_UNIT,
    REGISTERS_PER_BLOCK,
    REGISTERS_PER_SM,
    WARP_SIZE,
    Architecture,
)


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Residency of one kernel on one SM.

    Attributes:
        blocks: blocks resident at once, 0 when a block does not fit at all.
        warps: warps of them.
        fraction: those warps of all that an SM can hold, 0 to 1.
        limits: by resource ("warps", "blocks", "registers", "shared memory"), the
            blocks it would allow alone; a resource that is not used is left out.
        limited_by: the resources that allow the fewest.
        registers_per_block: as allocated, granularity included.
        shared_per_block: bytes as allocated, the driver's reserve included.
    """

    blocks: int
    warps: int
    fraction: float
    limits: dict[str, int]
    limited_by: tuple[str, ...]
    registers_per_block: int
    shared_per_block: int


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def registers_per_warp(registers: int) -> int:
    """Registers that a warp is given when each thread uses ``registers``."""
    return _up(registers * WARP_SIZE, REGISTER_UNIT)


def fits_registers(threads: int, registers: int) -> bool:
    """Tell whether a block's registers fit; a block's warps count as a multiple of four."""
    warps = _up(-(-threads // WARP_SIZE), PARTITIONS_PER_SM)
    return registers <= MAX_REGISTERS_PER_THREAD + 1 and (
        registers_per_warp(registers) * warps <= REGISTERS_PER_BLOCK
    )


def occupancy(
    architecture: Architecture,
    threads: int,
    registers: int = 0,
    static_shared: int = 0,
    dynamic_shared: int = 0,
    *,
    max_dynamic_shared: int | None = None,
) -> Occupancy:
    """Return how many blocks are resident on an SM of ``architecture``.

    Args:
        architecture: the chip.
        threads: of a block, 1 to 1024; more gives no residency.
        registers: of a thread; 0 when not known, which leaves that limit out.
        static_shared: bytes of shared memory the kernel declares.
        dynamic_shared: bytes the launch asks for.
        max_dynamic_shared: what ``cudaFuncAttributeMaxDynamicSharedMemorySize`` was set to, None when it is
            set as needed.

    Raises:
        ValueError: a number is negative, or there is no thread.
    """
    if threads < 1 or min(registers, static_shared, dynamic_shared) < 0:
        raise ValueError("a block has at least one thread, and no resource is negative")
    warps = -(-threads // WARP_SIZE)
    limits = {
        "warps": architecture.warps_per_sm // warps if threads <= MAX_THREADS_PER_BLOCK else 0,
        "blocks": architecture.blocks_per_sm,
    }
    if registers:
        limits["registers"] = 0
        if fits_registers(threads, registers):
            per_partition = REGISTERS_PER_SM // PARTITIONS_PER_SM // registers_per_warp(registers)
            limits["registers"] = per_partition * PARTITIONS_PER_SM // warps
    if max_dynamic_shared is not None:
        # The header refuses more than the limit that was set; the driver on an H200 lets a limit below the
        # default be exceeded up to the default.
        max_dynamic_shared = max(max_dynamic_shared, DEFAULT_SHARED_PER_BLOCK - static_shared)
    wanted = static_shared + dynamic_shared
    allowed = DEFAULT_SHARED_PER_BLOCK if max_dynamic_shared is None else static_shared + max_dynamic_shared
    if max_dynamic_shared is None or allowed > DEFAULT_SHARED_PER_BLOCK:
        allowed = architecture.shared_per_block
    else:
        allowed = DEFAULT_SHARED_PER_BLOCK
    allocated = _up(wanted + architecture.reserved_shared, architecture.shared_unit)
    if allocated:
        fits = allocated <= allowed + architecture.reserved_shared and (
            max_dynamic_shared is None or dynamic_shared <= max_dynamic_shared
        )
        limits["shared memory"] = architecture.shared_per_sm // allocated if fits else 0
    blocks = min(limits.values())
    return Occupancy(
        blocks=blocks,
        warps=blocks * warps,
        fraction=blocks * warps / architecture.warps_per_sm,
        limits=limits,
        limited_by=tuple(name for name, most in limits.items() if most == blocks),
        registers_per_block=registers_per_warp(registers) * warps,
        shared_per_block=allocated,
    )

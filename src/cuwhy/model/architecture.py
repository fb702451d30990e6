"""The limits of each GPU architecture that decide whether a launch is possible and how much of a chip it fills.

Sources: the table "Technical Specifications per Compute Capability" of the CUDA C++ Programming Guide 13, and
``cuda_occupancy.h`` 12.1 of the CUDA 13.0 toolkit for allocation granularities and shared-memory sizes.  Where
the two disagree (blocks per SM of compute capability 12.x: guides print 24 and 32), the header's value stands,
which is what the occupancy functions use.  sm_90 was compared with an H200.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_KIB = 1024
_FULL = (0, 8, 16, 32, 64, 100, 132, 164, 196, 228)

#: Alike on every architecture from 7.5 to 12.1.
WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
REGISTERS_PER_SM = 65536
REGISTERS_PER_BLOCK = 65536
MAX_REGISTERS_PER_THREAD = 255
#: Registers are given to a warp in units of this many.
REGISTER_UNIT = 256
#: Each has a quarter of the registers; a block's warps are dealt out to them in turn.
PARTITIONS_PER_SM = 4
#: What a block can have of shared memory without asking (cudaFuncAttributeMaxDynamicSharedMemorySize).
DEFAULT_SHARED_PER_BLOCK = 48 * _KIB
#: Blocks in a cluster on every chip that has clusters, and the most that a chip may allow.
PORTABLE_CLUSTER = 8
MAX_CLUSTER = 16


@dataclass(frozen=True, slots=True)
class Architecture:
    """One compute capability.

    Attributes:
        name: "sm_90".
        threads_per_sm, blocks_per_sm: most that are resident at once.
        shared_sizes: bytes of shared memory that an SM can be split to have, ascending.
        shared_per_block: bytes a block can have when it asks for them, static and dynamic together.
        reserved_shared: bytes the driver takes of each block's share.
        shared_unit: bytes; shared memory is given out in units of this.
        clusters: True where thread block clusters exist.
        example: a product.
    """

    name: str
    threads_per_sm: int
    blocks_per_sm: int
    shared_sizes: tuple[int, ...]
    shared_per_block: int
    reserved_shared: int
    shared_unit: int
    clusters: bool
    example: str

    @property
    def warps_per_sm(self) -> int:
        """Warps that are resident at once, at most."""
        return self.threads_per_sm // WARP_SIZE

    @property
    def shared_per_sm(self) -> int:
        """Bytes of shared memory of an SM, at most."""
        return self.shared_sizes[-1]


def _architecture(
    name: str, threads: int, blocks: int, sizes: tuple[int, ...], clusters: bool, example: str
) -> Architecture:
    old = name == "sm_75"
    largest = sizes[-1] * _KIB
    return Architecture(
        name=name,
        threads_per_sm=threads,
        blocks_per_sm=blocks,
        shared_sizes=tuple(size * _KIB for size in sizes),
        shared_per_block=largest if old else largest - _KIB,
        reserved_shared=0 if old else _KIB,
        shared_unit=256 if old else 128,
        clusters=clusters,
        example=example,
    )


#: By name.
ARCHITECTURES = {
    a.name: a
    for a in (
        _architecture("sm_75", 1024, 16, (32, 64), False, "T4"),
        _architecture("sm_80", 2048, 32, _FULL[:8], False, "A100"),
        _architecture("sm_86", 1536, 16, _FULL[:6], False, "A10, RTX 3090"),
        _architecture("sm_87", 1536, 16, _FULL[:8], False, "Jetson Orin"),
        _architecture("sm_89", 1536, 24, _FULL[:6], False, "L4, L40S, RTX 4090"),
        _architecture("sm_90", 2048, 32, _FULL, True, "H100, H200"),
        _architecture("sm_100", 2048, 32, _FULL, True, "B200"),
        _architecture("sm_103", 2048, 32, _FULL, True, "B300"),
        _architecture("sm_110", 1536, 24, _FULL, True, "Jetson Thor"),
        _architecture("sm_120", 1536, 24, _FULL[:6], True, "RTX PRO 6000, RTX 5090"),
        _architecture("sm_121", 1536, 24, _FULL[:6], True, "DGX Spark"),
    )
}


def architecture_of(text: str) -> Architecture | None:
    """The architecture that a name means: "sm_90", "sm_90a", "compute_90", "9.0", "90"; None when unknown."""
    found = re.fullmatch(r"(?:sm_|compute_)?(\d{2,3})[af]?|(\d{1,2})\.(\d)", text.strip().lower(), re.ASCII)
    if found is None:
        return None
    number = found[1] or f"{found[2]}{found[3]}"
    return ARCHITECTURES.get(f"sm_{number}")

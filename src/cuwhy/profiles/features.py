"""Twelve numbers that say where a launch's time goes, and three about how its blocks fill the chip.

Each number has one formula over metrics of Nsight Compute 2025.3 on sm_90 (docs/profiles.md); a number whose
metrics were not collected is None, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.model.profile import ProfiledLaunch

_STALL = "smsp__average_warps_issue_stalled_"
_STALL_END = "_per_issue_active.ratio"
#: Warps that issue, or could: no stall.
_BUSY = ("selected", "not_selected")
_LOCAL = ("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum")
_GLOBAL = ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum")
_TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
_TENSOR_PARTS = tuple(
    f"sm__inst_executed_pipe_tensor_op_{op}.avg.pct_of_peak_sustained_active"
    for op in ("hmma", "gmma", "imma", "dmma")
)


@dataclass(frozen=True, slots=True)
class Stall:
    """Why warps wait most: the reason's name, and its share of all warps' time, 0 to 100 %."""

    reason: str
    share: float


@dataclass(frozen=True, slots=True)
class Features:
    """The feature vector of one launch; percentages are 0 to 100.

    Attributes:
        warp_execution_efficiency: lanes that are active in an executed instruction, % of 32.
        divergent_branch_share: branches at which the lanes of a warp part, % of all branches.
        shared_excess: shared-memory wavefronts beyond the ideal number, % of all.
        global_excess: 32-byte sectors of global accesses beyond the ideal number, % of all.
        l1_hit, l2_hit: hit rates, %.
        dram_throughput, sm_throughput: % of the peak.
        occupancy, theoretical_occupancy: warps resident, % of an SM's; measured, and as the launch allows.
        local_share: sectors of local memory (spills, local arrays), % of local and global ones.
        tensor_utilisation: % of the tensor pipe's peak.
        stall: the dominant stall reason, None when warps were mostly not stalled or nothing was collected.
        waves: grid size over what the chip holds at once.
        tail_loss: % of the chip's time that the last wave leaves idle if blocks take equally long.
        imbalance: % of the longest SM's active time that the average SM is idle.
        microseconds: duration.
    """

    warp_execution_efficiency: float | None = None
    divergent_branch_share: float | None = None
    shared_excess: float | None = None
    global_excess: float | None = None
    l1_hit: float | None = None
    l2_hit: float | None = None
    dram_throughput: float | None = None
    sm_throughput: float | None = None
    occupancy: float | None = None
    theoretical_occupancy: float | None = None
    local_share: float | None = None
    tensor_utilisation: float | None = None
    stall: Stall | None = None
    waves: float | None = None
    tail_loss: float | None = None
    imbalance: float | None = None
    microseconds: float | None = None


def features_of(launch: ProfiledLaunch) -> Features:
    """Return the feature vector of a launch."""
    lanes = launch.value("smsp__thread_inst_executed_per_inst_executed.ratio")
    waves = launch.value("launch__waves_per_multiprocessor")
    longest = launch.value("sm__cycles_active.max")
    average = launch.value("sm__cycles_active.avg")
    duration = launch.value("gpu__time_duration.sum")
    return Features(
        warp_execution_efficiency=lanes / 32 * 100 if lanes is not None else None,
        divergent_branch_share=_share(
            launch.value("smsp__sass_branch_targets_threads_divergent.sum"),
            launch.value("smsp__inst_executed_op_branch.sum"),
        ),
        shared_excess=_share(
            _total(launch, "derived__memory_l1_wavefronts_shared_excessive"),
            _total(launch, "memory_l1_wavefronts_shared"),
        ),
        global_excess=_share(
            _total(launch, "derived__memory_l2_theoretical_sectors_global_excessive"),
            _total(launch, "memory_l2_theoretical_sectors_global"),
        ),
        l1_hit=launch.value("l1tex__t_sector_hit_rate.pct"),
        l2_hit=launch.value("lts__t_sector_hit_rate.pct"),
        dram_throughput=launch.value("gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed"),
        sm_throughput=launch.value("sm__throughput.avg.pct_of_peak_sustained_elapsed"),
        occupancy=launch.value("sm__warps_active.avg.pct_of_peak_sustained_active"),
        theoretical_occupancy=launch.value("sm__maximum_warps_per_active_cycle_pct"),
        local_share=_local_share(launch),
        tensor_utilisation=_tensor(launch),
        stall=dominant_stall(launch),
        waves=waves,
        tail_loss=(1 - waves / -(-waves // 1)) * 100 if waves else None,
        imbalance=(1 - average / longest) * 100 if average is not None and longest else None,
        microseconds=duration / 1000 if duration is not None else None,
    )


def stalls(launch: ProfiledLaunch) -> dict[str, float]:
    """Warps that wait for each reason when the scheduler issues, by reason; "selected" is the one that issues."""
    found = {}
    for name in launch.metrics:
        if name.startswith(_STALL) and name.endswith(_STALL_END):
            value = launch.value(name)
            if value is not None:
                found[name[len(_STALL) : -len(_STALL_END)]] = value
    return found


def dominant_stall(launch: ProfiledLaunch) -> Stall | None:
    """The reason that warps wait for most, None when none was collected."""
    found = stalls(launch)
    total = sum(found.values())
    waiting = {reason: value for reason, value in found.items() if reason not in _BUSY}
    if not waiting or not total:
        return None
    reason = max(waiting, key=lambda name: waiting[name])
    return Stall(reason, waiting[reason] / total * 100)


def _share(part: float | None, whole: float | None) -> float | None:
    return part / whole * 100 if part is not None and whole else None


def _total(launch: ProfiledLaunch, counter: str) -> float | None:
    """Sum of a counter over the instructions, else the launch's own value; None when not collected."""
    values = [value for _, value in launch.counted(counter)]
    return sum(values) if values else launch.value(counter)


def _local_share(launch: ProfiledLaunch) -> float | None:
    local = [launch.value(name) for name in _LOCAL]
    everywhere = [launch.value(name) for name in _GLOBAL]
    if any(value is None for value in (*local, *everywhere)):
        return None
    part = sum(value for value in local if value is not None)
    whole = part + sum(value for value in everywhere if value is not None)
    return part / whole * 100 if whole else 0.0


def _tensor(launch: ProfiledLaunch) -> float | None:
    whole = launch.value(*_TENSOR)
    if whole is not None:
        return whole
    parts = [value for name in _TENSOR_PARTS if (value := launch.value(name)) is not None]
    return max(parts) if parts else None

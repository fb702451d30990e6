"""One run of a command under Nsight Compute: its command line, and what became of the report."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cuwhy.model.errors import ToolMissing
from cuwhy.model.profile import ProfiledLaunch
from cuwhy.profiles.ncu import parse_ncu_report

_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")
TIME = "gpu__time_duration.sum"
#: The counters can be read by administrators only.
NO_PERMISSION = "ERR_NVGPUCTRPERM"
_LOG_BYTES = 1 << 20
_SECTIONS = (
    "SpeedOfLight",
    "LaunchStats",
    "Occupancy",
    "WarpStateStats",
    "SourceCounters",
)
_MORE_SECTIONS = (
    "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables",
    "MemoryWorkloadAnalysis_Chart",
    "SchedulerStats",
    "ComputeWorkloadAnalysis",
    "InstructionStats",
)
#: What the feature vector needs beyond the sections; ncu 2025.3 has every one of them on sm_90.
_METRICS = (
    "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__inst_executed_op_branch.sum",
    "sm__cycles_active.max",
    "sm__cycles_active.avg",
    "sm__cycles_active.min",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "lts__t_requests_srcunit_tex_op_red.sum",
    "lts__t_sectors_op_red.sum",
    "lts__t_sectors_op_atom.sum",
    "lts__d_atomic_input_cycles_active.avg.pct_of_peak_sustained_elapsed",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_red.sum",
    TIME,
    "smsp__inst_executed.sum",
    "sm__inst_executed_pipe_tensor_op_hmma.avg.pct_of_peak_sustained_active",
)
#: One metric (or the beginning of its name) that is there when its section was collected.
_PROOF = {
    "SpeedOfLight": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "LaunchStats": "launch__grid_size",
    "Occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "WarpStateStats": "smsp__average_warps_issue_stalled_",
    "MemoryWorkloadAnalysis": "l1tex__t_sector_hit_rate.pct",
}


@dataclass(frozen=True, slots=True)
class Collection:
    """What is asked of ncu.

    Attributes:
        name: for people.
        sections: identifiers; metrics: names.
    """

    name: str
    sections: tuple[str, ...]
    metrics: tuple[str, ...]


#: From the widest to the narrowest; what one does not give, the next is asked for.
COLLECTIONS = (
    Collection("all sections", _SECTIONS + _MORE_SECTIONS, _METRICS),
    # A GPU that lacks one metric makes ncu refuse the whole run.
    Collection("all sections, no single metrics", _SECTIONS + _MORE_SECTIONS, ()),
    Collection("five sections", _SECTIONS, ()),
)
ONLY_TIME = Collection("durations", (), (TIME,))


@dataclass(frozen=True, slots=True)
class Window:
    """Which launches are profiled.

    Attributes:
        kernel: regular expression for the base name, empty for all; exact: it is the name itself.
        nvtx: NVTX range or ncu's own expression for ranges; empty for everywhere.
        skip: matching launches before the first that is profiled; count: how many, 0 for all.
    """

    kernel: str = ""
    exact: bool = False
    nvtx: str = ""
    skip: int = 0
    count: int = 1


def find_ncu() -> str:
    """Return the path of ncu.

    Raises:
        ToolMissing: it is not installed.
    """
    for folder in (None, *(f"{cuda}/bin" for cuda in _CUDA_FOLDERS)):
        found = shutil.which("ncu", path=folder)
        if found:
            return found
    raise ToolMissing(
        "ncu (Nsight Compute) is not installed here", hint="it comes with the CUDA toolkit; put it on PATH"
    )


def command_line(
    ncu: str, collection: Collection, window: Window, report: Path, log: Path, command: Sequence[str]
) -> list[str]:
    """Return argv of ncu around a command; the report is written to ``report``, ncu's own words to ``log``."""
    argv = [ncu, "--clock-control", "none", "--target-processes", "all", "--log-file", str(log)]
    argv += ["--force-overwrite", "--export", str(report.with_suffix(""))]
    for section in collection.sections:
        argv += ["--section", section]
    if collection.metrics:
        argv += ["--metrics", ",".join(collection.metrics)]
    if window.kernel:
        argv += ["--kernel-name", window.kernel if window.exact else f"regex:{window.kernel}"]
    if window.nvtx:
        argv.append("--nvtx")
        for expression in _ranges(window.nvtx):
            argv += ["--nvtx-include", expression]
    if window.skip:
        argv += ["--launch-skip", str(window.skip)]
    if window.count:
        argv += ["--launch-count", str(window.count)]
    return [*argv, *command]


def _ranges(name: str) -> list[str]:
    # ncu writes push/pop ranges with a slash and start/end ranges without; a plain name can be either.
    return [name] if re.search(r"[/@\[\]*]", name) else [f"{name}/", name]


def said(log: Path) -> str:
    """What ncu said, its end; empty when it said nothing."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            return file.read(_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def complaint(text: str) -> str:
    """The last thing that ncu calls an error, else a warning, without its marks; empty when there is none."""
    for mark in ("==ERROR==", "==WARNING=="):
        lines = [line.partition(mark)[2].strip() for line in text.splitlines() if mark in line]
        lines = [line for line in lines if line and not line.startswith("Note:")]
        if lines:
            return lines[-1][:300]
    return ""


def application_code(text: str) -> int:
    """The exit code of the program, 0 when it ended well, or when ncu itself has ended it."""
    if "Trying to shutdown target application" in text:
        return 0
    found = re.findall(r"The application returned an error code \((\d{1,3})\)", text)
    return int(found[-1]) if found else 0


def nothing_matched(text: str) -> bool:
    """True when ncu says that no launch passed its filters."""
    return "No kernels were profiled" in text


def available_kernels(text: str) -> list[str]:
    """The kernels that ncu lists when no launch passed its filters."""
    _, _, rest = text.partition("Available Kernels:")
    return re.findall(r"^\s*\d{1,5}\. (\S.{0,300}?)\s*$", rest, re.M)[:50]


def passes(text: str) -> int:
    """How often a launch was replayed, 0 when ncu does not say."""
    found = re.findall(r" - (\d{1,4}) pass", text)
    return int(found[-1]) if found else 0


@dataclass(frozen=True, slots=True)
class Checked:
    """A report, compared with what was asked for.

    Attributes:
        launches: what it holds.
        problems: why it will not do, one phrase each.
        absent: single metrics that this GPU did not give; the rest is of use without them.
    """

    launches: tuple[ProfiledLaunch, ...]
    problems: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def checked(report: Path, collection: Collection, window: Window) -> Checked:
    """Open a report and compare it with what was asked for.

    Raises:
        InputError: it is not there, damaged or empty.
        ToolMissing: NVIDIA's reader is not installed.
    """
    launches = parse_ncu_report(report)
    problems = []
    absent: set[str] = set()
    if window.kernel:
        strangers = [one.short for one in launches if not _matches(window, one)]
        if strangers:
            problems.append(f"it holds {strangers[0]}, which was not asked for")
    if window.count and len(launches) < window.count:
        problems.append(f"{len(launches)} launches instead of {window.count}")
    for launch in launches:
        for section in collection.sections:
            proof = _PROOF.get(section)
            if proof and not any(name.startswith(proof) for name in launch.metrics):
                problems.append(f"{launch.short} lacks section {section}")
        if "SourceCounters" in collection.sections and not launch.instructions:
            problems.append(f"{launch.short} lacks counters by instruction")
        absent.update(metric for metric in collection.metrics if metric not in launch.metrics)
    return Checked(tuple(launches), tuple(dict.fromkeys(problems)), tuple(sorted(absent)))


def _matches(window: Window, launch: ProfiledLaunch) -> bool:
    # ncu's base names and ours differ for lambdas and operators: ncu is believed there.
    if not launch.short.isidentifier():
        return True
    if window.exact:
        return launch.short == window.kernel
    return re.search(window.kernel, launch.short) is not None

"""Where the time goes and what one launch's counters say, as terminal text."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.launching.check import LaunchCheck, validate_launch_config
from cuwhy.model.errors import InputError
from cuwhy.model.profile import ProfiledLaunch
from cuwhy.profiles.annotate import AnnotatedKernel
from cuwhy.profiles.features import Features
from cuwhy.profiles.survey import KernelTime, Survey
from cuwhy.report.escape import safe

_MAX_ROWS = 10
_METHODS = {"nsys": "Nsight Systems", "torch": "PyTorch's profiler", "ncu": "ncu, durations only"}
#: Names of the counters that a line is listed for, and what their sums are called.
_LISTED = (
    ("shared_excess", "excess shared wavefronts"),
    ("global_excess", "excess global sectors"),
    ("local_sectors", "local-memory sectors"),
    ("samples", "stall samples"),
)
_MIN_SHARE = 5.0


def render_survey(survey: Survey, *, width: int = 80) -> str:
    """Return the table of kernels, the one with most time first."""
    rows = survey.kernels[:_MAX_ROWS]
    lines = [
        f"where the GPU's time goes: {survey.nanoseconds / 1e6:,.3f} ms in {survey.launches:,} launches "
        f"({_METHODS.get(survey.method, survey.method)})",
        "   share   launches    total ms     avg us  kernel",
    ]
    for one in rows:
        more = f" ({one.variants} variants)" if one.variants > 1 else ""
        lines.append(
            f"  {one.share:5.1f} %  {one.launches:9,}  {one.nanoseconds / 1e6:10,.3f} {one.nanoseconds / one.launches / 1e3:10,.1f}"
            f"  {safe(one.kernel, max(20, width - 48))}{more}"
        )
    left = len(survey.kernels) - len(rows)
    if left:
        share = sum(one.share for one in survey.kernels[_MAX_ROWS:])
        lines.append(f"  {share:5.1f} %  in {left:,} more kernels")
    return "".join(f"{line}\n" for line in lines)


def render_without_counters(survey: Survey, *, count: int = 3) -> str:
    """Return what the launch configuration alone tells of the kernels with most time; empty when nothing does."""
    lines = []
    for one in survey.kernels[:count]:
        check = _check(one, survey)
        if check is None or check.occupancy is None:
            continue
        seen = check.occupancy
        lines.append(
            f"{safe(one.kernel, 60)}: at most {seen.fraction * 100:.0f} % occupancy, limited by {' and '.join(seen.limited_by)}"
            + (f"; {check.waves:.2f} waves" if check.waves is not None else "")
        )
        lines += [f"  {safe(problem.text, 300)}" for problem in check.problems]
    return "".join(f"{line}\n" for line in lines)


def _check(one: KernelTime, survey: Survey) -> LaunchCheck | None:
    sample = one.sample
    # Without registers and shared memory an occupancy would be a guess.
    if sample.registers is None or sample.shared is None or not sample.block[0]:
        return None
    try:
        return validate_launch_config(
            survey.architecture,
            grid=sample.grid,
            block=sample.block,
            registers=sample.registers,
            dynamic_shared=sample.shared,
            sm_count=survey.sms,
        )
    except InputError:
        return None


def render_launch(launch: ProfiledLaunch, features: Features, kernel: AnnotatedKernel) -> str:
    """Return a launch's feature vector and the lines that its counters stand at."""
    head = safe(launch.short, 100)
    if launch.grid[0]:
        head += f"  grid {_dim(launch.grid)}, block {_dim(launch.block)}"
    if features.microseconds is not None:
        head += f", {features.microseconds:,.1f} us"
    lines = [head]
    lines += [f"  {name:<28} {value}" for name, value in _values(features)]
    for counter, words in _LISTED:
        top = [
            line for line in kernel.top(counter, 3) if line.line and line.shares.get(counter, 0) >= _MIN_SHARE
        ]
        for line in top:
            base = line.file.replace("\\", "/").rpartition("/")[2]
            stall = f", {line.stall.replace('_', ' ')}" if counter == "samples" and line.stall else ""
            lines.append(
                f"  {safe(base, 60)}:{line.line}: {line.shares[counter]:.0f} % of the {words} ({line.counts[counter]:,.0f}){stall}"
            )
            if line.text:
                lines.append(f"      {safe(line.text.strip(), 100)}")
    lines += [f"  note: {safe(note, 300)}" for note in kernel.notes]
    return "".join(f"{line}\n" for line in lines)


def _values(features: Features) -> Iterator[tuple[str, str]]:
    for name, value in (
        ("DRAM throughput", features.dram_throughput),
        ("SM throughput", features.sm_throughput),
        ("tensor pipe", features.tensor_utilisation),
        ("L1/TEX hit rate", features.l1_hit),
        ("L2 hit rate", features.l2_hit),
        ("active lanes", features.warp_execution_efficiency),
        ("divergent branches", features.divergent_branch_share),
        ("excess shared wavefronts", features.shared_excess),
        ("excess global sectors", features.global_excess),
        ("local-memory sectors", features.local_share),
    ):
        if value is not None:
            yield name, f"{value:.1f} %"
    if features.occupancy is not None:
        most = features.theoretical_occupancy
        yield "occupancy", f"{features.occupancy:.1f} %" + (f" of {most:.1f} %" if most is not None else "")
    if features.stall is not None:
        yield (
            "dominant stall",
            f"{features.stall.reason.replace('_', ' ')}, {features.stall.share:.0f} % of warp time",
        )
    if features.waves is not None:
        tail = f", {features.tail_loss:.1f} % idle in the last" if features.tail_loss is not None else ""
        yield "waves", f"{features.waves:.2f}{tail}"
    if features.imbalance is not None:
        yield "imbalance between SMs", f"{features.imbalance:.1f} %"


def _dim(dim: tuple[int, int, int]) -> str:
    return "x".join(map(str, dim))

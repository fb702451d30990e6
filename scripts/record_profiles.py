#!/usr/bin/env python3
"""Profile, on a machine with a GPU, every corpus program whose ``record`` names "ncu".

    python3 scripts/record_profiles.py corpus-pending --out OUT [--seconds 120]

Programs are built in parallel and profiled one at a time, about 5 s each; OUT gets one ``profiles.tar.xz``.
Standard library only (Python 3.11 or newer).
"""

from __future__ import annotations

import argparse
import lzma
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import tomllib

SECTIONS = (
    "SpeedOfLight", "Occupancy", "WarpStateStats", "SourceCounters", "LaunchStats", "MemoryWorkloadAnalysis",
    "MemoryWorkloadAnalysis_Tables", "MemoryWorkloadAnalysis_Chart", "SchedulerStats", "ComputeWorkloadAnalysis",
    "InstructionStats",
)  # fmt: skip
#: What cuwhy.profiles.features needs beyond the sections.
METRICS = (
    "smsp__sass_branch_targets_threads_divergent.sum",
    "smsp__inst_executed_op_branch.sum",
    "sm__cycles_active.max",
    "sm__cycles_active.avg",
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum",
    "lts__t_sectors_op_red.sum",
    "gpu__time_duration.sum",
)


def run(command: list[str], folder: Path, seconds: float) -> tuple[int, bytes]:
    """Exit code (124: took too long, 127: could not be started) and output."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        return 124, error.stdout or b""
    except OSError as error:
        return 127, str(error).encode()
    return done.returncode, done.stdout


def build(root: Path, folder: Path, truth: dict[str, Any]) -> tuple[Path, str]:
    """Build one program in a neutral folder; its folder, and what the compiler said when it failed."""
    kind, _, stem = folder.name.partition("_")
    work = root / (stem if kind == "bad" else f"{stem}_2")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    shutil.copy(folder / truth["file"], work)
    code, output = run(["/bin/sh", "-c", truth["build"]], work, 90)
    return work, output.decode("utf-8", "replace") if code else ""


def profile(work: Path, truth: dict[str, Any], target: Path) -> str:
    """Time the program plainly, then profile its second launch of the kernel; one line for the summary."""
    command = shlex.split(truth["command"])
    target.mkdir(parents=True)
    _, plain = run(command, work, 15)
    (target / "log.txt").write_bytes(plain)
    ncu = ["ncu", "--clock-control", "none", "--kernel-name", truth["kernel"], "--launch-skip", "1"]
    ncu += ["--launch-count", "1", "-f", "-o", "report"]
    for section in SECTIONS:
        ncu += ["--section", section]
    # A metric that this version does not know must not cost the report.
    for extra in (["--metrics", ",".join(METRICS)], []):
        code, output = run([*ncu, *extra, *command], work, 60)
        report = work / "report.ncu-rep"
        if code == 0 and report.is_file():
            shutil.copy(report, target)
            return f"{plain.decode('utf-8', 'replace').strip()[-40:]}, {report.stat().st_size:,} bytes"
    return f"FAILED: {output[-200:].decode('utf-8', 'replace')}"


def main() -> int:
    """Profile everything that fits into the time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--root", type=Path, default=Path("/demo"))
    parser.add_argument("--seconds", type=float, default=120)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    cases = []
    for path in sorted(options.corpus.glob("*/*/*/truth.toml")):
        truth = tomllib.loads(path.read_text("utf-8"))
        if "ncu" in truth["record"]:
            cases.append((path.parent, truth))
    with ThreadPoolExecutor(8) as pool:
        built = list(pool.map(lambda case: build(options.root, *case), cases))
    stage = options.out / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    for (folder, truth), (work, problem) in zip(cases, built, strict=True):
        name = folder.relative_to(options.corpus)
        if problem:
            print(f"{name}: BUILD FAILED: {problem[-200:]}", flush=True)
        elif end - time.monotonic() < 8:
            print(f"{name}: no time left", flush=True)
        else:
            print(f"{name}: {profile(work, truth, stage / name / 'evidence')}", flush=True)
    packed = options.out / "profiles.tar.xz"
    with lzma.open(packed, "wb", preset=3) as stream, tarfile.open(fileobj=stream, mode="w|") as archive:
        archive.add(stage, arcname=".")
    print(f"{packed}: {packed.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())

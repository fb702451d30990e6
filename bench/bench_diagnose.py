"""Time and memory of ``cuwhy diagnose`` as a whole process, beside cuda-gdb where it is installed.

    python bench/bench_diagnose.py DUMPS [--runs 10] [--markdown]

DUMPS is a folder with raw core dumps (``oob.nvcudmp``, ``crash_full.nvcudmp``, …), such as the
starter evidence unpacked.  Every number is the median over the runs, in one go on one
machine.  cuda-gdb is asked for less than cuwhy says: the kernel and the innermost frame.
Exit code 1 when a limit of the project is broken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

#: (limit in seconds, limit in MB) by what is run; None where the project sets none.
LIMITS = {
    "cuwhy --help": (0.12, None),
    "oob.nvcudmp": (0.40, 150),
    "crash_full.nvcudmp": (0.60, 150),
    "case of 400 KB": (0.30, 150),
}


def measure(argv: list[str], runs: int) -> tuple[float, float]:
    """Median wall seconds and highest peak memory (MB) of a command, after one run that warms the caches."""
    seconds, peak = [], 0.0
    subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    for _ in range(runs):
        start = time.perf_counter()
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, _, usage = os.wait4(process.pid, 0)
        seconds.append(time.perf_counter() - start)
        peak = max(peak, usage.ru_maxrss / 1024)
    return statistics.median(seconds), peak


def main() -> int:
    """Measure everything and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dumps", type=Path)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    # An installed package has its bytecode; a developer's shell may have switched that off.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    cuwhy = [sys.executable, "-m", "cuwhy"]
    gdb = shutil.which("cuda-gdb")
    dumps = sorted(arguments.dumps.glob("*.nvcudmp"))
    jobs: list[tuple[str, list[str], list[str] | None]] = [("cuwhy --help", [*cuwhy, "--help"], None)]
    with tempfile.TemporaryDirectory() as scratch:
        for dump in dumps:
            peer = [gdb, "-batch", "-ex", f"target cudacore {dump}", "-ex", "bt"] if gdb else None
            jobs.append((dump.name, [*cuwhy, "diagnose", str(dump)], peer))
        oob = arguments.dumps / "oob.nvcudmp"
        if oob in dumps:
            case = Path(scratch) / "oob.cuwhy"
            subprocess.run(
                [*cuwhy, "case", "pack", str(case), str(oob)], check=True, stdout=subprocess.DEVNULL
            )
            jobs.append(("case of 400 KB", [*cuwhy, "diagnose", str(case)], None))
        rows, broken = [], []
        for name, ours, theirs in jobs:
            seconds, memory = measure(ours, arguments.runs)
            other = measure(theirs, arguments.runs) if theirs is not None else None
            limit = LIMITS.get(name)
            if limit is not None and (seconds > limit[0] or (limit[1] is not None and memory > limit[1])):
                broken.append(name)
            rows.append(
                (
                    name,
                    f"{seconds:.3f}",
                    f"{memory:.0f}",
                    f"{limit[0]:.2f}" if limit is not None else "",
                    f"{other[0]:.3f}" if other is not None else "",
                    f"{other[1]:.0f}" if other is not None else "",
                    f"{seconds / other[0]:.2f}" if other is not None else "",
                )
            )
    head = ("input", "cuwhy s", "cuwhy MB", "limit s", "cuda-gdb s", "cuda-gdb MB", "cuwhy / cuda-gdb")
    if arguments.markdown:
        print("| " + " | ".join(head) + " |")
        print("|" + "---|" * len(head))
        for row in rows:
            print("| " + " | ".join(row) + " |")
    else:
        widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
        for row in [head, *rows]:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    if broken:
        print(f"over the limit: {', '.join(broken)}")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())

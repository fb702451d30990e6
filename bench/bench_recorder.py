"""Nanoseconds that the launch recorder adds to a launch, over a driver that does nothing.

    python bench/bench_recorder.py [--launches 3000000] [--runs 5] [--markdown]

The stand-in for the driver and the program are those of tests/capture/recorder.  A launch on a
real GPU takes 2,000 ns and more of CPU time.  Each number is the smallest of the runs, bare and
recorded in turns.  Needs a C compiler, no GPU.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "src"))

from cuwhy.capture.recorder import prepare  # noqa: E402

NATIVE = ROOT / "tests" / "capture" / "recorder"

#: Launches from a Python function that has twenty callers; ctypes releases the GIL.
PYTHON = """
import ctypes, sys, time
lib = ctypes.CDLL("libcuda.so.1")
f = ctypes.c_void_p()
lib.cuModuleGetFunction(ctypes.byref(f), None, b"kernel")
launch, n = lib.cuLaunchKernel, int(sys.argv[1])
def run(depth):
    if depth:
        return run(depth - 1)
    begin = time.perf_counter()
    for _ in range(n):
        launch(f, 3, 1, 1, 64, 1, 1, 0, None, None, None)
    print((time.perf_counter() - begin) / n * 1e9)
run(20)
"""


def build(folder: Path) -> None:
    """Compile the stub driver and the program."""
    for argv in (
        [
            "-shared",
            "-fPIC",
            "-Wl,-Bsymbolic,-soname,libcuda.so.1",
            "-o",
            "libcuda.so.1",
            NATIVE / "stub.c",
            "-ldl",
        ],
        ["-o", "program", NATIVE / "program.c", "-ldl", "-lpthread"],
    ):
        subprocess.run(["cc", "-g", "-O1", "-w", *map(str, argv)], cwd=folder, check=True)


def nanoseconds(argv: list[str], folder: Path, recorded: bool) -> float:
    """Time of one launch as the program itself measures it."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    with tempfile.TemporaryDirectory() as log:
        if recorded:
            recorder = prepare(Path(log), environment)
            if recorder.note:
                raise SystemExit(recorder.note)
            environment |= recorder.environment
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout.split()[0])


def main() -> int:
    """Measure and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--launches", type=int, default=3_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--markdown", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        build(folder)
        count = str(arguments.launches)
        jobs = {
            "C, native stack of 6 frames": [str(folder / "program"), "proc", "many", count],
            "Python through ctypes, 22 frames": [sys.executable, "-c", PYTHON, str(arguments.launches // 10)],
        }
        rows = []
        for name, argv in jobs.items():
            bare, recorded = [], []
            for _ in range(arguments.runs):
                bare.append(nanoseconds(argv, folder, recorded=False))
                recorded.append(nanoseconds(argv, folder, recorded=True))
            rows.append((name, min(bare), min(recorded)))
    if arguments.markdown:
        print("| launches from | bare ns | recorded ns | added ns |\n|---|---|---|---|")
    for name, bare_ns, recorded_ns in rows:
        cells = (name, f"{bare_ns:.0f}", f"{recorded_ns:.0f}", f"{recorded_ns - bare_ns:.0f}")
        print("| " + " | ".join(cells) + " |" if arguments.markdown else "  ".join(cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())

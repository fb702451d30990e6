#!/usr/bin/env python3
"""Stands where ncu stands: runs the program, writes the log lines that ncu 2025.3 writes, and a report that it wrote.

The report is a recorded one; FAKE_NCU says what goes wrong, call by call ("ok" after the last).
"""

import json
import os
import subprocess
import sys
from pathlib import Path

WITH_VALUE = {
    "--clock-control", "--target-processes", "--log-file", "--export", "--section", "--metrics", "--kernel-name",
    "--nvtx-include", "--launch-skip", "--launch-count",
}  # fmt: skip
ALONE = {"--force-overwrite", "--nvtx"}


def main() -> int:
    """Behave as this call is told to."""
    given: dict[str, list[str]] = {}
    words = sys.argv[1:]
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in WITH_VALUE:
            given.setdefault(word, []).append(words.pop(0))
        elif word in ALONE:
            given[word] = []
        else:
            print(f"==ERROR== unrecognised option '{word}'.", file=sys.stderr)
            return 1
    calls = Path(os.environ["FAKE_CALLS"])
    number = len(calls.read_text().splitlines()) if calls.exists() else 0
    with calls.open("a") as file:
        file.write(json.dumps({**given, "command": words}) + "\n")
    log = Path(given["--log-file"][0])
    if not log.parent.is_dir():
        return 9
    plan = os.environ.get("FAKE_NCU", "").split(",")
    what = plan[number] if number < len(plan) and plan[number] else "ok"
    if what == "refuse":
        log.write_text("==ERROR== Failed to find metric sm__nothing.sum\n")
        return 1
    code = subprocess.call(words)
    lines = [f"==PROF== Connected to process 5732 ({words[0]})"]
    report = Path(given["--export"][0] + ".ncu-rep")
    recorded = Path(os.environ["FAKE_REPORT"]).read_bytes()
    if what == "denied":
        lines.append(
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters "
            "on the target device 0. For instructions on enabling permissions and to get more information see "
            "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
        )
    elif what == "nothing":
        lines += [
            "==WARNING== No kernels were profiled.",
            "Available Kernels:",
            "1. rotate",
            "2. fill_kernel",
        ]
    elif what == "failed":
        lines += [
            '==ERROR== Failed to profile "rotate" in process 5732',
            "==PROF== Trying to shutdown target application",
        ]
        code = code or 9
    else:
        lines.append('==PROF== Profiling "rotate": 0%....50%....100% - 36 passes')
        report.write_bytes(recorded[: len(recorded) // 2] if what == "cut" else recorded)
        lines.append(f"==PROF== Report: {report}")
    if code:
        lines.append(f"==ERROR== The application returned an error code ({code}).")
    log.write_text("\n".join(lines) + "\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

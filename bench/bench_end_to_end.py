"""From the failing command to the diagnosis, over the whole corpus, on a machine with a GPU.

    python bench/bench_end_to_end.py record OUT [--root /demo] [--jobs 8] [--seconds 200] [--only GLOB]
    python bench/bench_end_to_end.py table OUT [--markdown]

``record`` builds every corpus program in a neutral folder, runs it plainly, then under ``cuwhy run`` (with the
checker that a silent fault needs, as a user would ask for it), and keeps the case and both times.  ``table``
needs no GPU: it diagnoses the recorded cases with the rules of the day and compares with the truth.  Programs
run several at a time, the plain run of each and its run under cuwhy under the same load.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CHECKERS = ("memcheck", "racecheck", "synccheck", "initcheck")


def script(name: str) -> Any:
    """Load one of the scripts beside us as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"scripts/{name}.py is not there")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# -- recording -------------------------------------------------------------------


class Session:
    """Runs the programs; every process has a limit and a group of its own."""

    def __init__(self, root: Path, out: Path, end: float) -> None:
        self.root, self.out, self.end = root, out, end
        self.lock = threading.Lock()
        self.results: dict[str, dict[str, Any]] = {}
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                filter(None, [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
            ),
            "TRITON_CACHE_DIR": str(root / ".triton"),
            "NO_COLOR": "1",
        }

    def run(self, argv: list[str], cwd: Path, limit: float) -> tuple[str, float, bytes]:
        """Exit code or "timeout", seconds, and the output."""
        limit = min(limit, self.end - time.monotonic())
        if limit < 1:
            return "not run", 0.0, b""
        begin = time.monotonic()
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit)
            code = str(process.returncode)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            code = "timeout"
        return code, time.monotonic() - begin, output

    def one(self, case: Any) -> None:
        """Build, run plainly, run under cuwhy."""
        work = self.root / case.slug
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        shutil.copy(case.folder / case.truth["file"], work)
        row: dict[str, Any] = {}
        if case.truth["build"]:
            code, _, output = self.run(["/bin/sh", "-c", case.truth["build"]], work, 120)
            if code != "0":
                row["problem"] = f"build: {output[-300:].decode('utf-8', 'replace')}"
        if "problem" not in row:
            command = shlex.split(case.truth["command"])
            hangs = "hang" in case.truth["record"]
            # A hang has no end to be compared with: the plain run is only there for what terminates.
            if not hangs:
                row["plain_code"], row["plain_seconds"], _ = self.run(command, work, case.truth["timeout"])
            target = self.out / f"{case.slug}.cuwhy"
            options = ["--case", str(target), "--force", "--budget", "40s"]
            if hangs:
                options += ["--hang-after", "3s"]
            if "reruns" in case.truth["record"]:
                # The failure is in the exit code alone: the user says that it is one.
                options.append("--fails")
            checks = [name for name in case.truth["record"] if name in CHECKERS]
            if (
                checks
                and case.bad
                and "coredump" not in case.truth["record"]
                and row.get("plain_code") == "0"
            ):
                options += ["--check", ",".join(checks)]
                row["asked"] = checks
            code, seconds, output = self.run(
                [sys.executable, "-m", "cuwhy", "run", *options, "--", *command], work, 100
            )
            row |= {"run_code": code, "run_seconds": seconds}
            (self.out / f"{case.slug}.txt").write_bytes(output[-60_000:])
        with self.lock:
            self.results[case.name] = row
            (self.out / "times.json").write_text(json.dumps(self.results, indent=1, sort_keys=True))
        print(f"{time.strftime('%H:%M:%S')} {case.name}: {row}", flush=True)


def record(arguments: argparse.Namespace) -> int:
    """Run everything that matches."""
    recorder = script("record_corpus")
    cases = recorder.load_cases(ROOT / "corpus", arguments.only)
    arguments.out.mkdir(parents=True, exist_ok=True)
    session = Session(arguments.root, arguments.out, time.monotonic() + arguments.seconds)
    alone = [case for case in cases if case.truth.get("alone")]
    shared = [case for case in cases if case not in alone]
    shared.sort(key=lambda case: ("hang" in case.truth["record"], not case.python))
    for group, jobs in ((shared, arguments.jobs), (alone, 1)):
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(session.one, group))
    return 0


# -- the table ---------------------------------------------------------------------


def table(arguments: argparse.Namespace) -> int:
    """Diagnose the recorded cases and print one line each, then the sums."""
    from cuwhy import diagnose
    from cuwhy.model.errors import CuwhyError
    from cuwhy.model.facts import Rerun

    recorder, calibrate = script("record_corpus"), script("calibrate")
    times = json.loads((arguments.out / "times.json").read_text())
    print("| case | plain s | cuwhy run s | ratio | settled by | cause | line |")
    print("|---|---|---|---|---|---|---|")
    waits, right_bad, bad, right_ok, ok = [], 0, 0, 0, 0
    for case in recorder.load_cases(ROOT / "corpus", "*"):
        row = times.get(case.name)
        if row is None or row.get("run_code", "not run") in ("not run", "timeout"):
            continue
        try:
            diagnosis = diagnose([arguments.out / f"{case.slug}.cuwhy"], sources=[case.folder])
        except CuwhyError as error:
            diagnosis = None
            print(f"{case.name}: {error}", file=sys.stderr)
        verdict = calibrate.judge(case.truth, diagnosis)
        reruns = [f for f in diagnosis.facts if isinstance(f, Rerun)] if diagnosis is not None else []
        # The first run is a rerun record too.
        tier = f"tier 1, {len(reruns)} runs" if len(reruns) > 1 else "tier 0"
        if row.get("asked"):
            tier += f" (--check {','.join(row['asked'])})"
        plain = row.get("plain_seconds")
        ratio = f"{row['run_seconds'] / plain:.1f}" if plain else "hangs"
        cause = "right" if verdict.first == verdict.expected else verdict.first or "nothing found"
        line = "" if not verdict.expected else "right" if verdict.right else "wrong"
        waits.append(row["run_seconds"])
        if case.bad:
            bad += 1
            right_bad += verdict.right
        else:
            ok += 1
            right_ok += verdict.right
        shown = f"{plain:.1f}" if plain else ""
        print(
            f"| {case.name} | {shown} | {row['run_seconds']:.1f} | {ratio} | {tier if case.bad else ''} "
            f"| {cause} | {line} |"
        )
    if waits:
        print(
            f"\n{right_bad} of {bad} faults named with cause and line, {right_ok} of {ok} sound programs given no "
            f"finding; time to the diagnosis: median {statistics.median(waits):.1f} s, longest {max(waits):.1f} s."
        )
    return 0


def main() -> int:
    """Record or print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(required=True)
    recording = verbs.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--root", type=Path, default=Path("/demo"))
    recording.add_argument("--jobs", type=int, default=8)
    recording.add_argument("--seconds", type=float, default=200.0)
    recording.add_argument("--only", default="*")
    recording.set_defaults(do=record)
    printing = verbs.add_parser("table")
    printing.add_argument("out", type=Path)
    printing.set_defaults(do=table)
    arguments = parser.parse_args()
    return int(arguments.do(arguments))


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Record the corpus on a machine with a GPU.

For every case the script copies the source into a neutral folder, builds it there, runs it once plainly and
once under each tool that ``truth.toml`` names, and packs what came out into at most four ``.tar.xz`` files.
Standard library only (Python 3.11 or newer); no case can stop another, and everything has a time limit.
"""

from __future__ import annotations

import argparse
import errno
import fnmatch
import io
import lzma
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomllib

SANITIZERS = ("memcheck", "racecheck", "synccheck", "initcheck")
#: Runs of cuwhy itself: with and without running the program again in other ways, and watching each PyTorch operation.
RUNS = {
    "run": ["run", "--budget", "0"],
    "reruns": ["run", "--budget", "40s", "--fails"],
    "numerics": ["numerics"],
    "numerics-poisoned": ["numerics", "--poison"],
}
# Profiles need the chip for themselves and are recorded apart (scripts/record_profiles.py).
RECORDS = ("log", "coredump", "hang", *SANITIZERS, *RUNS, "ncu")
RUN_LIMIT_S = 75.0
DUMP = "core.nvcudmp"
# Memory contents are left out: they make dumps large, and a bug report should not carry the user's data.
DUMP_FLAGS = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,skip_constbank_memory"
# Whatever the caller's shell has set of these would change what a run shows.
SCRUBBED = re.compile(
    r"CUDA_(ENABLE_.*COREDUMP.*|COREDUMP_.*|LAUNCH_BLOCKING|DEVICE_WAITS_ON_EXCEPTION)|CUDBG_.*|PYTORCH_.*|TRITON_.*"
)
NOT_THE_FAULT = re.compile(
    rb"no CUDA-capable device|driver version is insufficient|initialization error|out of memory|"
    rb"Found no NVIDIA driver|No module named \S+|no kernel image is available"
)
BUILD_LIMIT_S = 90.0
SANITIZER_LIMIT_S = 60.0
TARBALLS = 4
TARBALL_BYTES = 15 * 1024 * 1024


@dataclass(frozen=True)
class Case:
    """One folder of the corpus; ``name`` is ``class/cause/case``."""

    name: str
    folder: Path
    truth: dict[str, Any]
    slug: str

    @property
    def bad(self) -> bool:
        return self.folder.name.startswith("bad_")

    @property
    def python(self) -> bool:
        return str(self.truth["file"]).endswith(".py")

    @property
    def record(self) -> list[str]:
        return list(self.truth["record"])


@dataclass
class Run:
    """How one process ended."""

    exit: str
    seconds: float = 0.0
    failed: bool = True
    output: bytes = b""


@dataclass(frozen=True)
class Row:
    """One line of the summary."""

    artefact: str
    exit: str
    size: int
    seconds: float
    last: str


@dataclass
class Outcome:
    """What recording one case gave."""

    case: Case
    rows: list[Row] = field(default_factory=list)
    signs: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.case.bad:
            state = f"seen ({', '.join(self.signs)})" if self.signs else "CHECK: nothing failed"
        else:
            state = f"CHECK: {', '.join(self.signs)}" if self.signs else "clean"
        parts = [state]
        if self.missing:
            parts.append("NO EVIDENCE from " + ", ".join(self.missing))
        return "; ".join(parts + self.notes)


# ------------------------------------------------------------------ cases


def load_cases(corpus: Path, only: str) -> list[Case]:
    """Read every ``truth.toml`` below ``corpus`` whose name matches the glob ``only``."""
    cases: list[Case] = []
    slugs: set[str] = set()
    for path in sorted(corpus.glob("*/*/*/truth.toml")):
        folder = path.parent
        name = folder.relative_to(corpus).as_posix()
        # The folder that ends up in dumps and logs must not tell a reader which twin it sees.
        kind, _, stem = folder.name.partition("_")
        if kind not in ("bad", "ok") or not stem:
            raise SystemExit(f"{name}: a case's folder starts with bad_ or ok_")
        slug = stem if kind == "bad" else f"{stem}_2"
        if slug in slugs:
            raise SystemExit(f"{name}: another cause has a case of this name already")
        slugs.add(slug)
        truth = tomllib.loads(path.read_text(encoding="utf-8"))
        for key in ("cause", "file", "kernel", "build", "command", "record", "timeout", "note"):
            if key not in truth:
                raise SystemExit(f"{name}: truth.toml lacks {key}")
        unknown = [word for word in truth["record"] if word not in RECORDS]
        if unknown:
            raise SystemExit(f"{name}: record knows {', '.join(RECORDS)}, not {', '.join(unknown)}")
        if {"coredump", "hang"} <= set(truth["record"]):
            raise SystemExit(f"{name}: a case has one dump, from coredump or from hang")
        if not (folder / truth["file"]).is_file():
            raise SystemExit(f"{name}: {truth['file']} is not there")
        if not any(fnmatch.fnmatch(text, only) for text in (name, folder.name)):
            continue
        if "ncu" in truth["record"]:
            continue
        cases.append(Case(name, folder, truth, slug))
    return cases


# ------------------------------------------------------------------ processes


class Processes:
    """Starts processes, each with a session and a limit of its own, and leaves none behind."""

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline
        self._live: set[int] = set()
        self._lock = threading.Lock()

    def kill_all(self) -> None:
        """For a signal handler: no lock, since the thread that it interrupts may hold it."""
        for pid in list(self._live):
            _kill_group(pid)

    def run(
        self,
        argv: list[str],
        cwd: Path,
        environment: dict[str, str],
        limit: float,
        step: Callable[[float, Path], None] | None = None,
    ) -> Run:
        """Run ``argv`` to its end or for ``limit`` seconds; ``step`` is called with the time passed, often."""
        begin = time.monotonic()
        limit = min(limit, self.deadline - begin)
        if limit < 1:
            return Run("not run: no time left")
        # A file, not a pipe: a pipe that nobody reads blocks, and grandchildren would hold it open.
        handle, name = tempfile.mkstemp(prefix=".output-", dir=cwd)
        output = Path(name)
        try:
            try:
                process = subprocess.Popen(
                    argv,
                    cwd=cwd,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=handle,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                return Run(f"not run: {error.strerror}")
            with self._lock:
                self._live.add(process.pid)
            timed_out = False
            try:
                # WNOWAIT keeps the zombie, so that the group's id cannot be anybody else's when it is killed.
                while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                    passed = time.monotonic() - begin
                    if passed > limit:
                        timed_out = True
                        break
                    if step is not None:
                        step(passed, output)
                    time.sleep(0.02)
            finally:
                _kill_group(process.pid)
                with self._lock:
                    self._live.discard(process.pid)
                # The driver may need seconds to take a spinning kernel off the chip.
                stuck = False
                try:
                    process.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    stuck = True
            code = process.returncode
            if stuck:
                end = f"timed out after {limit:.0f} s and would not die"
            elif timed_out:
                end = f"timed out after {limit:.0f} s"
            elif code < 0:
                end = f"killed by signal {-code}"
            else:
                end = f"exit code {code}"
            return Run(end, time.monotonic() - begin, timed_out or stuck or code != 0, output.read_bytes())
        finally:
            os.close(handle)
            output.unlink(missing_ok=True)


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


class DumpRequest:
    """Asks a running process for a dump, by one byte written to its fifo; never blocks."""

    def __init__(self, pipe: Path) -> None:
        self.pipe = pipe
        self.sent = False
        self.problem = ""
        self._launched: float | None = None

    def __call__(self, passed: float, output: Path) -> None:
        if self.sent:
            return
        if self._launched is None and b"launched" in output.read_bytes():
            self._launched = passed
        # Two seconds on the chip tell a hang from a slow start; ten without a word, and it is asked anyway.
        if passed < (10 if self._launched is None else self._launched + 2):
            return
        try:
            fifo = os.open(self.pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError as error:
            # ENOENT: the driver has not made it yet. ENXIO: nobody reads it yet. Both: next time round.
            self.problem = f"fifo: {errno.errorcode.get(error.errno or 0, '?')}"
            return
        try:
            os.write(fifo, b"1")
            self.sent, self.problem = True, ""
        except OSError as error:
            self.problem = f"fifo: {errno.errorcode.get(error.errno or 0, '?')}"
        finally:
            os.close(fifo)


# ------------------------------------------------------------------ recording


class Recorder:
    """Records one case after the other into ``stage``."""

    def __init__(self, root: Path, stage: Path, processes: Processes, private: Iterable[str]) -> None:
        self.root = root
        self.stage = stage
        self.processes = processes
        self.private = tuple(private)
        self.environment = {k: v for k, v in os.environ.items() if not SCRUBBED.fullmatch(k)}
        self.environment["PATH"] = os.pathsep.join(
            (
                self.environment.get("PATH", os.defpath),
                "/usr/local/cuda/bin",
                "/usr/local/cuda/compute-sanitizer",
            )
        )
        self.environment["TRITON_CACHE_DIR"] = str(root / ".triton")

    def record(self, case: Case) -> Outcome:
        """Build and run one case; whatever goes wrong ends up in the outcome."""
        outcome = Outcome(case)
        try:
            self._record(case, outcome)
        except Exception as error:
            outcome.notes.append(f"RECORDER FAILED: {type(error).__name__}: {error}")
            traceback.print_exc()
        print(f"{time.strftime('%H:%M:%S')} {case.name}: {outcome.verdict}", flush=True)
        return outcome

    def _record(self, case: Case, outcome: Outcome) -> None:
        work = self.root / case.slug
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        evidence = self.stage / case.name / "evidence"
        evidence.mkdir(parents=True)
        shutil.copy(case.folder / case.truth["file"], work)

        if case.truth["build"]:
            shell = ["/bin/sh", "-c", str(case.truth["build"])]
            built = self.processes.run(shell, work, self.environment, BUILD_LIMIT_S)
            self._keep(outcome, built, "build.txt" if built.failed else "", evidence)
            if built.failed:
                outcome.notes.append("BUILD FAILED")
                return

        command = shlex.split(case.truth["command"])
        limit = float(case.truth["timeout"])
        plain = self.processes.run(command, work, self.environment, limit)
        plain.output = (
            plain.output.rstrip(b"\n") + b"\n" * bool(plain.output.strip()) + f"[{plain.exit}]\n".encode()
        )
        self._keep(outcome, plain, "log.txt", evidence)
        if plain.exit.startswith("not run"):
            outcome.notes.append("NOT RUN")
        elif plain.failed:
            outcome.signs.append(plain.exit)
        # A failure of the machine is not the failure that the case is about.
        if trouble := NOT_THE_FAULT.search(plain.output):
            outcome.notes.append(f"MACHINE: {trouble[0].decode()}")

        for tool in case.record:
            if tool == "coredump":
                self._coredump(case, command, work, limit, outcome, evidence)
            elif tool == "hang":
                self._hang(case, command, work, limit, outcome, evidence)
            elif tool in RUNS:
                self._cuwhy(tool, command, work, limit, outcome, evidence)
            elif tool in SANITIZERS:
                self._sanitizer(case, tool, command, work, outcome, evidence)

    def _dump_environment(self, work: Path, case: Case) -> dict[str, str]:
        # A Python program must outlive the fault, else its traceback never reaches the log.
        flags = DUMP_FLAGS + (",skip_abort" if case.python else "")
        return self.environment | {
            "CUDA_COREDUMP_SHOW_PROGRESS": "1",
            "CUDA_COREDUMP_FILE": str(work / DUMP),
            "CUDA_COREDUMP_GENERATION_FLAGS": flags,
        }

    def _coredump(
        self, case: Case, command: list[str], work: Path, limit: float, outcome: Outcome, evidence: Path
    ) -> None:
        environment = self._dump_environment(work, case) | {"CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"}
        run = self.processes.run(command, work, environment, limit + 20)
        self._keep(outcome, run, "coredump.txt", evidence)
        if self._keep_dump(outcome, work, evidence):
            outcome.signs.append("dump")
        elif case.bad:
            outcome.missing.append("coredump")
        if run.failed and not case.bad:
            outcome.signs.append(f"coredump {run.exit}")

    def _hang(
        self, case: Case, command: list[str], work: Path, limit: float, outcome: Outcome, evidence: Path
    ) -> None:
        pipe = work / "dump.fifo"
        environment = self._dump_environment(work, case) | {
            "CUDA_ENABLE_USER_TRIGGERED_COREDUMP": "1",
            "CUDA_COREDUMP_PIPE": str(pipe),
        }
        request = DumpRequest(pipe)
        run = self.processes.run(command, work, environment, limit + 15, request)
        self._keep(outcome, run, "hang.txt", evidence)
        if not self._keep_dump(outcome, work, evidence):
            outcome.missing.append("hang")
        if request.problem or not request.sent:
            outcome.notes.append(f"DUMP NOT ASKED FOR ({request.problem or 'the process ended first'})")

    def _sanitizer(
        self, case: Case, tool: str, command: list[str], work: Path, outcome: Outcome, evidence: Path
    ) -> None:
        environment = dict(self.environment)
        if case.python:
            # PyTorch's cache hides the end of a tensor from the tool.
            environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        prefix = ["compute-sanitizer", "--tool", tool]
        xml = work / f"{tool}.xml"
        first = self.processes.run(
            [*prefix, "--xml", "--save", xml.name, *command], work, environment, SANITIZER_LIMIT_S
        )
        found = 0
        if xml.is_file():
            shutil.move(xml, evidence / xml.name)
            content = (evidence / xml.name).read_bytes()
            found = content.count(b"<record>")
            outcome.rows.append(Row(xml.name, first.exit, len(content), first.seconds, f"{found} records"))
            self._check_private(outcome, xml.name, content)
        else:
            outcome.rows.append(Row(xml.name, first.exit, 0, first.seconds, _last_line(first.output)))
            outcome.notes.append(f"{tool} wrote no XML")
        second = self.processes.run([*prefix, *command], work, environment, SANITIZER_LIMIT_S)
        self._keep(outcome, second, f"{tool}.txt", evidence)
        if found or _summary_count(second.output):
            outcome.signs.append(f"{tool} {found}")
        elif case.bad:
            outcome.missing.append(tool)

    def _cuwhy(
        self, kind: str, command: list[str], work: Path, limit: float, outcome: Outcome, evidence: Path
    ) -> None:
        """Run it under cuwhy and keep what its case holds in ``run/``."""
        target = work / "run.cuwhy"
        environment = self.environment | {"PYTHONPATH": _with_source(self.environment.get("PYTHONPATH", ""))}
        cuwhy = [sys.executable, "-m", "cuwhy"]
        run = self.processes.run(
            [*cuwhy, *RUNS[kind], "--case", str(target), "--force", "--", *command],
            work,
            environment,
            max(limit, RUN_LIMIT_S),
        )
        self._keep(outcome, run, f"{kind}.txt", evidence)
        if not target.is_file():
            outcome.missing.append(kind)
            return
        self.processes.run(
            [*cuwhy, "case", "extract", str(target), str(evidence / "run")], work, environment, 20
        )
        for path in sorted((evidence / "run").rglob("*")):
            if path.is_file():
                content = path.read_bytes()
                outcome.rows.append(Row(f"run/{path.name}", "", len(content), 0.0, ""))
                self._check_private(outcome, path.name, content)

    def _keep(self, outcome: Outcome, run: Run, name: str, evidence: Path) -> None:
        if name:
            (evidence / name).write_bytes(run.output)
            self._check_private(outcome, name, run.output)
        last = _last_line(run.output, skip_status=True)
        outcome.rows.append(Row(name or "(build)", run.exit, len(run.output), run.seconds, last))

    def _keep_dump(self, outcome: Outcome, work: Path, evidence: Path) -> bool:
        dump = work / DUMP
        if not dump.is_file() or dump.stat().st_size == 0:
            return False
        shutil.move(dump, evidence / DUMP)
        outcome.rows.append(Row(DUMP, "", (evidence / DUMP).stat().st_size, 0.0, ""))
        return True

    def _check_private(self, outcome: Outcome, name: str, content: bytes) -> None:
        for path in self.private:
            if path.encode() in content:
                outcome.notes.append(f"LEAK: {name} holds {path}")


def _with_source(path: str) -> str:
    """A PYTHONPATH on which this checkout's cuwhy comes first."""
    source = str(Path(__file__).resolve().parent.parent / "src")
    return os.pathsep.join(part for part in (source, path) if part)


def _last_line(output: bytes, *, skip_status: bool = False) -> str:
    lines = [line for line in output[-20000:].decode("utf-8", "replace").splitlines() if line.strip()]
    if skip_status and len(lines) > 1 and re.fullmatch(r"\[(exit|killed|timed|not run).*\]", lines[-1]):
        lines.pop()
    return lines[-1].strip()[:110] if lines else ""


def _summary_count(output: bytes) -> int:
    """The count in compute-sanitizer's own last line, 0 where there is none."""
    found = re.findall(rb"(?:ERROR|RACECHECK) SUMMARY: (\d+)", output)
    return int(found[-1]) if found else 0


# ------------------------------------------------------------------ packing


def pack(stage: Path, outcomes: list[Outcome], out: Path) -> list[str]:
    """Write ``evidence-N.tar.xz``; returns lines for the summary.

    Each case is compressed alone into one xz stream, so its size is known before it is placed; streams of tar
    members, one after the other, are one valid ``.tar.xz``.
    """

    def squeeze(outcome: Outcome) -> tuple[Outcome, bytes]:
        stream = _case_stream(stage, outcome.case, with_dump=True)
        if len(stream) > TARBALL_BYTES // 2:
            outcome.notes.append(f"LEFT OUT: {DUMP} (compressed {len(stream) / 1e6:.1f} MB)")
            stream = _case_stream(stage, outcome.case, with_dump=False)
        return outcome, stream

    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        streams = sorted(pool.map(squeeze, outcomes), key=lambda pair: -len(pair[1]))
    end = lzma.compress(bytes(2 * tarfile.BLOCKSIZE))
    bins: list[list[bytes]] = [[]]
    for outcome, stream in streams:
        for pile in bins:
            if sum(map(len, pile)) + len(stream) + len(end) <= TARBALL_BYTES:
                pile.append(stream)
                break
        else:
            if len(bins) < TARBALLS:
                bins.append([stream])
            else:
                outcome.notes.append("LEFT OUT: no room in the tarballs")
    lines = []
    for number, pile in enumerate(bins, 1):
        path = out / f"evidence-{number}.tar.xz"
        path.write_bytes(b"".join([*pile, end]))
        lines.append(f"{path.name}: {len(pile)} cases, {path.stat().st_size:,} bytes")
    return lines


def _case_stream(stage: Path, case: Case, *, with_dump: bool) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted((stage / case.name).rglob("*")):
            if not path.is_file() or (path.name == DUMP and not with_dump):
                continue
            member = tarfile.TarInfo(path.relative_to(stage).as_posix())
            member.size = path.stat().st_size
            with path.open("rb") as source:
                archive.addfile(member, source)
        # Without the closing zero blocks, so that another case's members can follow.
        used = archive.offset
    return lzma.compress(buffer.getvalue()[:used], preset=6)


# ------------------------------------------------------------------ the whole


def machine(processes: Processes, environment: dict[str, str], root: Path) -> Iterator[str]:
    """What the evidence was recorded on, one line each."""
    for argv in (
        ["nvidia-smi", "--query-gpu=name,driver_version,compute_cap", "--format=csv,noheader"],
        ["nvcc", "--version"],
        ["compute-sanitizer", "--version"],
        [
            "python3",
            "-c",
            "from importlib.metadata import version as v; print('torch', v('torch'), 'triton', v('triton'))",
        ],
    ):
        run = processes.run(argv, root, environment, 20)
        yield f"{argv[0]}: {_last_line(run.output) if not run.failed else run.exit}"


def summarise(outcomes: list[Outcome], head: Iterable[str]) -> str:
    lines = list(head)
    for outcome in outcomes:
        lines += ["", outcome.case.name]
        for row in outcome.rows:
            lines.append(
                f"  {row.artefact:<14} {row.exit:<22} {row.size:>10,} B {row.seconds:6.1f} s  {row.last}"
            )
        lines.append(f"  -> {outcome.verdict}")
    doubtful = [o for o in outcomes if re.search(r"[A-Z]{3,}", o.verdict)]
    lines += ["", f"{len(outcomes)} cases, {len(doubtful)} to look at"]
    lines += [f"  {o.case.name}: {o.verdict}" for o in doubtful]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description="Record the corpus' evidence on a machine with a GPU.")
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    parser.add_argument("--out", type=Path, required=True, help="folder for the tarballs and summary.txt")
    parser.add_argument("--only", default="*", metavar="GLOB", help="cases by name or by class/cause/case")
    parser.add_argument("--root", type=Path, default=Path("/demo"), help="neutral folder to build and run in")
    parser.add_argument("--jobs", type=int, default=6, help="cases at a time (default 6)")
    parser.add_argument("--budget", type=float, default=290, metavar="S", help="seconds for everything (290)")
    options = parser.parse_args()

    begin = time.monotonic()
    cases = load_cases(options.corpus, options.only)
    if not cases:
        print("no case matches", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    options.root.mkdir(parents=True, exist_ok=True)
    # A host core file of a PyTorch process takes gigabytes and tells nothing here.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))

    # Packing takes its share of the budget.
    processes = Processes(begin + options.budget - min(45, options.budget / 5))

    def stop(number: int, _frame: object) -> None:
        processes.kill_all()
        os._exit(128 + number)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)

    stage = Path(tempfile.mkdtemp(prefix=".stage-", dir=options.root))
    private = {str(path.resolve()) for path in (options.corpus, options.out)}
    recorder = Recorder(options.root.resolve(), stage, processes, private)
    try:
        head = list(machine(processes, recorder.environment, options.root))
        print("\n".join(head), flush=True)
        # Spinning kernels share the chip with everything else by time slices, so the quick cases go first,
        # and a case whose length matters has the chip for itself.
        alone = [case for case in cases if case.truth.get("alone")]
        hanging = [case for case in cases if "hang" in case.record and case not in alone]
        quick = [case for case in cases if case not in alone and case not in hanging]
        quick.sort(key=lambda case: not case.python)
        outcomes: list[Outcome] = []
        for group, jobs in ((quick, options.jobs), (hanging, options.jobs), (alone, 1)):
            with ThreadPoolExecutor(max(1, jobs)) as pool:
                outcomes += pool.map(recorder.record, group)
        outcomes.sort(key=lambda outcome: outcome.case.name)
        recorded = time.monotonic() - begin
        head += pack(stage, outcomes, options.out)
        head.append(f"recorded in {recorded:.0f} s, packed in {time.monotonic() - begin - recorded:.0f} s")
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    summary = summarise(outcomes, head)
    (options.out / "summary.txt").write_text(summary, encoding="utf-8")
    print(summary, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())

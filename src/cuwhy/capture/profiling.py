"""Profile a command: find where the time goes, then measure only the launches that matter.

The first run of the command has the user's output streams, every further one writes into files.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from cuwhy.capture import ncu
from cuwhy.capture.probes.execute import Ended, Input, execute
from cuwhy.model.errors import InputError, ToolMissing
from cuwhy.model.profile import ProfiledLaunch
from cuwhy.process import Running
from cuwhy.profiles.survey import Survey, read_ncu_times, read_nsys_trace, read_torch_trace

if TYPE_CHECKING:
    from cuwhy.model.diagnosis import Diagnosis

DEFAULT_BUDGET = 900.0
MAX_TOP = 20
#: Launches that ncu times when nothing cheaper can; a program can have millions.
SURVEYED_LAUNCHES = 5_000
_STATS_SECONDS = 120.0
_PROBE_SECONDS = 10.0
#: Below this a run of the program is not begun.
_LEAST_SECONDS = 1.0
_MAX_NSYS_BYTES = 400 << 20
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*")
#: Options of the interpreter that take the next argument as their value.
_WITH_VALUE = frozenset(("-W", "-X", "--check-hash-based-pycs"))

#: What lets others than administrators read the counters.
COUNTERS_FIX = (
    "as root: echo 'options nvidia NVreg_RestrictProfilingToAdminUsers=0' > /etc/modprobe.d/ncu.conf, then reboot; "
    "in a container: --cap-add=SYS_ADMIN; or run cuwhy as root"
)

NO_INPUT = Input()
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Asked:
    """What to profile.

    Attributes:
        kernel: regular expression for the kernel's base name; empty: the kernels with most time.
        nvtx: range (or ncu's expression for ranges) that launches must lie in; empty for everywhere.
        launch: the how-manieth matching launch, from 1; 0: chosen.
        top: kernels to profile when none is named.
        budget: seconds for all runs together.
        out: folder for the reports; None: the current one, else that for temporary files.
    """

    kernel: str = ""
    nvtx: str = ""
    launch: int = 0
    top: int = 1
    budget: float = DEFAULT_BUDGET
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """One report that was kept: its file, and what it holds."""

    path: Path
    launches: tuple[ProfiledLaunch, ...]


@dataclass(slots=True)
class Profiled:
    """What profiling a command gave.

    Attributes:
        survey: where the time goes, None when a kernel was named or nothing could time it.
        reports: one for each kernel; notes: what is missing and why, one sentence each.
        denied: True when the counters may not be read here.
        code: how the program itself ended, the first time that it did not end well (a negative number is a signal).
    """

    survey: Survey | None = None
    reports: list[Report] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    denied: bool = False
    code: int = 0


class _NoCountersError(Exception):
    """The driver lets only administrators read the counters."""


def profile(
    command: Sequence[str],
    asked: Asked,
    *,
    say: Say = lambda line: None,
    show: Callable[[Survey], None] = lambda survey: None,
    standard_input: Input = NO_INPUT,
    environment: Mapping[str, str] | None = None,
    live: bool = True,
) -> Profiled:
    """Run a command under profilers, as narrowly as the question allows.

    Args:
        command: program and arguments; it runs once or twice, and once more for each retry and further kernel.
        asked: what to profile.
        say: takes a line of progress.
        show: takes the survey, as soon as it is there.
        standard_input: what the program reads, every time.
        environment: of the program; None: ours.
        live: the first run writes to our output streams.

    Raises:
        InputError: the regular expression is none, or the program cannot be started.
        ToolMissing: ncu or NVIDIA's reader is not installed.
    """
    try:
        re.compile(asked.kernel)
    except re.error as error:
        raise InputError(f"{asked.kernel[:80]!r} is no regular expression ({error})") from error
    tool = ncu.find_ncu()
    if importlib.util.find_spec("ncu_report") is None:
        raise ToolMissing(
            "reading what ncu writes needs NVIDIA's reader", hint="pip install 'cuwhy[profile]' or ncu-report"
        )
    with tempfile.TemporaryDirectory(prefix="cuwhy-profile-") as folder:
        session = _Session(
            tuple(command),
            asked,
            tool,
            Path(folder),
            say,
            show,
            standard_input,
            dict(os.environ if environment is None else environment),
            time.monotonic() + asked.budget,
            live,
        )
        with contextlib.suppress(_NoCountersError):
            session.go()
        return session.result


@dataclass(slots=True)
class _Session:
    """The runs of one command."""

    command: tuple[str, ...]
    asked: Asked
    tool: str
    folder: Path
    say: Say
    show: Callable[[Survey], None]
    standard_input: Input
    environment: dict[str, str]
    deadline: float
    live: bool
    result: Profiled = field(default_factory=Profiled)
    _runs: int = 0

    def go(self) -> None:
        """Do all of it; what there is stands in ``result``, also when this raises."""
        asked = self.asked
        if asked.kernel:
            window = ncu.Window(asked.kernel, nvtx=asked.nvtx, skip=max(0, asked.launch - 1))
            self._profile(window, f"kernel {asked.kernel}, launch {asked.launch or 1}")
            return
        survey = self._survey()
        if survey is None or not survey.kernels:
            return
        self.result.survey = survey
        self.show(survey)
        chosen = survey.kernels[: asked.top]
        for kernel in chosen:
            number = asked.launch or kernel.number
            window = ncu.Window(kernel.kernel, exact=True, nvtx=asked.nvtx, skip=number - 1)
            self._profile(
                window,
                f"{kernel.kernel}, launch {number} of {kernel.launches:,} ({kernel.share:.0f} % of the time)",
            )

    # -- running ---------------------------------------------------------------------

    def _left(self) -> float:
        return self.deadline - time.monotonic()

    def _execute(self, argv: Sequence[str]) -> Ended:
        place = self.folder / f"run{self._runs}"
        place.mkdir(mode=0o700)
        first = not self._runs
        self._runs += 1
        try:
            ended = execute(
                argv,
                environment=self.environment,
                folder=place,
                seconds=max(_LEAST_SECONDS, self._left()),
                standard_input=self.standard_input,
                live=self.live and first,
            )
        except FileNotFoundError as error:
            raise InputError(f"{argv[0]}: not found") from error
        except OSError as error:
            raise InputError(f"{argv[0]}: {error.strerror or error}") from error
        return ended

    def _note_code(self, code: int) -> None:
        """Remember how the program itself ended, the first time that it did not end well."""
        if code and not self.result.code:
            self.result.code = code
            how = f"exit code {code}" if code > 0 else f"signal {-code}"
            self.result.notes.append(f"the program ended with {how}: what was measured may be of a failure")

    # -- where the time goes -----------------------------------------------------------

    def _survey(self) -> Survey | None:
        """Time every launch by the cheapest means that works here."""
        methods: list[tuple[str, Callable[[], Survey | None]]] = []
        # Only ncu can tell which launches lie in an NVTX range.
        if not self.asked.nvtx:
            if shutil.which("nsys"):
                methods.append(("nsys", self._by_nsys))
            split = split_python(self.command)
            if split is not None and self._has_torch(split[0][0]):
                methods.append(("PyTorch's profiler", lambda: self._by_torch(*split)))
        methods.append((f"ncu, durations only, the first {SURVEYED_LAUNCHES:,} launches", self._by_ncu))
        for name, method in methods:
            if self._left() < _LEAST_SECONDS:
                self.result.notes.append(f"the budget of {self.asked.budget:.0f} s is spent")
                return None
            self.say(f"where the time goes: one run under {name}")
            begin = time.monotonic()
            try:
                survey = method()
            except InputError as error:
                # A program that cannot be started cannot be so in any other way.
                if not self._runs:
                    raise
                self.say(f"{name} gave nothing: {error}")
                continue
            if survey is not None and survey.kernels:
                self.say(f"timed in {time.monotonic() - begin:.1f} s")
                if survey.launches >= SURVEYED_LAUNCHES and survey.method == "ncu":
                    self.result.notes.append(
                        f"only the first {SURVEYED_LAUNCHES:,} launches were timed: --nvtx RANGE or --kernel REGEX narrows"
                    )
                return survey
            self.say(f"{name} saw no kernel")
        where = f" in the NVTX range {self.asked.nvtx!r}" if self.asked.nvtx else ""
        self.result.notes.append(f"no kernel was launched{where}, as far as could be seen")
        return None

    def _has_torch(self, python: str) -> bool:
        test = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
        try:
            return Running([python, "-c", test], env=self.environment).finish(_PROBE_SECONDS).ok
        except OSError:
            return False

    def _by_nsys(self) -> Survey | None:
        report = self.folder / "survey.nsys-rep"
        ended = self._execute(
            ["nsys", "profile", "--trace", "cuda", "--sample", "none", "--cpuctxsw", "none", "--force-overwrite", "true",
             "--output", str(report.with_suffix("")), *self.command]
        )  # fmt: skip
        self._note_code(0 if ended.ended else ended.code)
        self._note_ended(ended)
        if not report.is_file():
            raise InputError("it wrote no report")
        stats = [
            "nsys",
            "stats",
            "--report",
            "cuda_gpu_trace",
            "--format",
            "csv",
            "--output",
            "-",
            str(report),
        ]
        done = Running(stats, env=self.environment).finish(min(_STATS_SECONDS, self._left()), _MAX_NSYS_BYTES)
        if not done.ok:
            raise InputError("`nsys stats` failed")
        return read_nsys_trace(done.out.decode("utf-8", "replace"))

    def _by_torch(self, python: Sequence[str], kind: str, rest: Sequence[str]) -> Survey | None:
        trace = self.folder / "trace.json"
        runner = Path(__file__).with_name("trace_program.py")
        ended = self._execute([*python, str(runner), str(trace), kind, *rest])
        self._note_code(0 if ended.ended else ended.code)
        self._note_ended(ended)
        if not trace.is_file():
            raise InputError("it wrote no trace")
        return read_torch_trace(trace)

    def _by_ncu(self) -> Survey | None:
        window = ncu.Window(nvtx=self.asked.nvtx, count=SURVEYED_LAUNCHES)
        report, text, ended = self._ncu(ncu.ONLY_TIME, window)
        if ncu.nothing_matched(text):
            return None
        self._note_ended(ended)
        if not report.is_file():
            raise InputError(ncu.complaint(text) or "it wrote no report")
        return read_ncu_times(report)

    # -- the launches that matter ---------------------------------------------------------

    def _ncu(self, collection: ncu.Collection, window: ncu.Window) -> tuple[Path, str, Ended]:
        report = self.folder / f"report{self._runs}.ncu-rep"
        log = self.folder / f"ncu{self._runs}.log"
        argv = ncu.command_line(self.tool, collection, window, report, log, self.command)
        ended = self._execute(argv)
        text = ncu.said(log) + "\n" + ncu.said(ended.stderr)
        if ncu.NO_PERMISSION in text:
            self.result.denied = True
            raise _NoCountersError
        if not ended.ended:
            self._note_code(ncu.application_code(text))
        return report, text, ended

    def _note_ended(self, ended: Ended) -> None:
        if ended.ended:
            self.result.notes.append(f"a run was {ended.ended}, when the budget was spent")

    def _profile(self, window: ncu.Window, what: str) -> None:
        """Measure one window; what a collection does not give, a narrower one is asked for."""
        problem = ""
        best: tuple[Path, ncu.Checked] | None = None
        for collection in ncu.COLLECTIONS:
            if self._left() < _LEAST_SECONDS:
                problem = problem or f"the budget of {self.asked.budget:.0f} s is spent"
                break
            self.say(
                f"ncu on {what}: {collection.name}{'; ' + problem if problem else ''} "
                f"({self._left():.0f} s left of the budget)"
            )
            begin = time.monotonic()
            report, text, ended = self._ncu(collection, window)
            self._note_ended(ended)
            if ncu.nothing_matched(text):
                self._note_no_match(what, text)
                return
            try:
                seen = ncu.checked(report, collection, window)
            except InputError as error:
                problem = ncu.complaint(text) or error.message.replace(f"{report}: ", "the report: ")
                continue
            count = ncu.passes(text)
            self.say(f"measured in {time.monotonic() - begin:.1f} s{f', {count} passes' if count else ''}")
            if best is None or len(seen.problems) < len(best[1].problems):
                best = report, seen
            if not seen.problems:
                break
            problem = seen.problems[0]
        if best is None:
            self.result.notes.append(f"no profile of {what}: {problem}")
            return
        report, seen = best
        self.result.notes += [f"the report on {what} is not whole: {one}" for one in seen.problems[:3]]
        if seen.absent:
            names = ", ".join(seen.absent[:3]) + (" …" if len(seen.absent) > 3 else "")
            self.result.notes.append(f"not measured on this GPU: {names}")
        self.result.reports.append(Report(self._keep(report, seen.launches[0]), seen.launches))

    def _note_no_match(self, what: str, text: str) -> None:
        names = ncu.available_kernels(text)
        ran = (
            f"; the program launched {', '.join(names[:8])}{' …' if len(names) > 8 else ''}" if names else ""
        )
        where = f" in the NVTX range {self.asked.nvtx!r}" if self.asked.nvtx else ""
        self.result.notes.append(f"there was no such launch ({what}){where}{ran}")

    def _keep(self, report: Path, launch: ProfiledLaunch) -> Path:
        """Copy a report to where it stays, under a name that tells time, GPU and kernel and replaces nothing."""
        device = launch.value("launch__device_id")
        gpu = f"gpu{int(device)}-" if device is not None else ""
        kernel = re.sub(r"\W+", "_", launch.short, flags=re.ASCII).strip("_")[:60] or "kernel"
        stem = f"cuwhy-{time.strftime('%Y%m%d-%H%M%S')}-{gpu}{kernel}"
        folders = [self.asked.out] if self.asked.out is not None else [Path(), Path(tempfile.gettempdir())]
        failure: OSError | None = None
        for place in folders:
            for number in range(1, 1000):
                target = place / f"{stem}{f'-{number}' if number > 1 else ''}.ncu-rep"
                try:
                    with target.open("xb") as copy, report.open("rb") as source:
                        shutil.copyfileobj(source, copy)
                    return target
                except FileExistsError:
                    continue
                except OSError as error:
                    failure = error
                    break
        reason = failure.strerror if failure is not None else "every name is taken"
        raise InputError(f"{folders[0]}: the report cannot be kept there ({reason})", hint="--out DIR")


def split_python(command: Sequence[str]) -> tuple[tuple[str, ...], str, tuple[str, ...]] | None:
    """Part ``python [OPTIONS] SCRIPT ARGS`` or ``python [OPTIONS] -m MODULE ARGS``.

    Returns:
        The interpreter with its options; "script" or "module"; it and its arguments. None for anything else.
    """
    if not command or not _PYTHON.fullmatch(os.path.basename(command[0])):
        return None
    at = 1
    while at < len(command):
        word = command[at]
        if word == "-m":
            return (
                (tuple(command[:at]), "module", tuple(command[at + 1 :])) if at + 1 < len(command) else None
            )
        if word in ("-", "-c", "--"):
            return None
        if not word.startswith("-"):
            return tuple(command[:at]), "script", tuple(command[at:])
        # "-Im MODULE", "-c…": rare, and better left alone.
        if not word.startswith("--") and word[:2] not in ("-W", "-X") and set(word[1:]) & set("cm"):
            return None
        at += 2 if word in _WITH_VALUE else 1
    return None


def diagnose_kernel(
    name: str,
    command: Sequence[str],
    *,
    launch: int = 0,
    sources: Sequence[str | os.PathLike[str]] = (".",),
    budget: float = DEFAULT_BUDGET,
) -> Diagnosis:
    """Find a kernel of a program, profile it, and say why it is slow.

    The program runs under ncu with its output put aside; the report is not kept.

    Args:
        name: regular expression for the kernel's base name.
        command: program and arguments.
        launch: the how-manieth launch of the kernel, from 1; 0: the first.
        sources: folders with the program's sources.
        budget: seconds for all runs together.

    Raises:
        InputError: no such kernel was launched, or it could not be measured; the message says why.
        ToolMissing: ncu or NVIDIA's reader is not installed.
    """
    from cuwhy.diagnosing import diagnose

    with tempfile.TemporaryDirectory(prefix="cuwhy-profile-") as folder:
        asked = Asked(kernel=name, launch=launch, budget=budget, out=Path(folder))
        result = profile(command, asked, live=False)
        if result.denied:
            raise InputError("the GPU's counters may not be read here", hint=COUNTERS_FIX)
        if not result.reports:
            raise InputError("; ".join(result.notes) or "nothing was measured")
        return diagnose([report.path for report in result.reports], sources=sources)

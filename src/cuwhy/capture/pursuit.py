"""The plan, carried out: step by step within a budget, each result in the case at once."""

from __future__ import annotations

import contextlib
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

from cuwhy.capture.amend import amend, free_name
from cuwhy.capture.keep import log_artefact
from cuwhy.capture.probes.run import Result, Subject, run_step
from cuwhy.capture.probes.settings import fills, sanitizer
from cuwhy.capture.recorder import prepare
from cuwhy.causes.reruns import pattern_of, words_of
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.facts import Fact, Fault, LaunchRecord, Rerun, SanitizerFault, Setting
from cuwhy.planning import Options, Step, Stop, Tools, next_step
from cuwhy.read.reruns import Asked, write_reruns

#: Name of the artefact.
RERUNS = "reruns.json"
#: A step may take so many times its estimate, and at least so long, before it is ended.
_PATIENCE, _LEAST_SECONDS = 10.0, 60.0
_MAX_STEPS = 1000


@dataclass(slots=True)
class Pursuit:
    """One plan under way.

    Attributes:
        case: the file that everything goes into.
        subject: the command, and how to tell a pass.
        asked: what the user asked for.
        folder: for the files of the run in progress.
        budget: seconds for all steps.
        say: prints one line.
        reruns: outcomes so far.
        diagnosis: of everything so far.
        spent: seconds used.
        stop: why it ended, None while it goes on and when it was interrupted.
    """

    case: Path
    subject: Subject
    asked: Asked
    folder: Path
    budget: float
    say: Callable[[str], None]
    reruns: list[Rerun] = field(default_factory=list)
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    spent: float = 0.0
    stop: Stop | None = None
    tools: Tools = field(default_factory=Tools)
    steps: int = 0
    last: str = ""
    before: int = 0

    @property
    def options(self) -> Options:
        """What the user asked for, as the plan takes it."""
        return options_of(self.asked)

    def go(self) -> None:
        """Take steps until the cause is known, the budget is used up, or the user interrupts.

        Raises:
            KeyboardInterrupt: the user has had enough; all results so far are in the case.
            CuwhyError: the plan cannot go on (the oracle cannot be run, the case not be written).
        """
        begin = time.monotonic()
        self._diagnose()
        self.before = launches_before(self.case, self.diagnosis)
        torch = _uses_torch(self.diagnosis, self.subject)
        self.tools = Tools(
            sanitizer=sanitizer() is not None,
            recorder=self._recorder(),
            torch=torch,
            fill=torch and fills(self.subject.command),
        )
        try:
            with _terminations_interrupt(), _no_core_files():
                while self.steps < _MAX_STEPS:
                    self.spent = time.monotonic() - begin
                    step = next_step(
                        self.diagnosis, self.options, self.tools, self.budget - self.spent, self.before
                    )
                    if isinstance(step, Stop):
                        self.stop = step
                        return
                    self._take(step, self.budget - self.spent, begin)
        finally:
            self.spent = time.monotonic() - begin
            shutil.rmtree(self.folder, ignore_errors=True)

    def _recorder(self) -> bool:
        """Tell whether the launch recorder works here; it is built if need be."""
        if not self.subject.recorded:
            return False
        self.folder.mkdir(mode=0o700, exist_ok=True)
        return not prepare(self.folder, self.subject.environment, command=self.subject.command).note

    def _take(self, step: Step, left: float, begin: float) -> None:
        self.steps += 1
        if step.name != self.last:
            more = f", {step.more} more such runs at most" if step.more else ""
            self.say(
                f"{step.name}: {step.why}; about {_seconds(step.seconds)} ({step.basis}){more}; "
                f"would tell {step.settles}"
            )
        self.last = step.name
        limit = min(left, max(_LEAST_SECONDS, _PATIENCE * step.seconds))
        result = run_step(step, self.subject, self.folder, limit)
        result.rerun = self._saved(step, result)
        self.spent = time.monotonic() - begin
        self.say(
            f"  {_found(step, result, self.diagnosis)} after {_seconds(result.rerun.seconds)}; "
            f"{_clock(self.budget - self.spent)} left"
        )
        for problem in result.problems:
            self.say(f"  {problem}")

    def _saved(self, step: Step, result: Result) -> Rerun:
        """Put a result into the case and the diagnosis."""
        pattern = pattern_of(self.reruns)
        if result.rerun.passed is False and not step.settings and not pattern.plain.failures:
            # The observed run passed, so what the failure looks like is not in the case yet.
            content, kind, _ = log_artefact(result.output)
            result.artefacts["plain.log"] = (content, kind)
        self.reruns.append(result.rerun)
        named = {free_name(self.case, name): value for name, value in result.artefacts.items()}
        amend(
            self.case,
            {**named, RERUNS: (write_reruns(self.reruns, self.asked), "reruns")},
            tool="Compute Sanitizer" if step.checker else "cuwhy",
        )
        if named:
            self._diagnose()
        else:
            self._conclude()
        return result.rerun

    def _diagnose(self) -> None:
        """Read the whole case."""
        from cuwhy.diagnosing import diagnose

        self.diagnosis = diagnose([self.case], sources=["."])
        # As the case has them, so that resuming starts from the very same facts.
        self.reruns = [fact for fact in self.diagnosis.facts if isinstance(fact, Rerun)]

    def _conclude(self) -> None:
        """Conclude anew from the facts that are known, with the outcomes added; a dump is not read again."""
        from cuwhy.diagnosing import conclude

        known = self.diagnosis
        facts: list[Fact] = [fact for fact in known.facts if not isinstance(fact, Rerun)]
        concluded = conclude([*facts, *self.reruns], known.artefacts, known.notes)
        self.diagnosis = replace(concluded, excerpts=known.excerpts)


def options_of(asked: Asked) -> Options:
    """Return what the user asked for, as the plan takes it."""
    judged = bool(asked.oracle or asked.fails_with)
    return Options(asked.checks, asked.fails, judged=judged, repeat=asked.repeat)


def first_outcome(*, passed: bool | None, judged: str, code: int, seconds: float, launches: int = 0) -> Rerun:
    """Return the outcome of the run that was observed: its core dumps were on."""
    return Rerun((Setting("core-dumps"),), passed, code, seconds, judged, step="first run", launches=launches)


def _found(step: Step, result: Result, diagnosis: Diagnosis) -> str:
    rerun = result.rerun
    with_what = ""
    if step.name in ("bisection", "delay"):
        with_what = f"with {words_of(step.settings)} it "
    if rerun.ended:
        return f"{with_what}ended: {rerun.ended}"
    if step.checker:
        reports = [f for f in diagnosis.facts if isinstance(f, SanitizerFault) and f.tool == step.checker]
        count = len(reports)
        if not result.artefacts:
            return f"no report (exit code {rerun.code})"
        if not count:
            return "reports nothing"
        where = next((f" at {r.place.short}" for r in reports if r.place is not None), "")
        return f"reports {reports[0].kind}{where}" + (f" and {count - 1} more" if count > 1 else "")
    word = "passes" if rerun.passed else "fails"
    if rerun.judged == "exit code":
        end = f"signal {-rerun.code}" if rerun.code < 0 else f"exit code {rerun.code}"
        return f"{with_what}{word} ({end})"
    return f"{with_what}{word} (by the {rerun.judged})"


def launches_before(case: Path, diagnosis: Diagnosis) -> int:
    """Return how often the accused kernel was launched before the accused launch; 0 when nothing tells."""
    from cuwhy.case import open_case
    from cuwhy.read.launchlog import read_launchlog

    launch = next((f.launch for f in diagnosis.facts if isinstance(f, Fault) and f.launch is not None), None)
    accused = next(
        (
            f
            for f in diagnosis.facts
            if isinstance(f, LaunchRecord)
            and launch is not None
            and f.number == launch.grid_id
            and f.kernel == launch.kernel
        ),
        None,
    )
    if accused is None:
        return 0
    with open_case(case) as opened:
        data = opened.read(accused.origin.artefact)
    records = [
        record
        for record in read_launchlog(data, accused.origin.artefact).launches
        if record.context == accused.context and record.number
    ]
    if min((record.number for record in records), default=0) != 1:
        # The first launches are no longer in the log: the count would be too low.
        return 0
    return sum(record.kernel == accused.kernel and record.number < accused.number for record in records)


def _uses_torch(diagnosis: Diagnosis, subject: Subject) -> bool:
    """Tell whether the program is one of PyTorch's: its frames or kernels say so, or its source does."""
    from cuwhy.model.facts import HostTraceback, Launch

    for fact in diagnosis.facts:
        if isinstance(fact, HostTraceback) and any("/torch/" in (f.file or "") for f in fact.frames):
            return True
        if isinstance(fact, Launch) and "at::native" in fact.name:
            return True
    for argument in subject.command[:8]:
        if argument.endswith(".py"):
            with contextlib.suppress(OSError), open(argument, "rb") as file:
                head = file.read(1 << 18)
                return b"import torch" in head or b"from torch" in head
    return False


@contextlib.contextmanager
def _terminations_interrupt() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end the plan as Ctrl-C does, so that no rerun is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {}
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is not signal.SIG_IGN:
            before[number] = signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _no_core_files() -> Iterator[None]:
    """Keep reruns that abort from filling the disk with one core file each."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 100 else _clock(value)


def _clock(value: float) -> str:
    whole = max(0, round(value))
    return f"{whole // 60}:{whole % 60:02}"

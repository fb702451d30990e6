"""Run a program once under observation: its dumps, output, stacks and how it ended.

The program is the only thing that runs.  Signals are taken with ``sigtimedwait``, which says
who sent each: what the terminal sent, the program has got already, being in the same job; what
another process sent to cuwhy is passed on.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cuwhy.capture.control import POKE, announced
from cuwhy.capture.coredump_env import DumpSettings, complete, dump_settings, is_python, regular
from cuwhy.capture.hook import DEFAULT_HISTORY, deaf_option, hook_variables, tensor_files
from cuwhy.capture.passthrough import Streams
from cuwhy.capture.processes import MARK, environment_of, processes_of, rank_of, signal_all
from cuwhy.capture.recorder import Control, prepare
from cuwhy.model.errors import CuwhyError, ToolMissing
from cuwhy.process import Child

_TICK = 0.25
#: Between two looks into a folder that is not ours and may be large.
_FOREIGN_TICK = 5.0
_TWICE_SECONDS = 2.0
#: A dump takes 0.2 s; of a chip full of hung warps, with many modules, a few.
_DUMP_SECONDS = 30.0
_LATE_DUMP_SECONDS = 10.0
_TERM_SECONDS = 3.0
_KILL_SECONDS = 20.0
_PASSED_ON = (
    "SIGINT",
    "SIGTERM",
    "SIGHUP",
    "SIGQUIT",
    "SIGUSR1",
    "SIGUSR2",
    "SIGTSTP",
    "SIGCONT",
    "SIGWINCH",
)
#: Below this a dump of a large program may not fit.
_LOW_DISK_BYTES = 256 << 20


class NotStarted(CuwhyError):
    """The program could not be started; the exit code is what a shell gives."""

    def __init__(self, message: str, code: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.exit_code = code


@dataclass(frozen=True, slots=True)
class Dump:
    """A GPU core dump that the run left.

    Attributes:
        path: the file.
        pid: of the process, None when the name does not say.
        label: "pid 71, rank 3" or what of it is known.
        written: when it was last written to, seconds since 1970.
        asked: True when cuwhy asked for it (a hang), False when a fault caused it.
    """

    path: Path
    pid: int | None
    label: str
    written: float
    asked: bool


@dataclass(frozen=True, slots=True)
class Tensors:
    """What the PyTorch hook wrote at a process's first CUDA error: the file, its pid, and a label as of a dump."""

    path: Path
    pid: int
    label: str


@dataclass(slots=True)
class Observed:
    """What a run left.

    Attributes:
        command: argv; folder: where its artefacts are, the caller's to remove.
        code: exit code, or the negative number of the signal that ended it.
        seconds: how long it ran.
        dumps: earliest first.
        logs: what it printed, by "stdout", "stderr" or "output" (both in one).
        stacks: files with Python stacks.
        launches: what each process launched and allocated, as artefacts of a case by name.
        tensors: what the PyTorch hook wrote, earliest first.
        ended: why cuwhy ended the program, empty when it ended by itself.
        environment: what it ran with.
        notes: what could not be had, one sentence each.
        open_line: the last thing on the terminal is not a whole line.
    """

    command: tuple[str, ...]
    folder: Path
    code: int = 0
    seconds: float = 0.0
    dumps: list[Dump] = field(default_factory=list)
    logs: dict[str, bytes] = field(default_factory=dict)
    stacks: list[Path] = field(default_factory=list)
    launches: dict[str, bytes] = field(default_factory=dict)
    tensors: list[Tensors] = field(default_factory=list)
    ended: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    open_line: bool = False

    @property
    def faults(self) -> list[Dump]:
        """The dumps that a fault caused."""
        return [dump for dump in self.dumps if not dump.asked]


def observe(
    command: Sequence[str],
    *,
    hang_after: float = 0.0,
    history: str = DEFAULT_HISTORY,
    recorder: bool = True,
    control: Control | None = None,
    extra: Mapping[str, str] | None = None,
) -> Observed:
    """Run ``command`` to its end and collect what it left.

    Args:
        command: program and arguments.
        hang_after: seconds without output and without a launch after which the program
            counts as hung; 0 never.
        recorder: False leaves out the launch recorder.
        control: what the recorder does to chosen launches.
        history: what PyTorch's allocator records, one of :data:`cuwhy.capture.hook.HISTORIES`.
        extra: further variables of the program's environment.

    Raises:
        NotStarted: it could not be started.
        ToolMissing: this system cannot do it.
    """
    if not hasattr(signal, "sigtimedwait") or sys.platform != "linux":
        raise ToolMissing("`cuwhy run` works on Linux only", hint="record there, diagnose here")
    folder = new_folder()
    try:
        return _Run(tuple(command), folder, hang_after, history, recorder, control, extra or {}).go()
    except BaseException:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
        raise


def new_folder() -> Path:
    """Make a folder for artefacts; not tempfile, which costs 10 ms to import."""
    places = [os.environ.get(name, "") for name in ("TMPDIR", "TEMP", "TMP")]
    problem = ""
    for place in [*places, "/tmp", "/var/tmp", "."]:
        if not place:
            continue
        folder = Path(place).absolute() / f"cuwhy-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            folder.mkdir(mode=0o700)
            return folder
        except OSError as error:
            problem = f"{place}: {error.strerror}"
    raise CuwhyError(f"no folder for temporary files ({problem})", hint="set TMPDIR")


class _Run:
    """One run in progress."""

    def __init__(
        self,
        command: tuple[str, ...],
        folder: Path,
        hang_after: float,
        history: str,
        recorder: bool,
        control: Control | None,
        extra: Mapping[str, str],
    ) -> None:
        self.hang_after = hang_after
        self.history = history
        self.recorder, self.control = recorder, control
        self.extra = extra
        self.seen = Observed(command, folder)
        self.mark = folder.name
        self.began = time.time()
        self.labels: dict[int, str] = {}
        self.asked_at: float | None = None
        self.last_interrupt = 0.0
        self.twice = self.poked = self.hurry = self.immortal = False
        self.child: Child
        self.streams: Streams
        # Signals that whoever started us ignores stay ignored, for the program as well.
        wanted = [getattr(signal, name) for name in _PASSED_ON]
        self.signals = {s for s in wanted if signal.getsignal(s) is not signal.SIG_IGN}
        self.signals |= {signal.SIGCHLD, POKE}
        # With a terminal the program stays in our job, so that it can read and be stopped and resumed
        # by the shell; without one, in a group of its own, what is sent to our group reaches it once.
        self.own_group = not _has_terminal()

    def go(self) -> Observed:
        environment, settings = self._environment()
        self.settings = settings
        self.seen.environment = environment
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.streams = Streams()
        before = signal.pthread_sigmask(signal.SIG_BLOCK, self.signals)
        try:
            self._start(environment, self.signals - before)
            with announced(self.child.pid, self.mark, self.seen.command):
                self._watch()
            self._collect()
        finally:
            # A signal that came while nobody looked was meant for a program that has ended.
            while signal.sigtimedwait(self.signals, 0) is not None:
                pass
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        return self.seen

    def _environment(self) -> tuple[dict[str, str], DumpSettings]:
        environment = dict(os.environ)
        settings = dump_settings(environment, self.seen.folder, keep_alive=is_python(self.seen.command))
        self.seen.notes += settings.notes
        environment |= settings.environment
        environment[MARK] = self.mark
        environment |= self.extra
        if self.recorder:
            recorder = prepare(self.seen.folder, environment, self.control, self.seen.command)
            environment |= recorder.environment
            if recorder.note:
                self.seen.notes.append(recorder.note)
        environment |= hook_variables(environment, self.seen.folder, self.history)
        if option := deaf_option(self.seen.command):
            self.seen.notes.append(
                f"`python {option}` reads no PYTHONPATH: no tensor names, and no Python stacks without py-spy"
            )
        with contextlib.suppress(OSError):
            disk = os.statvfs(self.seen.folder)
            free = disk.f_bavail * disk.f_frsize
            if free < _LOW_DISK_BYTES:
                self.seen.notes.append(
                    f"only {free >> 20} MB free in {self.seen.folder.parent}: a dump may not fit; set TMPDIR"
                )
        return environment, settings

    def _start(self, environment: Mapping[str, str], unblock: set[signal.Signals]) -> None:
        command = self.seen.command
        try:
            self.child = Child(
                command,
                env=environment,
                stdout=self.streams.stdout,
                stderr=self.streams.stderr,
                own_group=self.own_group,
                unblock=unblock,
            )
        except (OSError, ValueError) as error:
            self.streams.abandon()
            missing = isinstance(error, FileNotFoundError)
            reason = (error.strerror if isinstance(error, OSError) else "") or str(error)
            raise NotStarted(f"{command[0]}: {reason}", 127 if missing else 126) from error
        self.streams.started()

    # -- while it runs -----------------------------------------------------------

    def _watch(self) -> None:
        begin = moved = time.monotonic()
        look = 0.0
        progress = (-1, 0)
        while self.child.ended() is None and not self.immortal:
            self._pause(_TICK)
            now = time.monotonic()
            if now >= look:
                look = now + (_TICK if self._ours() else _FOREIGN_TICK)
                self._label()
                if (current := (self.streams.written(), self._launched())) != progress:
                    progress, moved = current, now
                elif self.hang_after and now - moved >= self.hang_after:
                    what = "no output and no launch" if progress[1] else "no output"
                    self._end(f"{what} for {self.hang_after:g} s")
            if self.poked:
                self._end("asked by `cuwhy poke`")
            elif self.twice:
                self._end("Ctrl-C twice")
        self.seen.seconds = time.monotonic() - begin
        if self.immortal:
            self.seen.code = -signal.SIGKILL
            return
        self.seen.code = self.child.ended() or 0
        # A background process of the program may hold its output open for ever.
        if not self.streams.drain():
            self.streams.linger()
        self.child.reap()

    def _launched(self) -> int:
        """Launches so far: a program that launches without a word is at work."""
        if not self.hang_after or not self.recorder:
            return 0
        from cuwhy.capture.launches import launches_so_far

        return launches_so_far(self.seen.folder)

    def _ours(self) -> bool:
        folder = str(self.seen.folder)
        return self.settings.dumps.text.startswith(folder) and self.settings.pipes.text.startswith(folder)

    def _label(self) -> None:
        """Note the rank of each process that uses CUDA (it has a fifo), while it can be asked."""
        for pattern in (self.settings.pipes, self.settings.dumps):
            for _, pid in pattern.find():
                if pid is not None and pid not in self.labels:
                    rank = rank_of(environment_of(pid))
                    self.labels[pid] = f"pid {pid}" + (f", {rank}" if rank else "")

    def _pause(self, seconds: float) -> bool:
        """Wait for a signal, at most ``seconds``; False when the user wants it to end at once."""
        info = signal.sigtimedwait(self.signals, seconds)
        if info is None or info.si_signo == signal.SIGCHLD:
            return not self.hurry
        number = info.si_signo
        from_terminal = info.si_code > 0
        if number == POKE:
            self.poked = True
            return not self.hurry
        if number == signal.SIGWINCH:
            # The program may have looked before its pseudo-terminal had the new size: tell it again.
            self.streams.resize()
            self.child.send(number)
            return not self.hurry
        if number == signal.SIGINT and from_terminal:
            now = time.monotonic()
            if self.twice or self.poked:
                self.hurry = True
            self.twice = self.twice or (
                self.last_interrupt > 0 and now - self.last_interrupt < _TWICE_SECONDS
            )
            self.last_interrupt = now
        if self.own_group or not from_terminal or number == signal.SIGCONT:
            self.child.send(number)
        if number == signal.SIGTSTP:
            # Unblocked, it stops us as it would stop anything in this job (or not, where nothing resumes it).
            os.kill(os.getpid(), signal.SIGTSTP)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTSTP})
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTSTP})
        return not self.hurry

    # -- a hang --------------------------------------------------------------------

    def _end(self, why: str) -> None:
        """Take stacks and dumps, then end the program and all that it started."""
        from cuwhy.capture.hang import ask_for_dumps, python_stacks

        seen = self.seen
        seen.ended = why
        pids = processes_of(self.child.pid, self.mark)
        for pid in pids:
            rank = rank_of(environment_of(pid))
            self.labels.setdefault(pid, f"pid {pid}" + (f", {rank}" if rank else ""))
        seen.stacks, problem = python_stacks(pids, seen.folder)
        if problem:
            seen.notes.append(problem)
        self.asked_at = time.time()
        asked = ask_for_dumps(self.settings.pipes, self._pause)
        if not asked:
            seen.notes.append(
                "no process of the program took the request for a GPU core dump: none uses CUDA, or it is stuck "
                "before its first use"
            )
        elif not self._await_dumps(len(asked)):
            seen.notes.append(
                f"a GPU core dump was asked for, but was not written within {_DUMP_SECONDS:g} s"
            )
        for number, limit in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
            end = time.monotonic() + (0 if self.hurry and number == signal.SIGTERM else limit)
            pids = processes_of(self.child.pid, self.mark)
            signal_all(pids, number)
            # A stopped process takes SIGTERM only once it is resumed.
            signal_all(pids, signal.SIGCONT)
            while time.monotonic() < end and processes_of(self.child.pid, self.mark):
                self._pause(0.05)
        if self.child.ended() is None:
            # In the driver, taking a spinning kernel off the chip; nothing more can be done about it.
            seen.notes.append("the program does not die; the GPU may need a reset")
            self.immortal = True

    def _await_dumps(self, count: int) -> bool:
        end = time.monotonic() + _DUMP_SECONDS
        sizes: dict[Path, int] = {}
        while time.monotonic() < end:
            found = self._dumps(since=self.asked_at or self.began)
            now = {dump.path: dump.path.stat().st_size for dump in found if complete(dump.path)}
            # Whole by its header, and not grown since the last look.
            if len(now) >= count and now == sizes:
                return True
            sizes = now
            if not processes_of(self.child.pid, self.mark):
                return bool(now)
            if not self._pause(0.2):
                return bool(now)
        return False

    # -- afterwards ------------------------------------------------------------------

    def _dumps(self, since: float) -> list[Dump]:
        found = []
        for path, pid in self.settings.dumps.find():
            # File systems keep time in steps of some milliseconds.
            status = regular(path, since - 0.1)
            if status is not None:
                label = self.labels.get(pid, f"pid {pid}") if pid is not None else path.name
                asked = self.asked_at is not None and status.st_mtime >= self.asked_at - 0.1
                found.append(Dump(path, pid, label, status.st_mtime, asked))
        return sorted(found, key=lambda dump: (dump.written, dump.label))

    def _collect(self) -> None:
        seen = self.seen
        end = time.monotonic() + _LATE_DUMP_SECONDS
        seen.dumps = self._dumps(self.began)
        # Another process may still be writing its own when the first one is gone.
        while (
            any(not complete(dump.path) for dump in seen.dumps)
            and time.monotonic() < end
            and processes_of(self.child.pid, self.mark)
            and self._pause(0.1)
        ):
            seen.dumps = self._dumps(self.began)
        for dump in seen.dumps:
            if not complete(dump.path):
                seen.notes.append(f"the core dump of {dump.label} is cut off: is the disk full?")
        if seen.code or seen.ended or seen.dumps:
            from cuwhy.capture.launches import launch_logs

            seen.launches = launch_logs(seen.folder)
        for path, pid in tensor_files(seen.folder):
            seen.tensors.append(Tensors(path, pid, self.labels.get(pid, f"pid {pid}")))
        seen.logs = {channel.name: channel.content() for channel in self.streams.channels}
        last = next((seen.logs[name] for name in ("output", "stderr") if name in seen.logs), b"")
        seen.open_line = bool(last) and not last.endswith(b"\n") and os.isatty(2)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True

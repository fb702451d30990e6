"""The one place that starts subprocesses: time limit, process group, both pipes drained."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

_CHUNK = 1 << 16
#: What a process may print, both pipes together, when the caller does not say.
_MAX_OUTPUT = 64 << 20


@dataclass(frozen=True, slots=True)
class Finished:
    """How a subprocess ended.

    Attributes:
        code: exit code, negative for a signal; None when it ran past a limit.
        out, err: what it wrote, bytes.
    """

    code: int | None
    out: bytes
    err: bytes

    @property
    def ok(self) -> bool:
        """True when it ended by itself with exit code 0."""
        return self.code == 0


class Running:
    """A started subprocess; :meth:`finish` collects it."""

    def __init__(self, argv: list[str], *, env: dict[str, str] | None = None) -> None:
        """Start ``argv`` in a process group of its own, without standard input.

        Raises:
            OSError: when the program cannot be started.
        """
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=env,
            start_new_session=True,
        )

    def finish(self, seconds: float, limit: int = _MAX_OUTPUT) -> Finished:
        """Wait at most ``seconds`` and take at most ``limit`` bytes of output; then kill the whole group."""
        process = self._process
        assert process.stdout is not None
        assert process.stderr is not None
        outputs: tuple[bytearray, bytearray] = (bytearray(), bytearray())
        beyond = threading.Event()

        def drain(pipe: IO[bytes], output: bytearray) -> None:
            while chunk := os.read(pipe.fileno(), _CHUNK):
                output.extend(chunk)
                if sum(map(len, outputs)) > limit:
                    beyond.set()
                    self.kill()
                    return

        readers = [
            threading.Thread(target=drain, args=pair, daemon=True)
            for pair in zip((process.stdout, process.stderr), outputs, strict=True)
        ]
        for reader in readers:
            reader.start()
        try:
            code: int | None = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = None
            self.kill()
            process.wait()
        for reader in readers:
            # Whoever left the group may hold a pipe open for ever; nobody waits for that.
            reader.join(timeout=1.0)
        if not any(reader.is_alive() for reader in readers):
            process.stdout.close()
            process.stderr.close()
        return Finished(None if beyond.is_set() else code, bytes(outputs[0]), bytes(outputs[1]))

    def kill(self) -> None:
        """Kill the process and all that it started."""
        try:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        except ProcessLookupError:
            pass


class Child:
    """The user's program, which keeps its streams and its place in the terminal's job.

    Everything else that is started here is ours; this is not.  So it inherits what it would
    inherit from a shell (open files, standard input), and it is waited for without a limit.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        env: Mapping[str, str],
        stdout: int,
        stderr: int,
        own_group: bool,
        unblock: Iterable[int] = (),
        stdin: int | None = None,
    ) -> None:
        """Start ``argv`` with standard input inherited, where no other is given.

        Args:
            argv: program, found as a shell finds it, and arguments.
            env: its whole environment.
            stdout: file descriptor for its standard output.
            stderr: the same for standard error.
            own_group: True puts it into a process group of its own.
            unblock: signals that are blocked here and must not be there.
            stdin: file descriptor for its standard input.

        Raises:
            OSError: when the program cannot be started.
        """
        die_with_parent = _die_with_parent()
        signals = list(unblock)

        def prepare() -> None:
            if own_group:
                os.setpgid(0, 0)
            die_with_parent()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)

        # No thread runs yet when the program is started, so what preexec_fn is warned of cannot happen.
        self._process = subprocess.Popen(
            list(argv),
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=dict(env),
            close_fds=False,
            preexec_fn=prepare,  # noqa: PLW1509
        )
        self.pid = self._process.pid
        self._own_group = own_group

    def ended(self) -> int | None:
        """Return how it ended (a negative number is a signal), None while it runs; its pid stays taken."""
        # WNOWAIT leaves the zombie: until reap(), the pid cannot be anybody else's when a signal is sent.
        state = os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if state is None:
            return None
        return state.si_status if state.si_code == os.CLD_EXITED else -state.si_status

    def send(self, number: int) -> None:
        """Send a signal to it, or to its whole group where that is its own."""
        try:
            if self._own_group:
                os.killpg(self.pid, number)
            else:
                os.kill(self.pid, number)
        except (ProcessLookupError, PermissionError):
            pass

    def reap(self) -> None:
        """Give the pid back, after :meth:`ended`."""
        self._process.wait()


def _die_with_parent() -> Callable[[], None]:
    """Return what makes the kernel end the child when cuwhy itself is killed (prctl(2), PR_SET_PDEATHSIG)."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda: None
    return lambda: prctl(1, int(signal.SIGKILL), 0, 0, 0) and None


def forbid_core_file() -> None:
    """Keep the system from writing a core file of this process (prctl(2), PR_SET_DUMPABLE)."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
    except (ImportError, OSError, AttributeError):
        pass

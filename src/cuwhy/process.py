"""The one place that starts subprocesses: time limit, process group, both pipes drained."""

from __future__ import annotations

import os
import signal
import subprocess
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finished:
    """How a subprocess ended.

    Attributes:
        code: exit code, negative for a signal; None when it ran past its limit.
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

    def finish(self, seconds: float) -> Finished:
        """Wait at most ``seconds``; then kill the whole group."""
        try:
            out, err = self._process.communicate(timeout=seconds)
            return Finished(self._process.returncode, out, err)
        except subprocess.TimeoutExpired:
            self.kill()
            out, err = self._process.communicate()
            return Finished(None, out, err)

    def kill(self) -> None:
        """Kill the process and all that it started."""
        try:
            if os.name == "posix":
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()
        except ProcessLookupError:
            pass

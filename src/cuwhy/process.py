"""The one place that starts subprocesses: time limit, process group, both pipes drained."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
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
                output += chunk
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

"""Did a run pass?  The user's word on it first, then the exit code."""

from __future__ import annotations

import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cuwhy.model.errors import InputError

#: What an oracle finds in its environment.
STDOUT, STDERR, EXIT_CODE = "CUWHY_STDOUT", "CUWHY_STDERR", "CUWHY_EXIT_CODE"
_ORACLE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Judge:
    """How to tell.

    Attributes:
        oracle: shell command; 0 is a pass, 1 to 125 a failure.  It alone decides where there is one.
        fails_with: text that a failing run prints.
    """

    oracle: str = ""
    fails_with: str = ""

    def judge(
        self,
        code: int,
        stdout: Path,
        stderr: Path,
        environment: Mapping[str, str],
        *,
        dumped: bool = False,
        ended: str = "",
    ) -> tuple[bool | None, str]:
        """Return whether it passed (None: cannot tell), and what told.

        Args:
            code: exit code, negative for a signal.
            stdout: file with its standard output.
            stderr: the same for standard error.
            environment: for the oracle.
            dumped: True when it left a GPU core dump.
            ended: not empty when cuwhy ended it.

        Raises:
            InputError: the oracle cannot be run.
        """
        if ended:
            return None, "exit code"
        if dumped:
            return False, "core dump"
        if self.oracle:
            return self._ask(code, stdout, stderr, environment), "oracle"
        if self.fails_with and any(_holds(path, self.fails_with.encode()) for path in (stdout, stderr)):
            return False, "output"
        if self.fails_with and code == 0:
            return True, "output"
        return code == 0, "exit code"

    def _ask(self, code: int, stdout: Path, stderr: Path, environment: Mapping[str, str]) -> bool | None:
        from cuwhy.process import Running

        own = {STDOUT: str(stdout), STDERR: str(stderr), EXIT_CODE: str(code)}
        try:
            process = Running(["/bin/sh", "-c", self.oracle], env={**environment, **own})
            answer = process.finish(_ORACLE_SECONDS)
        except OSError as error:
            raise InputError(f"the oracle cannot be run: {error.strerror or error}") from error
        if answer.code is None:
            raise InputError(f"the oracle did not end within {_ORACLE_SECONDS:.0f} s")
        if answer.code in (126, 127) or answer.code < 0:
            words = answer.err.decode("utf-8", "replace").strip().splitlines()
            raise InputError(
                f"the oracle cannot be run (exit code {answer.code}): {(words or [''])[-1][:200]}",
                hint="--oracle takes a shell command that ends with 0 for a pass",
            )
        return answer.code == 0


def _holds(path: Path, text: bytes) -> bool:
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                return False
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return data.find(text) >= 0
    except OSError:
        return False

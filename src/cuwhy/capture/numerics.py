"""Run a PyTorch program with every operation watched."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass

from cuwhy.capture.hook import DEFAULT_HISTORY, NUMERICS, hook_variables, notice_files, numeric_files
from cuwhy.capture.probes.execute import Input, execute
from cuwhy.capture.run import Observed, observe

#: The most of a trace that is read; the hook writes less than 1 MB.
_MAX_BYTES = 8 << 20
_MAX_NOTICE_BYTES = 4096


def observe_numerics(command: Sequence[str], *, poison: bool = False, cheap: bool = False) -> Observed:
    """Run ``command`` with the numeric hook in every Python of it.

    Args:
        command: program and arguments.
        poison: fill what ``torch.empty`` and its kin hand out with a NaN of its own.
        cheap: look at outputs of modules and their gradients only; see :func:`notices`.

    Returns:
        What the run left; its folder, the caller's to remove, holds a trace for each process that
        imported torch.

    Raises:
        NotStarted: it could not be started.
        ToolMissing: this system cannot do it.
    """
    if cheap:
        return observe(command, recorder=False, extra={NUMERICS: "cheap"})
    # Compiled graphs are one operation to whoever looks from outside: run what they were made of.
    extra = {NUMERICS: "detail,poison" if poison else "detail", "TORCH_COMPILE_DISABLE": "1"}
    return observe(command, recorder=False, extra=extra)


def traces(seen: Observed) -> dict[str, tuple[bytes, str]]:
    """Return the numeric traces of a run as artefacts, content and kind by name."""
    found = {}
    for path in numeric_files(seen.folder):
        with contextlib.suppress(OSError), path.open("rb") as file:
            found[path.name] = (file.read(_MAX_BYTES), "numerics")
    return found


@dataclass(frozen=True, slots=True)
class Notice:
    """What the cheap look at a process gave.

    Attributes:
        calls: of modules; 0 when none ran, and nothing was looked at.
        call: of the outermost module, counted from 1, in which (or in whose backward pass) something
            that is not finite was noticed first; 0 when nothing was.
        phase: "forward" or "backward".
    """

    calls: int
    call: int = 0
    phase: str = ""


def notices(seen: Observed) -> list[Notice]:
    """Return what each process of a cheap run noticed; files that are not as they should be are left out."""
    found = []
    for path in notice_files(seen.folder):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, OverflowError, RecursionError):
            with path.open("rb") as file:
                content = json.loads(file.read(_MAX_NOTICE_BYTES))
            first = content["noticed"] or {"call": 0, "phase": ""}
            phase = first["phase"] if first["phase"] in ("forward", "backward") else ""
            found.append(Notice(int(content["calls"]), int(first["call"]), phase))
    return found


def look_closer(seen: Observed, notice: Notice, standard_input: Input, *, poison: bool = False) -> None:
    """Run the command of a cheap run again, each operation watched from one call before what was noticed to its end.

    Its output goes to files; the traces take the place of the cheap run's in ``seen``.
    """
    again = seen.folder / "again"
    again.mkdir()
    first, last = max(1, notice.call - 1), notice.call
    words = ["detail", f"from={first}", f"to={last}", *(["poison"] if poison else [])]
    environment = {**seen.environment, "TORCH_COMPILE_DISABLE": "1", NUMERICS: ",".join(words)}
    environment |= hook_variables(environment, again, DEFAULT_HISTORY)
    # What is watched in detail takes several times as long, and starting up takes its own time.
    seconds = 60 + 20 * seen.seconds
    execute(
        seen.command, environment=environment, folder=again, seconds=seconds, standard_input=standard_input
    )
    for path in numeric_files(again):
        shutil.move(path, seen.folder / path.name)

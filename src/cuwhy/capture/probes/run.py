"""One rerun of the user's command, as a step of the plan asks for it."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cuwhy.capture.judging import Judge
from cuwhy.capture.launches import highest_number
from cuwhy.capture.probes.execute import Ended, Input, execute
from cuwhy.capture.probes.settings import REPORT, command_for, environment_for
from cuwhy.model.facts import Rerun
from cuwhy.planning.steps import Step

#: An error stands at the end of an output.
_SEARCHED_BYTES = 1 << 20
_MAX_SAID = 200
_MAX_REPORT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Subject:
    """What is run again.

    Attributes:
        command: argv; environment: the user's own, without what cuwhy added to the first run.
        standard_input: what it reads.
        judge: how to tell a pass.
        recorded: the launch recorder works here and is wanted.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    standard_input: Input
    judge: Judge
    recorded: bool = True


@dataclass(slots=True)
class Result:
    """What one rerun gave.

    Attributes:
        rerun: its outcome.
        output: the end of what it printed.
        artefacts: content and kind by name; problems: what could not be had, one sentence each.
    """

    rerun: Rerun
    output: bytes = b""
    artefacts: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def run_step(step: Step, subject: Subject, folder: Path, seconds: float) -> Result:
    """Run the command once; the folder is emptied first.

    Args:
        step: what differs from the command as it is.
        subject: the command.
        folder: of this rerun alone.
        seconds: after which it is ended.

    Raises:
        ToolMissing: the step needs a tool that is not there.
        InputError: the oracle cannot be run.
        OSError: the command cannot be started.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    # A checker takes the place of the recorder; the command as it is runs without either.
    recorded = subject.recorded and bool(step.settings) and not step.checker
    environment = environment_for(
        step.settings, subject.environment, folder, subject.command, recorded=recorded
    )
    argv = command_for(step.settings, subject.command, folder)
    ended = execute(
        argv,
        environment=environment,
        folder=folder,
        seconds=seconds,
        standard_input=subject.standard_input,
    )
    passed, judged = None, "exit code"
    if not step.checker:
        passed, judged = subject.judge.judge(
            ended.code, ended.stdout, ended.stderr, subject.environment, ended=ended.ended
        )
    output = _tail(ended)
    result = Result(
        Rerun(
            settings=step.settings,
            passed=passed,
            code=ended.code,
            seconds=ended.seconds,
            judged=judged,
            step=step.name,
            ended=ended.ended,
            output=_digest(ended.stdout),
            launches=highest_number(folder),
            error=_error(output),
            said=_last_line(output),
        ),
        output,
    )
    if step.checker:
        _add_report(result, step, folder, ended)
    return result


def _add_report(result: Result, step: Step, folder: Path, ended: Ended) -> None:
    path = folder / REPORT
    try:
        size = path.stat().st_size
        if size > _MAX_REPORT_BYTES:
            result.problems.append(f"the report of {step.checker} has {size >> 20} MB and is left out")
            return
        data = path.read_bytes()
    except OSError:
        data = b""
    if data.strip():
        result.artefacts[f"{step.checker}.xml"] = (data, "sanitizer-xml")
    else:
        words = result.rerun.said or f"exit code {ended.code}"
        result.problems.append(f"{step.checker} wrote no report: {words}")


def _tail(ended: Ended) -> bytes:
    """The end of both streams, standard error last."""
    parts = []
    for path in (ended.stdout, ended.stderr):
        with path.open("rb") as file:
            size = path.stat().st_size
            file.seek(max(0, size - _SEARCHED_BYTES))
            parts.append(file.read(_SEARCHED_BYTES))
    text = b"\n".join(part for part in parts if part)
    return text.replace(b"\0", b"?")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def _error(output: bytes) -> int:
    from cuwhy.model.facts import ErrorReport
    from cuwhy.read.log import read_log

    facts = read_log(output, "output") if output else ()
    return next((f.code for f in facts if isinstance(f, ErrorReport) and f.code), 0)


def _last_line(output: bytes) -> str:
    lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    return "".join(c if c.isprintable() else "?" for c in lines[-1].strip())[:_MAX_SAID] if lines else ""

"""What `run` and `resume` share: options of the plan, carrying it out, saying what it found."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.probes.run import Subject
    from cuwhy.capture.run import Observed
    from cuwhy.capture.verdict import Verdict
    from cuwhy.causes.evidence import Evidence
    from cuwhy.model.diagnosis import Diagnosis
    from cuwhy.model.facts import Rerun
    from cuwhy.read.reruns import Asked

_CHECKERS = ("memcheck", "racecheck", "synccheck", "initcheck")
_BUDGET_SECONDS = 900.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the plan."""
    plan = parser.add_argument_group("when the cause is open (docs/run.md, 'The plan')")
    plan.add_argument(
        "--budget",
        metavar="TIME",
        type=_budget,
        default=_BUDGET_SECONDS,
        help="time for running the program again in other ways (default 15m; 0: never)",
    )
    plan.add_argument(
        "--oracle",
        metavar="COMMAND",
        default="",
        help="shell command that tells after each run whether it passed (exit code 0); it finds the program's "
        "output in the files $CUWHY_STDOUT and $CUWHY_STDERR",
    )
    plan.add_argument(
        "--fails-with",
        metavar="TEXT",
        default="",
        help="a run that prints TEXT has failed, whatever its exit code",
    )
    plan.add_argument(
        "--fails", action="store_true", help="the program fails without cuwhy: look further if it passes here"
    )
    plan.add_argument(
        "--check",
        metavar="NAME[,NAME]",
        type=_checks,
        default=(),
        help=f"run these checkers in any case: {', '.join(_CHECKERS)}",
    )
    plan.add_argument(
        "--repeat",
        metavar="N",
        type=_repeat,
        default=0,
        help="run it N times as it is, to learn how often it fails (default 3, and 10 when outcomes differ)",
    )


def _budget(text: str) -> float:
    from cuwhy.cli.run import seconds

    return 0.0 if text in ("0", "0s") else seconds(text)


def _checks(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in _CHECKERS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(_CHECKERS)}")
    return names


def _repeat(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:6]) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


def asked_by(arguments: argparse.Namespace) -> Asked:
    """Return what the command line asks for."""
    from cuwhy.read.reruns import Asked

    return Asked(
        arguments.oracle, arguments.fails_with, arguments.check, arguments.repeat, bool(arguments.fails)
    )


def wanted(arguments: argparse.Namespace) -> bool:
    """Tell whether the plan is asked for even if the program seems to have passed."""
    return bool(arguments.oracle or arguments.fails_with or arguments.check or arguments.fails)


def outcome_of(seen: Observed, asked: Asked) -> Rerun:
    """Return the outcome of the observed run.

    Raises:
        InputError: the oracle cannot be run.
    """
    import os

    from cuwhy.capture.judging import Judge
    from cuwhy.capture.launches import highest_number
    from cuwhy.capture.pursuit import first_outcome

    both = seen.logs.get("output", b"")
    out, err = seen.folder / "judged-stdout", seen.folder / "judged-stderr"
    out.write_bytes(seen.logs.get("stdout", both))
    err.write_bytes(seen.logs.get("stderr", both))
    passed, judged = Judge(asked.oracle, asked.fails_with).judge(
        seen.code, out, err, os.environ, dumped=bool(seen.faults), ended=seen.ended
    )
    return first_outcome(
        passed=passed,
        judged=judged,
        code=seen.code,
        seconds=seen.seconds,
        launches=highest_number(seen.folder),
    )


def goes_on(
    arguments: argparse.Namespace, seen: Observed, verdict: Verdict, asked: Asked, outcome: Rerun
) -> bool:
    """Tell whether there is a plan to carry out after the observed run."""
    from dataclasses import replace

    from cuwhy.capture.pursuit import options_of
    from cuwhy.model.diagnosis import Diagnosis
    from cuwhy.planning import pursue

    if seen.ended or not arguments.budget:
        return False
    diagnosis = verdict.diagnosis or Diagnosis()
    return pursue(replace(diagnosis, facts=(*diagnosis.facts, outcome)), options_of(asked))


def _publishable(asked: Asked) -> Asked:
    """Return it as it may stand in a case: without what looks like a secret."""
    from dataclasses import replace

    from cuwhy.case import clean_command

    return replace(
        asked,
        oracle="".join(clean_command([asked.oracle])),
        fails_with="".join(clean_command([asked.fails_with])),
    )


def artefact(asked: Asked, outcome: Rerun) -> dict[str, tuple[bytes, str]]:
    """Return the outcome as an artefact of the case."""
    asked = _publishable(asked)
    from cuwhy.capture.pursuit import RERUNS
    from cuwhy.read.reruns import write_reruns

    return {RERUNS: (write_reruns([outcome], asked), "reruns")}


def subject_of(
    command: Sequence[str],
    standard_input: Input,
    asked: Asked,
    environment: Mapping[str, str] | None = None,
    *,
    recorded: bool = True,
) -> Subject:
    """Return what is to be run again, with our own environment, which is the user's, if no other is given."""
    import os

    from cuwhy.capture.judging import Judge
    from cuwhy.capture.probes.run import Subject

    own = dict(os.environ if environment is None else environment)
    judge = Judge(asked.oracle, asked.fails_with)
    return Subject(tuple(command), own, standard_input, judge, recorded)


def pursue(
    case: Path, subject: Subject, asked: Asked, folder: Path, arguments: argparse.Namespace
) -> tuple[str, list[str]]:
    """Carry the plan out; returns the diagnosis as text, and what else is to be said."""
    from cuwhy.capture.pursuit import Pursuit
    from cuwhy.diagnosing import diagnose
    from cuwhy.model.errors import CuwhyError

    asked = _publishable(asked)
    pursuit = Pursuit(case, subject, asked, folder, arguments.budget, lambda line: say([line]))
    lines: list[str] = []
    again = f"`cuwhy resume {case}` goes on"
    say([f"looking further, for at most {arguments.budget / 60:.3g} min; Ctrl-C ends that and loses nothing"])
    try:
        pursuit.go()
    except KeyboardInterrupt:
        lines.append(f"interrupted; {again}")
    except (CuwhyError, OSError) as error:
        lines.append(f"the plan cannot go on: {error}")
    if pursuit.stop is not None:
        lines.append(pursuit.stop.why + (f"; {again}" if pursuit.stop.unfinished else ""))
    lines.insert(0, f"{pursuit.steps} runs in {pursuit.spent:.0f} s")
    diagnosis = diagnose([case], sources=["."])
    lines = [*_pattern(diagnosis), *lines]
    return (rendered(diagnosis, verbose=arguments.verbose) if diagnosis.findings else ""), lines


def _pattern(diagnosis: Diagnosis) -> list[str]:
    from cuwhy.causes.evidence import Evidence

    evidence = Evidence.of(diagnosis.facts)
    pattern = evidence.rerun_pattern()
    lines = list(pattern.sentences)
    if pattern.hidden_by_capture:
        lines.append("CORE DUMPS HIDE THIS FAILURE (a store to address 0 is silent while they are on)")
    elif pattern.differs_by_capture:
        lines.append(
            "core dumps may hide this failure (a store to address 0 is silent while they are on), or it is rare: "
            "more runs would tell (--repeat)"
        )
    if pattern.pair is not None:
        lines += [
            _launch(evidence, number) for number in (pattern.pair.earlier, pattern.pair.later) if number
        ]
    return lines


def _launch(evidence: Evidence, number: int) -> str:
    """Say which kernel a launch was, and which host line made it."""
    from cuwhy.locate.demangle import demangle
    from cuwhy.locate.recorded import host_frame

    record = evidence.recorded(number)
    if record is None:
        return f"launch {number} is not among those that were recorded"
    frame = host_frame(record)
    where = f", launched at {frame.short}" if frame is not None else ""
    return f"launch {number} is `{demangle(record.kernel).short}`{where}"


def rendered(diagnosis: Diagnosis, *, verbose: bool) -> str:
    """Return the diagnosis as text for standard error."""
    import os
    import shutil
    import sys

    from cuwhy.report.text import render

    terminal = sys.stderr.isatty()
    colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = min(shutil.get_terminal_size((80, 24)).columns, 110) if terminal else 80
    return render(diagnosis, width=width, colour=colour, verbose=verbose)


def say(lines: Sequence[str], text: str = "", *, open_line: bool = False) -> None:
    """Write one block to standard error; whoever does not read it loses it, nothing else."""
    import sys

    from cuwhy.report.escape import safe

    if not lines and not text:
        return
    block = ("\n" if open_line else "") + text + ("\n" if text and lines else "")
    block += "".join(f"cuwhy: {safe(line)}\n" for line in lines)
    try:
        encoding = sys.stderr.encoding or "utf-8"
        sys.stderr.write(block.encode(encoding, "replace").decode(encoding))
        sys.stderr.flush()
    except (OSError, ValueError):
        pass

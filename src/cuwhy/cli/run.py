"""``cuwhy run -- COMMAND…``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.run import Observed
    from cuwhy.capture.verdict import Verdict

#: The program ended with 0 although a kernel of it failed.
EXIT_SWALLOWED = 99
#: cuwhy ended the program, as timeout(1) says it.
EXIT_ENDED = 124

_DESCRIPTION = """\
Run a program, and say why when a kernel of it fails or hangs.

The program has your terminal, its output passes through unchanged, and the exit
code is its own. cuwhy prints only afterwards, to standard error, and nothing when
all went well. When a GPU failure leaves its cause open, the program is run again in
other ways, within --budget, its output then going to files. See docs/run.md.
"""
_EXITS = f"""\
exit codes: the program's own (killed by a signal: cuwhy ends by the same signal), except
  {EXIT_SWALLOWED}   the program ended with 0, but a kernel failed: the error was swallowed
  {EXIT_ENDED}  cuwhy ended the program (--hang-after, Ctrl-C twice, `cuwhy poke`)
  2    cuwhy's own arguments are wrong; 126, 127: the program cannot be started
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    from cuwhy.cli import pursuing

    parser = verbs.add_parser(
        "run",
        help="run a program and say why it failed or hung",
        description=_DESCRIPTION,
        epilog=_EXITS,
        usage="cuwhy run [options] -- COMMAND [ARGUMENT ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--case", metavar="OUT.cuwhy", help="write the case there, also when nothing was found"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing --case file")
    parser.add_argument(
        "--hang-after",
        metavar="TIME",
        type=seconds,
        default=0.0,
        help="no output and no launch for so long (60s, 5m) is a hang: take a GPU core dump and end the program",
    )
    parser.add_argument(
        "--history",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="have PyTorch's allocator record who allocated and freed what (docs/run.md: what it costs)",
    )
    parser.add_argument(
        "--no-recorder", action="store_true", help="do not record launches: no library is preloaded"
    )
    pursuing.add_arguments(parser)
    parser.add_argument("--keep", action="store_true", help="keep the folder with the raw evidence")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="reasons, values, facts; one line on success"
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run)


def split(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part cuwhy's arguments from the program's at the first ``--``.

    argparse treats ``--`` differently from one Python version to the next, and would
    take it out of the program's own arguments.
    """
    if argv and argv[0] in ("run", "resume", "profile", "numerics") and "--" in argv:
        at = list(argv).index("--")
        return list(argv[:at]), list(argv[at + 1 :])
    return list(argv), []


def seconds(text: str) -> float:
    """Read "60", "60s", "5m" or "1h" as seconds.

    Raises:
        argparse.ArgumentTypeError: it is none of these, or not between 0.1 s and a week.
    """
    factor = {"s": 1.0, "m": 60.0, "h": 3600.0}.get(text[-1:], 0.0)
    try:
        value = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        value = -1.0
    if not 0.1 <= value <= 7 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time like 60s or 5m")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Run the program; returns (or dies by) what the program ended with."""
    from cuwhy.model.errors import InputError

    if not arguments.command:
        raise InputError("no command to run", hint="cuwhy run -- python train.py")
    if arguments.case is not None:
        from pathlib import Path

        from cuwhy.case.files import refuse_existing

        # Before the program runs: an hour later it would be too late to say so.
        refuse_existing(Path(arguments.case), overwrite=arguments.force)
    from cuwhy.capture.hook import DEFAULT_HISTORY, FULL_HISTORY
    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.run import observe

    standard_input = Input.now()
    history = {None: DEFAULT_HISTORY, True: FULL_HISTORY, False: "off"}[arguments.history]
    seen = observe(
        arguments.command,
        hang_after=arguments.hang_after,
        history=history,
        recorder=not arguments.no_recorder,
    )
    code = _exit_code(seen)
    try:
        _afterwards(arguments, seen, code, standard_input)
    except KeyboardInterrupt:
        _say(seen, [f"interrupted; the evidence is in {seen.folder}"])
    except Exception as error:
        # The program's exit code counts more than our own trouble; the evidence stays.
        from cuwhy.report.escape import safe

        what = safe(f"{type(error).__name__}: {error}", 300)
        _say(seen, [f"internal error ({what}); the evidence is in {seen.folder}"])
    if code < 0:
        die_by(-code)
    return code


def _exit_code(seen: Observed) -> int:
    if seen.ended:
        return EXIT_ENDED
    if seen.code == 0 and seen.faults:
        return EXIT_SWALLOWED
    return seen.code


def _afterwards(arguments: argparse.Namespace, seen: Observed, code: int, standard_input: Input) -> None:
    import shutil

    from cuwhy.cli import pursuing

    lines: list[str] = []
    text = ""
    case = None
    kept_folder = bool(arguments.keep)
    if code or arguments.case or pursuing.wanted(arguments):
        from cuwhy.capture.verdict import judge

        asked = pursuing.asked_by(arguments)
        verdict = judge(seen)
        outcome = pursuing.outcome_of(seen, asked)
        goes_on = pursuing.goes_on(arguments, seen, verdict, asked, outcome)
        text = _diagnosis_text(arguments, seen, verdict)
        lines += _what_happened(seen)
        lines += verdict.notes
        found = bool(seen.dumps) or verdict.found or bool(seen.ended)
        if goes_on and not seen.launches:
            from cuwhy.capture.launches import launch_logs

            # A run that ended with 0 has failed all the same: whoever is to wait for whom, they are named here.
            seen.launches = launch_logs(seen.folder)
        if found or arguments.case or goes_on:
            case, problems = _keep(arguments, seen, pursuing.artefact(asked, outcome))
            lines += problems
            # What no case could take must not be lost.
            kept_folder = kept_folder or (case is None and bool(seen.dumps or seen.stacks))
        if found:
            lines += seen.notes
        if not seen.dumps and not verdict.found and not seen.ended and not code:
            text = ""
        if goes_on and case is not None:
            _say(seen, lines)
            seen.open_line = False
            subject = pursuing.subject_of(
                seen.command, standard_input, asked, recorded=not arguments.no_recorder
            )
            text, lines = pursuing.pursue(case, subject, asked, seen.folder / "rerun", arguments)
    if arguments.verbose and seen.notes and seen.notes[0] not in lines:
        lines += seen.notes
    if case is not None:
        lines.append(
            f"case: {case} ({case.stat().st_size / 1e6:.1f} MB); `cuwhy diagnose -v` shows the reasons"
        )
    if kept_folder:
        lines.append(f"raw evidence: {seen.folder}")
    else:
        shutil.rmtree(seen.folder, ignore_errors=True)
    if arguments.verbose and not code and not seen.dumps:
        lines.append(f"the program ended well after {seen.seconds:.1f} s; no GPU core dump")
    _say(seen, lines, text)


def _what_happened(seen: Observed) -> list[str]:
    lines = []
    if seen.ended:
        lines.append(f"the program was ended: {seen.ended}")
    if seen.code == 0 and seen.faults and not seen.ended:
        lines.append(
            f"THE PROGRAM ENDED WITH 0, BUT A KERNEL FAILED: its results cannot be trusted (exit code {EXIT_SWALLOWED})"
        )
    return lines


def _diagnosis_text(arguments: argparse.Namespace, seen: Observed, verdict: Verdict) -> str:
    from cuwhy.cli.pursuing import rendered

    if verdict.diagnosis is None or not (verdict.found or seen.dumps):
        return ""
    return rendered(verdict.diagnosis, verbose=arguments.verbose)


def _keep(
    arguments: argparse.Namespace, seen: Observed, extra: dict[str, tuple[bytes, str]]
) -> tuple[Path | None, list[str]]:
    from pathlib import Path

    from cuwhy.capture.keep import default_targets, keep

    targets = default_targets(seen.command)
    if arguments.case:
        targets.insert(0, (Path(arguments.case), arguments.force))
    return keep(seen, targets, extra)


def _say(seen: Observed, lines: list[str], text: str = "") -> None:
    from cuwhy.cli.pursuing import say

    say(lines, text, open_line=seen.open_line)


def die_by(number: int) -> None:
    """End by the signal that ended the program, so that whoever started us sees the same."""
    import os
    import signal
    import sys

    from cuwhy.process import forbid_core_file

    sys.stdout.flush()
    forbid_core_file()
    try:
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        os.kill(os.getpid(), number)
    except (OSError, ValueError):
        pass
    os._exit(128 + number)

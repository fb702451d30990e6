"""``cuwhy numerics -- COMMAND…``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwhy.capture.run import Observed

_DESCRIPTION = """\
Run a PyTorch program and say where the first Inf or NaN comes into being: the operation
(forward or backward) whose inputs are finite and whose output is not, its module and
line, and the ranges before and after.

Every operation is looked at, which slows the program down. The program's output and exit
code are its own. See docs/numerics.md.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "numerics",
        help="say where the first Inf or NaN of a PyTorch program comes from",
        description=_DESCRIPTION,
        usage="cuwhy numerics [options] -- COMMAND [ARGUMENT ...]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--case", metavar="OUT.cuwhy", help="write the case there, also when nothing was found"
    )
    parser.add_argument("--force", action="store_true", help="replace an existing --case file")
    parser.add_argument(
        "--poison",
        action="store_true",
        help="fill torch.empty and its kin with a NaN of their own: what reads memory never written shows",
    )
    parser.add_argument("-v", "--verbose", action="store_true", help="reasons, and the 20 operations before")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the program; returns (or dies by) what the program ended with."""
    from cuwhy.model.errors import InputError

    if not arguments.command:
        raise InputError("no command to run", hint="cuwhy numerics -- python train.py")
    from pathlib import Path

    if arguments.case is not None:
        from cuwhy.case.files import refuse_existing

        refuse_existing(Path(arguments.case), overwrite=arguments.force)
    from cuwhy.capture.numerics import observe_numerics
    from cuwhy.cli.run import die_by

    seen = observe_numerics(arguments.command, poison=arguments.poison)
    try:
        _afterwards(arguments, seen)
    except Exception as error:
        # The program's exit code counts more than our own trouble.
        from cuwhy.cli.pursuing import say
        from cuwhy.report.escape import safe

        say([f"internal error ({safe(f'{type(error).__name__}: {error}', 300)})"])
    finally:
        import shutil

        shutil.rmtree(seen.folder, ignore_errors=True)
    if seen.code < 0:
        die_by(-seen.code)
    return seen.code


def _afterwards(arguments: argparse.Namespace, seen: Observed) -> None:
    from pathlib import Path

    from cuwhy.capture.keep import default_targets, keep
    from cuwhy.capture.numerics import traces
    from cuwhy.cli.pursuing import rendered, say
    from cuwhy.diagnosing import diagnose

    found = traces(seen)
    lines: list[str] = []
    text = ""
    named = False
    if found:
        diagnosis = diagnose([seen.folder / name for name in found], sources=["."])
        named = bool(diagnosis.findings)
        text = rendered(diagnosis, verbose=arguments.verbose)
    else:
        lines.append("no Python of the program has imported torch: nothing was watched")
        lines += seen.notes
    if named or arguments.case:
        targets = default_targets(seen.command)
        if arguments.case:
            targets.insert(0, (Path(arguments.case), arguments.force))
        case, problems = keep(seen, targets, found)
        lines += problems
        if case is not None:
            lines.append(f"case: {case} ({case.stat().st_size / 1e6:.1f} MB)")
    say(lines, text, open_line=seen.open_line)

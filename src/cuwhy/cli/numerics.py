"""``cuwhy numerics -- COMMAND…``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.run import Observed

_DESCRIPTION = """\
Run a PyTorch program and say where the first Inf or NaN comes into being: the operation
(forward or backward) whose inputs are finite and whose output is not, its module and
line, and the ranges before and after.

Every operation is looked at, which slows the program down; --cheap looks at modules first. The program's output and exit
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
    parser.add_argument(
        "--cheap",
        action="store_true",
        help="look at the outputs of modules first, and run the program again for the operations around what is not finite",
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
    from cuwhy.capture.probes.execute import Input
    from cuwhy.cli.run import die_by

    standard_input = Input.now()
    seen = observe_numerics(arguments.command, poison=arguments.poison, cheap=arguments.cheap)
    try:
        _afterwards(arguments, seen, _closer(arguments, seen, standard_input) if arguments.cheap else [])
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


def _closer(arguments: argparse.Namespace, seen: Observed, standard_input: Input) -> list[str]:
    """After a cheap run: look closer where something was noticed; returns sentences on what cannot be said."""
    from cuwhy.capture.numerics import look_closer, notices, traces

    found = notices(seen)
    first = min((n for n in found if n.call > 0), key=lambda n: n.call, default=None)
    if first is None:
        calls = sum(n.calls for n in found)
        if calls:
            return [f"all was finite that {calls:,} calls of modules made, and their gradients"]
        return ["no module ran, and --cheap looks at nothing else: run it without"]
    where = f"call {first.call:,} of the outermost module" + (
        ", in its backward pass" * (first.phase == "backward")
    )
    look_closer(seen, first, standard_input, poison=arguments.poison)
    lines = [f"not finite in {where}; run again with its operations watched"]
    if not traces(seen):
        lines.append("the second run did not get so far: run it without --cheap")
    return lines


def _afterwards(arguments: argparse.Namespace, seen: Observed, lines: list[str]) -> None:
    from pathlib import Path

    from cuwhy.capture.keep import default_targets, keep
    from cuwhy.capture.numerics import traces
    from cuwhy.cli.pursuing import rendered, say
    from cuwhy.diagnosing import diagnose

    found = traces(seen)
    text = ""
    named = False
    if found:
        diagnosis = diagnose([seen.folder / name for name in found], sources=["."])
        named = bool(diagnosis.findings)
        text = rendered(diagnosis, verbose=arguments.verbose)
    elif not lines:
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

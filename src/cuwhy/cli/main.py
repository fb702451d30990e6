"""Entry point: parses the verb, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence

EXIT_CODES = """\
exit codes:
  0  a cause was named
  1  nothing found, or nothing that a cause could be named for
  2  bad input or a missing tool; the message says what to do
"""


def _parser() -> argparse.ArgumentParser:
    from cuwhy import __version__
    from cuwhy.cli import (
        case,
        causes,
        diagnose,
        doctor,
        launch_check,
        numerics,
        open,
        poke,
        profile,
        registers,
        resume,
        run,
    )

    parser = argparse.ArgumentParser(
        prog="cuwhy",
        description="CUDA: why? Says why a GPU kernel failed: which kernel, line, threads and argument, and what to change.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"cuwhy {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)
    run.add_parser(verbs)
    resume.add_parser(verbs)
    diagnose.add_parser(verbs)
    open.add_parser(verbs)
    causes.add_parsers(verbs)
    case.add_parser(verbs)
    numerics.add_parser(verbs)
    launch_check.add_parser(verbs)
    registers.add_parser(verbs)
    profile.add_parser(verbs)
    doctor.add_parser(verbs)
    poke.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from cuwhy.cli.run import split

    _open_missing_streams()
    ours, program = split(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(ours)
    if program:
        arguments.command = [*arguments.command, *program]
    try:
        code: int = arguments.run(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output (`head`, a pager) has seen enough.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except (MemoryError, RecursionError):
        _complain("the input needs more memory than there is; slim it first with `cuwhy case slim`")
        return 2
    except Exception as error:
        from cuwhy.model.errors import CuwhyError
        from cuwhy.report.escape import safe

        if isinstance(error, CuwhyError):
            _complain(safe(str(error)))
            return error.exit_code
        if isinstance(error, OSError):
            name = f"{error.filename}: " if error.filename else ""
            _complain(safe(name + (error.strerror or str(error))))
            return 2
        if os.environ.get("CUWHY_DEBUG"):
            raise
        what = safe(f"{type(error).__name__}: {error}", 200)
        _complain(f"internal error ({what}); please report it with the file, CUWHY_DEBUG=1 shows where")
        return 2


def _complain(text: str) -> None:
    """Print one line; where standard error cannot take it, the exit code must still tell."""
    with contextlib.suppress(OSError):
        print(f"cuwhy: {text}", file=sys.stderr, flush=True)


def _open_missing_streams() -> None:
    """Give a closed standard output or error (``>&-``) somewhere to go: Python leaves None there."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115


if __name__ == "__main__":
    sys.exit(main())

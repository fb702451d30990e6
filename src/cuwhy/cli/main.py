"""Entry point: parses the verb, runs it, turns errors into one line and an exit code."""

from __future__ import annotations

import argparse
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
    from cuwhy.cli import case, causes, diagnose, doctor, launch_check, poke, registers, resume, run

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
    causes.add_parsers(verbs)
    case.add_parser(verbs)
    launch_check.add_parser(verbs)
    registers.add_parser(verbs)
    doctor.add_parser(verbs)
    poke.add_parser(verbs)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    from cuwhy.cli.run import split

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
        print("cuwhy: interrupted", file=sys.stderr)
        return 130
    except (MemoryError, RecursionError):
        print("cuwhy: the input needs more memory than there is", file=sys.stderr)
        return 2
    except Exception as error:
        from cuwhy.model.errors import CuwhyError
        from cuwhy.report.escape import safe

        if isinstance(error, CuwhyError):
            print(f"cuwhy: {safe(str(error))}", file=sys.stderr)
            return error.exit_code
        if isinstance(error, OSError):
            name = f"{error.filename}: " if error.filename else ""
            print(f"cuwhy: {safe(name + (error.strerror or str(error)))}", file=sys.stderr)
            return 2
        if os.environ.get("CUWHY_DEBUG"):
            raise
        what = safe(f"{type(error).__name__}: {error}", 200)
        print(
            f"cuwhy: internal error ({what}); please report it with the file, CUWHY_DEBUG=1 shows where",
            file=sys.stderr,
        )
        return 2


if __name__ == "__main__":
    sys.exit(main())

"""``cuwhy diagnose FILE…``."""

from __future__ import annotations

import argparse

_DESCRIPTION = """\
Say why a GPU program failed, from the files it left behind.

FILE is a GPU core dump (.nvcudmp), a Compute Sanitizer report (--xml --save, or
its text), a captured program output, or a .cuwhy case; several files about one
failure are read together. What a file is, is told by its content.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "diagnose",
        help="say why, from a core dump, sanitizer report, log or case",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "-v", "--verbose", action="store_true", help="reasons, values, arguments, facts and where they stood"
    )
    parser.add_argument("--json", action="store_true", help="print JSON (docs/diagnosis.schema.json)")
    parser.add_argument(
        "--html", metavar="FILE", help="also write a report as one HTML file (- for standard output)"
    )
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="DIR",
        help="folder with the program's sources, for source lines and parameter names (default: the current folder)",
    )
    parser.add_argument(
        "--width", type=int, default=0, metavar="N", help="columns (default: the terminal's, else 80)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Diagnose and print; 0 when a cause was named, else 1."""
    import os
    import shutil
    import sys

    from cuwhy.diagnosing import diagnose

    diagnosis = diagnose(arguments.files, sources=arguments.source or ["."])
    if arguments.html is not None:
        from cuwhy.cli.writing import write_report
        from cuwhy.report.html import render as render_html

        write_report(arguments.html, render_html(diagnosis))
        if arguments.html == "-":
            return 0 if diagnosis.named else 1
    if arguments.json:
        from cuwhy.report.json import render as render_json

        sys.stdout.write(render_json(diagnosis))
    else:
        from cuwhy.report.text import render

        terminal = sys.stdout.isatty()
        width = arguments.width or (min(shutil.get_terminal_size((80, 24)).columns, 110) if terminal else 80)
        colour = terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        text = render(diagnosis, width=width, colour=colour, verbose=arguments.verbose)
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    return 0 if diagnosis.named else 1

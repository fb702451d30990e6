"""``cuwhy open CASE``: the HTML report in the browser."""

from __future__ import annotations

import argparse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "open",
        help="show the diagnosis as a page in the browser",
        description="Diagnose, write the HTML report beside your temporary files, and open it in the browser.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument(
        "--source", action="append", default=[], metavar="DIR",
        help="folder with the program's sources (default: the current folder)",
    )  # fmt: skip
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the report and open it; 0 when a cause was named, else 1."""
    import tempfile
    import webbrowser
    from pathlib import Path

    from cuwhy.cli.writing import write_report
    from cuwhy.diagnosing import diagnose
    from cuwhy.report.html import render

    diagnosis = diagnose(arguments.files, sources=arguments.source or ["."])
    page = Path(tempfile.mkdtemp(prefix="cuwhy-")) / "diagnosis.html"
    write_report(str(page), render(diagnosis))
    print(page)
    if not webbrowser.open(page.as_uri()):
        import sys

        print("cuwhy: no browser could be started: open that file in one", file=sys.stderr)
    return 0 if diagnosis.named else 1

"""``cuwhy poke [PID]``."""

from __future__ import annotations

import argparse


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "poke",
        help="ask a running `cuwhy run` for a dump of its hung program",
        description="Ask a `cuwhy run` in another terminal to take a GPU core dump, end its program and diagnose it. "
        "Without PID: the only run there is, or a list of them.",
    )
    parser.add_argument(
        "pid", nargs="?", type=int, metavar="PID", help="process of cuwhy, or any of the program's"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Poke; 0 when a run took it, 1 when there is none to choose."""
    import shlex

    from cuwhy.capture.control import poke, running
    from cuwhy.report.escape import safe

    if arguments.pid is None:
        runs = running()
        if len(runs) != 1:
            print("no run to poke" if not runs else "which one? `cuwhy poke PID`")
            for one in runs:
                print(f"  {one.cuwhy}  {safe(shlex.join(one.command), 100)}")
            return 1
        arguments.pid = runs[0].cuwhy
    asked = poke(arguments.pid)
    print(f"asked {asked.cuwhy} ({safe(shlex.join(asked.command), 100)}): the answer appears where it runs")
    return 0

"""``cuwhy profile -- COMMAND``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cuwhy.capture.profiling import Profiled

_DESCRIPTION = """\
Run a program under profilers, as narrowly as the question allows: first see where
the GPU's time goes, then measure one launch of the kernel that takes most of it.
With --kernel the first run is saved. Everything cuwhy says goes to standard error.
"""
_EXITS = """\
exit codes:
  0  a launch was measured
  1  nothing was measured; the message says why
  2  bad arguments or a missing tool; the program did not run
  otherwise the program's own, 128 + N where signal N ended it
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    from cuwhy.cli.run import seconds

    parser = verbs.add_parser(
        "profile",
        help="find the kernel that takes the time, and measure one launch of it",
        description=_DESCRIPTION,
        epilog=_EXITS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--kernel", metavar="REGEX", default="", help="measure the kernel whose base name matches"
    )
    parser.add_argument(
        "--launch",
        metavar="N",
        type=_count,
        default=0,
        help="the Nth launch of it (default: an early one of the long ones; with --kernel the first)",
    )
    parser.add_argument("--nvtx", metavar="RANGE", default="", help="only launches in this NVTX range")
    parser.add_argument(
        "--top", metavar="N", type=_top, default=1, help="without --kernel: so many kernels (default 1)"
    )
    parser.add_argument(
        "--budget", metavar="TIME", type=seconds, default=900.0, help="for all runs together (default 15m)"
    )
    parser.add_argument("--out", metavar="DIR", help="folder for the reports (default: the current one)")
    parser.add_argument(
        "--source",
        action="append",
        default=[],
        metavar="DIR",
        help="folder with the program's sources (default: the current folder)",
    )
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 1_000_000_000:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not the number of a launch, from 1")
    return value


def _top(text: str) -> int:
    from cuwhy.capture.profiling import MAX_TOP

    value = _count(text)
    if value > MAX_TOP:
        raise argparse.ArgumentTypeError(f"at most {MAX_TOP} kernels")
    return value


def run(arguments: argparse.Namespace) -> int:
    """Profile, print what was measured; returns the exit code."""
    from pathlib import Path

    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.profiling import Asked, profile
    from cuwhy.cli.pursuing import say
    from cuwhy.model.errors import InputError
    from cuwhy.report.profile import render_survey

    if not arguments.command:
        raise InputError("no command to profile", hint="cuwhy profile -- python train.py")
    out = Path(arguments.out) if arguments.out else None
    if out is not None and not out.is_dir():
        raise InputError(f"{out}: no such folder")
    asked = Asked(arguments.kernel, arguments.nvtx, arguments.launch, arguments.top, arguments.budget, out)
    result = profile(
        arguments.command,
        asked,
        say=lambda line: say([line]),
        show=lambda survey: say([], render_survey(survey)),
        standard_input=Input.now(),
    )
    _show(result, arguments.source or ["."])
    if result.code:
        return result.code if result.code > 0 else 128 - result.code
    return 0 if result.reports else 1


def _show(result: Profiled, sources: list[str]) -> None:
    from pathlib import Path

    from cuwhy.capture.profiling import COUNTERS_FIX
    from cuwhy.cli.pursuing import rendered, say
    from cuwhy.diagnosing import diagnose
    from cuwhy.locate.sources import SourceBook
    from cuwhy.profiles.annotate import annotate
    from cuwhy.profiles.features import features_of
    from cuwhy.report.profile import render_launch, render_without_counters

    book = SourceBook({}, tuple(Path(folder) for folder in sources))
    parts = []
    if result.reports:
        diagnosis = diagnose([report.path for report in result.reports], sources=sources)
        parts.append(rendered(diagnosis, verbose=False))
    for report in result.reports:
        parts += [
            render_launch(launch, features_of(launch), annotate(launch, book)) for launch in report.launches
        ]
    lines = list(result.notes)
    if result.denied:
        if result.survey is not None:
            parts.append(render_without_counters(result.survey))
        lines += [
            "the GPU's counters may not be read here (ERR_NVGPUCTRPERM): the driver keeps them for administrators",
            COUNTERS_FIX,
        ]
        if result.survey is None:
            lines.append(
                "without counters nsys (Nsight Systems) and, for Python, PyTorch's profiler can time kernels"
            )
    lines += [
        f"report: {report.path} ({report.path.stat().st_size / 1e6:.1f} MB); `cuwhy diagnose` and ncu-ui read it"
        for report in result.reports
    ]
    say(lines, "\n".join(part for part in parts if part))

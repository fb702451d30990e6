"""``cuwhy registers FILE``."""

from __future__ import annotations

import argparse
from pathlib import Path

_DESCRIPTION = """\
Show where a kernel's registers go: live registers by line, who holds them at the
peak, spills, and the occupancy that fewer would give. Needs no GPU.

FILE is a cubin (nvcc -cubin -lineinfo; Triton's cache holds them), a .cu file
(compiled with nvcc), a GPU core dump or a .cuwhy case.
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    parser = verbs.add_parser(
        "registers",
        help="live registers by line, spills and occupancy steps of a kernel",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--kernel", default="", metavar="NAME", help="only kernels whose name contains this")
    parser.add_argument("--block", type=int, default=0, metavar="N", help="threads of a block, for occupancy")
    parser.add_argument("--svg", metavar="OUT.svg", help="write the heat map, instruction × register")
    parser.add_argument("--force", action="store_true", help="replace an existing --svg file")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument(
        "--source", action="append", default=[], metavar="DIR", help="folder with the sources"
    )
    parser.add_argument(
        "--lines", type=int, default=12, metavar="N", help="source lines to list (default 12)"
    )
    parser.add_argument("--arch", default="sm_90", help="for a .cu file (default sm_90)")
    parser.add_argument("--nvcc", default="", metavar="OPTIONS", help="further nvcc options for a .cu file")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Analyse and print; 0 when there was a kernel."""
    import json
    import os
    import shutil
    import sys

    from cuwhy.locate.sources import SourceBook
    from cuwhy.model.errors import InputError
    from cuwhy.registers.find import kernels_of
    from cuwhy.report.registers import as_json, render_svg, render_text

    if not 0 <= arguments.block <= 1024:
        raise InputError(f"--block {arguments.block}: a block has 1 to 1,024 threads")
    file = Path(arguments.file)
    if arguments.svg:
        from cuwhy.case.files import refuse_existing

        refuse_existing(Path(arguments.svg), overwrite=arguments.force)
    reports = kernels_of(
        file,
        threads=arguments.block,
        kernel=arguments.kernel,
        architecture=arguments.arch,
        options=arguments.nvcc,
    )
    folders = [Path(folder) for folder in arguments.source] or [file.parent, Path(".")]
    book = SourceBook({}, tuple(folders))
    if arguments.svg:
        Path(arguments.svg).write_text(render_svg(reports[0], book), "utf-8")
    if arguments.json:
        print(json.dumps({"version": 1, "kernels": [as_json(report) for report in reports]}, indent=1))
        return 0
    terminal = sys.stdout.isatty()
    width = min(shutil.get_terminal_size((80, 24)).columns, 120) if terminal else 80
    text = "\n".join(render_text(r, book, width=width, lines=arguments.lines) for r in reports[:20])
    if len(reports) > 20:
        text += f"\n{len(reports) - 20} more kernels; --kernel NAME chooses\n"
    if arguments.svg:
        text += f"heat map of {reports[0].name}: {os.fspath(arguments.svg)}\n"
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    return 0

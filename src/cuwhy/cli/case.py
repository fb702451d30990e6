"""``cuwhy case``: pack, show, extract and slim cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

# Nothing else at the top: 'cuwhy --help' imports this file and must stay quick.
if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from cuwhy.case import Case, MachineEntry

#: Bytes of a file from which its kind is told.
_RECOGNIZE_BYTES = 1 << 20

#: Kinds of text that only its name can tell.
_KIND_BY_SUFFIX = {
    **dict.fromkeys((".c", ".cc", ".cpp", ".cu", ".cuh", ".cxx", ".h", ".hpp", ".inl", ".py"), "source"),
    ".sass": "sass",
}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``case`` and its verbs; each sets ``run``, a function of the arguments that gives the exit code."""
    parser = subparsers.add_parser(
        "case",
        help="pack, show, unpack or slim a case (.cuwhy)",
        description="A case holds the evidence of one failure, with a manifest, in one file that can be sent.",
    )
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    pack = verbs.add_parser("pack", help="make a case from files")
    pack.add_argument("out", metavar="OUT", help="the case to write, for example crash.cuwhy")
    pack.add_argument(
        "files", metavar="FILE", nargs="+", help="core dump, sanitizer report, log, SASS, source …"
    )
    pack.add_argument("--command", metavar="CMD", default="", help="the command line that failed, in quotes")
    pack.add_argument("--note", metavar="TEXT", default="", help="what whoever opens the case should know")
    pack.add_argument("--device", metavar="NAME", default="", help="name of the GPU")
    pack.add_argument("--driver", metavar="VERSION", default="", help="version of the NVIDIA driver")
    pack.add_argument(
        "--here",
        action="store_true",
        help="the program ran on this machine, in this folder and environment: record system, "
        "folder name and the variables that docs/case-format.md lists",
    )
    _add_force(pack)
    pack.set_defaults(run=run_pack)

    show = verbs.add_parser("show", help="list what is in a case")
    show.add_argument("case", metavar="CASE", help="file or folder")
    show.set_defaults(run=run_show)

    extract = verbs.add_parser("extract", help="unpack a case into a folder")
    extract.add_argument("case", metavar="CASE", help="file or folder")
    extract.add_argument("into", metavar="DIR", help="a new or empty folder")
    _add_force(extract)
    extract.set_defaults(run=run_extract)

    slim = verbs.add_parser("slim", help="write a smaller copy that gives the same diagnosis")
    slim.add_argument("case", metavar="CASE", help="file or folder")
    slim.add_argument("out", metavar="OUT", help="the case to write")
    _add_force(slim)
    slim.set_defaults(run=run_slim)


def run_pack(args: argparse.Namespace) -> int:
    """Write a case from files.

    Raises:
        CuwhyError: a file cannot be read, the name is taken, or a limit is exceeded.
    """
    import os
    import shlex
    from pathlib import Path

    from cuwhy.case import write_case
    from cuwhy.case.files import refuse_existing
    from cuwhy.model.errors import InputError

    out = Path(args.out)
    refuse_existing(out, overwrite=args.force)
    try:
        command = shlex.split(args.command)
    except ValueError as error:
        raise InputError(
            f"--command cannot be split into arguments: {error}", hint="check its quotes"
        ) from None
    artefacts: dict[str, bytes | Path] = {}
    kinds = {}
    for path in map(Path, args.files):
        kind = _kind(path)
        name = _free_name(path.name, artefacts)
        artefacts[name] = path
        kinds[name] = kind
        if kind == "coredump":
            for listing, text in _listings(name, path.read_bytes()).items():
                if listing not in artefacts:
                    artefacts[listing] = text
                    kinds[listing] = "sass"
    manifest = write_case(
        out,
        artefacts,
        kinds=kinds,
        machine=_this_machine() if args.here else None,
        driver=args.driver,
        device=args.device,
        command=command,
        directory=os.getcwd() if args.here else "",
        environment=dict(os.environ) if args.here else None,
        note=args.note,
        overwrite=args.force,
    )
    _print(f"{out}: {_count(len(manifest.artefacts), 'artefact')}, {_bytes(out.stat().st_size)}")
    _print_rows([(entry.path, entry.kind, _bytes(entry.size)) for entry in manifest.artefacts], right=(2,))
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Print what a case says about itself; contents are not read.

    Raises:
        CuwhyError: it is no case, or breaks a rule.
    """
    from pathlib import Path

    from cuwhy.case import open_case

    with open_case(Path(args.case)) as case:
        _show(case)
    return 0


def run_extract(args: argparse.Namespace) -> int:
    """Unpack a case into a folder.

    Raises:
        CuwhyError: the case cannot be trusted, or the folder is in use.
    """
    from pathlib import Path

    from cuwhy.case import extract_case

    into = Path(args.into)
    manifest = extract_case(Path(args.case), into, overwrite=args.force)
    _print(f"{into}: {_count(len(manifest.artefacts), 'artefact')}, all match their sha256")
    return 0


def run_slim(args: argparse.Namespace) -> int:
    """Write a smaller copy of a case.

    Raises:
        CuwhyError: the case cannot be trusted, or the copy cannot be written.
    """
    from pathlib import Path

    from cuwhy.case import slim_case

    result = slim_case(Path(args.case), Path(args.out), overwrite=args.force, listings=_listings)
    _print(f"{args.out}: {_bytes(result.before)} -> {_bytes(result.after)}")
    _print_rows(
        [
            (
                item.path,
                _bytes(item.before),
                "->",
                _bytes(item.after),
                f"not slimmed: {item.problem}" if item.problem else "",
            )
            for item in result.artefacts
        ],
        right=(1, 3),
    )
    return 0


def _listings(name: str, data: bytes) -> dict[str, bytes]:
    """Disassemble what a diagnosis reads, so that the receiver needs no nvdisasm; {} when it cannot be."""
    from cuwhy.locate.listings import sass_artefacts
    from cuwhy.model.errors import InputError

    try:
        return sass_artefacts(name, data)
    except InputError:
        # A damaged dump is still worth sending.
        return {}


def _add_force(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--force", action="store_true", help="replace what is there already")


def _kind(path: Path) -> str:
    """Tell the kind of a file from its content, and source code from its name."""
    from cuwhy.case import KINDS
    from cuwhy.case.files import open_regular
    from cuwhy.case.names import quoted
    from cuwhy.model.errors import InputError
    from cuwhy.read.recognize import recognize

    owner = quoted(str(path), 200)
    with open_regular(path, owner, follow=True) as file:
        try:
            kind = recognize(file.read(_RECOGNIZE_BYTES))
        except OSError as error:
            raise InputError(
                f"{owner}: cannot be read: {error.strerror or error}", hint="check the file"
            ) from error
    if kind == "case":
        raise InputError(f"{owner} is a case already", hint="'cuwhy case extract' it and pack its files")
    if kind == "log":
        kind = _KIND_BY_SUFFIX.get(path.suffix.lower(), kind)
    return kind if kind in KINDS else "other"


def _free_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that may stand in a case and meets no other one."""
    from cuwhy.case import clean_name
    from cuwhy.case.names import MANIFEST_NAME, name_problem

    name = clean_name(name)
    if name_problem(name):
        # A time of day in a log's name is common, and a colon may not stand in a case.
        name = "".join(c if c.isprintable() and c not in ":\\/" else "_" for c in name).strip(" .")[-100:]
        if name_problem(name):
            name = f"file_{name}" if not name_problem(f"file_{name}") else "file"
    lower = {other.casefold() for other in taken} | {MANIFEST_NAME}
    stem, dot, suffix = name.rpartition(".")
    if not stem:
        stem, dot, suffix = name, "", ""
    number = 2
    while name.casefold() in lower:
        name = f"{stem}-{number}{dot}{suffix}"
        number += 1
    return name


def _this_machine() -> MachineEntry:
    import os
    import sys

    from cuwhy.case import MachineEntry

    # Not platform.uname(): it also asks for the host name, and starts programs on some systems.
    uname = getattr(os, "uname", None)
    if uname is None:
        return MachineEntry(sys.platform, os.environ.get("PROCESSOR_ARCHITECTURE", ""))
    system = uname()
    return MachineEntry(system.sysname, system.machine)


def _show(case: Case) -> None:
    import shlex

    manifest = case.manifest
    rows = [
        ("case", case.name),
        ("created", f"{manifest.created} by cuwhy {manifest.cuwhy}"),
        ("machine", " ".join(filter(None, (manifest.machine.os, manifest.machine.architecture)))),
        ("device", manifest.device),
        ("driver", manifest.driver),
        ("command", shlex.join(manifest.command)),
        ("directory", manifest.directory),
        ("note", manifest.note),
        *(
            ("" if number else "environment", f"{name}={value}")
            for number, (name, value) in enumerate(manifest.environment)
        ),
    ]
    _print_rows([row for row in rows if row[1]])
    _print("")
    _print_rows(
        [
            ("artefact", "kind", "size", "sha256", "written by", "note"),
            *(
                (
                    entry.path,
                    entry.kind,
                    _bytes(entry.size),
                    entry.sha256[:12],
                    " ".join(filter(None, (entry.tool, entry.version))),
                    entry.note,
                )
                for entry in case.artefacts
            ),
        ],
        right=(2,),
    )
    for note in case.notes:
        _print(f"note: {note}")


def _print_rows(rows: Sequence[tuple[str, ...]], right: tuple[int, ...] = ()) -> None:
    """Print rows in columns; every cell is made safe for a terminal first."""
    from cuwhy.case.names import printable

    shown = [[printable(cell) for cell in row] for row in rows]
    if not shown:
        return
    # One name of 240 characters must not push all other columns off the screen.
    widths = [min(48, max(len(row[column]) for row in shown)) for column in range(len(shown[0]))]
    for row in shown:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cell for cell, width in zip(cells, widths, strict=True) if width).rstrip())


def _print(text: str) -> None:
    from cuwhy.case.names import printable

    print(printable(text))


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _bytes(size: int) -> str:
    """Return "383 kB": decimal units, three digits where there are as many."""
    if size < 1000:
        return f"{size} B"
    value = float(size)
    for unit in ("kB", "MB", "GB"):
        value /= 1000
        if value < 999.5 or unit == "GB":
            break
    return f"{value:.1f} {unit}" if value < 99.95 else f"{value:.0f} {unit}"

"""``cuwhy resume CASE``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from cuwhy.case import Manifest
    from cuwhy.read.reruns import Asked

_DESCRIPTION = """\
Go on with the plan that `cuwhy run` began, from where the case stands.

The command is the case's own, and runs here, in the current folder: it is shown, and
not run unless you agree (--yes, or the command again after --). Variables that the case
records are set as they were, all others are those of your present environment.
"""
_EXITS = """\
exit codes: 0 a cause was named; 1 none; 2 the case cannot be resumed here; 130 interrupted
"""


def add_parser(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register the verb."""
    from cuwhy.cli import pursuing

    parser = verbs.add_parser(
        "resume",
        help="go on with the plan of a case",
        description=_DESCRIPTION,
        epilog=_EXITS,
        usage="cuwhy resume [options] CASE [-- COMMAND [ARGUMENT ...]]",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", metavar="CASE")
    parser.add_argument("--yes", action="store_true", help="run the command of the case without asking")
    pursuing.add_arguments(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help="reasons, values, facts")
    parser.set_defaults(run=run, command=[])


def run(arguments: argparse.Namespace) -> int:
    """Go on; 0 when a cause is named, else 1."""
    from pathlib import Path

    from cuwhy.capture.probes.execute import Input
    from cuwhy.capture.run import new_folder
    from cuwhy.case import open_case
    from cuwhy.cli import pursuing
    from cuwhy.diagnosing import diagnose

    path = Path(arguments.case)
    with open_case(path) as case:
        manifest = case.manifest
        asked = _asked(arguments, {e.path: case.read(e.path) for e in case.artefacts if e.kind == "reruns"})
    command = tuple(arguments.command) or _command(manifest, path)
    _same_folder(manifest, path)
    _there(command)
    if not arguments.command and not arguments.yes:
        _agreed(command, asked)
    folder = new_folder()
    try:
        text, lines = pursuing.pursue(
            path,
            pursuing.subject_of(command, Input.now(), asked, _environment(manifest)),
            asked,
            folder / "rerun",
            arguments,
        )
    finally:
        import shutil

        shutil.rmtree(folder, ignore_errors=True)
    pursuing.say(lines, text)
    if any(line.startswith("interrupted") for line in lines):
        return 130
    primary = diagnose([path]).primary
    return 0 if primary is not None and not primary.cause.name.startswith("unknown/") else 1


def _asked(arguments: argparse.Namespace, reruns: dict[str, bytes]) -> Asked:
    """What the case says, and what the command line says otherwise."""
    from cuwhy.cli.pursuing import asked_by
    from cuwhy.model.errors import InputError
    from cuwhy.read.reruns import Asked, read_asked

    now = asked_by(arguments)
    then = Asked()
    for name, data in reruns.items():
        then = read_asked(data, name)
    for option, before, given in (
        ("--oracle", then.oracle, now.oracle),
        ("--fails-with", then.fails_with, now.fails_with),
    ):
        if "[removed]" in before and not given:
            raise InputError(
                f"a secret was taken out of {option} when the case was written", hint=f"give {option} again"
            )
    return Asked(
        now.oracle or _at_home(then.oracle),
        now.fails_with or then.fails_with,
        now.checks or then.checks,
        now.repeat or then.repeat,
        now.fails or then.fails,
    )


def _command(manifest: Manifest, path: Path) -> tuple[str, ...]:
    from cuwhy.model.errors import InputError

    if not manifest.command:
        raise InputError(f"{path.name} does not say which command it is about",
                         hint=f"cuwhy resume {path.name} -- COMMAND")  # fmt: skip
    command = tuple(map(_at_home, manifest.command))
    if any("[removed]" in word or "HOST" in word for word in command):
        raise InputError(
            f"the command in {path.name} is not whole: secrets and host names were taken out",
            hint=f"cuwhy resume {path.name} -- COMMAND",
        )
    return command


def _at_home(text: str) -> str:
    """Put the home directory back, for which a case has "~"."""
    import os
    import re

    return re.sub(r"(?:(?<=[\s=:,'\"])|\A)~(?=/)", lambda match: os.path.expanduser("~"), text)


def _same_folder(manifest: Manifest, path: Path) -> None:
    import os

    from cuwhy.case import clean_name
    from cuwhy.model.errors import InputError

    here = clean_name(os.path.basename(os.getcwd()))[:256]
    if manifest.directory and manifest.directory != here:
        raise InputError(
            f"{path.name} was recorded in a folder called {manifest.directory!r}, this one is {here!r}",
            hint="go there first",
        )


def _there(command: tuple[str, ...]) -> None:
    import shutil

    from cuwhy.model.errors import InputError

    if shutil.which(command[0]) is None:
        raise InputError(f"{command[0]} is not here, or cannot be run", hint="resume where it was recorded")


def _agreed(command: tuple[str, ...], asked: Asked) -> None:
    """Ask before a command runs that somebody else may have written into the case.

    Raises:
        InputError: the user does not agree, or cannot be asked.
    """
    import shlex
    import sys

    from cuwhy.model.errors import InputError
    from cuwhy.report.escape import safe

    words = f"the case would run here: {safe(shlex.join(command), 2000)}"
    if asked.oracle:
        words += f"\nand after each run:       {safe(asked.oracle, 2000)}"
    if not sys.stdin.isatty():
        raise InputError(words.replace("\n", "; "), hint="--yes agrees to that")
    print(words, file=sys.stderr)
    print("Run it? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise InputError("not run")


def _environment(manifest: Manifest) -> dict[str, str]:
    """The present environment with the variables of the case, without those that cuwhy had added itself."""
    import os

    from cuwhy.case.environment import BASE_NAME_ONLY

    recorded = {
        name: value
        for name, value in manifest.environment
        if name not in BASE_NAME_ONLY and "COREDUMP" not in name
    }
    return {**os.environ, **recorded}

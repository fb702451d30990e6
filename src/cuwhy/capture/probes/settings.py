"""Settings of a rerun -> its environment and command line."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from cuwhy.capture.hook import FILL, deaf_option, hook_variables
from cuwhy.capture.recorder import Control, prepare
from cuwhy.model.errors import ToolMissing
from cuwhy.model.facts import Setting

CHECKERS = ("memcheck", "racecheck", "synccheck", "initcheck")
#: The file that a checker writes into the folder of its run.
REPORT = "report.xml"
_CUDA_FOLDERS = ("/usr/local/cuda", "/opt/cuda", "/usr/lib/cuda")


def environment_for(
    settings: Sequence[Setting],
    base: Mapping[str, str],
    folder: Path,
    command: Sequence[str],
    *,
    recorded: bool,
) -> dict[str, str]:
    """Return the environment of a rerun: the user's own, and what the settings ask for.

    Args:
        settings: of the rerun.
        base: the user's own environment.
        folder: where the launch recorder writes.
        command: argv of the program.
        recorded: True loads the recorder also where no setting needs it.

    Raises:
        ToolMissing: a setting needs the recorder, which does not work here.
    """
    environment = dict(base)
    sync: list[tuple[int, int]] = []
    delay: list[tuple[int, int]] = []
    microseconds = 0
    for setting in settings:
        if setting.kind == "launch-blocking":
            environment["CUDA_LAUNCH_BLOCKING"] = "1"
        elif setting.kind == "no-caching":
            environment["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
        elif setting.kind == "synchronized":
            sync.append((setting.first, setting.last))
        elif setting.kind == "delayed":
            delay.append((setting.first, setting.last))
            microseconds = setting.microseconds
        elif setting.kind == "nan-filled":
            hook = hook_variables(environment, folder, "off")
            if not hook or deaf_option(command):
                raise ToolMissing("this Python program takes no hook, so its memory cannot be filled")
            environment |= {**hook, FILL: "1"}
    if sync or delay or recorded:
        control = Control(tuple(sync), tuple(delay), microseconds)
        recorder = prepare(folder, environment, control, command)
        if recorder.note and (sync or delay):
            raise ToolMissing(recorder.note)
        environment |= recorder.environment
    return environment


def command_for(settings: Sequence[Setting], command: Sequence[str], folder: Path) -> list[str]:
    """Return the command line of a rerun: the user's own, under a checker where one is asked for.

    Options as of Compute Sanitizer 2025.3 (``compute-sanitizer --help``): the value of ``kne`` is a
    whole mangled name; skip and count only count launches that match it.

    Raises:
        ToolMissing: Compute Sanitizer is not installed.
    """
    setting = next((s for s in settings if s.kind in CHECKERS), None)
    if setting is None:
        return list(command)
    tool = sanitizer()
    if tool is None:
        raise ToolMissing("compute-sanitizer is not installed", hint="`cuwhy doctor` says how to get it")
    argv = [tool, "--tool", setting.kind, "--xml", "--save", str(folder / REPORT), "--strip-paths", "no"]
    # An exit code of the program's own is no finding.
    argv += ["--check-exit-code", "no"]
    if setting.kind == "memcheck":
        # Stream-ordered allocations are freed and reused in an order that nothing else checks.
        argv += ["--track-stream-ordered-races", "all"]
    if setting.kernel and "," not in setting.kernel:
        argv += ["--kernel-name", f"kne={setting.kernel}"]
        if setting.first:
            argv += ["--launch-skip", str(setting.first - 1)]
            argv += ["--launch-count", str(setting.last - setting.first + 1)]
    return [*argv, *command]


def fills(command: Sequence[str]) -> bool:
    """Tell whether fresh PyTorch memory of this program can be filled."""
    return not deaf_option(command) and bool(hook_variables({}, Path("/"), "off"))


def sanitizer() -> str | None:
    """Return the path of Compute Sanitizer, None when it is not installed.

    Looked for in $PATH, then the toolkit's usual folders, then the PyPI package nvidia-cuda-sanitizer-api.
    """
    name = "compute-sanitizer"
    folders = [f"{base}/{sub}" for base in _CUDA_FOLDERS for sub in ("bin", name)]
    found = shutil.which(name) or shutil.which(name, path=os.pathsep.join(folders))
    if found is not None:
        return found
    for folder in sys.path:
        # cu13, cu14, …: one folder for each major version of CUDA.
        for path in sorted((Path(folder or ".") / "nvidia").glob(f"cu*/bin/{name}"), reverse=True):
            if os.access(path, os.X_OK):
                return str(path)
    return None

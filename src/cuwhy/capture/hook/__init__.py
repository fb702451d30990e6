"""The PyTorch hook: what ``cuwhy run`` puts into Python programs, and what comes back.

``inject/`` holds what runs inside the user's interpreter; it imports nothing of cuwhy.  The names
and places of tensors are written there, at a CUDA error, as ``tensors.PID.json`` into the run's
folder (docs/tensors.schema.json); the stacks of all threads, on a signal, as ``stacks.PID.txt``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

#: What PyTorch's allocator records: "off"; "state": who allocated what is allocated now; "all": also the
#: latest allocations and frees.  Frames cost about 10 % of a training step with many small kernels.
DEFAULT_HISTORY = "off"
#: What ``--history`` asks for.
FULL_HISTORY = "all"
HISTORIES = ("off", "state", "all")

#: Makes the hook write the stacks of all threads: like POKE a real-time signal, which nothing else sends.
STACKS = signal.SIGRTMIN + 10 if hasattr(signal, "SIGRTMIN") else 0
_VARIABLE = "CUWHY_HOOK"
#: Set to 1 it has fresh PyTorch memory filled with NaN (``inject/cuwhy_fill.py``).
FILL = "CUWHY_FILL_NAN"
#: Has every PyTorch operation watched (``inject/cuwhy_numerics.py``): "cheap", or "detail" and more.
NUMERICS = "CUWHY_NUMERICS"
_MAX_FILES = 64
#: The interpreter's options that keep it from reading PYTHONPATH or from looking for sitecustomize.
_DEAF_OPTIONS = frozenset("IES")
_WITH_VALUE = frozenset("WX")


def inject_folder() -> Path:
    """Return the folder that goes first on PYTHONPATH."""
    return Path(__file__).parent / "inject"


def hook_variables(environment: Mapping[str, str], folder: Path, history: str) -> dict[str, str]:
    """Return the variables that put the hook into every Python that the program starts.

    Args:
        environment: the program's.
        folder: the run's, where the hook writes.
        history: one of :data:`HISTORIES`.

    Returns:
        Empty when the hook's files are not there (cuwhy inside a zip file), or its folder cannot
        stand on a search path.
    """
    inject = str(inject_folder())
    if os.pathsep in inject or not os.path.isfile(f"{inject}/sitecustomize.py"):
        return {}
    before = environment.get("PYTHONPATH", "")
    return {
        "PYTHONPATH": f"{inject}{os.pathsep}{before}" if before else inject,
        _VARIABLE: f"1:{int(STACKS)}:{history}:{folder}",
    }


def deaf_option(command: Sequence[str]) -> str:
    """Return the option with which this Python command keeps the hook out ("-I"), empty when none does."""
    if not command or not os.path.basename(command[0]).startswith("python"):
        return ""
    words = iter(command[1:])
    for word in words:
        if not word.startswith("-") or word in ("-", "-c", "-m") or word.startswith("--"):
            break
        for letter in word[1:]:
            if letter in _DEAF_OPTIONS:
                return f"-{letter}"
            if letter in "cm":
                return ""
            if letter in _WITH_VALUE:
                if word.endswith(letter):
                    next(words, None)
                break
    return ""


def numeric_files(folder: Path) -> list[Path]:
    """Return the numeric traces that the hook wrote, earliest first."""
    return [path for path, _ in _written(folder, "numerics")]


def notice_files(folder: Path) -> list[Path]:
    """Return what a cheap look at the modules of each process gave, earliest first."""
    return [path for path, _ in _written(folder, "noticed")]


def tensor_files(folder: Path) -> list[tuple[Path, int]]:
    """Return what the hook wrote at CUDA errors, earliest first, with the process id."""
    return _written(folder, "tensors")


def _written(folder: Path, stem: str) -> list[tuple[Path, int]]:
    found = []
    for path in list(folder.glob(f"{stem}.*.json"))[:_MAX_FILES]:
        number = path.name.split(".")[1]
        if number.isdigit() and path.is_file() and not path.is_symlink():
            found.append((path.stat().st_mtime_ns, path, int(number)))
    return [(path, pid) for _, path, pid in sorted(found)]

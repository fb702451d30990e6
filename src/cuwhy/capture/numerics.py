"""Run a PyTorch program with every operation watched."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from cuwhy.capture.hook import NUMERICS, numeric_files
from cuwhy.capture.run import Observed, observe

#: The most of a trace that is read; the hook writes less than 1 MB.
_MAX_BYTES = 8 << 20


def observe_numerics(command: Sequence[str], *, poison: bool = False) -> Observed:
    """Run ``command`` with the numeric hook in every Python of it.

    Args:
        command: program and arguments.
        poison: fill what ``torch.empty`` and its kin hand out with a NaN of its own.

    Returns:
        What the run left; its folder, the caller's to remove, holds a trace for each process that
        imported torch.

    Raises:
        NotStarted: it could not be started.
        ToolMissing: this system cannot do it.
    """
    # Compiled graphs are one operation to whoever looks from outside: run what they were made of.
    extra = {NUMERICS: "detail,poison" if poison else "detail", "TORCH_COMPILE_DISABLE": "1"}
    return observe(command, recorder=False, extra=extra)


def traces(seen: Observed) -> dict[str, tuple[bytes, str]]:
    """Return the numeric traces of a run as artefacts, content and kind by name."""
    found = {}
    for path in numeric_files(seen.folder):
        with contextlib.suppress(OSError), path.open("rb") as file:
            found[path.name] = (file.read(_MAX_BYTES), "numerics")
    return found

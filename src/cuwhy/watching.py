"""``with cuwhy.numerics()``: watch the PyTorch operations of this very process."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cuwhy.capture.hook import inject_folder
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.errors import InputError, ToolMissing


@dataclass(slots=True)
class NumericWatch:
    """What :func:`numerics` has seen; complete when its block has been left."""

    _content: dict[str, Any] = field(default_factory=dict)

    @property
    def diagnosis(self) -> Diagnosis:
        """The findings; none when no operation made an Inf or NaN."""
        from cuwhy.diagnosing import conclude
        from cuwhy.read.numerics import read_numerics

        return conclude(read_numerics(self._bytes(), "numerics.json"))

    def save(self, path: str | Path) -> None:
        """Write the trace; ``cuwhy diagnose`` reads it anywhere.

        Raises:
            OSError: it cannot be written there.
        """
        Path(path).write_bytes(self._bytes())

    def __str__(self) -> str:
        from cuwhy.report.text import render

        return render(self.diagnosis)

    def _bytes(self) -> bytes:
        import json

        if not self._content:
            raise InputError("the block of cuwhy.numerics() has not been left yet")
        return json.dumps(self._content, allow_nan=False).encode()


@contextlib.contextmanager
def numerics(*, poison: bool = False) -> Iterator[NumericWatch]:
    """Watch each PyTorch operation of this thread in a ``with`` block, forward and backward.

    Args:
        poison: fill what ``torch.empty`` and its kin hand out with a NaN of its own.

    Yields:
        The watch; print it, or ask its :attr:`NumericWatch.diagnosis`, after the block.

    Raises:
        ToolMissing: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise ToolMissing("torch is not installed", hint="pip install torch") from None
    watch = NumericWatch()
    mode = _hook().tracer(torch, "", poison)
    mode.watch_modules()
    try:
        with mode:
            yield watch
    finally:
        mode.forget_modules()
        watch._content = mode.content()


def _hook() -> Any:
    """The module that runs inside programs; here cuwhy runs inside the program."""
    import importlib.util

    name = "_cuwhy_numerics"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, inject_folder() / "cuwhy_numerics.py")
        if spec is None or spec.loader is None:
            raise ToolMissing("the numeric hook is not where cuwhy is installed", hint="install cuwhy again")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        sys.modules[name] = module
    return sys.modules[name]

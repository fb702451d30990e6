"""Runs a Python program under PyTorch's profiler: ``python trace_program.py OUT script|module TARGET ARG…``.

Runs under the program's own Python (3.8 or newer) and imports nothing of cuwhy.  Only the GPU's side is traced.
Where PyTorch cannot be had, or its profiler fails, the program runs all the same and no trace is written.
"""

from __future__ import annotations

import os
import sys
import warnings
from types import TracebackType
from typing import Any


def main() -> None:
    """Run the program as Python itself would, then write its trace."""
    out, kind, target = sys.argv[1:4]
    sys.argv[:4] = [target]
    # Our own folder must not be searched for the program's modules.
    sys.path[0] = os.path.dirname(os.path.abspath(target)) if kind == "script" else os.getcwd()
    profiler = _start()
    code: SystemExit | None = None
    try:
        _run(kind, target)
    except SystemExit as end:
        code = end
    except BaseException as error:
        error.__traceback__ = _trimmed(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        code = SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1)
    finally:
        _finish(profiler, out)
    if code is not None:
        raise code


def _run(kind: str, target: str) -> None:
    import runpy

    if kind == "script":
        runpy.run_path(target, run_name="__main__")
    else:
        runpy.run_module(target, run_name="__main__", alter_sys=True)


def _start() -> Any:
    try:
        import torch.profiler as profiling  # type: ignore[import-not-found, unused-ignore]

        wanted = profiling.ProfilerActivity.CUDA
        if wanted not in profiling.supported_activities():
            return None
        # Its warnings would stand between the program's own lines.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profiler = profiling.profile(activities=[wanted])
            profiler.start()
        return profiler
    except Exception:
        return None


def _finish(profiler: Any, out: str) -> None:
    if profiler is None:
        return
    try:
        import torch  # type: ignore[import-not-found, unused-ignore]

        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
    except Exception:
        pass
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            profiler.stop()
            # Under another name first: what exists is whole.
            profiler.export_chrome_trace(out + ".part.json")
        os.replace(out + ".part.json", out)
    except Exception:
        pass


def _trimmed(traceback: TracebackType | None) -> TracebackType | None:
    """The traceback from the program's own first frame on."""
    found = traceback
    while found is not None:
        name = found.tb_frame.f_code.co_filename
        if os.path.abspath(name) != os.path.abspath(__file__) and "runpy" not in name:
            return found
        found = found.tb_next
    return traceback


if __name__ == "__main__":
    main()

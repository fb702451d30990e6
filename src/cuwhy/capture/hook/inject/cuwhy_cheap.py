"""What runs inside a PyTorch program under ``cuwhy numerics --cheap``: in which call the first Inf or NaN is noticed.

Each output of a module without children, and its gradient, is summed to one number on its own device;
nobody waits for it.  The numbers are read in batches.  Where one is not finite, the number of the call of
the outermost module is written to ``noticed.PID.json``; a second run looks at the operations around it.

It runs under the program's Python (3.8 and later) and imports nothing of cuwhy.
"""

from __future__ import annotations

import atexit
import json
import math
import os
import sys
from typing import Any

_BATCH = 256


def arm(torch: Any, folder: str) -> None:
    """Watch modules from here to the end of the process."""
    watch = Watch(torch, folder)
    watch.start()
    atexit.register(watch.write)


class Watch:
    """The flags that have not been read yet, and the first that was not finite."""

    def __init__(self, torch: Any, folder: str) -> None:
        self.torch = torch
        self.folder = folder
        self.depth = 0
        #: Calls of outermost modules, and of all.
        self.roots = 0
        self.calls = 0
        self.flags: list[tuple[Any, int, str]] = []
        self.noticed: Any = None

    def start(self) -> None:
        """Put the hooks on all modules, present and future."""
        hooks = sys.modules["torch.nn.modules.module"]
        hooks.register_module_forward_pre_hook(self.enter)
        try:
            hooks.register_module_forward_hook(self.leave, always_call=True)
        except TypeError:
            hooks.register_module_forward_hook(self.leave)

    def enter(self, _module: Any, _inputs: Any) -> None:
        """Count a call."""
        if not self.depth:
            self.roots += 1
        self.depth += 1
        self.calls += 1

    def leave(self, module: Any, _inputs: Any, output: Any) -> None:
        """Look at what a module without children made, and at its gradient when it comes."""
        self.depth = max(0, self.depth - 1)
        if self.noticed is not None or (module._modules and self.depth):
            return
        try:
            tensor = output
            while isinstance(tensor, (tuple, list)) and tensor:
                tensor = tensor[0]
            self.look(tensor, "forward")
            if isinstance(tensor, self.torch.Tensor) and tensor.requires_grad:
                tensor.register_hook(self.gradient)
        except Exception:
            pass

    def gradient(self, gradient: Any) -> None:
        """Look at a gradient; it stays what it is."""
        try:
            self.look(gradient, "backward")
        except Exception:
            pass

    def look(self, tensor: Any, phase: str) -> None:
        """Keep one number that is finite only if all of a tensor is; too large a sum is a false alarm, no more."""
        torch = self.torch
        if self.noticed is not None or type(tensor) is not torch.Tensor:
            return
        if not tensor.dtype.is_floating_point or tensor.device.type == "meta" or not tensor.numel():
            return
        if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
            return
        with torch.no_grad():
            wide = torch.float64 if tensor.dtype == torch.float64 else torch.float32
            self.flags.append((tensor.detach().sum(dtype=wide), self.roots, phase))
        if len(self.flags) >= _BATCH:
            self.read()

    def read(self) -> None:
        """Read the numbers of a batch: one wait for each device."""
        torch = self.torch
        flags, self.flags = self.flags, []
        groups: dict[Any, list[int]] = {}
        for index, (value, _, _) in enumerate(flags):
            groups.setdefault((value.device, value.dtype), []).append(index)
        bad: list[int] = []
        for indices in groups.values():
            values = torch.stack([flags[index][0] for index in indices]).tolist()
            bad += [index for index, value in zip(indices, values) if not math.isfinite(value)]  # noqa: B905
        if bad and self.noticed is None:
            _, root, phase = flags[min(bad)]
            self.noticed = {"call": root, "phase": phase}
            self.write()

    def write(self) -> None:
        """Write what is known; at the end of the process, and when something was noticed."""
        try:
            if self.noticed is None and self.flags:
                self.read()
            path = "%s/noticed.%d.json" % (self.folder, os.getpid())
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump({"calls": self.calls, "roots": self.roots, "noticed": self.noticed}, file)
            os.replace(path + ".new", path)
        except Exception:
            pass

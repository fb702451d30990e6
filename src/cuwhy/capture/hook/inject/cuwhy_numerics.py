"""What runs inside a PyTorch program under ``cuwhy numerics``: where the first Inf or NaN comes into being.

A dispatch mode sees every operation below autograd and autocast, so with the dtypes that really run.
Each one's inputs and outputs get a minimum and maximum on their own device; one number is read back
per operation.  When an output is not finite and the inputs were, counts and ranges are taken from the
tensors at hand and written to ``numerics.PID.json`` (docs/numerics.schema.json).  What is in a tensor is
never written: only shapes, counts and ranges.

It runs under the program's Python (3.8 and later) and imports nothing of cuwhy.
"""

from __future__ import annotations

import atexit
import collections
import json
import math
import os
import sys
import time
from typing import Any

HISTORY = 20
_MAX_EVENTS = 8
_MAX_FRAMES = 12
_MAX_TENSORS = 8
_MAX_SEQUENCE = 200_000
_MAX_BUFFERS = 50_000
#: Larger tensors are not computed again in float64, and not copied before they are changed in place.
_MAX_AGAIN = 1 << 26
#: Operations that hand out memory as it is.
_EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided"}
#: Operations whose first argument is overwritten and not read.
_OVERWRITE = {"copy_", "fill_", "zero_", "normal_", "uniform_", "random_", "bernoulli_", "exponential_"}
_ATTENTION = "scaled_dot_product"
#: A quiet NaN that nothing else makes, by the width of the type: what fresh memory is filled with.
_PAYLOAD = {
    "torch.float16": ("int16", 0x7E5A),
    "torch.bfloat16": ("int16", 0x7FDA),
    "torch.float32": ("int32", 0x7FC0C0DE),
    "torch.float64": ("int64", 0x7FF800C0DEC0DE00),
}


def tracer(torch: Any, folder: str, poison: bool) -> Any:
    """Return the mode; entered, it watches until it is left."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Tracer(_Tracer, TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            TorchDispatchMode.__init__(self)
            _Tracer.__init__(self, torch, folder, poison)

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return self.step(func, args, kwargs or {})

    return Tracer()


def arm(torch: Any, folder: str, setting: str) -> None:
    """Watch from here to the end of the process, or while some calls of outermost modules run.

    Args:
        torch: the module.
        folder: where the trace is written.
        setting: words joined by commas: "detail", "poison", "from=N" and "to=N" (calls, counted from 1).
    """
    words = dict(word.partition("=")[::2] for word in setting.split(","))
    mode = tracer(torch, folder, "poison" in words)
    mode.watch_modules()
    if "from" in words:
        mode.window = (int(words["from"]), int(words["to"]))
        if mode.window[0] <= 1:
            mode.open()
    else:
        mode.open()
    atexit.register(mode.write)
    mode.write()


class _Op:
    """One operation of the history."""

    __slots__ = ("forward", "frames", "inputs", "module", "name", "number", "outputs", "phase", "scalars")

    def __init__(self, number: int, name: str) -> None:
        self.number = number
        self.name = name
        self.module = ""
        self.phase = "forward"
        self.frames: Any = ()
        self.forward: Any = None
        self.inputs: Any = ()
        self.outputs: Any = ()
        self.scalars: Any = {}


class _Tracer:
    def __init__(self, torch: Any, folder: str, poison: bool) -> None:
        self.torch = torch
        self.folder = folder
        self.poison = poison
        self.number = 0
        self.window: Any = None
        self.roots = 0
        self.opened = False
        self.found: list[dict[str, Any]] = []
        self.made = False
        self.spots: set[Any] = set()
        self.read_poison = False
        self.pending: Any = None
        self.scaler = False
        self.errors = 0
        self.modules: list[str] = []
        self.calls = 0
        self.names: dict[int, str] = {}
        self.handles: list[Any] = []
        self.devices: set[str] = set()
        self.ring: Any = collections.deque(maxlen=HISTORY)
        self.sequence: Any = collections.OrderedDict()
        self.buffers: Any = collections.OrderedDict()
        self.library = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
        self.mine = os.path.abspath(__file__)
        self.plain = (torch.Tensor, torch.nn.Parameter)

    # -- modules ---------------------------------------------------------------------

    def watch_modules(self) -> None:
        """Follow which module runs."""
        hooks = sys.modules["torch.nn.modules.module"]
        self.handles.append(hooks.register_module_forward_pre_hook(self._enter_module))
        try:
            self.handles.append(hooks.register_module_forward_hook(self._leave_module, always_call=True))
        except TypeError:
            self.handles.append(hooks.register_module_forward_hook(self._leave_module))

    def forget_modules(self) -> None:
        """Take the hooks off again."""
        for handle in self.handles:
            handle.remove()
        self.handles = []

    def open(self) -> None:
        """Begin to see operations."""
        if not self.opened:
            self.opened = True
            self.__enter__()  # type: ignore[attr-defined]

    def close(self) -> None:
        """See no more."""
        if self.opened:
            self.opened = False
            self.__exit__(None, None, None)  # type: ignore[attr-defined]

    def _enter_module(self, module: Any, _inputs: Any) -> None:
        if not self.modules:
            self.roots += 1
            if self.window is not None and self.roots == self.window[0]:
                self.open()
            elif self.window is not None and self.roots == self.window[1] + 1:
                self.close()
            self.names = {}
            root = type(module).__name__
            for name, part in module.named_modules():
                self.names[id(part)] = (root + "." + name if name else root)[:300]
        self.calls += 1
        self.modules.append(self.names.get(id(module), type(module).__name__))

    def _leave_module(self, module: Any, _inputs: Any, _output: Any) -> None:
        if self.modules:
            self.modules.pop()

    # -- one operation ---------------------------------------------------------------

    def step(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run one operation and look at what it made; the program never notices what goes wrong here."""
        note = None
        try:
            note = self._before(func, args, kwargs)
        except Exception:
            self.errors += 1
        out = func(*args, **kwargs)
        if note is not None:
            try:
                self._after(func, args, kwargs, note, out)
            except Exception:
                self.errors += 1
        return out

    def _before(self, func: Any, args: Any, kwargs: Any) -> Any:
        torch = self.torch
        self.number += 1
        schema = func._schema
        name = schema.name.split("::")[-1]
        if "non_finite_check" in name:
            self.scaler = True
            return None
        op = _Op(self.number, name)
        inputs: list[Any] = []
        saved: dict[int, Any] = {}
        mutable = schema.is_mutable
        for position, argument in enumerate(schema.arguments):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if argument.is_out or (written and name in _OVERWRITE and position == 0):
                continue
            if isinstance(value, bool):
                continue
            if isinstance(value, (int, float)):
                if len(op.scalars) < 8:
                    op.scalars[argument.name] = value
                continue
            for tensor in value if isinstance(value, (list, tuple)) else (value,):
                if not isinstance(tensor, torch.Tensor):
                    continue
                if (
                    type(tensor) not in self.plain
                    or tensor.device.type == "meta"
                    or tensor.layout != torch.strided
                ):
                    return None
                if not tensor.dtype.is_floating_point or len(inputs) >= _MAX_TENSORS:
                    continue
                kept = tensor
                if written and mutable and tensor.numel() <= _MAX_AGAIN:
                    kept = saved[id(tensor)] = tensor.detach().clone()
                inputs.append((kept, self._quick(kept)))
        self._place(op)
        return op, inputs, saved

    def _place(self, op: _Op) -> None:
        torch = self.torch
        op.module = self.modules[-1] if self.modules else ""
        op.frames = self._frames()
        if torch._C._current_graph_task_id() != -1:
            op.phase = "backward"
            node = torch._C._current_autograd_node()
            if node is not None:
                known = self.sequence.get(node._sequence_nr())
                if known is not None:
                    op.forward, op.module = known[0], known[1]
        else:
            number = torch.autograd._get_sequence_nr() - 1
            if number >= 0 and number not in self.sequence:
                self.sequence[number] = (op.frames, op.module)
                if len(self.sequence) > _MAX_SEQUENCE:
                    self.sequence.popitem(last=False)

    def _frames(self) -> list[tuple[Any, int]]:
        frames: list[tuple[Any, int]] = []
        frame: Any = sys._getframe(3)
        while frame is not None and len(frames) < _MAX_FRAMES:
            code = frame.f_code
            file = code.co_filename
            if not (file.startswith(self.library) or file == self.mine or file.startswith("<frozen")):
                frames.append((code, frame.f_lineno))
            frame = frame.f_back
        return frames

    def _quick(self, tensor: Any) -> Any:
        """Shape, type, and the extremes as a tensor that nobody waits for."""
        torch = self.torch
        extremes = None
        if tensor.numel():
            values = tensor.detach()
            if tensor.dtype.itemsize == 1:
                values = values.float()
            extremes = torch.stack(torch.aminmax(values))
        return tuple(tensor.shape), str(tensor.dtype), str(tensor.device), extremes

    def _after(self, func: Any, args: Any, kwargs: Any, note: Any, out: Any) -> None:
        torch = self.torch
        op, inputs, saved = note
        view = bool(getattr(func, "is_view", False))
        outputs = [
            tensor
            for tensor in (out if isinstance(out, (list, tuple)) else (out,))
            if isinstance(tensor, torch.Tensor)
            and type(tensor) in self.plain
            and tensor.dtype.is_floating_point
            and tensor.layout == torch.strided
        ]
        # The others of attention are of no type and range that are promised.
        outputs = outputs[:1] if _ATTENTION in op.name else outputs[:_MAX_TENSORS]
        if op.name in _EMPTY:
            for tensor in outputs:
                self._fresh(op, tensor)
            return
        if not outputs and not inputs:
            return
        for tensor in outputs:
            self.devices.add(tensor.device.type)
        if any(t.is_cuda for t in outputs) and torch.cuda.is_current_stream_capturing():
            return
        op.inputs = [quick for _, quick in inputs]
        op.outputs = [self._quick(tensor) for tensor in outputs]
        flags = [quick[3] for quick in op.outputs if quick[3] is not None]
        bad = bool(flags) and not all(bool(torch.isfinite(flag).all()) for flag in flags)
        if not view:
            if not bad:
                self._absorbed(op, inputs)
            if bad and len(self.found) < _MAX_EVENTS:
                self._judge(func, args, kwargs, op, inputs, saved, outputs)
            self.ring.append(op)

    def _fresh(self, op: _Op, tensor: Any) -> None:
        if self.poison and str(tensor.dtype) in _PAYLOAD and tensor.numel():
            kind, value = _PAYLOAD[str(tensor.dtype)]
            tensor.detach().view(getattr(self.torch, kind)).fill_(value)
        if tensor.numel():
            self.buffers[tensor.untyped_storage().data_ptr()] = op.frames
            if len(self.buffers) > _MAX_BUFFERS:
                self.buffers.popitem(last=False)

    # -- what is not finite -------------------------------------------------------------

    def _judge(
        self, func: Any, args: Any, kwargs: Any, op: _Op, inputs: Any, saved: Any, outputs: Any
    ) -> None:
        before = [self._full(tensor) for tensor, _ in inputs]
        after = [self._full(tensor) for tensor in outputs]
        nan_in = sum(s["nan"] for s in before)
        inf_in = sum(s["inf"] + s["minus_inf"] for s in before)
        nan_out = sum(s["nan"] for s in after)
        inf_out = sum(s["inf"] + s["minus_inf"] for s in after)
        deliberate = any(isinstance(v, float) and not math.isfinite(v) for v in op.scalars.values())
        kind, allocated = "", None
        if nan_in:
            poisoned = sum(s["poison"] for s in before)
            for tensor, _ in inputs:
                if self._has_nan(tensor):
                    allocated = self.buffers.get(tensor.untyped_storage().data_ptr())
                    break
            if nan_out and poisoned and not self.read_poison:
                kind, self.read_poison = "uninitialized", True
            elif nan_out and not self.made and not self.read_poison:
                kind = "arrived"
        elif nan_out:
            kind = "nan"
        elif inf_out and not inf_in and not deliberate:
            kind = "inf"
        spot = (kind, op.name, tuple((id(code), line) for code, line in op.frames[:3]))
        if not kind or spot in self.spots:
            return
        self.spots.add(spot)
        self.made = True
        self.pending = (len(self.found), op.number + HISTORY) if kind == "inf" else None
        bad = ~self.torch.isfinite(outputs[0])
        event = {
            "kind": kind,
            **self._row(op),
            "inputs": before,
            "outputs": after,
            "at": [self._at(tensor, bad) for tensor, _ in inputs],
            "masked_rows": self._masked_rows(op, inputs),
            "exact": self._again(func, args, kwargs, saved) if kind == "inf" else None,
            "absorbed": None,
            "allocated": self._plain(allocated) if allocated else [],
            "history": [self._history(other) for other in self.ring],
        }
        self.found.append(event)
        self.write()

    def _absorbed(self, op: _Op, inputs: Any) -> None:
        """Note the first operation that turns the Inf of the latest event into something finite."""
        if self.pending is None:
            return
        index, last = self.pending
        if op.number > last:
            self.pending = None
        elif op.outputs and any(
            quick[3] is not None and not bool(self.torch.isfinite(quick[3]).all()) for _, quick in inputs
        ):
            self.pending = None
            self.found[index]["absorbed"] = self._history(op)
            self.write()

    def _has_nan(self, tensor: Any) -> bool:
        return bool(self.torch.isnan(tensor.detach().float()).any())

    def _full(self, tensor: Any) -> dict[str, Any]:
        torch = self.torch
        values = tensor.detach()
        row: dict[str, Any] = {"shape": list(tensor.shape), "dtype": str(tensor.dtype)[6:]}
        row.update(device=str(tensor.device))
        row.update(nan=0, inf=0, minus_inf=0, zeros=0, poison=0, low=None, high=None, tiny=None)
        if not tensor.numel():
            return row
        if tensor.dtype.itemsize == 1:
            values = values.float()
        finite = torch.isfinite(values)
        row["nan"] = int(torch.isnan(values).sum())
        row["inf"] = int(torch.isposinf(values).sum())
        row["minus_inf"] = int(torch.isneginf(values).sum())
        row["zeros"] = int((values == 0).sum())
        if row["nan"] and str(values.dtype) in _PAYLOAD:
            kind, pattern = _PAYLOAD[str(values.dtype)]
            row["poison"] = int((values.contiguous().view(getattr(torch, kind)) == pattern).sum())
        good = values[finite]
        if good.numel():
            row["low"], row["high"] = float(good.min()), float(good.max())
            sizes = good[good != 0].abs()
            row["tiny"] = float(sizes.min()) if sizes.numel() else None
        return row

    def _at(self, tensor: Any, bad: Any) -> Any:
        """The same of only those elements of an input that stand where the output is not finite."""
        try:
            return self._full(tensor.detach().expand(bad.shape)[bad])
        except RuntimeError:
            return None

    def _masked_rows(self, op: _Op, inputs: Any) -> int:
        if not inputs or not inputs[0][0].dim():
            return 0
        dim = op.scalars.get("dim", -1)
        values = inputs[0][0].detach()
        if not isinstance(dim, int) or not -values.dim() <= dim < values.dim() or not values.shape[dim]:
            return 0
        return int((values == -math.inf).all(dim).sum())

    def _again(self, func: Any, args: Any, kwargs: Any, saved: Any) -> Any:
        """The range of the first output in float64, None where that cannot be had."""
        torch = self.torch

        def wide(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                if value.numel() > _MAX_AGAIN:
                    raise ValueError
                value = saved.get(id(value), value)
                return value.detach().double() if value.dtype.is_floating_point else value
            if isinstance(value, (list, tuple)):
                return type(value)(wide(item) for item in value)
            if isinstance(value, torch.dtype) and value.is_floating_point:
                return torch.float64
            return value

        try:
            out = func(*[wide(a) for a in args], **{key: wide(value) for key, value in kwargs.items()})
        except Exception:
            return None
        first = out[0] if isinstance(out, (list, tuple)) else out
        if not isinstance(first, torch.Tensor) or first.dtype != torch.float64:
            return None
        return self._full(first)

    # -- the file ------------------------------------------------------------------------

    def _plain(self, frames: Any) -> list[Any]:
        return [
            [code.co_filename[:400], line, str(getattr(code, "co_qualname", code.co_name))[:200]]
            for code, line in frames
        ]

    def _row(self, op: _Op) -> dict[str, Any]:
        scalars = {
            name[:40]: value if not isinstance(value, float) or math.isfinite(value) else str(value)
            for name, value in op.scalars.items()
            if isinstance(value, float) or abs(value) < 1 << 63
        }
        return {
            "number": op.number,
            "op": op.name[:100],
            "module": op.module,
            "phase": op.phase,
            "frames": self._plain(op.frames),
            "forward": self._plain(op.forward) if op.forward else [],
            "scalars": scalars,
        }

    def _history(self, op: _Op) -> dict[str, Any]:
        row = self._row(op)
        row["frames"], row["forward"] = row["frames"][:1], row["forward"][:1]
        row["inputs"] = [self._range(quick) for quick in op.inputs]
        row["outputs"] = [self._range(quick) for quick in op.outputs]
        return row

    def _range(self, quick: Any) -> dict[str, Any]:
        shape, dtype, device, extremes = quick
        low, high = (None, None) if extremes is None else (float(v) for v in extremes.tolist())
        finite = low is not None and high is not None and math.isfinite(low) and math.isfinite(high)
        row: dict[str, Any] = {"shape": list(shape), "dtype": dtype[6:], "device": device}
        row.update(low=low if finite else None, high=high if finite else None, finite=finite or low is None)
        return row

    def content(self) -> dict[str, Any]:
        """Everything so far, as the schema has it."""
        return {
            "format": "cuwhy-numerics",
            "version": 1,
            "pid": os.getpid(),
            "time": int(time.time()),
            "torch": str(self.torch.__version__)[:100],
            "devices": sorted(self.devices)[:8],
            "poison": self.poison,
            "operations": self.number,
            "module_calls": self.calls,
            "gradient_scaler": self.scaler,
            "unread": self.errors,
            "events": self.found,
        }

    def write(self) -> None:
        """Write the file anew; whole or not at all."""
        if not self.folder:
            return
        try:
            path = "%s/numerics.%d.json" % (self.folder, os.getpid())
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump(self.content(), file, allow_nan=False)
            os.replace(path + ".new", path)
        except Exception:
            pass

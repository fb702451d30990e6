"""Stands in for PyTorch: the same names and the same shapes of answers, no GPU and no arithmetic.

The allocator's snapshot is one that a real PyTorch 2.11 gave after a real fault (FAKE_SNAPSHOT).
"""

import contextlib
import json
import multiprocessing.util  # noqa: F401
import os
import types

__version__ = "2.11.0+fake"


class AcceleratorError(RuntimeError):
    pass


class TensorBase:
    def __init__(self, pointer=0, shape=(), dtype="torch.float32", device="cuda:0", needs=False):
        self.__dict__["_raw"] = (pointer, tuple(shape), dtype, device, needs)
        self.__dict__["_grad"] = None

    device = property(lambda self: self._raw[3])
    dtype = property(lambda self: self._raw[2])
    is_leaf = property(lambda self: True)
    requires_grad = property(lambda self: self._raw[4])
    grad = property(lambda self: self._grad)
    shape = property(lambda self: self._raw[1])

    def size(self):
        return self._raw[1]

    def stride(self):
        steps, step = [], 1
        for n in reversed(self._raw[1]):
            steps.append(step)
            step *= n
        return tuple(reversed(steps))

    def storage_offset(self):
        return 0

    def element_size(self):
        return 4

    def data_ptr(self):
        return self._raw[0]


class _Storage:
    def __init__(self, count):
        self.count = count

    def nbytes(self):
        return self.count


class Tensor(TensorBase):
    def untyped_storage(self):
        count = 4
        for n in self._raw[1]:
            count *= n
        return _Storage(count)


class Module:
    def __init__(self, **members):
        self.__dict__.update(_parameters={}, _buffers={}, _modules={})
        for name, value in members.items():
            table = "_modules" if isinstance(value, Module) else "_parameters"
            self.__dict__[table][name] = value

    def __getattr__(self, name):
        raise AssertionError("the hook asked a module for " + name)


def _switch():
    return contextlib.nullcontext()


_C = types.SimpleNamespace(TensorBase=TensorBase, DisableTorchFunctionSubclass=_switch)
nn = types.SimpleNamespace(Module=Module)


_recorded = []


class _Memory:
    recorded = _recorded

    @staticmethod
    def _snapshot():
        name = os.environ.get("FAKE_SNAPSHOT")
        if not name:
            raise RuntimeError("CUDA error: the allocator is broken too")
        with open(name) as file:
            return json.load(file)

    @staticmethod
    def _record_memory_history(*arguments, **options):
        _Memory.recorded.append((arguments, options))


_calls = []
cuda = types.SimpleNamespace(
    is_initialized=lambda: bool(os.environ.get("FAKE_SNAPSHOT")),
    memory=_Memory,
    _lazy_call=_calls.append,
)


def initialise():
    """What the first use of the GPU does."""
    while _calls:
        _calls.pop(0)()
    return _Memory.recorded


def fail(text="CUDA error: an illegal memory access was encountered"):
    raise AcceleratorError(text)

"""Starts with every Python program under ``cuwhy run``, and gets out of the way.

The folder of this file stands first on PYTHONPATH.  What Python then finds as ``sitecustomize``
is this; it takes its folder off ``sys.path``, waits for an import of torch, and hands over to the
``sitecustomize`` that Python would have found.  It runs under the program's Python, 3.6 or
later (an older one has no torch that is looked for), and imports nothing that is not compiled into the interpreter.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_VARIABLE = "CUWHY_HOOK"
_FILL = "CUWHY_FILL_NAN"
_NUMERICS = "CUWHY_NUMERICS"


def _leave_path(folder: str) -> None:
    sys.path[:] = [entry for entry in sys.path if entry != folder]
    sys.path_importer_cache.pop(folder, None)


def _free_number() -> int:
    for number in range(200, 1000):
        try:
            os.fstat(number)
        except OSError:
            return number
    raise OSError


def _stacks(number: int, folder: str) -> None:
    """Let a signal write the Python stacks of all threads into ``stacks.PID.txt``."""
    import faulthandler

    # "signal" would import "enum", which costs more than all of this.
    _signal = __import__("_signal")
    if not number or _signal.getsignal(number) != _signal.SIG_DFL:
        return

    def register() -> None:
        path = "%s/stacks.%d.txt" % (folder, os.getpid())
        low = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            # Out of the way of the numbers that the program will get.
            file = os.dup2(low, _free_number(), inheritable=False)
        finally:
            os.close(low)
        faulthandler.register(number, file=file, all_threads=True, chain=False)

    def after_fork() -> None:
        # The file is the parent's; a child that already closed it must not close what came after.
        try:
            faulthandler.unregister(number)
            register()
        except Exception:
            pass

    register()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=after_fork)


class _Waiter:
    """A finder that finds nothing, until torch is looked for."""

    def __init__(self, folder: str, target: str, history: str) -> None:
        self.folder = folder
        self.target = target
        self.history = history

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        if name != "torch":
            return None
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None else None
            if spec is not None:
                self.follow(spec)
                return spec
        # Not installed here, or not on the path yet.
        sys.meta_path.insert(0, self)
        return None

    def follow(self, spec: "Any") -> None:
        """Have the hook set up when the module has been run.

        Not by wrapping its loader: that would stand in the traceback of an import that fails.  The import
        system says on the spec when it is done.
        """
        plain = type(spec)

        def done(spec: "Any", name: str, value: "Any") -> None:
            object.__setattr__(spec, name, value)
            if name == "_initializing" and not value:
                spec.__class__ = plain
                if "torch" in sys.modules:
                    self.arm(sys.modules["torch"])
                else:
                    sys.meta_path.insert(0, self)

        try:
            spec.__class__ = type(plain.__name__, (plain,), {"__setattr__": done})
        except TypeError:
            pass

    def arm(self, torch: "Any") -> None:
        try:
            self.load("cuwhy_torch").arm(torch, self.target, self.history)
        except Exception:
            pass
        if os.environ.get(_FILL) == "1":
            try:
                self.load("cuwhy_fill").arm(torch)
            except Exception:
                pass
        if os.environ.get(_NUMERICS):
            try:
                setting = os.environ[_NUMERICS]
                if setting == "cheap":
                    self.load("cuwhy_cheap").arm(torch, self.target)
                else:
                    self.load("cuwhy_numerics").arm(torch, self.target, setting)
            except Exception:
                pass

    def load(self, name: str) -> "Any":
        from importlib.util import module_from_spec, spec_from_file_location

        spec = spec_from_file_location("_" + name, "%s/%s.py" % (self.folder, name))
        module = module_from_spec(spec)  # type: ignore[arg-type]
        spec.loader.exec_module(module)  # type: ignore[union-attr]
        return module


def _start() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    _leave_path(here)
    # Version of this agreement, signal for stacks, what the allocator records, the run's folder.
    version, number, history, target = os.environ[_VARIABLE].split(":", 3)
    if version != "1" or not os.path.isdir(target):
        return
    try:
        _stacks(int(number), target)
    except Exception:
        pass
    sys.meta_path.insert(0, _Waiter(here, target, history))


try:
    _start()
except Exception:
    pass

# Python's own order: whatever this raises, Python reports as if this file had never been.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401

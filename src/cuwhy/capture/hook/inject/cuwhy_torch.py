"""What runs inside a PyTorch program: at a CUDA error, write down which memory belonged to what.

Loaded once torch has been imported.  It sets hooks for uncaught exceptions, calls those that were
there before, and writes one JSON file.  It never reads the contents of a tensor, never waits for the
GPU, never calls code of the user's (no properties, no ``__getattr__``), and never raises.

It runs under the program's Python (3.8 and later) and imports nothing of cuwhy.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from types import CodeType, FrameType, MemberDescriptorType, ModuleType, TracebackType
from typing import Any

#: The version of the file, see docs/tensors.schema.json.
VERSION = 1
MAX_SECONDS = 2.0
MAX_BYTES = 5000000
MAX_TENSORS = 2000
MAX_SEGMENTS = 4000
MAX_BLOCKS = 20000
MAX_FREED = 4000
MAX_STACK = 16
MAX_FRAMES = 64
#: Members of one container or object, and objects in all, that are looked at.
MAX_MEMBERS = 200
MAX_VISITS = 50000
MAX_TEXT = 200
MAX_MESSAGE = 400
MAX_EXCEPTIONS = 8
MAX_DIMENSIONS = 32
#: Allocator events kept with ``history=all``; an event with Python frames takes about 1 KB.
HISTORY_EVENTS = 50000

_CUDA_ERROR = re.compile(
    r"CUDA (?:driver |runtime )?(?:error|failure)|\[CUDA\]|\bcudaError[A-Z]|\bCUDA_ERROR_[A-Z]"
    r"|CU(?:BLAS|DNN|SPARSE|SOLVER|FFT)_STATUS_EXECUTION_FAILED|illegal memory access|misaligned address"
    r"|device-side assert|unspecified launch failure",
    re.IGNORECASE,
)
_MEMORY_ONLY = re.compile(r"out of memory", re.IGNORECASE)
_KEY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,63}\Z")
_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "SLURM_PROCID", "PMI_RANK")

_state: dict[str, Any] = {"written": 0}


def arm(torch: ModuleType, folder: str, history: str) -> None:
    """Set the hooks of this process."""
    _state.update(folder=folder, history=history)
    _hook_exceptions()
    import atexit

    atexit.register(_at_exit)
    _hook_workers()
    if history != "off":
        # Not now: it would initialise CUDA.  PyTorch calls it when the program does.
        torch.cuda._lazy_call(_record_history)


def _hook_exceptions() -> None:
    before = sys.excepthook

    def excepthook(kind: Any, value: Any, trace: Any) -> Any:
        report(value)
        return before(kind, value, trace)

    sys.excepthook = excepthook
    before_thread = getattr(threading, "excepthook", None)
    if before_thread is None:
        return

    def thread_excepthook(arguments: Any) -> Any:
        report(arguments.exc_value)
        return before_thread(arguments)

    threading.excepthook = thread_excepthook


def _hook_workers() -> None:
    """A worker of multiprocessing prints its exception itself: it is in flight when finalizers run."""
    util = sys.modules.get("multiprocessing.util")
    if util is None:
        return

    def register(_: object = None) -> None:
        util.Finalize(None, _at_worker_end, exitpriority=1000)

    register()
    util.register_after_fork(_Anchor, register)


class _Anchor:
    """Something that lives as long as the process, for multiprocessing's weak references."""


def _at_worker_end() -> None:
    report(sys.exc_info()[1])


def _at_exit() -> None:
    """Whatever replaced our hook: Python keeps the last uncaught exception."""
    value = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if value is not None:
        report(value)
    if _state["written"] != os.getpid() and _dumped():
        # The program took the exception; the driver's dump says that a kernel failed.
        report(None, anyway=True)


def _dumped() -> bool:
    name = os.environ.get("CUDA_COREDUMP_FILE", "")
    return bool(name) and os.path.exists(name.replace("%p", str(os.getpid())))


def _record_history() -> None:
    try:
        torch: Any = sys.modules["torch"]
        enabled = getattr(torch._C, "_cuda_isHistoryEnabled", None)
        if enabled is not None and enabled():
            # The user's own recording stays as it is.
            _state["history"] = "user"
            return
        level = _state["history"]
        record = torch.cuda.memory._record_memory_history
        options = {"context": level, "stacks": "python", "max_entries": HISTORY_EVENTS}
        try:
            record(level, skip_actions=["segment_map", "segment_unmap", "snapshot", "oom"], **options)
        except TypeError:
            record(level, **options)
    except Exception as error:
        _state["history"] = "failed: " + type(error).__name__


# -- at a failure ----------------------------------------------------------------------


def report(error: BaseException | None, anyway: bool = False) -> None:
    """Write the file if ``error`` is of CUDA's making (or ``anyway``); the first one of a process counts."""
    try:
        pid = os.getpid()
        if _state["written"] == pid:
            return
        chain = _chain(error)
        guilty = [e for e in chain if _is_cuda_error(e)]
        if not guilty and not anyway and not _dumped():
            return
        _state["written"] = pid
        _write(_Report(chain, guilty[-1] if guilty else None))
    except BaseException:
        # Whatever it is, the program's own end matters more.
        pass


def _chain(error: BaseException | None) -> list[BaseException]:
    """The exception and what it came from, the outermost first."""
    found: list[BaseException] = []
    known: set[int] = set()
    while error is not None and id(error) not in known and len(found) < MAX_EXCEPTIONS:
        found.append(error)
        known.add(id(error))
        cause = _get(BaseException, "__cause__", error)
        error = cause if cause is not None else _get(BaseException, "__context__", error)
    return found


def _get(owner: Any, name: str, value: Any) -> Any:
    """A slot of a class that is compiled into Python, whatever a subclass has put before it."""
    return type.__dict__["__dict__"].__get__(owner)[name].__get__(value)


def _message(error: BaseException) -> str:
    """The text, without calling a ``__str__`` of the user's."""
    for argument in _get(BaseException, "args", error)[:2]:
        if type(argument) is str:
            return argument
    return ""


def _is_cuda_error(error: BaseException) -> bool:
    message = _message(error)[:20000]
    if _MEMORY_ONLY.search(message):
        return False
    return _type_name(error) == "AcceleratorError" or _CUDA_ERROR.search(message) is not None


def _type_name(value: object) -> str:
    return str(_get(type, "__name__", type(value)))


def _text(value: object, limit: int = MAX_TEXT) -> str:
    """A string that JSON and UTF-8 can hold, cut to ``limit``."""
    text = value if type(value) is str else ""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


class _Report:
    """Everything that goes into the file, and the limits on it."""

    def __init__(self, chain: list[BaseException], guilty: BaseException | None) -> None:
        self.begin = time.monotonic()
        self.torch: Any = sys.modules["torch"]
        self.frames: dict[tuple[str, int, str], int] = {}
        self.stacks: dict[tuple[int, ...], int] = {}
        self.tensors: list[dict[str, Any]] = []
        self.seen: set[int] = set()
        self.tensor_keys: set[tuple[Any, ...]] = set()
        self.visits = 0
        self.left_out = {"tensors": 0, "segments": 0, "blocks": 0, "freed": 0}
        self.problems: list[str] = []
        self.segments: list[dict[str, Any]] = []
        self.blocks: list[dict[str, Any]] = []
        self.freed: list[dict[str, Any]] = []
        self.guilty = guilty
        self.chain = chain

    def late(self, share: float = 1.0) -> bool:
        return time.monotonic() - self.begin > MAX_SECONDS * share

    def collect(self) -> dict[str, Any]:
        for what, step in (("tensors", self.take_tensors), ("allocator", self.take_allocator)):
            try:
                step()
            except Exception as error:
                self.problems.append("%s: %s" % (what, type(error).__name__))
        rank = next((os.environ[n] for n in _RANKS if os.environ.get(n, "").isdigit()), "")
        local = os.environ.get("LOCAL_RANK", "")
        return {
            "format": "cuwhy-tensors",
            "version": VERSION,
            "pid": os.getpid(),
            "rank": int(rank[:9]) if rank else None,
            "local_rank": int(local[:9]) if local.isdigit() else None,
            "time": round(time.time(), 6),
            "python": "%d.%d.%d" % sys.version_info[:3],
            "torch": _text(str(self.torch.__version__), 64),
            "history": _state["history"],
            "thread": _text(threading.current_thread().name),
            "exception": _text(_type_name(self.guilty)) if self.guilty is not None else "",
            "message": _text(_message(self.guilty), MAX_MESSAGE) if self.guilty is not None else "",
            "frames": [list(frame) for frame in self.frames],
            "stacks": [list(stack) for stack in self.stacks],
            "tensors": self.tensors,
            "segments": self.segments,
            "blocks": self.blocks,
            "freed": self.freed,
            "left_out": self.left_out,
            "problems": self.problems,
            "seconds": round(time.monotonic() - self.begin, 6),
        }

    def frame(self, file: object, line: object, function: object) -> int:
        key = (_text(file, 400), line if type(line) is int else 0, _text(function))
        return self.frames.setdefault(key, len(self.frames))

    def stack(self, entries: object) -> int | None:
        """A stack of the allocator's, innermost first, as a number."""
        if type(entries) is not list or not entries:
            return None
        key = tuple(
            self.frame(entry.get("filename"), entry.get("line"), entry.get("name"))
            for entry in entries[:MAX_STACK]
        )
        return self.stacks.setdefault(key, len(self.stacks))

    # -- tensors in the frames of the traceback ------------------------------------------

    def take_tensors(self) -> None:
        import warnings

        switch = getattr(self.torch._C, "DisableTorchFunctionSubclass", None) or getattr(
            self.torch._C, "DisableTorchFunction", None
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if switch is None:
                self.walk_frames()
            else:
                with switch():
                    self.walk_frames()

    def walk_frames(self) -> None:
        found: list[tuple[FrameType, int]] = []
        known: set[int] = set()
        for error in reversed(self.chain):
            trace: TracebackType | None = _get(BaseException, "__traceback__", error)
            own: list[tuple[FrameType, int]] = []
            while trace is not None and len(own) < 10000:
                if id(trace.tb_frame) not in known:
                    known.add(id(trace.tb_frame))
                    own.append((trace.tb_frame, trace.tb_lineno))
                trace = trace.tb_next
            # Frames outside of those that the exception passed: who called the handler.
            found += reversed(own)
        if not found:
            main = sys.modules.get("__main__")
            if main is not None:
                index = self.frame(getattr(main, "__file__", "") or "", 0, "<module>")
                self.members("", ModuleType.__getattribute__(main, "__dict__"), index, 2)
            return
        # The user's names for a tensor say more than "args[0]" of a library around them.
        ordered = [f for f in found if not _is_library(f[0].f_code)] + [
            f for f in found if _is_library(f[0].f_code)
        ]
        for frame, line in ordered[:MAX_FRAMES]:
            if self.late(0.5):
                break
            index = self.frame(frame.f_code.co_filename, line, _function(frame.f_code))
            local = frame.f_locals
            self.members("", dict(local), index, 2)
            if frame.f_globals is not local:
                names = frame.f_code.co_names[:MAX_MEMBERS]
                reached = {n: frame.f_globals[n] for n in names if n in frame.f_globals}
                self.members("", reached, index, 1)

    def members(self, owner: str, values: dict[Any, Any], frame: int, depth: int) -> None:
        for number, (key, value) in enumerate(_first_items(dict.items(values))):
            if not owner:
                name = _text(key)
            elif type(key) is str and _KEY.match(key):
                name = "%s['%s']" % (owner, key)
            elif type(key) is int and abs(key) < 1 << 53:
                name = "%s[%d]" % (owner, key)
            else:
                name = "%s[item %d]" % (owner, number)
            self.visit(name, value, frame, depth)

    def visit(self, name: str, value: Any, frame: int, depth: int) -> None:
        kind = type(value)
        if kind in _SIMPLE:
            return
        self.visits += 1
        if self.visits > MAX_VISITS or id(value) in self.seen or self.late(0.5):
            return
        bases = _get(type, "__mro__", kind)
        if self.torch.Tensor in bases:
            self.seen.add(id(value))
            self.tensor(name, value, frame)
            if kind is not self.torch.Tensor and depth > 0:
                # A wrapper (DTensor, quantised …): what it wraps has the memory.
                self.attributes(name, value, bases, frame, depth - 1)
            return
        if depth <= 0:
            return
        if self.torch.nn.Module in bases:
            self.seen.add(id(value))
            self.module(name, value, frame)
            self.attributes(name, value, bases, frame, depth - 1)
        elif dict in bases:
            self.seen.add(id(value))
            self.members(name, value, frame, depth - 1)
        elif list in bases or tuple in bases:
            self.seen.add(id(value))
            walk = list.__iter__ if list in bases else tuple.__iter__
            for number, item in enumerate(_first_items(walk(value))):
                self.visit("%s[%d]" % (name, number), item, frame, depth - 1)
        elif not any(base in bases for base in _CLOSED):
            self.seen.add(id(value))
            self.attributes(name, value, bases, frame, depth - 1)

    def attributes(self, name: str, value: Any, bases: Any, frame: int, depth: int) -> None:
        own = _dict_of(value)
        for key, item in _first_items(dict.items(own)):
            if type(key) is str and key not in ("_parameters", "_buffers", "_modules"):
                self.visit("%s.%s" % (name, _text(key)), item, frame, depth)
        for base in bases:
            for key, slot in _first_items(type.__dict__["__dict__"].__get__(base).items()):
                if type(slot) is MemberDescriptorType:
                    try:
                        item = slot.__get__(value, base)
                    except AttributeError:
                        continue
                    self.visit("%s.%s" % (name, _text(key)), item, frame, depth)

    def module(self, name: str, module: Any, frame: int) -> None:
        """Parameters and buffers by their qualified names, without calling the module."""
        todo: list[tuple[str, Any, int]] = [(name, module, 0)]
        while todo and not self.late(0.5):
            path, current, level = todo.pop()
            own = _dict_of(current)
            for table in ("_parameters", "_buffers"):
                for key, item in _items(own.get(table)):
                    if item is not None:
                        self.visit("%s.%s" % (path, _text(key)), item, frame, 1)
            children = _items(own.get("_modules")) if level < 32 else []
            for key, item in reversed(children):
                if item is not None and id(item) not in self.seen:
                    self.seen.add(id(item))
                    todo.append(("%s.%s" % (path, _text(key)), item, level + 1))

    def tensor(self, name: str, value: Any, frame: int) -> None:
        if len(self.tensors) >= MAX_TENSORS:
            self.left_out["tensors"] += 1
            return
        torch = self.torch
        base = torch._C.TensorBase if hasattr(torch._C, "TensorBase") else torch._C._TensorBase
        device = str(base.device.__get__(value))
        if device.startswith("meta"):
            return
        try:
            # data_ptr() would materialise a lazy copy, on the GPU.
            pointer = (getattr(torch._C, "_data_address", None) or base.data_ptr)(value)
            stride = [int(n) for n in base.stride(value)]
            offset = int(base.storage_offset(value))
            storage = torch.Tensor.untyped_storage(value)
            storage_bytes, item = int(storage.nbytes()), int(base.element_size(value))
        except Exception:
            # Sparse tensors and wrappers have no memory of their own.
            return
        shape = [int(n) for n in base.size(value)]
        dtype = str(base.dtype.__get__(value)).replace("torch.", "")
        key = (device, pointer, tuple(shape), tuple(stride), dtype)
        if key in self.tensor_keys or len(shape) > MAX_DIMENSIONS:
            return
        self.tensor_keys.add(key)
        leaf = bool(base.is_leaf.__get__(value))
        needs = bool(base.requires_grad.__get__(value))
        self.tensors.append(
            {
                "name": _text(name),
                "frame": frame,
                "shape": shape,
                "stride": stride,
                "dtype": dtype,
                "itemsize": item,
                "offset": offset,
                "pointer": hex(pointer),
                "storage_bytes": storage_bytes,
                "device": device,
                "requires_grad": needs,
            }
        )
        if leaf and needs:
            gradient = base.grad.__get__(value)
            if gradient is not None and id(gradient) not in self.seen:
                self.visit(name + ".grad", gradient, frame, 0)

    # -- the caching allocator -------------------------------------------------------------

    def take_allocator(self) -> None:
        cuda = self.torch.cuda
        if not cuda.is_initialized():
            return
        snapshot = cuda.memory._snapshot()
        pointers = {int(t["pointer"], 16) for t in self.tensors if not t["device"].startswith("cpu")}
        rows: list[tuple[int, int, dict[str, Any]]] = []
        segments = snapshot["segments"]
        self.left_out["segments"] = max(0, len(segments) - MAX_SEGMENTS)
        total = 0
        for number, segment in enumerate(segments[:MAX_SEGMENTS]):
            start, size = segment["address"], segment["total_size"]
            pool = segment.get("segment_pool_id", (0, 0))
            self.segments.append(
                {
                    "address": hex(start),
                    "size": size,
                    "device": segment["device"],
                    "stream": hex(segment["stream"]),
                    "type": _text(segment["segment_type"]),
                    "pool": [int(n) for n in pool],
                    "expandable": bool(segment.get("is_expandable", False)),
                    "stack": self.stack(segment.get("frames")),
                }
            )
            near = any(start <= p < start + size for p in pointers)
            blocks = segment["blocks"]
            total += len(blocks)
            address = start
            for block in blocks:
                address = block.get("address", address)
                # Near the tensors of the traceback, then what is free, then what is large.
                rank = 0 if near else 1 if block["state"] != "active_allocated" else 2
                if len(rows) < 10 * MAX_BLOCKS:
                    rows.append((rank, -block["size"], {"number": number, "at": address, "block": block}))
                address += block["size"]
        rows.sort(key=lambda row: row[:2])
        for _, _, row in rows[:MAX_BLOCKS]:
            block = row["block"]
            self.blocks.append(
                {
                    "address": hex(row["at"]),
                    "size": block["size"],
                    "requested": block.get("requested_size", block["size"]),
                    "state": _text(block["state"]),
                    "segment": row["number"],
                    "stack": self.stack(block.get("frames")),
                }
            )
        self.left_out["blocks"] = total - len(self.blocks)
        self.take_freed(snapshot.get("device_traces", ()))

    def take_freed(self, traces: Any) -> None:
        """Blocks that were freed, the latest first, with who had allocated and who freed them."""
        found: list[dict[str, Any]] = []
        for device, trace in enumerate(traces):
            allocated: dict[int, Any] = {}
            requested: dict[int, Any] = {}
            for entry in trace:
                action, address = entry.get("action"), entry.get("addr")
                if action == "alloc":
                    allocated[address] = entry
                elif action == "free_requested":
                    requested[address] = entry
                elif action == "free_completed":
                    found.append(
                        {
                            "device": device,
                            "free": entry,
                            "asked": requested.pop(address, entry),
                            "alloc": allocated.pop(address, None),
                        }
                    )
        found.sort(key=lambda row: -row["free"].get("time_us", 0))
        self.left_out["freed"] = max(0, len(found) - MAX_FREED)
        for row in found[:MAX_FREED]:
            free, alloc = row["free"], row["alloc"]
            self.freed.append(
                {
                    "address": hex(free["addr"]),
                    "size": free["size"],
                    "device": row["device"],
                    "stream": hex(free.get("stream", 0)),
                    "allocated_us": alloc.get("time_us", 0) if alloc is not None else 0,
                    "time_us": free.get("time_us", 0),
                    "allocated": self.stack(alloc.get("frames")) if alloc is not None else None,
                    "freed": self.stack(row["asked"].get("frames")),
                }
            )


_SIMPLE = frozenset([int, float, str, bytes, bool, complex, type(None), type(Ellipsis), type, range, slice])
_CLOSED: tuple[type, ...] = (
    type, ModuleType, type(len), type(arm), type({}.items), type("".join), CodeType, FrameType, TracebackType,
    BaseException, set, frozenset, str, bytes, bytearray, int, float, property, staticmethod, classmethod,
)  # fmt: skip


def _is_library(code: CodeType) -> bool:
    name = code.co_filename
    return "/site-packages/" in name or "/dist-packages/" in name or "/lib/python" in name or name[:1] == "<"


def _function(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name)


def _dict_of(value: Any) -> dict[Any, Any]:
    """The object's own attributes; no ``__getattr__``, no property is asked."""
    try:
        own = object.__getattribute__(value, "__dict__")
    except Exception:
        return {}
    return own if type(own) is dict else {}


def _items(table: Any) -> list[tuple[Any, Any]]:
    return list(dict.items(table)) if dict in _get(type, "__mro__", type(table)) else []


def _first_items(values: Any) -> list[Any]:
    """The first members, however many there are; fewer when another thread changes them meanwhile."""
    found: list[Any] = []
    try:
        for item in values:
            if len(found) >= MAX_MEMBERS:
                break
            found.append(item)
    except RuntimeError:
        pass
    return found


def _write(report: _Report) -> None:
    import json

    content = report.collect()
    data = json.dumps(content, separators=(",", ":")).encode("ascii")
    # What matters most stands first in each list.
    for table in ("freed", "blocks", "freed", "blocks", "tensors", "segments", "stacks"):
        if len(data) <= MAX_BYTES:
            break
        keep = len(content[table]) // 4
        if table == "stacks":
            for row in content["segments"] + content["blocks"]:
                row["stack"] = None
            for row in content["freed"]:
                row["allocated"] = row["freed"] = None
            content["stacks"] = []
        elif table == "segments":
            content["blocks"] = [block for block in content["blocks"] if block["segment"] < keep]
            content["segments"] = content["segments"][:keep]
        else:
            report.left_out[table] += len(content[table]) - keep
            content[table] = content[table][:keep]
        data = json.dumps(content, separators=(",", ":")).encode("ascii")
    if len(data) > MAX_BYTES:
        return
    path = "%s/tensors.%d.json" % (_state["folder"], os.getpid())
    part = path + ".part"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while data:
            data = data[os.write(file, data) :]
    finally:
        os.close(file)
    os.rename(part, path)

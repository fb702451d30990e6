"""Records of Compute Sanitizer: what each one says, and the merging of records into distinct faults.

The tool prints one record for each thread that trips, up to ``--print-limit``; a person wants one
line for each spot in the code.  Wording of the messages: Compute Sanitizer's user manual and
reports of version 2025.3.1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cuwhy.model.facts import Allocation, Dim3, Fact, Origin, SanitizerFault, SanitizerSummary, Threads
from cuwhy.model.place import Frame, Place

#: Longest string that is kept of an input; kernel names of CUTLASS do reach thousands of characters.
MAX_TEXT = 4096
_MAX_FAULTS = 1000
_MAX_THREADS = 500_000
_MAX_FRAMES = 64
_WARP = 32
#: An access below this is taken for a null pointer plus a small offset.
_NULL_BYTES = 1 << 16
#: No driver maps device memory below this, so an address there was computed from no real pointer.
_LOW_BYTES = 1 << 32


def clip(text: str) -> str:
    """Return ``text``, cut to :data:`MAX_TEXT` characters."""
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


def number(text: str, base: int = 10) -> int | None:
    """Return a number as the tool prints it ("4,096", "0x80"), None for what is none or has over 64 bits.

    Digits may be grouped by the separator of the user's locale.
    """
    text = text.strip()
    if base == 10:
        text = text.replace(",", "").replace(".", "").replace("'", "").replace(" ", "")
    elif text[:2] in ("0x", "0X"):
        text = text[2:]
    digits = "0123456789abcdefABCDEF" if base == 16 else "0123456789"
    if not text or len(text) > 20 or text.strip(digits):
        return None
    value = int(text, base)
    return value if value < 1 << 64 else None


@dataclass(frozen=True, slots=True)
class Site:
    """One level of a device call chain: function as printed, byte offset in it, file and line."""

    function: str = ""
    offset: int = 0
    file: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True)
class HostFrame:
    """One frame of a host backtrace as printed; unknown parts are empty."""

    function: str = ""
    file: str | None = None
    line: int | None = None
    module: str = ""


@dataclass(slots=True)
class Record:
    """One record of a report, not yet judged.

    Attributes:
        message: the tool's words, one line; detail: further words that tell the kind.
        tool: "" when only the words tell.
        sites: device call chain, innermost first; others: further sides of a race, with access
            and number of hazards.
        host: frames of the launch (or of the failing call); allocated: of the allocation.
        level: "Error", "Warning" or "".
    """

    message: str = ""
    detail: str = ""
    tool: str = ""
    level: str = ""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    sites: tuple[Site, ...] = ()
    others: tuple[tuple[str, int, Site], ...] = ()
    access: str = ""
    space: str = ""
    width: int = 0
    address: int | None = None
    allocation: Allocation | None = None
    host: tuple[HostFrame, ...] = ()
    allocated: tuple[HostFrame, ...] = ()
    api: bool = False
    where: str = ""


_ACCESS = re.compile(r"\b(read|write|atomic|reduction)\b", re.I)
_WIDTH = re.compile(r"of size ([\d,.']{1,24}) bytes?\b")
_SPACE = re.compile(r"__(global|shared|local)__")
_NEAREST = re.compile(
    r"(?:([\d,.' ]{1,32}) bytes? (before|after)|(inside)) the nearest allocation at 0x([0-9a-fA-F]{1,16})"
    r"(?: called .{0,200})? of size ([\d,.']{1,32}) bytes?"
)


def access_of(text: str) -> tuple[str, str, int]:
    """Return access, space and width out of a headline such as "Invalid __global__ read of size 8 bytes"."""
    access = _ACCESS.search(text)
    space = _SPACE.search(text)
    width = _WIDTH.search(text)
    word = access[1].lower() if access else ""
    return (
        "atomic" if word == "reduction" else word,
        space[1] if space else "",
        min(number(width[1]) or 0, 1 << 20) if width else 0,
    )


def allocation_of(text: str) -> Allocation | None:
    """Return the allocation out of "is 1 bytes after the nearest allocation at 0x… of size 4,092 bytes".

    The tool counts from 1: "1 bytes after" is the first byte behind the allocation.
    """
    match = _NEAREST.search(text)
    address = number(match[4], 16) if match else None
    if match is None or address is None:
        return None
    size = number(match[5]) or 0
    if match[3]:
        return Allocation(address, size, 0, "inside")
    return Allocation(address, size, number(match[1]) or 0, match[2])


def dim3(x: int | None, y: int | None, z: int | None, thread: bool) -> Dim3 | None:
    """Return an index, or None when it lies beyond what CUDA can launch."""
    if x is None or y is None or z is None:
        return None
    limit = (1024, 1024, 64) if thread else (1 << 31, 1 << 16, 1 << 16)
    return (x, y, z) if x < limit[0] and y < limit[1] and z < limit[2] else None


# --- what a record is -------------------------------------------------------------------------------


def tool_of(record: Record) -> str:
    """Return the tool that prints such a record."""
    if record.tool:
        return record.tool
    text = record.message.lower()
    if "uninitialized" in text or "unused " in text:
        return "initcheck"
    if "barrier error" in text or "warpgroup mma" in text:
        return "synccheck"
    if "race " in text or "hazard" in text or "potential invalid" in text or "deadlock" in text:
        return "racecheck"
    return "memcheck"


#: Words of the message (or of the lines below it) and the kind they mean; the first that fits.
_KINDS = (
    (("program hit ",), "api-error"),
    (("race reported", "race condition", "hazard detected", "potential invalid __shared__"), "race"),
    (("divergent thread",), "divergent-barrier"),
    (("barrier", "mismatch"), "barrier-mismatch"),
    (("leaked ",), "leak"),
    (("stack overflow",), "stack-overflow"),
    (("invalid pc", "invalid program counter"), "invalid-pc"),
    (("illegal instruction",), "illegal-instruction"),
    (
        ("after memory is freed", "use-after-free", "use after free", "freed allocation", "freed memory"),
        "use-after-free",
    ),
    (("misaligned",), "misaligned"),
    (("assert",), "assert"),
    (("breakpoint trap", "trap instruction"), "trap"),
    (("out of bounds", "out-of-bounds", "out-of-range", "out of range", "illegal address"), "out-of-bounds"),
)


def kind_of(record: Record) -> str:
    """Return one of SANITIZER_KINDS; "out-of-bounds" also for accesses at null, which addresses tell."""
    if record.api:
        return "api-error"
    text = f"{record.message} {record.detail}".lower()
    if "uninitialized" in text:
        return "uninitialized-shared-read" if "__shared__" in text else "uninitialized-read"
    if text.startswith("unused ") or "unused memory" in text or "unused __" in text:
        return "unused-memory"
    for words, kind in _KINDS:
        if kind == "barrier-mismatch":
            if all(word in text for word in words):
                return kind
        elif any(word in text for word in words):
            return kind
    if "barrier error" in text:
        return "invalid-barrier"
    if "malloc/free error" in text or "before memory is allocated" in text:
        return "other"
    return "out-of-bounds" if text.startswith("invalid __") else "other"


# --- names and frames -------------------------------------------------------------------------------


_OPERATOR = re.compile(r"\boperator ?(?:\(\)|<<=?|>>=?|<=>|<=|>=|->\*?|[<>]|[^\w\s(<]{1,3}|\w[^(<]{0,64})")


def short_name(name: str) -> str:
    """Return the last component of a demangled name, without return type, templates and parameters.

    "void ns::reduce<(int)4, float>(float *)" gives "reduce".
    """
    text = name.replace("(anonymous namespace)", "{anonymous}").replace("<unnamed>", "{unnamed}")
    operator = _OPERATOR.search(text)
    if operator and text.count("<", 0, operator.start()) == text.count(">", 0, operator.start()):
        before = text[: operator.start()]
        if before.endswith(("]::", "}::")) and "lambda" in before:
            return "lambda"
        if "(" not in before:
            return clip(operator[0])
    kept: list[str] = []
    depth = 0
    for character in text:
        if character == "<":
            depth += 1
        elif character == ">":
            depth = max(0, depth - 1)
        elif depth == 0:
            if character == "(":
                break
            kept.append(character)
    bare = "".join(kept).strip()
    tail = bare.rsplit(" ", 1)[-1].rsplit("::", 1)[-1]
    return clip(tail or bare or name)


def place_of(sites: tuple[Site, ...]) -> Place | None:
    """Return the place of a device call chain, None without one."""
    if not sites:
        return None
    named = any(site.file for site in sites)
    frames = tuple(Frame(site.function or None, site.file, site.line) for site in sites) if named else ()
    return Place(sites[0].function, sites[0].offset, 0, frames)


_RUNTIME_MODULE = re.compile(
    r"(?:libcuda|libcudart|libsanitizer|libc|libpthread|ld-linux[\w-]*)(?:[.-].*)?\Z"
)
_RUNTIME_FUNCTION = re.compile(
    r"(?:cuda[A-Z]\w*|cu[A-Z]\w*|__cuda\w*|libcudart\w*|__device_stub_\w*|__wrapper__device_stub_\w*)\Z"
    r"|.*\bcudaLaunchKernel(?:ExC)?\b.*"
)
_START = frozenset(
    {"_start", "__libc_start_main", "__libc_start_call_main", "start_thread", "clone", "clone3"}
)
_STUB = re.compile(r"__device_stub__(Z\w+)")


def _is_runtime(frame: HostFrame) -> bool:
    return _RUNTIME_MODULE.match(frame.module.rsplit("/", 1)[-1]) is not None


def host_frames(frames: tuple[HostFrame, ...]) -> tuple[Frame, ...]:
    """Return the user's frames, innermost first: without driver, runtime, stub and process start."""
    start = 0
    while start < len(frames):
        frame = frames[start]
        runtime = (
            frame.file is None and _RUNTIME_FUNCTION.match(frame.function.split("(", 1)[0] or " ") is not None
        )
        if not runtime and not _is_runtime(frame):
            break
        start += 1
    kept = []
    for frame in frames[start:]:
        if _is_runtime(frame) or frame.function in _START:
            continue
        name = frame.function or (frame.module.rsplit("/", 1)[-1] or None)
        kept.append(Frame(name, frame.file, frame.line))
    return tuple(kept[:_MAX_FRAMES])


def _mangled(frames: tuple[HostFrame, ...]) -> str:
    """The kernel's symbol, which the name of its host stub carries."""
    for frame in frames:
        match = _STUB.search(frame.function)
        if match:
            return "_" + match[1]
    return ""


# --- threads ----------------------------------------------------------------------------------------


class ThreadSet:
    """Threads as reports name them: distinct ones counted, described in words without a launch at hand.

    Args:
        room: how many threads may still be stored; shared by all sets of one report.
    """

    def __init__(self, room: list[int]) -> None:
        self._blocks: dict[Dim3, set[Dim3]] = {}
        self._room = room

    def add(self, block: Dim3, thread: Dim3) -> None:
        """Add one thread; beyond the shared limit, new ones are dropped."""
        found = self._blocks.get(block)
        if found is None:
            if self._room[0] <= 0:
                return
            found = self._blocks[block] = set()
        if thread not in found and self._room[0] > 0:
            self._room[0] -= 1
            found.add(thread)

    def summary(self) -> Threads:
        """Return counts, the first block and thread, and the pattern in words.

        The size of a block is not known here, so "whole block" is never claimed, and warps are
        counted only where all threads lie in one row (y = z = 0).
        """
        blocks = sorted(((b, t) for b, t in self._blocks.items() if t), key=lambda item: item[0][::-1])
        if not blocks:
            return Threads()
        flat = all(t[1] == t[2] == 0 for _, found in blocks for t in found)
        warps = sum(len({t[0] // _WARP for t in found}) for _, found in blocks) if flat else 0
        first_block, first = blocks[0]
        inside = _inside(first, flat) if all(found == first for _, found in blocks) else "some threads"
        return Threads(
            count=sum(len(found) for _, found in blocks),
            warps=warps,
            blocks=len(blocks),
            first_block=first_block,
            first_thread=min(first, key=lambda t: t[::-1]),
            pattern=f"{inside} of {_blocks([b for b, _ in blocks])}",
        )


def _dim(value: Dim3) -> str:
    return str(value[0]) if value[1] == value[2] == 0 else f"({value[0]}, {value[1]}, {value[2]})"


def _inside(found: set[Dim3], flat: bool) -> str:
    if len(found) == 1:
        return "one thread"
    if not flat:
        return f"{len(found)} threads"
    numbers = sorted(t[0] for t in found)
    contiguous = numbers[-1] - numbers[0] + 1 == len(numbers)
    warp = numbers[0] // _WARP
    if numbers[-1] // _WARP == warp:
        if len(numbers) == _WARP:
            return f"all of warp {warp}"
        if not contiguous:
            return f"{len(numbers)} lanes of warp {warp}"
    if contiguous:
        return f"threads {numbers[0]} to {numbers[-1]}"
    return f"{len(numbers)} threads in {len({n // _WARP for n in numbers})} warps"


def _blocks(ordered: list[Dim3]) -> str:
    if len(ordered) == 1:
        return f"block {_dim(ordered[0])}"
    flat = all(b[1] == b[2] == 0 for b in ordered)
    if flat and ordered[-1][0] - ordered[0][0] + 1 == len(ordered):
        return f"{len(ordered)} blocks from block {ordered[0][0]} on"
    return f"{len(ordered)} blocks, the first is block {_dim(ordered[0])}"


# --- merging ----------------------------------------------------------------------------------------


def _spot(sites: tuple[Site, ...]) -> tuple[object, ...]:
    """What makes two call chains the same: file and line, function and offset where there is none."""
    return tuple((s.file, s.line) if s.file else (s.function, s.offset) for s in sites)


@dataclass(slots=True)
class _Group:
    first: Record
    tool: str
    kind: str
    other: tuple[str, int, Site] | None
    threads: ThreadSet
    records: int = 0
    hazards: int = 0
    low: int = 0
    high: int = 0


class Merger:
    """Takes records one at a time and keeps only the distinct faults."""

    def __init__(self, artefact: str) -> None:
        self._artefact = artefact
        self._groups: dict[tuple[object, ...], _Group] = {}
        self._room = [_MAX_THREADS]
        self.tools: dict[str, int] = {}
        self.errors = 0
        self.warnings = 0

    def add(self, record: Record) -> None:
        """Merge one record into the fault that it repeats, or begin a new one."""
        tool = tool_of(record)
        self.tools[tool] = self.tools.get(tool, 0) + 1
        if record.level.lower() == "warning":
            self.warnings += 1
        else:
            self.errors += 1
        kind = kind_of(record)
        for other in record.others or (None,):
            self._add(record, tool, kind, other)

    def _add(self, record: Record, tool: str, kind: str, other: tuple[str, int, Site] | None) -> None:
        low = kind == "out-of-bounds" and record.address is not None and record.address < _LOW_BYTES
        far = (other[0], _spot((other[2],))) if other else ()
        key: tuple[object, ...] = (tool, kind, record.space, record.access, low, _spot(record.sites), far)
        if record.sites:
            # The kernel: one helper at one line may serve several.
            key += (record.sites[-1].function,)
        elif kind == "api-error":
            key += (record.message,)
        else:
            key += (record.host or record.allocated or record.message,)
        group = self._groups.get(key)
        if group is None:
            if len(self._groups) >= _MAX_FAULTS:
                return
            group = self._groups[key] = _Group(record, tool, kind, other, ThreadSet(self._room))
            if record.address is not None:
                group.low = group.high = record.address
        elif record.address is not None:
            if group.first.address is None:
                group.low = group.high = record.address
                group.first.address = record.address
            group.low = min(group.low, record.address)
            group.high = max(group.high, record.address)
        group.records += 1
        group.hazards += other[1] if other else 0
        if record.block is not None and record.thread is not None:
            group.threads.add(record.block, record.thread)

    def main_tool(self) -> str:
        """Return the tool that most records come from, "" without records."""
        return max(self.tools, key=lambda tool: self.tools[tool]) if self.tools else ""

    def facts(self, summaries: list[SanitizerSummary]) -> tuple[Fact, ...]:
        """Return the distinct faults in the order of their first record, then the summaries."""
        return (*(self._fault(group) for group in self._groups.values()), *summaries)

    def _fault(self, group: _Group) -> SanitizerFault:
        record = group.first
        kind = group.kind
        seen = record.address is not None
        if kind == "out-of-bounds" and seen and group.low < _NULL_BYTES and record.space in ("global", ""):
            kind = "null"
        name = record.sites[-1].function if record.sites else ""
        host = host_frames(record.host or record.allocated)
        allocation = record.allocation
        if allocation is not None and record.allocated:
            frames = host_frames(record.allocated)
            allocation = Allocation(
                allocation.address, allocation.size, allocation.distance, allocation.side, frames
            )
        return SanitizerFault(
            tool=group.tool,
            kind=kind,
            message=clip(record.message),
            kernel=clip(_mangled(record.host)),
            name=clip(name),
            short=short_name(name) if name else "",
            place=place_of(record.sites),
            other=place_of((group.other[2],)) if group.other else None,
            access=record.access,
            other_access=group.other[0] if group.other else "",
            space=record.space,
            width=record.width,
            address=record.address,
            low=group.low,
            high=group.high,
            records=group.records,
            hazards=min(group.hazards, (1 << 64) - 1),
            threads=group.threads.summary(),
            allocation=allocation,
            host=host,
            origin=Origin(self._artefact, record.where),
        )

"""Facts: typed statements, each read from one artefact, each with its origin."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cuwhy.model.numerics import NumericEvent, NumericTrace
from cuwhy.model.origin import Origin as Origin
from cuwhy.model.place import Frame, Place

#: (x, y, z), as in ``threadIdx`` and ``gridDim``.
Dim3 = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine that the artefact was written on; unknown fields are empty."""

    device: str = ""
    architecture: str = ""
    sm_count: int = 0
    driver: str = ""
    cuda: str = ""
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class TensorFact:
    """A tensor that the frames of a traceback reached when a CUDA error was noticed.

    Attributes:
        name: in its frame, ``self.layer.weight``; frame: the frame.
        shape, stride: elements; dtype: ``float32``; itemsize: bytes of an element.
        offset: of the first element in the storage, in elements.
        pointer: address of the first element.
        bytes: from the first element to the end of the last.
        storage_bytes: of the storage that it is a view of.
        device: ``cuda:0`` or ``cpu``.
    """

    name: str
    frame: Frame | None
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    itemsize: int
    offset: int
    pointer: int
    bytes: int
    storage_bytes: int
    device: str
    requires_grad: bool = False
    origin: Origin = Origin("")

    @property
    def text(self) -> str:
        """Return "`y` float32 [256, 256]"."""
        where = "" if self.device.startswith("cuda") else f" on the {self.device.partition(':')[0].upper()}"
        return f"`{self.name}` {self.dtype} {list(self.shape)}{where}"


@dataclass(frozen=True, slots=True)
class BlockFact:
    """A block of PyTorch's caching allocator when a CUDA error was noticed.

    Attributes:
        address, size: bytes from ``address`` on; requested: what was asked for.
        state: "active_allocated", "active_pending_free", "inactive" as PyTorch says it; "freed":
            an earlier use of the memory.
        device: index; stream: handle of the stream whose pool it is in.
        segment, segment_size: the memory from the driver that it is part of; 0 for an earlier use.
        allocated, freed: host frames, innermost first; empty without a history.
    """

    address: int
    size: int
    requested: int
    state: str
    device: int = 0
    stream: int = 0
    segment: int = 0
    segment_size: int = 0
    allocated: tuple[Frame, ...] = ()
    freed: tuple[Frame, ...] = ()
    origin: Origin = Origin("")

    @property
    def in_use(self) -> bool:
        """True while a tensor holds it."""
        return self.state == "active_allocated"


@dataclass(frozen=True, slots=True)
class Target:
    """What PyTorch had at an address when a CUDA error was noticed, not when the kernel was launched.

    Attributes:
        tensor: the one whose storage holds the address, None when no name is known.
        block: of the allocator, None outside of its memory.
        earlier: earlier uses of a block that is free, the latest first.
    """

    tensor: TensorFact | None = None
    block: BlockFact | None = None
    earlier: tuple[BlockFact, ...] = ()


@dataclass(frozen=True, slots=True)
class Beyond:
    """How far a faulting access lies outside the memory that its pointer argument belongs to.

    Attributes:
        tensor: name of the tensor, empty where only its block is known; side: "before" its first element or "after" its last one.
        bytes, elements: from there to the access; elements (of the tensor, else as wide as the access)
            rounded down, 0 when their size is unknown.
    """

    tensor: str
    side: str
    bytes: int
    elements: int


@dataclass(frozen=True, slots=True)
class Argument:
    """One kernel argument.

    Attributes:
        position: 0-based.
        offset: byte offset in the parameter block.
        size: bytes.
        type: C type from the mangled name or PTX type, empty when unknown.
        name: parameter name when the source says, else empty.
        value: integer or float value where the type is scalar, else None.
        raw: the bytes, little endian, as hex (at most 64 bytes).
        is_pointer: True for pointers; None when nothing tells.
        target: what PyTorch had there, None when unknown.
    """

    position: int
    offset: int
    size: int
    type: str = ""
    name: str = ""
    value: int | float | None = None
    raw: str = ""
    is_pointer: bool | None = None
    target: Target | None = None

    @property
    def label(self) -> str:
        """The name when it is known, else ``arg0``."""
        return self.name or f"arg{self.position}"

    @property
    def text(self) -> str:
        """The value as a person reads it; pointers in hex."""
        if self.is_pointer and isinstance(self.value, int):
            return "nullptr" if self.value == 0 else f"{self.value:#x}"
        if isinstance(self.value, bool):
            return "true" if self.value else "false"
        if self.value is not None:
            return repr(self.value) if isinstance(self.value, float) else str(self.value)
        return f"0x{self.raw}" if self.raw else "?"


@dataclass(frozen=True, slots=True)
class Launch:
    """One kernel launch (a grid).

    Attributes:
        kernel: mangled symbol.
        name: demangled, with parameter types.
        short: demangled base name without template and parameter lists.
        grid_id: the driver's 64-bit id; counts launches in the context. 0: unknown.
        device: CUDA device index, -1 when unknown.
        context: handle of the context, 0 when unknown.
        grid, block, cluster: dimensions; cluster is (0, 0, 0) without clusters.
        grid_certain: False when the dump holds a wrong grid (driver 580 writes 1 x 1 x 1 for cooperative
            launches): ``grid`` is then the smallest that holds the blocks seen.
        registers: registers per thread.
        shared_bytes: shared memory per block in bytes, -1 when unknown.
        arguments: in order of declaration.
    """

    kernel: str
    name: str
    short: str
    grid_id: int = 0
    device: int = -1
    context: int = 0
    grid: Dim3 = (0, 0, 0)
    block: Dim3 = (0, 0, 0)
    cluster: Dim3 = (0, 0, 0)
    registers: int = 0
    shared_bytes: int = -1
    arguments: tuple[Argument, ...] = ()
    grid_certain: bool = True
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class Threads:
    """A set of threads, summarised.

    Attributes:
        count, warps, blocks: how many of each hold the property; 0 when unknown.
        first_block, first_thread: lowest block (z, y, x order) and its lowest
            thread; None when unknown.
        pattern: the shape of the set in words ("one lane", "a whole block").
        blocks_seen: how many blocks were on the chip to be looked at.
        block_ranges: which blocks, as linear numbers (x fastest), first and last of each run; seen_ranges:
            likewise those on the chip; thread_ranges: which threads of ``first_block``.  Each holds
            at most :data:`MAX_RANGES` runs, and is empty where that is not enough or nothing is known.
    """

    count: int = 0
    warps: int = 0
    blocks: int = 0
    first_block: Dim3 | None = None
    first_thread: Dim3 | None = None
    pattern: str = ""
    blocks_seen: int = 0
    block_ranges: tuple[tuple[int, int], ...] = ()
    seen_ranges: tuple[tuple[int, int], ...] = ()
    thread_ranges: tuple[tuple[int, int], ...] = ()


#: Runs that a :class:`Threads` keeps of each kind: a picture needs no more, and a hostile dump gets no more.
MAX_RANGES = 256


@dataclass(frozen=True, slots=True)
class Distance:
    """How far an address lies from one pointer argument (bytes, signed)."""

    argument: int
    label: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Overflow:
    """A signed 32-bit sum or product that wrapped on its way into an address: left x right + added.

    Attributes:
        exact: what it is; stored: what 32 bits keep of it.
    """

    left: int
    right: int
    added: int
    exact: int
    stored: int


@dataclass(frozen=True, slots=True)
class Filler:
    """An index that is a constant with all bits set, seen in the low word of an address whose rest is lost.

    Attributes:
        names: the constants that it can be ("INT32_MAX").
        argument: position of the pointer argument that it was added to.
        width: bytes of an element; bits: how many bits of the index are known.
    """

    names: tuple[str, ...]
    argument: int
    width: int
    bits: int


@dataclass(frozen=True, slots=True)
class Address:
    """A faulting address and how it is known.

    Attributes:
        value: device address; for shared and local memory the offset in the window.
        space: "global", "shared", "local", "generic" or "".
        width: bytes accessed, 0 when unknown.
        how: "registers" (base register read from the dump) or "evaluated"
            (recomputed from arguments, block and thread through the SASS).
        block, thread: whose address this is.
        base: position of the pointer argument the address was computed from, or None.
        distances: to each pointer argument, nearest first.
        known_as: name of the constant if the address or index is one ("INT64_MAX").
        window: "shared", "local" or "" when a global address fell into such a window.
        low, high: lowest and highest faulting address seen over all threads.
        target: what PyTorch had there; beyond: how far outside of the base pointer's tensor it is.
        overflow: the 32-bit arithmetic that wrapped, None when none did or nothing tells.
    """

    value: int
    space: str = ""
    width: int = 0
    how: str = ""
    block: Dim3 | None = None
    thread: Dim3 | None = None
    base: int | None = None
    distances: tuple[Distance, ...] = ()
    known_as: str = ""
    window: str = ""
    low: int = 0
    high: int = 0
    target: Target | None = None
    beyond: Beyond | None = None
    overflow: Overflow | None = None

    @property
    def misaligned_by(self) -> int:
        """The address modulo the access width; 0 when aligned or unknown."""
        return self.value % self.width if self.width > 1 else 0


@dataclass(frozen=True, slots=True)
class Fault:
    """An exception that a core dump shows, for all threads that share it.

    Attributes:
        exception: CUDBG exception code (cudadebugger.h); 0 for a trap, which
            leaves none.
        place: where; the pc is the error pc where the dump holds a valid one.
        precise: True when the pc is the hardware's error pc.
        access: "load", "store", "atomic", "barrier", "call", "trap" or "" from
            the opcode of the instruction.
        opcode: the instruction's mnemonic ("LDG"), empty when unknown.
        address: the faulting address where it can be told.
        call_depth: frames on the device call stack of the first thread.
        sm_only: True when only the SM's record is left; the warps had gone.
        stack: call sites below the function, innermost first.
        stack_pointer: R1 of the first thread, an offset in the local window; 0 when unknown.
        alternatives: other exception codes at the same instruction of the same launch.
        recursive: True when the function calls itself.
        filler: what is known of the index where the address is not.
        only_traps: True when the function touches no memory and reads none of its parameters before it traps.
    """

    launch: Launch | None
    exception: int
    place: Place | None
    threads: Threads
    precise: bool = False
    access: str = ""
    opcode: str = ""
    address: Address | None = None
    call_depth: int = 0
    sm_only: bool = False
    stack: tuple[Place, ...] = ()
    stack_pointer: int = 0
    alternatives: tuple[int, ...] = ()
    recursive: bool = False
    only_traps: bool = False
    filler: Filler | None = None
    origin: Origin = Origin("")


class WaitKind(str, Enum):
    """What a warp in a hung kernel waits for."""

    BLOCK_BARRIER = "block barrier"
    WARP_BARRIER = "warp barrier"
    CLUSTER_BARRIER = "cluster barrier"
    GRID_BARRIER = "grid barrier"
    SPIN = "spin loop"
    MEMORY = "memory"
    RUNNING = "running"


@dataclass(frozen=True, slots=True)
class Wait:
    """Threads of a running kernel that stand at one instruction.

    Attributes:
        kind: what they wait for.
        barrier: number of the barrier (0 is ``__syncthreads``), None elsewhere.
        expected: threads the barrier expects, None when the whole block.
        address: the address a spin loop reads, where it can be told.
        arrived_per_block: threads that stand at this barrier in the first block.
        block_threads: threads in a block.
        exited_per_block: threads of the first block that have left the kernel.
        loop: places of the spin loop, first to last instruction.
        writers: lines of the kernel, outside the loop, that store through the same argument.
    """

    launch: Launch | None
    kind: WaitKind
    place: Place | None
    threads: Threads
    barrier: int | None = None
    expected: int | None = None
    address: Address | None = None
    arrived_per_block: int = 0
    block_threads: int = 0
    exited_per_block: int = 0
    loop: tuple[Place, ...] = ()
    writers: tuple[Place, ...] = ()
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class Residency:
    """Which blocks of a launch the dump shows, and how they stand.

    Attributes:
        total: blocks in the grid, 0 when the dump does not hold its true size.
        resident: blocks on the chip when the dump was taken.
        finished_or_pending: the rest; a dump cannot tell the two apart.
    """

    launch: Launch
    total: int
    resident: int
    finished_or_pending: int
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class Allocation:
    """The allocation nearest to an address, as a checker reports it.

    Attributes:
        address: start; size: bytes; distance: bytes from the allocation to the
            access (0: inside); side: "before", "after", "inside" or "".
        frames: host frames that allocated it, innermost first.
    """

    address: int
    size: int
    distance: int = 0
    side: str = ""
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class SanitizerFault:
    """One distinct fault out of a Compute Sanitizer report (records merged).

    Attributes:
        tool: "memcheck", "racecheck", "synccheck" or "initcheck".
        kind: one of the names in :data:`SANITIZER_KINDS`.
        message: the tool's own words, one line.
        kernel, name, short: mangled (may be empty), demangled, base name.
        place: where; ``other`` is the second side of a race.
        access: "read", "write", "atomic" or ""; ``other_access`` likewise.
        space: "global", "shared", "local" or "".
        width: bytes accessed; address: of the first record; low/high over all.
        records: how many records were merged; threads: first and count.
        hazards: hazards that racecheck counted.
        host: host frames of the launch, innermost first.
    """

    tool: str
    kind: str
    message: str
    kernel: str = ""
    name: str = ""
    short: str = ""
    place: Place | None = None
    other: Place | None = None
    access: str = ""
    other_access: str = ""
    space: str = ""
    width: int = 0
    address: int | None = None
    low: int = 0
    high: int = 0
    records: int = 1
    hazards: int = 0
    threads: Threads = Threads()
    allocation: Allocation | None = None
    host: tuple[Frame, ...] = ()
    origin: Origin = Origin("")


#: Kinds of :class:`SanitizerFault`.
SANITIZER_KINDS = frozenset(
    {
        "out-of-bounds",  # global, shared or local: see ``space``
        "misaligned",
        "null",  # an out-of-bounds access at or next to address 0
        "use-after-free",
        "stack-overflow",
        "invalid-pc",
        "illegal-instruction",
        "race",
        "uninitialized-read",
        "uninitialized-shared-read",
        "unused-memory",
        "divergent-barrier",
        "invalid-barrier",
        "barrier-mismatch",
        "leak",
        "api-error",
        "assert",
        "trap",
        "other",
    }
)


@dataclass(frozen=True, slots=True)
class SanitizerSummary:
    """That a checker ran to its end, and how many errors it printed."""

    tool: str
    errors: int
    warnings: int = 0
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class AssertMessage:
    """A device-side assertion as the program's output shows it, merged.

    Attributes:
        file, line, function, expression: as printed by ``__assertfail``.
        threads: which threads printed it.
    """

    file: str
    line: int
    function: str
    expression: str
    threads: Threads
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """What the runtime, driver or framework said.

    Attributes:
        code: numeric CUDA error, 0 when only a text was printed.
        name: "cudaErrorIllegalAddress" or similar, may be empty.
        text: the line as printed.
    """

    code: int
    name: str
    text: str
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class HostTraceback:
    """A Python traceback in the program's output.

    Attributes:
        frames: outermost first, as Python prints them.
        exception: type name; message: its first line.
    """

    frames: tuple[Frame, ...]
    exception: str
    message: str
    origin: Origin = Origin("")

    @property
    def user(self) -> Frame | None:
        """The deepest frame outside library code."""
        for frame in reversed(self.frames):
            if not frame.is_library:
                return frame
        return self.frames[-1] if self.frames else None


@dataclass(frozen=True, slots=True)
class CleanExit:
    """The program's output says that it ended well (``cudaSuccess``, exit code 0)."""

    text: str
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing in which a rerun differed from the command as it is.

    Attributes:
        kind: one of :data:`SETTING_KINDS`.
        first, last: launch numbers, both included, for "synchronized" and "delayed"; they
            count from 1 in each context, as :attr:`Launch.grid_id` does.  For a checker, which
            launches of ``kernel`` it looked at, counted from 1.  0 elsewhere: all.
        microseconds: of a delay.
        kernel: the regular expression a checker was narrowed to, empty when to none.
    """

    kind: str
    first: int = 0
    last: int = 0
    microseconds: int = 0
    kernel: str = ""

    @property
    def text(self) -> str:
        """The setting as a person reads it."""
        words = SETTING_KINDS.get(self.kind, self.kind)
        if self.first and self.kernel:
            words += f" of launches {self.first} to {self.last} of the kernel"
        elif self.first:
            words += f" {self.first}" if self.first == self.last else f"es {self.first} to {self.last}"
        return words + (f" by {self.microseconds} microseconds" if self.microseconds else "")


#: Kinds of :class:`Setting`, and how to say them.
SETTING_KINDS = {
    "core-dumps": "GPU core dumps on",
    "launch-blocking": "CUDA_LAUNCH_BLOCKING=1",
    "no-caching": "PYTORCH_NO_CUDA_MEMORY_CACHING=1",
    "synchronized": "a synchronisation before launch",
    "delayed": "a delay before launch",
    "nan-filled": "fresh PyTorch memory filled with NaN",
    "memcheck": "memcheck",
    "racecheck": "racecheck",
    "synccheck": "synccheck",
    "initcheck": "initcheck",
}


@dataclass(frozen=True, slots=True)
class Rerun:
    """One run of the user's command, and whether it passed; the pattern of many is evidence.

    Attributes:
        settings: what differed from the command as it is; empty when nothing did.
        passed: None when this run says neither (it was ended by cuwhy, a tool failed).
        code: exit code, negative for a signal.
        seconds: how long it took.
        judged: what told pass from fail: "exit code", "oracle", "output" or "core dump".
        step: the step of the plan that it belongs to.
        ended: why cuwhy ended it, empty when it ended by itself.
        output: SHA-256 of its standard output in hex, empty when unknown.
        launches: highest launch number that the recorder saw, 0 when unknown.
        error: CUDA error code in its output, 0 when there is none.
        said: its last line of output that is not empty, cut at 200 characters.
    """

    settings: tuple[Setting, ...] = ()
    passed: bool | None = None
    code: int = 0
    seconds: float = 0.0
    judged: str = "exit code"
    step: str = ""
    ended: str = ""
    output: str = ""
    launches: int = 0
    error: int = 0
    said: str = ""
    origin: Origin = Origin("")

    def has(self, kind: str) -> bool:
        """True when a setting of this kind was on."""
        return any(setting.kind == kind for setting in self.settings)


@dataclass(frozen=True, slots=True)
class LaunchRecord:
    """A call of the driver that launches, as the launch recorder saw it.

    Attributes:
        number: counts launches in the context, as the dump's grid id does; 0 for what does not
            count (graphs, captured and refused launches, loads).
        kind: "kernel", "cooperative", "graph" or "load" (then ``kernel`` is the entry point).
        kernel: mangled name, empty when unknown.
        code: what the driver returned, None when it had not returned.
        flags: "early start" (programmatic dependent launch), "captured", "per-thread stream",
            "synced", "delayed" (both by a controlled rerun).
        context, stream: handles; thread: id of the host thread.
        dynamic_shared: bytes asked for.
        frames: the Python stack, else the native one, innermost first.
        microseconds: since the recording began.
        process: pid.
    """

    number: int
    kind: str
    kernel: str
    code: int | None = None
    flags: tuple[str, ...] = ()
    context: int = 0
    stream: int = 0
    thread: int = 0
    dynamic_shared: int = 0
    grid: Dim3 = (0, 0, 0)
    block: Dim3 = (0, 0, 0)
    cluster: Dim3 = (0, 0, 0)
    frames: tuple[Frame, ...] = ()
    microseconds: int = 0
    process: int = 0
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class RefusedLaunch:
    """A launch (or a load of code) that the driver refused, with what it could have taken.

    Attributes:
        record: what was asked, and the code.
        limits: name and value pairs, sorted; the names are those of
            :data:`cuwhy.read.rawlog.LIMITS` (function and device attributes of ``cuda.h``).
            What the driver did not tell is not in it.
    """

    record: LaunchRecord
    limits: tuple[tuple[str, int], ...] = ()
    origin: Origin = Origin("")

    def limit(self, name: str) -> int | None:
        """Return one limit, None when unknown."""
        return dict(self.limits).get(name)


@dataclass(frozen=True, slots=True)
class DriverAllocation:
    """Device memory that the program got from the driver.

    Attributes:
        address, size: bytes from ``address`` on.
        context, stream: handles of who asked; stream 0 for those that are not stream-ordered.
        frames: host frames that allocated it, innermost first.
        microseconds: since the recording began; freed: likewise, None while alive.
        freed_frames: host frames that freed it.
        process: pid.
    """

    address: int
    size: int
    context: int = 0
    stream: int = 0
    frames: tuple[Frame, ...] = ()
    microseconds: int = 0
    freed: int | None = None
    freed_frames: tuple[Frame, ...] = ()
    process: int = 0
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class CostLine:
    """A source line of a profiled launch with what was counted on it.

    Attributes:
        place: the instruction of the line that costs most, with the line as its only frame.
        counts: counter and its sum over the line's instructions (names of
            :data:`cuwhy.profiles.annotate.COUNTERS`); shares: the same as % of the launch.
        declaration: of the shared array that the line accesses, where the source says so.
        text: of the declaration.
    """

    place: Place
    counts: tuple[tuple[str, float], ...] = ()
    shares: tuple[tuple[str, float], ...] = ()
    declaration: Place | None = None
    text: str = ""

    def count(self, counter: str) -> float:
        """Return the sum of a counter, 0 where it was not collected on this line."""
        return dict(self.counts).get(counter, 0.0)

    def share(self, counter: str) -> float:
        """Return the line's part of a counter in % of the launch, 0 where it was not collected."""
        return dict(self.shares).get(counter, 0.0)


@dataclass(frozen=True, slots=True)
class LaunchProfile:
    """What a profiler counted in one launch, as far as rules look at it.

    Attributes:
        launch: what was launched; grid id unknown.
        values: name and number, the names of :class:`cuwhy.profiles.features.Features` and
            :data:`cuwhy.profiles.measured.MORE`; what was not collected is not in it.
        lines: those with most cost.
    """

    launch: Launch
    values: tuple[tuple[str, float], ...] = ()
    lines: tuple[CostLine, ...] = ()
    origin: Origin = Origin("")

    def value(self, name: str) -> float | None:
        """Return one number, None when it was not collected."""
        return dict(self.values).get(name)


Fact = (
    Machine
    | Launch
    | Fault
    | Wait
    | Residency
    | SanitizerFault
    | SanitizerSummary
    | AssertMessage
    | ErrorReport
    | HostTraceback
    | CleanExit
    | Rerun
    | LaunchRecord
    | RefusedLaunch
    | DriverAllocation
    | TensorFact
    | BlockFact
    | NumericEvent
    | NumericTrace
    | LaunchProfile
)

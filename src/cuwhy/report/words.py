"""Facts and findings in words, the same in every report; not escaped."""

from __future__ import annotations

from cuwhy.model.cuda import EXCEPTIONS
from cuwhy.model.diagnosis import Diagnosis, Finding, Role
from cuwhy.model.facts import (
    BlockFact,
    CleanExit,
    Dim3,
    DriverAllocation,
    Fact,
    Fault,
    Launch,
    LaunchProfile,
    LaunchRecord,
    Machine,
    RefusedLaunch,
    Rerun,
    SanitizerFault,
    SanitizerSummary,
    TensorFact,
    Threads,
    Wait,
)
from cuwhy.model.numerics import NumericEvent, NumericTrace


def finding_tags(finding: Finding) -> list[str]:
    """Return role (unless primary), severity and confidence: ``["crash", "67 % sure: 1 of 1 cases"]``."""
    tags = [] if finding.role is Role.PRIMARY else [finding.role.value]
    tags.append(finding.cause.severity.value)
    if finding.confidence is not None and not finding.cause.name.startswith("unknown/"):
        seen = finding.confidence.hits + finding.confidence.misses
        tags.append(f"{finding.confidence.value:.0%} sure: {finding.confidence.hits} of {seen} cases")
    return tags


def launch_text(diagnosis: Diagnosis, launch: Launch) -> str:
    """Return ``oob<<<256, 256>>>; launch 1 of its context, device 0 (NVIDIA H200)``."""
    least = "" if launch.grid_certain else "at least "
    text = f"{launch.short}<<<{least}{dims_text(launch.grid)}, {dims_text(launch.block)}>>>"
    if launch.cluster not in ((0, 0, 0), (1, 1, 1)):
        text += f", clusters of {dims_text(launch.cluster)}"
    text += f"; launch {launch.grid_id} of its context" if launch.grid_id else ""
    machine = next((fact for fact in diagnosis.facts if isinstance(fact, Machine)), None)
    if launch.device >= 0:
        text += f", device {launch.device}" + (f" ({machine.device})" if machine is not None else "")
    return text


def who_text(finding: Finding) -> str:
    """Return the threads of a finding in words, empty when none are known."""
    if finding.threads is None or not finding.threads.count:
        return ""
    who = threads_text(finding.threads)
    if finding.launch is not None and not finding.launch.grid_certain:
        who = who.replace("of every block", "of every block seen")
    return who


def origin_text(fact: Fact) -> str:
    """Return where a fact was read: ``core.nvcudmp: .cudbg.devtbl``."""
    return fact.origin.artefact + (f": {fact.origin.where}" if fact.origin.where else "")


def measured_text(profile: LaunchProfile) -> str:
    """Return how near to its roofs a launch is: ``copy: 247.9 us, device memory at 88 %, SMs at 10 % of the peak``."""
    time = profile.value("microseconds")
    roofs = [
        f"{words} at {value:.0f} %"
        for words, name in (
            ("device memory", "dram_throughput"),
            ("L2", "l2_throughput"),
            ("SMs", "sm_throughput"),
        )
        if (value := profile.value(name)) is not None
    ]
    parts = [f"{time:,.1f} us"] if time is not None else []
    parts += [f"{', '.join(roofs)} of the peak"] if roofs else []
    return f"{profile.launch.short}: {', '.join(parts) or 'nothing was collected'}"


def dims_text(value: Dim3) -> str:
    """Return sizes as in a launch: ``8`` or ``(8, 2, 1)``."""
    return str(value[0]) if value[1] == value[2] == 1 else f"({value[0]}, {value[1]}, {value[2]})"


def index_text(value: Dim3 | None) -> str:
    """Return an index: ``(8,0,0)``, or ``(?)``."""
    return f"({value[0]},{value[1]},{value[2]})" if value is not None else "(?)"


def threads_text(threads: Threads) -> str:
    """Return how many, in which pattern, and the first of them."""
    text = f"{threads.count:,} thread{'s' if threads.count != 1 else ''}"
    if threads.blocks:
        text += f" in {threads.warps:,} warp{'s' if threads.warps != 1 else ''}"
    if threads.pattern:
        text += f": {threads.pattern}"
    if threads.first_thread is not None:
        text += (
            f"; first: thread {index_text(threads.first_thread)} of block {index_text(threads.first_block)}"
        )
    return text


def fact_text(fact: Fact) -> str:
    """Return a fact in one line, empty for those that say nothing by themselves."""
    text = ""
    if isinstance(fact, Machine):
        text = f"{fact.device} ({fact.architecture}, {fact.sm_count} SMs), driver {fact.driver}, CUDA {fact.cuda}"
    elif isinstance(fact, Launch):
        text = f"launch {fact.grid_id}: {fact.name}, {fact.registers} registers a thread, context {fact.context:#x}"
    elif isinstance(fact, Fault):
        kind = EXCEPTIONS.get(fact.exception)
        text = f"{kind.name if kind else 'stopped'} at {fact.place.short if fact.place else '?'}: {threads_text(fact.threads)}"
    elif isinstance(fact, Wait):
        text = f"{fact.kind.value} at {fact.place.short if fact.place else '?'}: {threads_text(fact.threads)}"
    elif isinstance(fact, SanitizerFault):
        text = f"{fact.tool}: {fact.message}"
    elif isinstance(fact, LaunchRecord):
        text = f"recorded {fact.kind} launch {fact.number} of {fact.kernel or '?'}, process {fact.process}"
    elif isinstance(fact, RefusedLaunch):
        text = f"refused with {fact.record.code}: {fact.record.kernel or '?'}"
        if fact.record.kind != "load":
            text += f", {dims_text(fact.record.grid)} blocks of {dims_text(fact.record.block)}"
    elif isinstance(fact, TensorFact):
        frame = f", in {fact.frame.short}" if fact.frame is not None else ""
        text = f"tensor {fact.text} at {fact.pointer:#x}, {fact.bytes:,} bytes{frame}"
    elif isinstance(fact, BlockFact):
        text = f"{fact.state} block of {fact.size:,} bytes at {fact.address:#x}, stream {fact.stream:#x}"
    elif isinstance(fact, Rerun):
        settings = " and ".join(setting.text for setting in fact.settings) or "as it is"
        outcome = {True: "passed", False: "failed", None: "undecided"}[fact.passed]
        text = f"run {settings}: {outcome} ({fact.judged}), {fact.seconds:.1f} s"
    elif isinstance(fact, NumericTrace):
        text = f"{fact.operations:,} operations of process {fact.process} watched on {' and '.join(fact.devices) or 'no device'}"
    elif isinstance(fact, NumericEvent):
        text = f"{fact.kind} at operation {fact.operation.number:,}, `{fact.operation.name}`"
    elif isinstance(fact, DriverAllocation):
        text = f"allocation of {fact.size:,} bytes at {fact.address:#x}"
    elif isinstance(fact, LaunchProfile):
        text = f"profiled {measured_text(fact)}"
    return text


def clean_texts(diagnosis: Diagnosis) -> list[str]:
    """Return what says that nothing is wrong, at most four sentences."""
    lines = []
    for fact in diagnosis.facts:
        if isinstance(fact, SanitizerSummary):
            lines.append(f"{fact.tool} ran to its end with {fact.errors} errors")
        elif isinstance(fact, NumericTrace) and not fact.events:
            lines.append(f"no operation of {fact.operations:,} made an Inf or NaN out of none")
        elif isinstance(fact, CleanExit):
            lines.append(f"the program's output ends well: {fact.text}")
    return lines[:4]

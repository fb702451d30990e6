"""Diagnosis -> terminal text: short first, everything with ``verbose``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from cuwhy.locate.tensors import describe
from cuwhy.model.cuda import EXCEPTIONS
from cuwhy.model.diagnosis import Diagnosis, Finding, Role
from cuwhy.model.facts import (
    BlockFact,
    Dim3,
    DriverAllocation,
    Fault,
    Launch,
    LaunchProfile,
    LaunchRecord,
    Machine,
    RefusedLaunch,
    Rerun,
    SanitizerFault,
    TensorFact,
    Threads,
    Wait,
)
from cuwhy.model.numerics import NumericEvent, NumericTrace
from cuwhy.model.place import Place
from cuwhy.report.escape import safe

#: Profiled launches that are listed where no cause was found.
_MAX_PROFILES = 5
_LABEL = 9
_BOLD, _RED, _DIM, _GREEN, _END = "\033[1m", "\033[31m", "\033[2m", "\033[32m", "\033[0m"
_NAME_LIMIT = 160
#: Longest command that is printed on a line of its own, whatever the width.
_COMMAND = 400
#: Values that the short screen shows too.
_SHOWN = ("memory", "tensor", "module", "op", "input", "output", "float64")


class _Page:
    """Lines under construction; wraps text below labels."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = max(40, width)
        self.colour = colour
        self.lines: list[str] = []

    def style(self, text: str, code: str) -> str:
        return f"{code}{text}{_END}" if self.colour and text else text

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    def wrap(self, text: str, indent: int = 2) -> None:
        self.lines += textwrap.wrap(
            safe(text), self.width, initial_indent=" " * indent, subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )  # fmt: skip

    def item(self, label: str, text: str) -> None:
        """A label in a column of its own, the text wrapped beside it."""
        wrapped = textwrap.wrap(safe(text), self.width - _LABEL - 2, break_on_hyphens=False) or [""]
        self.lines.append("  " + self.style(f"{label:<{_LABEL}}", _DIM) + wrapped[0])
        self.lines += [" " * (_LABEL + 2) + rest for rest in wrapped[1:]]

    def code(self, text: str) -> None:
        """A line of code below an item: cut, never wrapped."""
        room = self.width - _LABEL - 4
        text = safe(text)
        self.lines.append(" " * (_LABEL + 4) + (text if len(text) <= room else text[: room - 1] + "…"))


def render(diagnosis: Diagnosis, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """Return the diagnosis as text that ends in a newline.

    Args:
        diagnosis: what to show.
        width: columns.
        colour: with ANSI colours.
        verbose: with the reasons, values, arguments, facts and artefacts.
    """
    page = _Page(width, colour)
    if not diagnosis.findings:
        running = [fact for fact in diagnosis.facts if isinstance(fact, Wait)]
        profiles = [fact for fact in diagnosis.facts if isinstance(fact, LaunchProfile)]
        page.line(
            page.style("nothing found", _GREEN)
            + (
                ": the kernel was running when the dump was taken"
                if running
                else ": no cause of the catalogue holds these launches up"
                if profiles
                else ": these files show no failure"
            )
        )
        for wait in running[:3]:
            page.wrap(
                f"{wait.kind.value} at {wait.place.short if wait.place else '?'}: {_threads(wait.threads)}"
            )
        for profile in profiles[:_MAX_PROFILES]:
            page.wrap(_measured(profile))
        for summary in _clean(diagnosis):
            page.wrap(summary)
    shown = 0
    for finding in diagnosis.findings:
        if shown and not verbose and finding.role is not Role.PRIMARY:
            continue
        if shown:
            page.line()
        if shown < 3 or verbose:
            _finding(page, diagnosis, finding, verbose)
        shown += 1
    rest = len(diagnosis.findings) - (len(diagnosis.findings) if verbose else min(shown, 3))
    if rest > 0:
        page.line()
        page.wrap(f"{rest} more finding{'s' if rest != 1 else ''} with -v", 0)
    for question in diagnosis.open:
        page.line()
        cost = f" (costs {question.cost})" if question.cost else ""
        words = question.step.split()
        if len(question.step) <= _COMMAND and any(len(word) > page.width - _LABEL - 2 for word in words):
            # A command must be there to be copied: it is never broken.
            page.item("next", f"{question.why}{cost}:")
            page.line(" " * (_LABEL + 2) + safe(question.step))
        else:
            page.item("next", f"{question.step}: {question.why}{cost}")
    for note in diagnosis.notes:
        page.line()
        page.item("note", note)
    if verbose:
        _appendix(page, diagnosis)
    return "\n".join(page.lines) + "\n"


def _measured(profile: LaunchProfile) -> str:
    """How near to its roofs a launch is: ``copy: 247.9 us, device memory at 88 %, SMs at 10 % of the peak``."""
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


def _finding(page: _Page, diagnosis: Diagnosis, finding: Finding, verbose: bool) -> None:
    about = [] if finding.role is Role.PRIMARY else [finding.role.value]
    about.append(finding.cause.severity.value)
    if finding.confidence is not None and not finding.cause.name.startswith("unknown/"):
        seen = finding.confidence.hits + finding.confidence.misses
        about.append(f"{finding.confidence.value:.0%} sure: {finding.confidence.hits} of {seen} cases")
    page.line(f"{page.style(safe(finding.cause.name), _BOLD + _RED)}  ({', '.join(about)})")
    page.wrap(finding.sentence)
    page.line()
    if finding.place is not None:
        _place(page, diagnosis, "place", finding.place, verbose)
    if finding.other is not None:
        _place(page, diagnosis, "and", finding.other, verbose)
    _kernel(page, diagnosis, finding)
    if finding.threads is not None and finding.threads.count:
        who = _threads(finding.threads)
        if finding.launch is not None and not finding.launch.grid_certain:
            who = who.replace("of every block", "of every block seen")
        page.item("threads", who)
    if finding.host is not None:
        where = f" in {finding.host.function}" if finding.host.function else ""
        page.item("host", finding.host.short + where)
        text = diagnosis.excerpt(finding.host)
        if text is not None:
            page.code(f"{finding.host.line} | {text}")
    for label, value in finding.details:
        if label in _SHOWN:
            page.item(label, value)
    for fix in finding.fixes[: None if verbose else 1]:
        text = fix.text
        if verbose:
            text += f" ({'safe' if fix.safe else 'check it'}{': ' + fix.caution if fix.caution else ''})"
        page.item("fix", text)
    if finding.misleading:
        page.item("beware", finding.misleading)
    if verbose:
        for reason in finding.why:
            page.item("because", reason)
        for label, value in finding.details:
            if label not in _SHOWN:
                page.item("value", f"{label}: {value}")
        if finding.launch is not None:
            _arguments(page, finding.launch)


def _place(page: _Page, diagnosis: Diagnosis, label: str, place: Place, verbose: bool) -> None:
    """The inline chain, innermost first, with the source line and the instruction."""
    chain = place.frames
    if not chain:
        page.item(label, f"{place.short[:_NAME_LIMIT]} (no line table)")
    else:
        parts = [f"{f.short}{' in ' + f.function if f.function else ''}" for f in chain]
        user = place.user
        if user is not None and user is not chain[0]:
            position = chain.index(user)
            parts[position] += " (your code)"
        page.item(label, ", inlined at ".join(parts))
        for frame in chain if user is chain[0] else (user, *chain):
            text = diagnosis.excerpt(frame)
            if text is not None and frame is not None:
                page.code(f"{frame.line} | {text}")
                break
    if place.sass is not None:
        page.code(place.sass)
    if verbose and place.ptx is not None:
        page.code(place.ptx)


def _kernel(page: _Page, diagnosis: Diagnosis, finding: Finding) -> None:
    launch = finding.launch
    if launch is None:
        if finding.kernel:
            page.item("kernel", finding.kernel)
        return
    least = "" if launch.grid_certain else "at least "
    text = f"{launch.short}<<<{least}{_dims(launch.grid)}, {_dims(launch.block)}>>>"
    if launch.cluster not in ((0, 0, 0), (1, 1, 1)):
        text += f", clusters of {_dims(launch.cluster)}"
    text += f"; launch {launch.grid_id} of its context" if launch.grid_id else ""
    machine = next((m for m in _of(diagnosis, Machine)), None)
    if launch.device >= 0:
        text += f", device {launch.device}" + (f" ({machine.device})" if machine is not None else "")
    page.item("kernel", text)


def _of(diagnosis: Diagnosis, kind: type[Machine]) -> Iterable[Machine]:
    return (fact for fact in diagnosis.facts if isinstance(fact, kind))


def _dims(value: Dim3) -> str:
    return str(value[0]) if value[1] == value[2] == 1 else f"({value[0]}, {value[1]}, {value[2]})"


def _index(value: Dim3 | None) -> str:
    return f"({value[0]},{value[1]},{value[2]})" if value is not None else "(?)"


def _threads(threads: Threads) -> str:
    text = f"{threads.count:,} thread{'s' if threads.count != 1 else ''}"
    if threads.blocks:
        text += f" in {threads.warps:,} warp{'s' if threads.warps != 1 else ''}"
    if threads.pattern:
        text += f": {threads.pattern}"
    if threads.first_thread is not None:
        text += f"; first: thread {_index(threads.first_thread)} of block {_index(threads.first_block)}"
    return text


def _arguments(page: _Page, launch: Launch) -> None:
    for argument in launch.arguments:
        kind = f" {argument.type}" if argument.type else ""
        name = f" {argument.name}" if argument.name else ""
        page.item(f"arg {argument.position}", f"{argument.text}  ({argument.size} bytes{kind}{name})")
        if argument.target is not None:
            page.item("", describe(argument.target))


def _clean(diagnosis: Diagnosis) -> list[str]:
    from cuwhy.model.facts import CleanExit, SanitizerSummary

    lines = []
    for fact in diagnosis.facts:
        if isinstance(fact, SanitizerSummary):
            lines.append(f"{fact.tool} ran to its end with {fact.errors} errors")
        elif isinstance(fact, NumericTrace) and not fact.events:
            lines.append(f"no operation of {fact.operations:,} made an Inf or NaN out of none")
        elif isinstance(fact, CleanExit):
            lines.append(f"the program's output ends well: {fact.text}")
    return lines[:4]


def _appendix(page: _Page, diagnosis: Diagnosis) -> None:
    page.line()
    page.line("facts, and where they were read")
    for fact in diagnosis.facts[:40]:
        text = ""
        if isinstance(fact, Machine):
            text = f"{fact.device} ({fact.architecture}, {fact.sm_count} SMs), driver {fact.driver}, CUDA {fact.cuda}"
        elif isinstance(fact, Launch):
            text = f"launch {fact.grid_id}: {fact.name}, {fact.registers} registers a thread, context {fact.context:#x}"
        elif isinstance(fact, Fault):
            kind = EXCEPTIONS.get(fact.exception)
            text = f"{kind.name if kind else 'stopped'} at {fact.place.short if fact.place else '?'}: {_threads(fact.threads)}"
        elif isinstance(fact, Wait):
            text = f"{fact.kind.value} at {fact.place.short if fact.place else '?'}: {_threads(fact.threads)}"
        elif isinstance(fact, SanitizerFault):
            text = f"{fact.tool}: {fact.message}"
        elif isinstance(fact, LaunchRecord):
            text = (
                f"recorded {fact.kind} launch {fact.number} of {fact.kernel or '?'}, process {fact.process}"
            )
        elif isinstance(fact, RefusedLaunch):
            text = f"refused with {fact.record.code}: {fact.record.kernel or '?'}"
            if fact.record.kind != "load":
                text += f", {_dims(fact.record.grid)} blocks of {_dims(fact.record.block)}"
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
            text = f"profiled {_measured(fact)}"
        if text:
            page.item(
                "", f"{text}  [{fact.origin.artefact}{': ' + fact.origin.where if fact.origin.where else ''}]"
            )
    if len(diagnosis.facts) > 40:
        page.item("", f"and {len(diagnosis.facts) - 40} more (--json has all)")
    page.line()
    page.line("read")
    for artefact in diagnosis.artefacts:
        page.item(
            "", f"{artefact.name}: {artefact.kind}, {artefact.size:,} bytes, sha256 {artefact.sha256[:16]}…"
        )

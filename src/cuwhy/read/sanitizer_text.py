"""The text that Compute Sanitizer prints, alone or mixed into a program's output.

Every line of the tool begins with ``=========``; one record is a headline and indented lines below
it.  Layout: the tool's user manual, reports of version 2025.3.1, and the older layout of
cuda-memcheck ("at 0x58 in kernel(int*)").
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from cuwhy.model.errors import InputError
from cuwhy.model.facts import Allocation, Fact, Origin, SanitizerSummary
from cuwhy.read.sanitizer_merge import (
    HostFrame,
    Merger,
    Record,
    Site,
    access_of,
    allocation_of,
    clip,
    dim3,
    number,
)

_PREFIX = b"========="
_MAX_LINE = 1 << 16
_MAX_CACHE = 4096
_MAX_FRAMES = 128
_MAX_SUMMARIES = 64
_MAX_OTHERS = 64
#: Lines of the tool that are read; a report of the default print limit has about 1,000.
_MAX_LINES = 1_200_000
_TAIL_LINES = 1000
_TAIL_BYTES = 1 << 16
_MAX_COMMANDS = 1000

_MARKS = (
    b"========= COMPUTE-SANITIZER",
    b"========= CUDA-MEMCHECK",
    b"========= ERROR SUMMARY:",
    b"========= RACECHECK SUMMARY:",
)


def looks_like_sanitizer_text(data: bytes) -> bool:
    """Return True when ``data`` holds a banner or a summary line of Compute Sanitizer."""
    return any(mark in data for mark in _MARKS)


def read_sanitizer_text(data: bytes, artefact: str) -> tuple[Fact, ...]:
    """Read the ``=========`` lines out of ``data``.

    Args:
        data: captured output, the program's own lines included.
        artefact: name for the facts' origin.

    Returns:
        The distinct faults in order of their first record, then one SanitizerSummary for each
        summary line; ``errors`` is the tool's own total, which counts errors that it did not print.

    Raises:
        InputError: no line of the tool says anything.
    """
    reader = _Reader(artefact)
    tools = islice(_TOOL.finditer(data), _MAX_COMMANDS)
    command = next(tools, None)
    for offset, position, raw in _tool_lines(data):
        while command is not None and command.start() < offset:
            reader.hint = command[1].decode("ascii")
            command = next(tools, None)
        reader.line(raw.decode("utf-8", "replace"), position)
    facts = reader.finish()
    if not facts and not looks_like_sanitizer_text(data):
        raise InputError(f"{artefact} holds no output of Compute Sanitizer")
    return facts


def _tool_lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield offset, line number and bytes of the lines that hold the tool's prefix.

    Of a report beyond the limit, the last few lines follow at once: the summary is in them.
    """
    number_of_line = 1
    counted = 0
    at = data.find(_PREFIX)
    for index in range(_MAX_LINES + _TAIL_LINES):
        if index == _MAX_LINES:
            at = data.find(_PREFIX, max(at, len(data) - _TAIL_BYTES))
        if at < 0:
            return
        number_of_line += data.count(b"\n", counted, at)
        counted = at
        end = data.find(b"\n", at)
        end = end if end >= 0 else len(data)
        yield at, number_of_line, data[at : min(end, at + _MAX_LINE)]
        at = data.find(_PREFIX, end)


_THREAD = re.compile(r"thread \((\d{1,10}),\s?(\d{1,10}),\s?(\d{1,10})\)", re.I)
_BLOCK = re.compile(r"block \((\d{1,10}),\s?(\d{1,10}),\s?(\d{1,10})\)")
_HEX = re.compile(r"0x([0-9a-fA-F]{1,16})\b")
_HAZARDS = re.compile(r"\[([\d,.]{1,24}) hazards?\]\s*\Z")
_SUMMARY = re.compile(
    r"(ERROR|RACECHECK) SUMMARY: ([\d,]{1,24}) (?:errors?|hazards? displayed)\b(?! were not)(.*)"
)
_RACE_COUNTS = re.compile(r"\(([\d,]{1,24}) errors?, ([\d,]{1,24}) warnings?\)")
_TOOL = re.compile(rb"--tool[ =](memcheck|racecheck|synccheck|initcheck)\b")
_RACE = re.compile(r"Race reported between (\w{1,16}) access at ")
_AND_RACE = re.compile(r"and (\w{1,16}) access at ")
_HAZARD = re.compile(r"Potential (?:RAW|WAR|WAW) hazard detected at __(\w{1,16})__ 0x([0-9a-fA-F]{1,16})")
_HAZARD_SIDE = re.compile(r"(Read|Write|Atomic) Thread \([\d,\s]{1,40}\) at ")
_LEAK = re.compile(r"Leaked ([\d,.']{1,24}) bytes? at 0x([0-9a-fA-F]{1,16})")
_OLD_HOST = re.compile(r"(?P<module>\S*) \((?P<function>.*) \+ 0x[0-9a-f]{1,16}\) \[0x[0-9a-f]{1,16}\]\Z")

#: Headlines that begin a record even where no further line follows.
_HEADLINES = (
    "Invalid ",
    "Potential ",
    "Uninitialized ",
    "Unused ",
    "Barrier error",
    "Warpgroup MMA",
    "Race reported",
    "Leaked ",
    "Program hit ",
    "Malloc/Free error",
    "Deadlock detected",
    "Stack overflow",
    "Illegal instruction",
)


def site_of(text: str) -> Site:
    """Return what an "at" line names, whichever of the layouts it has.

    "f(int)+0x80 in a.cu:18", "f():0x160 in a.cu:6", "0x58 in f(int*)",
    "0x8f0 in a.cu:20:f(int*)", "f+0x15520", "0x79d8".
    """
    text = text.strip()
    if text.startswith("0x"):
        offset, _, rest = text.partition(" in ")
        path, _, function = rest.partition(":")
        digits, _, name = function.partition(":")
        start = number(offset, 16) or 0
        if name and digits.isdecimal() and not name.startswith(":"):
            return Site(clip(name), start, clip(path), _line(digits))
        return Site(clip(rest), start)
    head, separator, tail = text.rpartition(" in ")
    file, colon, line = tail.rpartition(":")
    source: str | None = None
    at: int | None = None
    if separator and colon and file and line.isdecimal():
        source, at = clip(file), _line(line)
    else:
        head = text
    for mark in ("+0x", ":0x"):
        function, found, offset = head.rpartition(mark)
        value = number(offset, 16) if found else None
        if value is not None:
            return Site(clip(function), value, source, at)
    return Site(clip(head), 0, source, at)


def _line(digits: str) -> int | None:
    value = number(digits)
    return value if value is not None and 0 < value < 1 << 31 else None


def _host_frame(text: str) -> HostFrame:
    text = text.strip()
    old = _OLD_HOST.match(text) if text.startswith(("/", ".")) else None
    if old:
        return HostFrame(clip(old["function"]), module=clip(old["module"]))
    head, bracket, tail = text.rpartition("[0x")
    if not bracket:
        head, tail = text, ""
    _, _, module = tail.partition("] in ")
    head = head.strip()
    if tail.endswith("]") and head.startswith(("/", "./")) and " " not in head:
        # cuda-memcheck: only the module and the address.
        return HostFrame(module=clip(head))
    site = site_of(head) if " in " in head else Site(clip(head))
    return HostFrame(site.function, site.file, site.line, clip(module.strip()))


class _Reader:
    """Collects lines into records."""

    def __init__(self, artefact: str) -> None:
        self._artefact = artefact
        self._merger = Merger(artefact)
        self._record: Record | None = None
        self._sure = False
        self._at = False
        self._allocation_stack = False
        self._summaries: list[SanitizerSummary] = []
        self.hint = ""
        self._sites: dict[str, Site] = {}
        self._hosts: dict[str, HostFrame] = {}
        self._pending: list[HostFrame] = []
        self._frames: list[Site] = []

    def line(self, line: str, position: int) -> None:
        """Take one line, from the tool's prefix on."""
        text = line[len(_PREFIX) :].strip()
        if text.startswith("="):
            return
        if not text:
            self._flush()
        elif not self._detail(text):
            self._flush()
            self._headline(text, position)

    # -- lines below a headline

    def _detail(self, text: str) -> bool:
        """Take one line of the record at hand; False when it is none."""
        record = self._record
        if record is None:
            return False
        word = text.partition(" ")[0]
        if word == "at":
            if not self._at:
                self._frames.insert(0, self._site(text[3:]))
            self._at = self._sure = True
        elif word == "by":
            thread = _THREAD.search(text)
            block = _BLOCK.search(text)
            if thread:
                record.thread = dim3(int(thread[1]), int(thread[2]), int(thread[3]), True)
            if block:
                record.block = dim3(int(block[1]), int(block[2]), int(block[3]), False)
            self._sure = True
        elif word in ("Address", "Access"):
            address = _HEX.search(text)
            if address:
                record.address = number(address[1], 16)
                self._sure = True
            if "nearest allocation" in text:
                record.allocation = allocation_of(text)
            record.detail = (
                f"{record.detail} {clip(text)}".strip() if len(record.detail) < 1024 else record.detail
            )
        elif word in ("Device", "Host"):
            label, colon, rest = text.partition("Frame:")
            if not colon or label.strip() not in ("Device", "Host"):
                return False
            self._frame(word, rest)
        elif word == "and":
            self._and(record, text)
        elif word == "in":
            # The module of the host frame above, in the layout of 2022.
            if self._pending and not self._pending[-1].module:
                last = self._pending[-1]
                self._pending[-1] = HostFrame(last.function, last.file, last.line, clip(text[3:].strip()))
        elif text.startswith("Saved host backtrace"):
            self._keep_host()
            self._allocation_stack = "llocation time" in text or "alloc time" in text.lower()
        elif word in ("Read", "Write", "Atomic") and _HAZARD_SIDE.match(text):
            match = _HAZARD_SIDE.match(text)
            assert match is not None
            self._side(record, match[1].lower(), 1, text[match.end() :])
        else:
            return word in ("Current", "Not", "These", "Barrier") and not text.startswith("Barrier error")
        return True

    def _and(self, record: Record, text: str) -> None:
        race = _AND_RACE.match(text)
        if race:
            hazards = _HAZARDS.search(text)
            count = (number(hazards[1]) or 0) if hazards else 0
            self._side(
                record, race[1].lower(), count, text[race.end() : hazards.start() if hazards else None]
            )
        elif "nearest allocation" in text:
            record.allocation = allocation_of(text)
        elif len(record.detail) < 1024:
            record.detail = f"{record.detail} {clip(text)}".strip()

    def _side(self, record: Record, access: str, hazards: int, where: str) -> None:
        site = self._site(where)
        thread = _THREAD.search(where)
        if not self._frames:
            self._frames.append(site)
            record.access = access
        elif len(record.others) < _MAX_OTHERS:
            record.others = (*record.others, (access, hazards, site))
        if thread and record.thread is None:
            record.thread = dim3(int(thread[1]), int(thread[2]), int(thread[3]), True)

    def _frame(self, word: str, rest: str) -> None:
        if word == "Device":
            if len(self._frames) < _MAX_FRAMES:
                self._frames.append(self._site(rest))
        elif len(self._pending) < _MAX_FRAMES:
            frame = self._hosts.get(rest)
            if frame is None:
                frame = _host_frame(rest)
                if len(self._hosts) < _MAX_CACHE:
                    self._hosts[rest] = frame
            self._pending.append(frame)

    def _site(self, text: str) -> Site:
        site = self._sites.get(text)
        if site is None:
            site = site_of(text)
            if len(self._sites) < _MAX_CACHE:
                self._sites[text] = site
        return site

    # -- headlines

    def _headline(self, text: str, position: int) -> None:
        summary = _SUMMARY.match(text)
        if summary:
            self._summary(summary, position)
            return
        if text in ("COMPUTE-SANITIZER", "CUDA-MEMCHECK") or "SUMMARY:" in text[:24]:
            return
        level = ""
        for mark in ("Error: ", "Warning: ", "ERROR: ", "WARNING: ", "INFO: ", "Info: "):
            if text.startswith(mark):
                level = mark[:-2].capitalize()
                # A warning keeps its word: it is the only sign of the level that a reader will see.
                text = text[len(mark) :]
        message = text if level in ("", "Error") else f"{level}: {text}"
        record = Record(message=clip(message), level=level, where=f"line {position}")
        self._record = record
        self._sure = text.startswith(_HEADLINES)
        race = _RACE.match(text)
        hazard = _HAZARD.search(text)
        leak = _LEAK.match(text)
        if race:
            record.access = race[1].lower()
            self._frames.append(self._site(text[race.end() :]))
        elif hazard:
            self._sure = True
            record.space = hazard[1]
            record.address = number(hazard[2], 16)
            block = _BLOCK.search(text)
            if block:
                record.block = dim3(int(block[1]), int(block[2]), int(block[3]), False)
        elif leak:
            record.address = number(leak[2], 16)
            if record.address is not None:
                record.allocation = Allocation(record.address, number(leak[1]) or 0)
        else:
            record.access, record.space, record.width = access_of(text)

    def _summary(self, match: re.Match[str], position: int) -> None:
        errors = number(match[2])
        if errors is None or len(self._summaries) >= _MAX_SUMMARIES:
            return
        warnings = 0
        counts = _RACE_COUNTS.search(match[3])
        if counts:
            errors, warnings = number(counts[1]) or 0, number(counts[2]) or 0
        tool = "racecheck" if match[1] == "RACECHECK" else self._merger.main_tool() or self.hint
        # A log may hold several runs, one after the other.
        self._merger.tools.clear()
        self.hint = ""
        self._summaries.append(
            SanitizerSummary(tool, errors, warnings, Origin(self._artefact, f"line {position}"))
        )

    def _keep_host(self) -> None:
        record = self._record
        if record is None or not self._pending:
            return
        if self._allocation_stack:
            record.allocated = tuple(self._pending)
        elif not record.host:
            record.host = tuple(self._pending)
        self._pending = []

    def _flush(self) -> None:
        record = self._record
        # Level INFO: hazards that by the manual have no effect on the program.
        if record is not None and self._sure and record.level != "Info":
            self._keep_host()
            record.sites = tuple(self._frames)
            # The words tell the kind only together with the line below the headline.
            if record.detail:
                record.message = clip(f"{record.message}: {record.detail}")
            self._merger.add(record)
        self._record = None
        self._sure = self._at = False
        self._allocation_stack = False
        self._pending = []
        self._frames = []

    def finish(self) -> tuple[Fact, ...]:
        """Return the facts of all lines that were taken."""
        self._flush()
        return self._merger.facts(self._summaries)

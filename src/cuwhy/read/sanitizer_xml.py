"""The XML report of Compute Sanitizer (``--xml --save FILE``).

NVIDIA publishes no schema; the layout is that of version 2025.3.1: a root ``ComputeSanitizerOutput``
with one ``record`` for each printed error.  A record carries its whole host stack, 1.7 KB that repeats
for each thread, so a report of 100,000 records has 170 MB.  Therefore records are cut out of the bytes,
and only those that differ in more than thread and address go through the XML parser.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from xml.parsers import expat

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

_ROOT = b"<ComputeSanitizerOutput"
_HEAD_BYTES = 4096
_MAX_RECORD = 1 << 18
#: The largest file that is read holds 140,000 of the tool's own records (1.7 KB each).
_MAX_RECORDS = 200_000
#: What goes through the XML parser, about two seconds; further records of a new form are only counted.
_MAX_PARSED = 24 << 20
_MAX_FORMS = 80_000
_MAX_CACHE = 8 << 20
_MAX_DEPTH = 32
_MAX_FRAMES = 128
_MAX_OTHERS = 64


def looks_like_sanitizer_xml(head: bytes) -> bool:
    """Return True when the first bytes are those of an XML report of Compute Sanitizer."""
    return _ROOT in head[:_HEAD_BYTES]


def read_sanitizer_xml(data: bytes, artefact: str) -> tuple[Fact, ...]:
    """Read an XML report.

    Args:
        data: the file.
        artefact: name for the facts' origin.

    Returns:
        The distinct faults in order of their first record.  A SanitizerSummary follows when the file
        is complete: it counts the records.  A file that was cut off (the tool was killed) gives the
        complete records and no summary.

    Raises:
        InputError: the file is no such report, has a DOCTYPE, or holds no complete record and no end.
    """
    if not looks_like_sanitizer_xml(data[:_HEAD_BYTES]):
        raise InputError(f"{artefact} is no XML report of Compute Sanitizer")
    start = data.find(b"<record")
    prolog = data[: start if start >= 0 else len(data)][: 1 << 20]
    if b"<!DOCTYPE" in prolog or b"<!ENTITY" in prolog:
        raise InputError(f"{artefact} has a document type declaration, which no report of the tool has")
    reader = _Reader(artefact)
    for position, record in enumerate(_records(data), 1):
        reader.add(record, position)
    if reader.seen >= _MAX_RECORDS:
        reader.seen = data.count(b"</record>")
    end = data.rfind(b"</ComputeSanitizerOutput")
    complete = end >= 0 and end > data.rfind(b"<record")
    if not complete and start < 0:
        # An empty root may close itself.
        complete = re.search(rb"<ComputeSanitizerOutput\s*/>", data[:_HEAD_BYTES]) is not None
    if not reader.taken and (reader.seen or not complete):
        raise InputError(f"{artefact} holds no complete record", hint="the tool was stopped before its first")
    return reader.facts(complete)


def _records(data: bytes) -> Iterator[bytes]:
    """Cut out ``<record>…</record>``; one that lost its end is passed over."""
    at = data.find(b"<record")
    count = 0
    while at >= 0 and count < _MAX_RECORDS:
        end = data.find(b"</record>", at)
        if end < 0:
            return
        begin = max(at, data.rfind(b"<record", at, end))
        count += 1
        yield data[begin : end + 9] if end - begin <= _MAX_RECORD else b""
        at = data.find(b"<record", end)


# --- one record -------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Node:
    tag: str
    text: list[str] = field(default_factory=list)
    kids: list[_Node] = field(default_factory=list)

    def child(self, tag: str) -> _Node | None:
        for kid in self.kids:
            if kid.tag == tag:
                return kid
        return None

    def get(self, tag: str) -> str:
        """Text of a child, "" without one."""
        kid = self.child(tag)
        return clip("".join(kid.text).strip()) if kid is not None else ""


class _TooDeepError(Exception):
    pass


def _parse(raw: bytes) -> _Node | None:
    """Return the tree of one record, None when it is no well-formed XML."""
    root = _Node("")
    stack = [root]

    def opened(tag: str, attributes: object) -> None:
        if len(stack) > _MAX_DEPTH:
            raise _TooDeepError
        node = _Node(tag[:64])
        stack[-1].kids.append(node)
        stack.append(node)

    def closed(tag: str) -> None:
        stack.pop()

    def characters(text: str) -> None:
        stack[-1].text.append(text)

    parser = expat.ParserCreate("utf-8")
    parser.buffer_text = True
    parser.StartElementHandler = opened
    parser.EndElementHandler = closed
    parser.CharacterDataHandler = characters
    try:
        # Paths come as the file system has them, which need not be UTF-8.
        parser.Parse(raw.decode("utf-8", "replace").encode("utf-8"), True)
    except (expat.ExpatError, _TooDeepError):
        return None
    return root.kids[0] if root.kids else None


def _site(node: _Node) -> Site:
    line = number(node.get("line"))
    return Site(
        node.get("func"),
        number(node.get("pc"), 16) or 0,
        node.get("path") or node.get("file") or None,
        line if line is not None and 0 < line < 1 << 31 else None,
    )


def _host(stack: _Node) -> tuple[HostFrame, ...]:
    frames: list[HostFrame] = []
    for kid in stack.kids:
        if kid.tag == "frame" and len(frames) < _MAX_FRAMES:
            site = _site(kid)
            frames.append(HostFrame(site.function, site.file, site.line, kid.get("module")))
    return tuple(frames)


_TOOLS = {"initcheck": "initcheck", "synccheck": "synccheck", "racecheck": "racecheck"} | dict.fromkeys(
    ("analysis", "hazard", "race"), "racecheck"
)


def _judge(node: _Node) -> Record:
    """Turn the tree of a record into a Record."""
    record = Record(tool=_TOOLS.get(node.get("kind").lower(), ""), level=node.get("level"))
    record.api = node.get("kind").lower() == "api"
    what = node.child("what") or _Node("what")
    text = what.get("text")
    record.access, record.space, record.width = access_of(text)
    record.space = what.get("space").strip("_").lower() or record.space
    if record.space not in ("global", "shared", "local"):
        record.space = ""
    direction = what.get("direction").lower()
    if direction in ("read", "write", "atomic"):
        record.access = direction
    record.width = min(number(what.get("size")) or record.width, 1 << 20)
    record.address = number(what.get("address"), 16)
    # Barrier errors keep their class in an element of its own; the text alone would not tell it.
    # A hardware exception has no text, only an element that names it.
    parts = [text]
    for more in (what.get("exception"), what.get("type"), "" if record.api else what.get("error")):
        if more and more.lower() not in text.lower():
            parts.append(more)
    record.message = clip(": ".join(part for part in parts if part) or node.get("kind"))
    if record.level.lower() == "warning":
        record.message = clip(f"Warning: {record.message}")
    record.detail = " ".join(clip("".join(kid.text).strip()) for kid in what.kids[:32] if kid.tag != "text")
    if "nearest allocation" in record.detail or "nearest allocation" in text:
        record.allocation = allocation_of(f"{text} {record.detail}")
    if text.startswith("Leaked ") and record.address is not None:
        record.allocation = Allocation(record.address, number(what.get("size")) or 0)
        record.width = 0
    _sites(node, what, record)
    for stack in node.kids:
        if stack.tag == "hostStack":
            if "allocation" in stack.get("saveLocation").lower():
                record.allocated = record.allocated or _host(stack)
            else:
                record.host = record.host or _host(stack)
    return record


def _sites(node: _Node, what: _Node, record: Record) -> None:
    """Fill in the places: of the access, or of both sides of a race."""
    where = node.child("where")
    frames = [_site(where)] if where is not None else []
    stack = node.child("deviceStack")
    if stack is not None:
        frames += [_site(kid) for kid in stack.kids[:_MAX_FRAMES] if kid.tag == "frame"]
    others: list[tuple[str, int, Site]] = []
    for kid in what.kids:
        there = kid.child("where") if kid.tag in ("source", "destination") else None
        if there is None:
            continue
        access = kid.get("direction").lower()
        access = access if access in ("read", "write", "atomic") else ""
        if not frames:
            frames.append(_site(there))
            record.access = access
        elif len(others) < _MAX_OTHERS:
            others.append((access, number(kid.get("count")) or 0, _site(there)))
    record.sites = tuple(frames)
    record.others = tuple(others)


# --- many records -----------------------------------------------------------------------------------

_INDEX = re.compile(
    rb"<(threadIdx|blockIdx)>\s{0,64}<x>(\d{1,10})</x>\s{0,64}<y>(\d{1,10})</y>\s{0,64}<z>(\d{1,10})</z>"
)
_ADDRESS = re.compile(rb"<address>\s{0,64}(?:0x)?([0-9a-fA-F]{1,16})\s{0,64}</address>")


class _Reader:
    def __init__(self, artefact: str) -> None:
        self._artefact = artefact
        self._merger = Merger(artefact)
        self._forms: dict[bytes, Record | None] = {}
        self._parses = 0
        self._parsed = 0
        self._cached = 0
        self.seen = 0
        self.taken = 0

    def add(self, raw: bytes, position: int) -> None:
        """Take one record, by its form where an equal one was parsed before."""
        self.seen += 1
        start = raw.find(b"<who>")
        end = raw.find(b"</who>", start) if start >= 0 else -1
        who = raw[start:end] if end >= 0 else b""
        address = _ADDRESS.search(raw)
        form = raw
        if address and (not who or end <= address.start()):
            form = raw[: address.start(1)] + b"0" + raw[address.end(1) :]
        if who:
            form = form[:start] + form[end + len(b"</who>") :]
        model = self._forms.get(form)
        if model is None:
            if form in self._forms:
                return
            model = self._new(form)
            if model is None:
                return
        record = copy.copy(model)
        record.where = f"record {position}"
        if address and record.address is not None:
            record.address = int(address[1], 16)
            if record.message.startswith("Leaked ") and record.allocation is not None:
                record.allocation = Allocation(record.address, record.allocation.size)
        for kind, x, y, z in _INDEX.findall(who):
            index = dim3(int(x), int(y), int(z), kind == b"threadIdx")
            if kind == b"threadIdx":
                record.thread = index
            else:
                record.block = index
        self._merger.add(record)
        self.taken += 1

    def _new(self, form: bytes) -> Record | None:
        if self._parses >= _MAX_FORMS or self._parsed + len(form) > _MAX_PARSED:
            return None
        self._parses += 1
        self._parsed += len(form)
        tree = _parse(form)
        model = _judge(tree) if tree is not None and tree.tag == "record" else None
        if model is not None and not model.message:
            model = None
        if self._cached + len(form) <= _MAX_CACHE:
            self._cached += len(form)
            self._forms[form] = model
        return model

    def facts(self, complete: bool) -> tuple[Fact, ...]:
        warnings = self._merger.warnings
        summary = SanitizerSummary(
            self._merger.main_tool(),
            self.seen - warnings,
            warnings,
            Origin(self._artefact, "end of the file"),
        )
        return self._merger.facts([summary] if complete else [])

"""What stands around a finding: its source lines with their neighbours, and the launches before it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cuwhy.locate.recorded import record_of
from cuwhy.locate.sources import SourceBook
from cuwhy.model.diagnosis import Excerpt, Finding, Listing
from cuwhy.model.facts import LaunchRecord
from cuwhy.model.place import Frame
from cuwhy.read.launchlog import LaunchLog

#: Lines shown above and below one that a finding names.
_AROUND = 6
_MAX_LISTINGS = 24
_MAX_LAUNCHES = 24


def _frames(finding: Finding) -> list[Frame]:
    places = [place for place in (finding.place, finding.other) if place is not None]
    frames = [frame for place in places for frame in place.frames]
    return [*frames, *((finding.host,) if finding.host is not None else ())]


def excerpts(findings: Iterable[Finding], book: SourceBook) -> tuple[Excerpt, ...]:
    """Return the line of every frame that a finding names, where its source was handed over."""
    found: dict[tuple[str, int], Excerpt] = {}
    for finding in findings:
        for frame in _frames(finding):
            text = book.line(frame)
            if text is not None and frame.file is not None and frame.line is not None:
                found.setdefault((frame.file, frame.line), Excerpt(frame.file, frame.line, text))
    return tuple(found.values())


def listings(findings: Iterable[Finding], book: SourceBook) -> tuple[Listing, ...]:
    """Return the lines around every frame that a finding names; what overlaps in a file is joined."""
    wanted: dict[str, list[tuple[int, int]]] = {}
    for finding in findings:
        for frame in _frames(finding):
            lines = book.lines(frame.file)
            if frame.file is None or frame.line is None or lines is None or not 0 < frame.line <= len(lines):
                continue
            span = (max(1, frame.line - _AROUND), min(len(lines), frame.line + _AROUND))
            wanted.setdefault(frame.file, []).append(span)
    found: list[Listing] = []
    for file, spans in wanted.items():
        joined: list[tuple[int, int]] = []
        for first, last in sorted(spans):
            if joined and first <= joined[-1][1] + 1:
                joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
            else:
                joined.append((first, last))
        lines = book.lines(file) or []
        found += [
            Listing(file, first, tuple(book.clipped(text) for text in lines[first - 1 : last]))
            for first, last in joined
        ]
    return tuple(found[:_MAX_LISTINGS])


def timeline(finding: Finding | None, logs: Sequence[LaunchLog]) -> tuple[LaunchRecord, ...]:
    """Return the launches of its process and context up to the one that a finding is about, oldest first."""
    if finding is None or finding.launch is None:
        return ()
    record = record_of(finding.launch, [launch for log in logs for launch in log.launches])
    if record is None:
        return ()
    same = [
        other
        for log in logs
        for other in log.launches
        if (other.process, other.context) == (record.process, record.context)
        and other.kind != "load"
        and other.microseconds <= record.microseconds
    ]
    return tuple(same[-_MAX_LAUNCHES:])

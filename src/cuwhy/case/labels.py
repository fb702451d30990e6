"""Which process left an artefact and when: one sentence in the manifest's note, for people and for us."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

_ASKED, _FAULT = "asked for by cuwhy", "on an exception"
_NOTE = re.compile(
    r"(?P<process>[^;]{1,80}), (?P<why>asked for by cuwhy|on an exception), written "
    r"(?P<time>[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3})Z(?:;|\Z)"
)


@dataclass(frozen=True, slots=True)
class ProcessLabel:
    """Where a core dump comes from.

    Attributes:
        process: "pid 71, rank 3".
        written: seconds since 1970, to the millisecond.
        asked: True when cuwhy asked for it (a hang), False when a fault caused it.
    """

    process: str
    written: float
    asked: bool = False

    @property
    def note(self) -> str:
        """The sentence."""
        time = datetime.fromtimestamp(self.written, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3]
        return f"{self.process}, {_ASKED if self.asked else _FAULT}, written {time}Z"


def read_label(note: str) -> ProcessLabel | None:
    """Return the label that a note begins with, None when it has none."""
    match = _NOTE.match(note)
    if match is None:
        return None
    try:
        time = datetime.strptime(match["time"], "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return ProcessLabel(match["process"], time.timestamp(), match["why"] == _ASKED)

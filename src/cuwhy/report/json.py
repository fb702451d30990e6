"""Diagnosis -> JSON with stable keys (docs/diagnosis.schema.json)."""

from __future__ import annotations

import dataclasses
import json
from enum import Enum
from typing import Any

from cuwhy.model.diagnosis import Diagnosis, Finding
from cuwhy.model.place import Frame, Place

#: Raised when a key changes its meaning or goes away; new keys do not raise it.
SCHEMA_VERSION = 1


def to_dict(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the diagnosis as plain dictionaries and lists.

    Addresses are hexadecimal strings, as 64-bit numbers do not survive every JSON reader.
    """
    from cuwhy import __version__

    return {
        "schema": SCHEMA_VERSION,
        "cuwhy": __version__,
        "diagnosed": diagnosis.named,
        "findings": [_finding(finding) for finding in diagnosis.findings],
        "open": [dataclasses.asdict(question) for question in diagnosis.open],
        "notes": list(diagnosis.notes),
        "artefacts": [dataclasses.asdict(artefact) for artefact in diagnosis.artefacts],
        "excerpts": [dataclasses.asdict(excerpt) for excerpt in diagnosis.excerpts],
        "listings": [
            {"file": listing.file, "first": listing.first, "lines": list(listing.lines)}
            for listing in diagnosis.listings
        ],
        "timeline": [_plain(record) for record in diagnosis.timeline],
        "facts": [{"type": type(fact).__name__, **_plain(fact)} for fact in diagnosis.facts],
    }


def render(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as indented JSON with a final newline."""
    return json.dumps(to_dict(diagnosis), indent=2, ensure_ascii=True, allow_nan=False) + "\n"


def _finding(finding: Finding) -> dict[str, Any]:
    confidence = finding.confidence
    return {
        "cause": finding.cause.name,
        "title": finding.cause.title,
        "severity": finding.cause.severity.value,
        "role": finding.role.value,
        "confidence": None
        if confidence is None
        else {"value": round(confidence.value, 4), "hits": confidence.hits, "misses": confidence.misses},
        "sentence": finding.sentence,
        "place": _place(finding.place),
        "other": _place(finding.other),
        "kernel": finding.kernel,
        "launch": _plain(finding.launch) if finding.launch is not None else None,
        "threads": _plain(finding.threads) if finding.threads is not None else None,
        "host": _frame(finding.host),
        "misleading": finding.misleading,
        "why": list(finding.why),
        "values": [{"label": label, "text": text} for label, text in finding.details],
        "fixes": [dataclasses.asdict(fix) for fix in finding.fixes],
    }


def _frame(frame: Frame | None) -> dict[str, Any] | None:
    if frame is None:
        return None
    return {"function": frame.function, "file": frame.file, "line": frame.line}


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    return {
        "file": place.user.file if place.user is not None else None,
        "line": place.user.line if place.user is not None else None,
        "function": place.function,
        "offset": place.offset,
        "pc": f"{place.pc:#x}",
        "sass": place.sass,
        "ptx": place.ptx,
        "frames": [_frame(frame) for frame in place.frames],
    }


_HEX_KEYS = frozenset(
    {"pc", "address", "context", "low", "high", "stack_pointer", "stream", "pointer", "segment"}
)


def _plain(value: Any, key: str = "") -> Any:
    """Turn dataclasses, enums and tuples into what JSON knows."""
    if isinstance(value, Place):
        return _place(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = type(value).__name__
        return {
            f.name: _plain(
                getattr(value, f.name), "address" if (name, f.name) == ("Address", "value") else f.name
            )
            for f in dataclasses.fields(value)
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:#x}" if key in _HEX_KEYS or abs(value) >= 1 << 53 else value
    if isinstance(value, float):
        # NaN and infinity are no JSON numbers.
        return value if value == value and abs(value) != float("inf") else str(value)
    return str(value)

"""How often each rule was right over the corpus; written by ``scripts/calibrate.py``."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

from cuwhy.model.diagnosis import Confidence

TABLE = Path(__file__).with_name("confidence.json")


@lru_cache(maxsize=1)
def _table() -> dict[str, dict[str, int]]:
    loaded: dict[str, dict[str, int]] = json.loads(TABLE.read_text("utf-8"))["causes"]
    return loaded


def confidence_of(cause: str) -> Confidence:
    """Return the rule's hits and misses over the corpus; none of either when it was never tried."""
    row = _table().get(cause, {})
    return Confidence(row.get("hits", 0), row.get("misses", 0))

"""Where a fact was read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fact was read.

    Attributes:
        artefact: name of the artefact inside the case, or the file's name.
        where: the spot inside it (section, record, line number).
    """

    artefact: str
    where: str = ""

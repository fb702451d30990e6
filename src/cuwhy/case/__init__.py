"""Cases: the ``.cuwhy`` files that carry the evidence of one failure.

A case is a zip or a folder of artefacts with a manifest.  It is the boundary
behind which everything replays offline, and it is what strangers send each
other: whatever is read here is checked, whatever is written is clean.  The
format is described in ``docs/case-format.md``.
"""

from __future__ import annotations

from cuwhy.case.environment import allowed_environment, clean_command, clean_name
from cuwhy.case.manifest import KINDS, ArtefactEntry, MachineEntry, Manifest
from cuwhy.case.slim import SlimArtefact, SlimResult, slim_case, slim_log
from cuwhy.case.store import Case, extract_case, is_case, is_case_path, open_case, write_case

__all__ = [
    "KINDS",
    "ArtefactEntry",
    "Case",
    "MachineEntry",
    "Manifest",
    "SlimArtefact",
    "SlimResult",
    "allowed_environment",
    "clean_command",
    "clean_name",
    "extract_case",
    "is_case",
    "is_case_path",
    "open_case",
    "slim_case",
    "slim_log",
    "write_case",
]

"""Turn recorded evidence into the small ``evidence.cuwhy`` beside each corpus case.

    python scripts/pack_corpus.py EVIDENCE [--corpus corpus]

EVIDENCE is the folder into which the recorder's tarballs were unpacked
(``<class>/<cause>/<case>/evidence/*``).  Dumps are slimmed and get the SASS of the
functions concerned.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import tomllib

from cuwhy.case import slim_case, write_case
from cuwhy.locate.listings import sass_artefacts
from cuwhy.read.recognize import recognize

#: What the files were recorded with.
TOOLS = {
    "coredump": ("CUDA driver", "580.159.04"),
    "sanitizer-xml": ("compute-sanitizer", "2025.3.1"),
    "sanitizer-text": ("compute-sanitizer", "2025.3.1"),
    "ncu-report": ("Nsight Compute", "2025.3.1"),
}
LIMIT_BYTES = 400 << 10
_SKIPPED = {"coredump.txt", "hang.txt", "run.txt", "reruns.txt", "build.txt"}


def evidence_files(folder: Path) -> list[Path]:
    """The recorded files that a case keeps.

    Both forms of a sanitizer report stay: only the text knows the nearest allocation,
    only the XML the host stack.  What `cuwhy run` left (``run/``) replaces the dump of the bare run: its
    launch log belongs to its own process.
    """
    found = [
        p for p in sorted(folder.iterdir()) if p.is_file() and p.name not in _SKIPPED and p.stat().st_size
    ]
    ours = [
        p for p in sorted((folder / "run").glob("*")) if p.name != "manifest.json" and p.suffix != ".sass"
    ]
    if any(path.suffix == ".nvcudmp" for path in ours):
        found = [path for path in found if path.suffix != ".nvcudmp"]
    return found + ours


def pack(case: Path, evidence: Path) -> int:
    """Write ``evidence.cuwhy`` into a corpus case; return its size in bytes."""
    truth = tomllib.loads((case / "truth.toml").read_text("utf-8"))
    files = {path.name: path for path in evidence_files(evidence)}
    kinds = {name: recognize(path.read_bytes()[: 1 << 16]) for name, path in files.items()}
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "whole.cuwhy"
        write_case(
            whole,
            dict(files),
            kinds=kinds,
            tools={name: TOOLS[kind] for name, kind in kinds.items() if kind in TOOLS},
            device="NVIDIA H200",
            driver="580.159.04",
            command=truth["command"].split(),
            directory="/demo",
            created="2026-12-01T00:00:00Z",
        )
        slim_case(whole, case / "evidence.cuwhy", overwrite=True, listings=sass_artefacts)
    return (case / "evidence.cuwhy").stat().st_size


def main() -> int:
    """Pack every case that has evidence; 1 when one is too large."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("evidence", type=Path)
    parser.add_argument("--corpus", type=Path, default=Path("corpus"))
    arguments = parser.parse_args()
    too_large = False
    for truth in sorted(arguments.corpus.glob("*/*/*/truth.toml")):
        case = truth.parent
        evidence = arguments.evidence / case.relative_to(arguments.corpus) / "evidence"
        if evidence.is_dir():
            size = pack(case, evidence)
            too_large |= size > LIMIT_BYTES
            print(f"{size:>9,}  {case}" + ("  TOO LARGE" if size > LIMIT_BYTES else ""))
    return int(too_large)


if __name__ == "__main__":
    sys.exit(main())

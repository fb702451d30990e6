#!/usr/bin/env python3
"""Start a new cause: its rule, its README and two corpus cases, all to be filled in.

    python scripts/new_cause.py memory/some-new-fault

Everything that still has to be written is marked TODO, and the tests fail until no TODO is left.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

CLASSES = ("memory", "synchronization", "launch", "numeric", "access-pattern", "execution", "device")

#: Beginnings of names that state what to do; a cause is named after the fault (use-after-free is one).
REMEDIES = re.compile(r"use-(?!after-)|add-|avoid-|missing-check")

_NAME = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*/[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_LONGEST_NAME = 64

#: The headings of a README in their order, and what belongs under each.
SECTIONS = {
    "What you see": "what the user meets: error code and text, hang, wrong number; what stays silent.",
    "Why": "the mechanism on the chip or in the runtime, with numbers; the usual roads there.",
    "What proves it": "the evidence the rule asks for, tool by tool, and which tools see nothing.",
    "Fix": "a minimal bad and a repaired snippet.",
    "When the fix is unsafe": "what the repair can break or hide.",
    "Look-alikes": "causes with the same symptom, and what tells them apart.",
    "Sources": "document and section of each fact, and the corpus cases.",
}

_RULE = '''"""TODO: the fault in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Severity

CAUSE = Cause("{name}", "TODO: one line for lists", Severity.CRASH)


def match(evidence: Evidence) -> Iterator[Finding]:
    """TODO: say which facts prove it."""
    yield from ()
'''

_TRUTH_BAD = """\
cause = "{name}"
line = 0
file = "TODO.cu"
kernel = "TODO"
build = "nvcc -arch=sm_90 -lineinfo -O3 TODO.cu -o TODO"
command = "./TODO"
record = ["log", "coredump", "memcheck"]
timeout = 20
note = "TODO: what is wrong, in one sentence."

[expect]
"""

_TRUTH_OK = """\
cause = ""
file = "TODO.cu"
kernel = "TODO"
build = "nvcc -arch=sm_90 -lineinfo -O3 TODO.cu -o TODO"
command = "./TODO"
record = ["log", "coredump", "memcheck"]
timeout = 20
note = "TODO: why nothing is wrong, in one sentence."
"""


def complaint(name: str) -> str:
    """Return what is wrong with the name of a cause, "" when nothing is."""
    group, _, fault = name.partition("/")
    if len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        return f"{name[:80]!r} is not class/name in lower case with hyphens, like memory/null-pointer"
    if group not in CLASSES:
        return f"there is no class {group!r}; the classes are {', '.join(CLASSES)}"
    if REMEDIES.match(fault):
        return f"{fault!r} is a remedy; name the fault"
    return ""


def readme(name: str) -> str:
    """Return the README to fill in."""
    sections = "".join(f"\n## {heading}\n\nTODO: {hint}\n" for heading, hint in SECTIONS.items())
    return f"# {name}\n\nTODO: the fault in one sentence.\n{sections}"


def files(root: Path, name: str) -> dict[Path, str]:
    """Return every file that the new cause needs, with its content; nothing is written."""
    group, _, fault = name.partition("/")
    package = root / "src" / "cuwhy" / "causes" / group.replace("-", "_")
    rule = package / fault.replace("-", "_")
    corpus = root / "corpus" / group / fault
    wanted = {
        rule / "__init__.py": f'"""Rule and README of one cause: {fault.replace("-", " ")}."""\n',
        rule / "rule.py": _RULE.format(name=name),
        rule / "README.md": readme(name),
        corpus / "bad_example" / "truth.toml": _TRUTH_BAD.format(name=name),
        corpus / "ok_example" / "truth.toml": _TRUTH_OK,
    }
    if not (package / "__init__.py").exists():
        wanted = {package / "__init__.py": f'"""Causes of the class ``{group}``."""\n', **wanted}
    return wanted


def next_steps(root: Path, name: str) -> str:
    """Return what to do with the files, in order."""
    group, _, fault = name.partition("/")
    rule = Path("src/cuwhy/causes") / group.replace("-", "_") / fault.replace("-", "_")
    return f"""
next:
  1. corpus/{group}/{fault}/: write a program with the fault and its repaired twin, rename bad_example and
     ok_example after them, fill in both truth.toml (corpus/README.md says how)
  2. record both on a machine with a GPU: scripts/record_corpus.py --only '*/{fault}/*'
  3. {rule / "rule.py"}: write the rule
  4. {rule / "README.md"}: replace every TODO
  5. python scripts/calibrate.py && python scripts/catalogue.py
  6. pytest tests/causes tests/test_corpus.py"""


def main(argv: list[str] | None = None) -> int:
    """Write the files; returns the exit code, 2 when the name is refused."""
    parser = argparse.ArgumentParser(
        description="Start a new cause: rule, README and corpus cases to fill in."
    )
    parser.add_argument("name", metavar="CLASS/NAME", help="for example memory/some-new-fault")
    name: str = parser.parse_args(argv).name
    problem = complaint(name)
    wanted = files(ROOT, name) if not problem else {}
    # A half-made cause counts as existing: nothing is ever overwritten.
    taken = sorted({path.parent for path in wanted if path.exists()})
    if taken:
        problem = f"{name} exists: {taken[0].relative_to(ROOT)}"
    if problem:
        print(f"new_cause: {problem}", file=sys.stderr)
        return 2
    for path, text in wanted.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        print(f"wrote {path.relative_to(ROOT)}")
    print(next_steps(ROOT, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())

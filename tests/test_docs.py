"""What the documents show and promise is so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "corpus" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
]


def test_examples_are_what_is_printed() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "examples.py", "--check"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_readme_starts_with_the_two_commands() -> None:
    head = (ROOT / "README.md").read_text("utf-8").splitlines()[:14]
    assert any(line.startswith("make demo") for line in head)
    assert any(line.startswith("make test") for line in head)
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^demo:", makefile, re.M)
    assert re.search(r"^test:", makefile, re.M)
    assert "\nmake test\n" in (ROOT / ".ci" / "run").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.S)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_files_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    for name in re.findall(
        r"\b(?:scripts|bench|fuzz|tests|src|corpus|docs)/[\w/.-]+\.(?:py|md|toml|json|sh|c)\b", text
    ):
        if "some-new-fault" not in name:
            assert (ROOT / name).exists(), name


def test_python_example_of_the_readme() -> None:
    import cuwhy

    diagnosis = cuwhy.diagnose(
        [ROOT / "corpus/memory/misaligned-access/bad_odd_pitch/evidence.cuwhy"], sources=["src"]
    )
    assert diagnosis.primary is not None
    assert diagnosis.primary.place is not None
    assert (diagnosis.primary.cause.name, diagnosis.primary.place.short) == (
        "memory/misaligned-access",
        "row_sum.cu:11",
    )

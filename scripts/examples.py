"""Keep the examples in README.md and docs/ true: run every ``$ cuwhy …`` in a console block.

    python scripts/examples.py [--check]

Without ``--check`` the output below each command is written anew; with it the exit code is 1 when
something differs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import lzma
import os
import re
import shlex
import sys
from pathlib import Path

from cuwhy.cli.main import main as cuwhy

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"```console\n\$ cuwhy ([^\n]*)\n(.*?)```", re.S)


def output(command: str) -> str:
    """What ``cuwhy COMMAND`` prints in the repository's root."""
    out = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(out):
        cuwhy(shlex.split(command))
    return out.getvalue().rstrip() + "\n"


def renewed(text: str) -> str:
    """A page with the output of every example as it is now."""
    return _BLOCK.sub(lambda m: f"```console\n$ cuwhy {m[1]}\n{output(m[1])}```", text)


def main() -> int:
    """Check or rewrite all pages."""
    packed = ROOT / "tests/registers/data/pressure.cubin.xz"
    packed.with_suffix("").write_bytes(lzma.decompress(packed.read_bytes()))
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    os.environ.setdefault("COLUMNS", "80")
    stale = [page for page in PAGES if renewed(page.read_text("utf-8")) != page.read_text("utf-8")]
    for page in stale:
        print(f"{page.relative_to(ROOT)}: {'differs' if check else 'renewed'}")
        if not check:
            page.write_text(renewed(page.read_text("utf-8")), "utf-8")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())

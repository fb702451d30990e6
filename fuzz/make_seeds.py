"""Write the fuzzer's seeds from the corpus: one file per artefact, its first byte says which reader.

python fuzz/make_seeds.py DIR
"""

from __future__ import annotations

import sys
from pathlib import Path

from cuwhy.case import open_case

ROOT = Path(__file__).parent.parent
#: First byte of an input -> reader; the order must stay, as seeds and findings depend on it.
KINDS = ("coredump", "sanitizer-xml", "sanitizer-text", "log", "sass", "case", "symbol", "lines")
_LARGEST = 600_000


def seeds() -> dict[str, bytes]:
    """Return name -> content of every seed."""
    found: dict[str, bytes] = {}
    for path in sorted(ROOT.glob("corpus/*/*/*/evidence.cuwhy")):
        name = "-".join(path.parts[-3:-1])
        whole = path.read_bytes()
        if len(whole) < 8000:
            found[f"{name}.case"] = bytes([KINDS.index("case")]) + whole
        with open_case(path) as case:
            for entry in case.artefacts:
                if entry.kind in KINDS and entry.size < _LARGEST:
                    content = case.read(entry.path)
                    found[f"{name}.{entry.path}"] = bytes([KINDS.index(entry.kind)]) + content
    symbols = (ROOT / "tests" / "locate" / "data" / "symbols.txt").read_text("utf-8").splitlines()
    for number, line in enumerate(symbols[::7]):
        found[f"symbol.{number}"] = bytes([KINDS.index("symbol")]) + line.split("\t")[0].encode()
    return found


def main() -> int:
    """Write the seeds into the folder that the first argument names."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in seeds().items():
        (folder / name.replace("/", "_")).write_bytes(content)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Discovery of causes: every folder ``<class>/<cause>`` below this package with a ``rule.py``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding
from cuwhy.model.errors import InputError

_ROOT = Path(__file__).parent

#: The class under which what nobody can explain yet is reported.
UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Entry:
    """One cause of the catalogue with its rule and its README."""

    cause: Cause
    match: Callable[[Evidence], Iterable[Finding]]
    readme: Path

    @property
    def text(self) -> str:
        """The README, as ``cuwhy explain`` shows it."""
        return self.readme.read_text("utf-8")


@lru_cache(maxsize=1)
def catalogue() -> tuple[Entry, ...]:
    """Return every cause, by name."""
    return tuple(sorted(_discover(), key=lambda entry: entry.cause.name))


def _discover() -> Iterator[Entry]:
    for rule in sorted(_ROOT.glob("*/*/rule.py")):
        folder = rule.parent
        module = importlib.import_module(f"cuwhy.causes.{folder.parent.name}.{folder.name}.rule")
        yield Entry(module.CAUSE, module.match, folder / "README.md")


def find(name: str) -> Entry:
    """Return the cause called ``name``; the part behind the slash is enough when it is unique.

    Raises:
        InputError: when there is none, naming the closest ones.
    """
    import difflib

    wanted = name.strip().lower().replace("_", "-")
    entries = catalogue()
    found = [e for e in entries if wanted in (e.cause.name, e.cause.name.partition("/")[2])]
    if len(found) == 1:
        return found[0]
    names = [e.cause.name for e in entries]
    near = difflib.get_close_matches(wanted[:80], names + [n.partition("/")[2] for n in names], n=3)
    hint = f"did you mean {', '.join(near)}?" if near else "`cuwhy causes` lists them"
    raise InputError(f"no cause is called {name[:80]!r}", hint=hint)

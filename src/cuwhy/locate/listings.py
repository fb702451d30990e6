"""SASS that a case carries, so that it can be diagnosed where nvdisasm is not installed."""

from __future__ import annotations

from cuwhy.locate.faults import dump_faults
from cuwhy.locate.launches import dump_launches
from cuwhy.locate.places import CodeMap
from cuwhy.locate.sass import format_listing
from cuwhy.locate.waits import dump_waits
from cuwhy.read.coredump import CoreDump

#: First line of a ``sass`` artefact, followed by the symbol.
HEADER = "# cuwhy sass "
_MAX_TEXT = 2 << 20


def sass_artefacts(name: str, data: bytes | memoryview) -> dict[str, bytes]:
    """Return the disassembly of the functions that a diagnosis of a core dump looks at.

    Args:
        name: the dump's name in the case; the listings are named after it.
        data: the dump.

    Returns:
        Artefact name to content; empty without nvdisasm.

    Raises:
        InputError: when the dump is damaged.
    """
    dump = CoreDump(data, name)
    code = CodeMap(dump)
    try:
        launches = dump_launches(dump, code, name)
        if not dump_faults(dump, launches, code, name):
            dump_waits(dump, launches, code, name)
        found = {}
        for number, (symbol, listing) in enumerate(sorted(code.listings().items())):
            text = f"{HEADER}{symbol}\n{format_listing(listing)}"
            if "\n" not in symbol and len(text) <= _MAX_TEXT:
                found[f"{name}.{number}.sass"] = text.encode()
        return found
    finally:
        code.close()

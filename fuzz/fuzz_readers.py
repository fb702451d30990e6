"""Coverage-guided fuzzing of every reader (atheris); ``make fuzz`` runs it for a minute.

The first byte chooses the reader.  Only :class:`InputError` may come out of any of them.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import atheris

# A disassembler for every input would leave no time for the readers.
os.environ["CUWHY_NVDISASM"] = "/nonexistent"

with atheris.instrument_imports(include=["cuwhy"]):
    from cuwhy.case import open_case
    from cuwhy.diagnosing import conclude, read_coredump
    from cuwhy.locate.demangle import demangle
    from cuwhy.locate.flow import Flow
    from cuwhy.locate.lines import read_lines
    from cuwhy.locate.sass import parse_listing
    from cuwhy.model.errors import InputError
    from cuwhy.read.log import read_log
    from cuwhy.read.sanitizer import read_sanitizer_text, read_sanitizer_xml
    from cuwhy.report.json import render as render_json
    from cuwhy.report.text import render as render_text


def one_input(data: bytes) -> None:
    """Feed one input to the reader that its first byte names."""
    if len(data) < 2:
        return
    kind, content = data[0] % 8, data[1:]
    try:
        if kind == 0:
            facts, notes = read_coredump(content, "x")
            diagnosis = conclude(facts, (), notes)
            render_text(diagnosis, verbose=True)
            render_json(diagnosis)
        elif kind == 1:
            render_text(conclude(read_sanitizer_xml(content, "x")), verbose=True)
        elif kind == 2:
            render_text(conclude(read_sanitizer_text(content, "x")), verbose=True)
        elif kind == 3:
            render_text(conclude(read_log(content, "x")), verbose=True)
        elif kind == 4:
            listing = parse_listing(content.decode("utf-8", "replace"))
            if listing is not None:
                flow = Flow(listing)
                flow.constants(["R2", "R3"], len(listing.instructions) - 1)
        elif kind == 5:
            _case(content)
        elif kind == 6:
            demangle(content.decode("utf-8", "replace"))
        else:
            read_lines(memoryview(content), memoryview(content)).chain(0x7F0000000010)
    except InputError:
        pass


def _case(content: bytes) -> None:
    with tempfile.NamedTemporaryFile(suffix=".cuwhy") as file:
        file.write(content)
        file.flush()
        with open_case(Path(file.name)) as case:
            for entry in case.artefacts:
                case.read(entry.path)


def main() -> None:
    """Run libFuzzer with the command line's arguments."""
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

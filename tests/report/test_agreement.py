"""Every report of every corpus case is well formed, and all of them say the same."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
from pages import Page

from cuwhy import diagnose
from cuwhy.report.html import render as render_html
from cuwhy.report.json import render as render_json
from cuwhy.report.text import render as render_text

ROOT = Path(__file__).parent.parent.parent
SCHEMA = jsonschema.Draft202012Validator(
    json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text("utf-8"))
)
CASES = sorted(ROOT.glob("corpus/*/*/*/evidence.cuwhy"))
#: Without what the case itself holds: the page of the issue's limit.
_LARGEST_PAGE = 150_000


def squeezed(text: str) -> str:
    """The text without blanks: reports break lines where they like."""
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("case", CASES, ids=lambda path: "/".join(path.parts[-4:-1]))
def test_reports_of_a_case(case: Path) -> None:
    diagnosis = diagnose(case, sources=[case.parent])
    data = json.loads(render_json(diagnosis))
    SCHEMA.validate(data)
    document = render_html(diagnosis)
    page = Page.of(document)
    assert len(document.encode()) < _LARGEST_PAGE
    screen = squeezed(render_text(diagnosis, verbose=True))
    shown = squeezed(page.text)
    for finding in data["findings"]:
        for report in (screen, shown):
            assert finding["cause"] in report
            assert squeezed(finding["sentence"]) in report
            for fix in finding["fixes"]:
                assert squeezed(fix["text"]) in report
        if finding["place"] is not None and finding["place"]["file"] is not None:
            name = finding["place"]["file"].rsplit("/", 1)[-1]
            line = f"{name}:{finding['place']['line']}" if finding["place"]["line"] is not None else name
            assert line in screen
            assert line in shown
    if not data["findings"]:
        assert "nothingfound" in screen
        assert "nothingfound" in shown
    for question in data["open"]:
        assert squeezed(question["step"]) in screen
        assert squeezed(question["step"]) in shown

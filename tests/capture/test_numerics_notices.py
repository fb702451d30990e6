"""What a cheap run noticed is read from files that the program could have written itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from cuwhy.capture.numerics import Notice, notices
from cuwhy.capture.run import Observed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"calls": 9, "roots": 3, "noticed": {"call": 2, "phase": "backward"}}', [Notice(9, 2, "backward")]),
        ('{"calls": 9, "roots": 3, "noticed": null}', [Notice(9)]),
        ('{"calls": 9, "noticed": {"call": 2, "phase": "\\u001b[2J"}}', [Notice(9, 2, "")]),
        ('{"calls": 9, "noticed": {"call": "rm -rf", "phase": "forward"}}', []),
        ('{"calls": 9, "noticed": {"call": 1e400, "phase": "forward"}}', []),
        ('{"calls": 9, "noticed": [1]}', []),
        ('{"calls": 9}', []),
        ("[]", []),
        ("[" * 5000, []),
        ("", []),
    ],
)
def test_notices(tmp_path: Path, text: str, expected: list[Notice]) -> None:
    (tmp_path / "noticed.7.json").write_text(text, "utf-8")
    assert notices(Observed(("python",), tmp_path)) == expected


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text('{"calls": 1, "noticed": null}', "utf-8")
    (tmp_path / "noticed.7.json").symlink_to(tmp_path / "elsewhere")
    assert notices(Observed(("python",), tmp_path)) == []

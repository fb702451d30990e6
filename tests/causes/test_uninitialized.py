"""Results that turn to NaN when fresh memory is filled with it."""

from __future__ import annotations

import pytest

from cuwhy.diagnosing import conclude
from cuwhy.model.facts import Rerun, Setting

FILL = (Setting("nan-filled"),)
DUMPS = (Setting("core-dumps"),)


def run(said: str, *settings: Setting) -> Rerun:
    return Rerun(settings, False, 1, said=said)


def names(*runs: Rerun) -> list[str]:
    found = conclude(runs).findings
    return [f.cause.name for f in found if not f.cause.name.startswith("unknown/")]


def test_nan_in_every_filled_run_and_in_no_other() -> None:
    runs = [run("loss 3.1"), run("loss 2.9", *DUMPS), run("loss nan", *FILL), run("loss NaN", *FILL)]
    assert names(*runs) == ["memory/uninitialized-read"]
    (finding,) = [f for f in conclude(runs).findings if f.cause.name == "memory/uninitialized-read"]
    assert "2 of 2 runs" in finding.why[0]
    assert "0 of 2" in finding.why[0]
    assert finding.place is None


@pytest.mark.parametrize(
    "runs",
    [
        # Too few, one that is not NaN, NaN without the fill, words that hold the letters.
        [run("loss 3"), run("loss 3"), run("loss nan", *FILL)],
        [run("loss 3"), run("loss nan", *FILL), run("loss nan", *FILL)],
        [run("loss 3"), run("loss 3"), run("loss nan", *FILL), run("loss 3", *FILL)],
        [run("loss nan"), run("loss 3"), run("loss nan", *FILL), run("loss nan", *FILL)],
        [run("banana 3"), run("loss 3"), run("nanobind", *FILL), run("banana", *FILL)],
        # Something else was changed as well.
        [
            run("loss 3"),
            run("loss 3"),
            run("nan", *FILL, Setting("launch-blocking")),
            run("nan", *FILL, Setting("launch-blocking")),
        ],
    ],
)
def test_anything_less_claims_nothing(runs: list[Rerun]) -> None:
    assert names(*runs) == []

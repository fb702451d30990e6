"""Outcomes of reruns: what is written is read again, what strangers send is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwhy.model.errors import InputError
from cuwhy.model.facts import SETTING_KINDS, Rerun, Setting
from cuwhy.read.recognize import recognize
from cuwhy.read.reruns import MAX_RERUNS, read_reruns, write_reruns

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "reruns.schema.json").read_text())
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
NUMBERS = st.integers(1, 1 << 40)


@st.composite
def setting(draw: st.DrawFn) -> Setting:
    kind = draw(st.sampled_from(sorted(SETTING_KINDS)))
    if kind not in ("synchronized", "delayed"):
        return Setting(kind, kernel=draw(TEXTS))
    first = draw(NUMBERS)
    return Setting(kind, first, first + draw(NUMBERS), draw(st.integers(0, 1000)))


RERUNS = st.builds(
    Rerun,
    settings=st.lists(setting(), max_size=3).map(tuple),
    passed=st.sampled_from([True, False, None]),
    code=st.integers(-64, 255),
    seconds=st.integers(0, 10**6).map(lambda n: n / 1000),
    judged=st.sampled_from(["exit code", "oracle", "output", "core dump"]),
    step=TEXTS,
    ended=TEXTS,
    output=st.sampled_from(["", "ab" * 32]),
    launches=st.integers(0, 1 << 60),
    error=st.integers(0, 999),
    said=TEXTS,
)


@settings(deadline=None)
@given(st.lists(RERUNS, max_size=5))
def test_what_is_written_is_read_again_and_fits_the_schema(reruns: list[Rerun]) -> None:
    data = write_reruns(reruns)
    assert recognize(data) == "reruns"
    jsonschema.validate(json.loads(data), SCHEMA)
    back = read_reruns(data, "reruns.json")
    assert [_bare(r) for r in back] == [_bare(r) for r in reruns]
    assert [r.origin.where for r in back] == [f"rerun {i + 1}" for i in range(len(reruns))]


def _bare(rerun: Rerun) -> dict[str, Any]:
    return {name: getattr(rerun, name) for name in Rerun.__dataclass_fields__ if name != "origin"}


def one(**changes: Any) -> bytes:
    entry = {"settings": [], "passed": True, "code": 0, "seconds": 1.0, "judged": "oracle"} | changes
    return json.dumps({"format": "cuwhy-reruns", "version": 1, "reruns": [entry]}).encode()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (one(passed="yes"), "'passed'"),
        (one(seconds=True), "'seconds'"),
        (one(seconds=1e300), "'seconds'"),
        (one(code=10**6), "'code'"),
        (one(judged="astrology"), "'judged'"),
        (one(output="AB" * 32), "'output'"),
        (one(said="x" * 401), "'said'"),
        (one(launches=-1), "'launches'"),
        (one(launches=1.5), "'launches'"),
        (one(settings={}), "'settings'"),
        (one(settings=[{}] * 65), "'settings'"),
        (one(settings=[{"kind": "wish"}]), "unknown kind"),
        (one(settings=[{"kind": "delayed"}]), "no range"),
        (one(settings=[{"kind": "synchronized", "first": 5, "last": 4}]), "no range"),
        (one(settings=[7]), "not an object"),
        (one().replace(b"1.0", b"NaN"), "not valid JSON"),
        (one().replace(b'"code": 0', b'"code": ' + b"9" * 5000), "not valid JSON"),
        (b'{"format": "cuwhy-reruns", "version": 2}', "another version"),
        (b'{"format": "cuwhy-reruns", "version": 1, "reruns": 3}', "not a list"),
        (b'{"format": "cuwhy-reruns", "version": 1, "reruns": ' + b"[" * 100_000, "not valid JSON"),
        (b'{"format": "cuwhy-reruns", \xff', "not valid JSON"),
        (b'{"format": "other"}', "does not hold"),
    ],
)
def test_what_breaks_a_rule_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_reruns(data, "r.json")
    assert str(caught.value).startswith("r.json")


def test_too_many_are_refused_and_never_written() -> None:
    many = [Rerun(passed=True)] * (MAX_RERUNS + 5)
    assert len(read_reruns(write_reruns(many), "r")) == MAX_RERUNS
    text = json.loads(write_reruns(many))
    text["reruns"] *= 2
    with pytest.raises(InputError, match="at most"):
        read_reruns(json.dumps(text).encode(), "r")


def test_half_a_character_does_no_harm() -> None:
    (rerun,) = read_reruns(one(said="a\ud800b"), "r")
    assert rerun.said == "a?b"

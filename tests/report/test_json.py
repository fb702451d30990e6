"""The JSON of every corpus case fits the published schema, and its keys stay."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest

from cuwhy import diagnose
from cuwhy.model.diagnosis import Cause, Diagnosis, Finding, Severity
from cuwhy.model.facts import Argument, Launch
from cuwhy.report.json import render, to_dict

ROOT = Path(__file__).parent.parent.parent
SCHEMA = json.loads((ROOT / "docs" / "diagnosis.schema.json").read_text("utf-8"))


def test_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_keys_stay() -> None:
    case = ROOT / "corpus/memory/global-out-of-bounds/bad_starter_oob/evidence.cuwhy"
    data = to_dict(diagnose(case))
    assert set(data) == {
        "schema", "cuwhy", "diagnosed", "findings", "open", "notes", "artefacts", "excerpts", "listings", "timeline", "facts",
    }  # fmt: skip
    finding = data["findings"][0]
    assert set(finding) == {
        "cause", "title", "severity", "role", "confidence", "sentence", "place", "other", "kernel", "launch",
        "threads", "host", "misleading", "why", "values", "fixes",
    }  # fmt: skip
    assert set(finding["place"]) == {"file", "line", "function", "offset", "pc", "sass", "ptx", "frames"}
    assert finding["place"]["file"] == "/demo/oob.cu"
    assert finding["place"]["line"] == 5
    assert [(a["type"], a["value"]) for a in finding["launch"]["arguments"]] == [
        ("float const*", 0x7FA650800000),
        ("float*", 0x7FA650C00000),
        ("int", 1 << 20),
    ]


def test_numbers_that_json_cannot_hold() -> None:
    arguments = (
        Argument(0, 0, 4, "float", value=float("nan")),
        Argument(1, 4, 4, "float", value=float("-inf")),
        Argument(2, 8, 8, "unsigned long", value=2**64 - 1),
        Argument(3, 16, 1, "bool", value=True),
    )
    launch = Launch("k", "k\udcff", "k\x1b[31m", arguments=arguments, context=2**63)
    finding = Finding(Cause("memory/x", "x", Severity.CRASH), "s", launch=launch)
    text = render(Diagnosis(findings=(finding,), facts=(launch,)))
    data = json.loads(text, parse_constant=pytest.fail)
    values = [a["value"] for a in data["findings"][0]["launch"]["arguments"]]
    assert values == ["nan", "-inf", "0xffffffffffffffff", True]
    assert data["findings"][0]["launch"]["context"] == "0x8000000000000000"
    assert text.isascii()

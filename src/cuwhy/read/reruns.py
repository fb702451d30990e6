"""The outcomes of reruns: JSON that cuwhy writes and anybody may send (``docs/reruns.schema.json``)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cuwhy.model.errors import InputError
from cuwhy.model.facts import SETTING_KINDS, Origin, Rerun, Setting

FORMAT = "cuwhy-reruns"
VERSION = 1
MAX_RERUNS = 2000
_MAX_BYTES = 16 << 20
_MAX_SETTINGS = 64
_MAX_TEXT = 400
_MAX_NUMBER = (1 << 63) - 1
_MAX_SECONDS = 1e9
_DIGEST = re.compile(r"(?:[0-9a-f]{64})?\Z")
_MARK = re.compile(rb'\s*\{\s*"format"\s*:\s*"cuwhy-reruns"')
_JUDGED = ("exit code", "oracle", "output", "core dump")


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user asked of the reruns, kept so that they can go on later.

    Attributes:
        oracle: shell command that tells a pass; fails_with: text that a failing run prints.
        checks: checkers asked for.
        repeat: runs of the command as it is; 0: as many as the plan thinks right.
        fails: the user says that the command fails without cuwhy.
    """

    oracle: str = ""
    fails_with: str = ""
    checks: tuple[str, ...] = ()
    repeat: int = 0
    fails: bool = False


def looks_like_reruns(head: bytes) -> bool:
    """Tell from its beginning whether a file holds outcomes of reruns."""
    return _MARK.match(head) is not None


def write_reruns(reruns: Sequence[Rerun], asked: Asked = Asked()) -> bytes:
    """Return the outcomes as the file's bytes: ASCII JSON, one rerun a line."""
    # The first runs tell how often the plain command fails; the last ones where the bisection stands.
    kept = reruns if len(reruns) <= MAX_RERUNS else [*reruns[: MAX_RERUNS // 2], *reruns[-MAX_RERUNS // 2 :]]
    lines = [json.dumps(_plain(rerun), ensure_ascii=True, allow_nan=False) for rerun in kept]
    wishes = {
        "oracle": asked.oracle[:_MAX_TEXT],
        "fails_with": asked.fails_with[:_MAX_TEXT],
        "checks": list(asked.checks),
        "repeat": asked.repeat,
        "fails": asked.fails,
    }
    wishes = {key: value for key, value in wishes.items() if value}
    words = json.dumps(wishes, ensure_ascii=True)
    head = f'{{"format": "{FORMAT}", "version": {VERSION}, "asked": {words}, "reruns": [\n'
    return (head + ",\n".join(lines) + "\n]}\n").encode("ascii")


def read_reruns(data: bytes | memoryview, name: str) -> list[Rerun]:
    """Return the outcomes, in the order of the runs.

    Raises:
        InputError: it is not such a file, or one that breaks a rule of the schema.
    """
    content = _load(data, name)
    entries = content.get("reruns")
    if not isinstance(entries, list) or len(entries) > MAX_RERUNS:
        raise InputError(f"{name}: 'reruns' is not a list of at most {MAX_RERUNS}")
    return [_rerun(entry, number, name) for number, entry in enumerate(entries, 1)]


def read_asked(data: bytes | memoryview, name: str) -> Asked:
    """Return what the user asked for.

    Raises:
        InputError: as :func:`read_reruns`.
    """
    fields = _Fields(_load(data, name).get("asked", {}), f"{name}: 'asked'")
    checks = fields.content.get("checks", [])
    if not isinstance(checks, list) or not all(c in SETTING_KINDS for c in checks if isinstance(c, str)):
        raise InputError(f"{fields.owner}: 'checks' is not a list of checkers")
    fails = fields.content.get("fails", False)
    return Asked(
        fields.text("oracle"),
        fields.text("fails_with"),
        tuple(c for c in checks if isinstance(c, str))[:8],
        fields.number("repeat", high=MAX_RERUNS),
        fails is True,
    )


def _load(data: bytes | memoryview, name: str) -> dict[str, Any]:
    if len(data) > _MAX_BYTES:
        raise InputError(f"{name}: {len(data) >> 20} MB of reruns is more than {_MAX_BYTES >> 20}")
    try:
        content = json.loads(str(data, "utf-8"), parse_int=_integer, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise InputError(f"{name}: not valid JSON", hint="the file is damaged") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{name}: does not hold outcomes of reruns")
    if content.get("version") != VERSION:
        raise InputError(f"{name}: reruns of another version than {VERSION}", hint="update cuwhy")
    return content


def _plain(rerun: Rerun) -> dict[str, Any]:
    settings = [
        {
            "kind": setting.kind,
            **({"first": setting.first, "last": setting.last} if setting.first else {}),
            **({"microseconds": setting.microseconds} if setting.microseconds else {}),
            **({"kernel": setting.kernel[:_MAX_TEXT]} if setting.kernel else {}),
        }
        for setting in rerun.settings
    ]
    optional = {
        "step": rerun.step,
        "ended": rerun.ended,
        "output": rerun.output,
        "launches": rerun.launches,
        "error": rerun.error,
        "said": rerun.said,
    }
    return {
        "settings": settings,
        "passed": rerun.passed,
        "code": rerun.code,
        "seconds": round(rerun.seconds, 3),
        "judged": rerun.judged,
        **{
            key: value[:_MAX_TEXT] if isinstance(value, str) else value
            for key, value in optional.items()
            if value
        },
    }


def _rerun(entry: Any, number: int, name: str) -> Rerun:
    fields = _Fields(entry, f"{name}: rerun {number}")
    settings = fields.content.get("settings")
    if not isinstance(settings, list) or len(settings) > _MAX_SETTINGS:
        raise InputError(f"{fields.owner}: 'settings' is not a list of at most {_MAX_SETTINGS}")
    passed = fields.content.get("passed")
    if passed is not None and not isinstance(passed, bool):
        raise InputError(f"{fields.owner}: 'passed' is neither true, false nor null")
    seconds = fields.content.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise InputError(f"{fields.owner}: 'seconds' is not a number")
    if not math.isfinite(seconds) or not 0 <= seconds <= _MAX_SECONDS:
        raise InputError(f"{fields.owner}: 'seconds' is out of range")
    judged = fields.text("judged")
    if judged not in _JUDGED:
        raise InputError(f"{fields.owner}: 'judged' is none of {', '.join(_JUDGED)}")
    digest = fields.text("output")
    if not _DIGEST.match(digest):
        raise InputError(f"{fields.owner}: 'output' is not a SHA-256")
    return Rerun(
        settings=tuple(_setting(item, fields.owner) for item in settings),
        passed=passed,
        code=fields.number("code", low=-255, high=255),
        seconds=float(seconds),
        judged=judged,
        step=fields.text("step"),
        ended=fields.text("ended"),
        output=digest,
        launches=fields.number("launches"),
        error=fields.number("error", high=99_999),
        said=fields.text("said"),
        origin=Origin(name, f"rerun {number}"),
    )


def _setting(entry: Any, owner: str) -> Setting:
    fields = _Fields(entry, f"{owner}, a setting")
    kind = fields.text("kind")
    if kind not in SETTING_KINDS:
        raise InputError(f"{owner}: unknown kind of setting", hint="update cuwhy")
    first, last = fields.number("first"), fields.number("last")
    if kind in ("synchronized", "delayed") and not 1 <= first <= last:
        raise InputError(f"{owner}: the launches of '{kind}' are no range")
    return Setting(kind, first, last, fields.number("microseconds", high=60_000_000), fields.text("kernel"))


class _Fields:
    """Typed access to a JSON object that cannot be trusted."""

    def __init__(self, content: Any, owner: str) -> None:
        if not isinstance(content, dict):
            raise InputError(f"{owner} is not an object")
        self.content = content
        self.owner = owner

    def text(self, key: str) -> str:
        value = self.content.get(key, "")
        if not isinstance(value, str) or len(value) > _MAX_TEXT:
            raise InputError(f"{self.owner}: '{key}' is not a text of at most {_MAX_TEXT} characters")
        # Half a character could be neither printed nor written again.
        return value.encode("utf-8", "replace").decode("utf-8")

    def number(self, key: str, low: int = 0, high: int = _MAX_NUMBER) -> int:
        value = self.content.get(key, 0)
        if type(value) is not int or not low <= value <= high:
            raise InputError(f"{self.owner}: '{key}' is not a whole number from {low} to {high}")
        return value


def _integer(digits: str) -> int:
    # Python before 3.10.7 takes quadratic time for long numbers.
    if len(digits) > 20:
        raise ValueError("a number with too many digits")
    return int(digits)


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")

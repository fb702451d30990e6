"""The plan, carried out for real: reruns, checkers, oracle, budget, interrupts, resuming."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cuwhy import diagnose
from cuwhy.case import open_case, write_case
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.reruns import OrderedPair, RerunPattern
from cuwhy.model.facts import Rerun, Setting

from .conftest import Ended, Place
from .recorder.conftest import built  # noqa: F401

CORPUS = Path(__file__).parents[2] / "corpus"
UNORDERED = Path(__file__).parent / "unordered.py"
RIGHT = "grep -q right $CUWHY_STDOUT"

SANITIZER = """#!/bin/sh
# Replays a report that the real tool wrote, for a tool that has one; runs the program.
echo "$@" >> "$FAKE_LOG"
while [ "$1" != "" ]; do
  case "$1" in
    --tool) tool=$2; shift 2;;
    --save) save=$2; shift 2;;
    --xml) shift;;
    --*) shift 2;;
    *) break;;
  esac
done
"$@"
code=$?
[ -f "$FAKE_REPORTS/$tool.xml" ] && cp "$FAKE_REPORTS/$tool.xml" "$save"
exit $code
"""


@pytest.fixture
def tool(place: Place) -> dict[str, str]:
    """A stand-in for compute-sanitizer on PATH; ``reports`` is where its reports are."""
    folder = place.folder / "bin"
    folder.mkdir()
    (folder / "compute-sanitizer").write_text(SANITIZER)
    (folder / "compute-sanitizer").chmod(0o755)
    (place.folder / "reports").mkdir()
    return {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "FAKE_REPORTS": str(place.folder / "reports"),
        "FAKE_LOG": str(place.folder / "calls"),
    }


@pytest.fixture
def stub(built: Path, place: Place) -> dict[str, str]:  # noqa: F811
    """The environment in which programs find a stand-in for the driver."""
    return {
        "LD_LIBRARY_PATH": str(built),
        "XDG_CACHE_HOME": str(built / "cache"),
        "COUNT": str(place.folder / "count"),
        # None of a machine that has one.
        "PATH": "/usr/bin:/bin",
    }


def report(place: Place, case: str, name: str) -> None:
    """Put a recorded report where the stand-in replays it."""
    (path,) = CORPUS.glob(f"*/*/{case}/evidence.cuwhy")
    with open_case(path) as opened:
        data = opened.read(f"{name}.xml")
    (place.folder / "reports" / f"{name}.xml").write_bytes(data)


def calls(place: Place) -> list[str]:
    path = place.folder / "calls"
    return path.read_text().splitlines() if path.exists() else []


def unordered(*numbers: int) -> tuple[str | Path, ...]:
    return ("--", sys.executable, UNORDERED, *map(str, numbers))


def reruns(path: Path) -> list[Rerun]:
    return [fact for fact in diagnose(path).facts if isinstance(fact, Rerun)]


def pattern(path: Path) -> RerunPattern:
    return Evidence.of(diagnose(path).facts).rerun_pattern()


# -- an order that is missing -----------------------------------------------------------


def test_wrong_results_are_pursued_to_the_two_launches(place: Place, stub: dict[str, str]) -> None:
    ended = place.run("--case", "c.cuwhy", "--oracle", RIGHT, *unordered(40, 11, 17), env=stub)
    # The program's own: what it printed once, and how it ended.
    assert (ended.code, ended.out) == (0, b"result wrong\n")
    assert "launch 17 must wait for launch 11" in ended.err
    assert "launch 17 is `consume`, launched at unordered.py:" in ended.err
    assert "with CUDA_LAUNCH_BLOCKING=1, it passes 3 of 3 (p = 0.05)" in ended.err
    found = pattern(place.folder / "work" / "c.cuwhy")
    assert found.pair == OrderedPair(11, 17, alone=True)
    assert (found.plain.failures, found.plain.passes) == (3, 0)
    assert place.left() == []


def test_many_pairs_are_not_taken_for_one(place: Place, stub: dict[str, str]) -> None:
    # Nothing cures launch 5 alone: the program fails for two pairs.
    code = UNORDERED.read_text().replace(
        "right = ordered or waited > 0", "right = ordered or (waited > 0 and first > 0)"
    )
    code = code.replace("waited = 0", "waited = first = 0").replace(
        "        waited += 1",
        "        waited += 1\n    if i <= 5 and synchronized.value > before:\n        first += 1",
    )
    (place.folder / "work" / "two.py").write_text(code)
    place.run(
        "--case", "c.cuwhy", "--oracle", RIGHT, "--", sys.executable, "two.py", "40", "30", "33", env=stub
    )  # fmt: skip
    assert pattern(place.folder / "work" / "c.cuwhy").pair == OrderedPair(30, 33, alone=False)


def test_a_rare_failure_needs_many_passes(place: Place, stub: dict[str, str]) -> None:
    ended = place.run(
        "--case", "c.cuwhy", "--oracle", RIGHT, "--no-recorder", *unordered(3, 1, 2, 4), env=stub
    )
    found = pattern(place.folder / "work" / "c.cuwhy")
    assert (found.plain.runs, found.plain.failures) == (10, 4)
    blocking = found.outcome("launch-blocking")
    assert blocking is not None
    # C(10, 4) / C(10 + n, 4) <= 0.05 from n = 10 on.
    assert (blocking.passes, blocking.failures) == (10, 0)
    assert "10 passes in a row are needed" in ended.err
    assert "the launch recorder would tell" in ended.err


# -- checkers ----------------------------------------------------------------------------


def test_a_check_that_is_asked_for_runs_and_is_diagnosed(place: Place, tool: dict[str, str]) -> None:
    report(place, "bad_block_sum", "racecheck")
    ended = place.run("--case", "c.cuwhy", "--check", "racecheck", "--", "sh", "-c", "echo once", env=tool)
    assert (ended.code, ended.out) == (0, b"once\n")
    assert "synchronization/shared-memory-race" in ended.err
    assert "racecheck: --check asks for racecheck" in ended.err
    (call,) = calls(place)
    assert "--tool racecheck --xml --save" in call
    assert call.endswith("sh -c echo once")
    path = place.folder / "work" / "c.cuwhy"
    with open_case(path) as case:
        kinds = {entry.path: entry.kind for entry in case.artefacts}
    assert kinds["racecheck.xml"] == "sanitizer-xml"
    primary = diagnose(path).primary
    assert primary is not None
    assert primary.cause.name == "synchronization/shared-memory-race"


def test_what_core_dumps_hide_is_found_by_memcheck(place: Place, tool: dict[str, str]) -> None:
    report(place, "bad_unset_gradient", "memcheck")
    program = (
        '[ "$CUDA_ENABLE_COREDUMP_ON_EXCEPTION" = 1 ] && exit 0; '
        'echo "CUDA error: an illegal memory access was encountered" >&2; exit 3'
    )
    ended = place.run("--case", "c.cuwhy", "--fails", "--", "sh", "-c", program, env=tool)
    assert ended.code == 0, "the run that the user saw passed"
    # One run each: that is said, and no more.
    assert "core dumps may hide this failure" in ended.err
    assert "memory/null-pointer" in ended.err
    found = pattern(place.folder / "work" / "c.cuwhy")
    assert found.differs_by_capture
    assert not found.hidden_by_capture


def test_a_refused_or_missing_report_is_said(place: Place, tool: dict[str, str]) -> None:
    ended = place.run("--case", "c.cuwhy", "--check", "synccheck", "--", "true", env=tool)
    assert "synccheck wrote no report" in ended.err
    without = place.run("--check", "synccheck", "--", "true", env={"PATH": "/usr/bin:/bin"})
    assert "compute-sanitizer is not installed" in without.err


def test_a_kernel_is_narrowed_by_its_whole_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cuwhy.capture.probes import settings

    monkeypatch.setattr(settings, "sanitizer", lambda: "cs")
    argv = settings.command_for([Setting("memcheck", 4, 11, kernel="_Z3addPf")], ["p", "x"], tmp_path)
    assert argv[-2:] == ["p", "x"]
    joined = " ".join(argv)
    assert "--kernel-name kne=_Z3addPf --launch-skip 3 --launch-count 8" in joined


def test_the_launches_before_the_accused_one_are_counted(
    place: Place,
    stub: dict[str, str],
    dump_named: Callable[[str], Any],
) -> None:
    from cuwhy.capture.pursuit import launches_before

    # The seventh launch in its context, recorded on an H200; the program launches only this kernel.
    (place.folder / "dump").write_bytes(dump_named("bad_starter_crash").data)
    host = Path(__file__).parent / "recorder" / "host.py"
    place.run(
        "--case", "c.cuwhy", "--budget", "0", "--", sys.executable, host, place.folder / "dump", "add_kernel",
        env=stub,
    )  # fmt: skip
    path = place.folder / "work" / "c.cuwhy"
    assert launches_before(path, diagnose(path)) == 6


# -- how a failure is told ------------------------------------------------------------------


def test_a_text_can_tell_a_failure(place: Place) -> None:
    ended = place.run(
        "--case", "c.cuwhy", "--fails-with", "loss nan", "--", "sh", "-c", "echo loss nan",
        env={"PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    assert ended.out == b"loss nan\n"
    outcomes = reruns(place.folder / "work" / "c.cuwhy")
    assert {(r.passed, r.judged, r.said) for r in outcomes[1:]} == {(False, "output", "loss nan")}


def test_an_oracle_that_cannot_be_run_is_said_and_costs_nothing(place: Place) -> None:
    ended = place.run("--oracle", "no-such-command-at-all", "--", "sh", "-c", "exit 5")
    assert ended.code == 5
    assert "the oracle cannot be run (exit code 127)" in ended.err


def test_the_oracle_sees_output_and_exit_code(place: Place) -> None:
    oracle = (
        '[ "$(cat $CUWHY_STDOUT)" = out ] && [ "$(cat $CUWHY_STDERR)" = err ] && [ $CUWHY_EXIT_CODE = 4 ]'
    )
    ended = place.run(
        "--case", "c.cuwhy", "--oracle", oracle, "--", "sh", "-c", "echo out; echo err >&2; exit 4"
    )
    assert ended.code == 4
    assert {r.passed for r in reruns(place.folder / "work" / "c.cuwhy")} == {True}


def test_reruns_read_the_same_file(place: Place) -> None:
    source = place.folder / "input"
    source.write_bytes(b"skipped\nwhole input\n")
    with source.open("rb") as file:
        file.seek(8)
        place.run("--case", "c.cuwhy", "--fails-with", "whole", "--", "cat", stdin=file)
    outcomes = reruns(place.folder / "work" / "c.cuwhy")
    assert len(outcomes) > 1
    assert {r.said for r in outcomes[1:]} == {"whole input"}


# -- limits --------------------------------------------------------------------------------


def test_nothing_is_run_again_without_a_reason(place: Place) -> None:
    counter = place.folder / "count"
    ended = place.run("--", "sh", "-c", f"echo >> {counter}; exit 3")
    assert ended.code == 3
    assert "looking further" not in ended.err
    place.run("--budget", "0", "--oracle", "false", "--", "sh", "-c", f"echo >> {counter}")
    assert counter.read_text() == "\n\n"


def test_the_budget_is_kept(place: Place) -> None:
    begin = time.monotonic()
    ended = place.run("--case", "c.cuwhy", "--budget", "2s", "--oracle", "false", "--", "sleep", "0.9")
    assert time.monotonic() - begin < 8
    assert "the budget is used up" in ended.err
    assert "`cuwhy resume c.cuwhy` goes on" in ended.err
    assert len(reruns(place.folder / "work" / "c.cuwhy")) >= 2


def test_a_rerun_that_hangs_is_ended_with_all_that_it_started(place: Place) -> None:
    flag = place.folder / "flag"
    program = f"[ -e {flag} ] && {{ setsid sleep 60 & sleep 60; }}; touch {flag}; exit 1"
    ended = place.run(
        "--case", "c.cuwhy", "--budget", "2s", "--oracle", "false",
        "--", "sh", "-c", program,
    )  # fmt: skip
    assert ended.code == 1
    assert "not finished after 2 s" in ended.err
    assert reruns(place.folder / "work" / "c.cuwhy")[-1].passed is None


# -- interrupting and resuming ---------------------------------------------------------------


def interrupted(place: Place, wait_for: str, number: int, *arguments: Any, **options: Any) -> Ended:
    process = place.start("run", *arguments, **options)
    assert process.stderr is not None
    err = b""
    while wait_for.encode() not in err:
        piece = os.read(process.stderr.fileno(), 65536)
        assert piece, err.decode()
        err += piece
    time.sleep(0.3)
    os.kill(process.pid, number)
    out, rest = process.communicate(timeout=20)
    return Ended(process.returncode, out, (err + rest).decode())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_everything_and_resume_goes_on(
    place: Place, stub: dict[str, str], number: int
) -> None:
    slow = place.folder / "slow"
    program = f"[ $CUDA_LAUNCH_BLOCKING ] && [ ! -e {slow} ] && {{ touch {slow}; sleep 60; }}"
    command = ["sh", "-c", f'{program}; exec "$@"', "sh", sys.executable, str(UNORDERED), "9", "3", "4"]
    ended = interrupted(
        place, "launch-blocking:", number, "--case", "c.cuwhy", "--oracle", RIGHT, "--", *command, env=stub
    )
    assert (ended.code, ended.out) == (0, b"result wrong\n")
    assert "interrupted; `cuwhy resume c.cuwhy` goes on" in ended.err
    path = place.folder / "work" / "c.cuwhy"
    assert [r.passed for r in reruns(path)] == [False] * 3
    assert place.left() == []

    resumed = place.start("resume", "--yes", "c.cuwhy", env=stub)
    _, err = resumed.communicate(timeout=60)
    assert b"launch 4 must wait for launch 3" in err, err.decode()
    assert b"plain run:" not in err, "what was done is not done again"
    assert pattern(path).pair == OrderedPair(3, 4, alone=True)
    assert place.left() == []


def resume(place: Place, *arguments: str, **options: Any) -> Ended:
    process = place.start("resume", *arguments, **options)
    out, err = process.communicate(timeout=30)
    return Ended(process.returncode, out, err.decode())


def a_case(place: Place, *command: str, directory: str = "work") -> None:
    write_case(
        place.folder / "work" / "c.cuwhy", {"a.log": b"x\n"}, kinds={"a.log": "log"}, command=command,
        directory=directory,
    )  # fmt: skip


def test_a_strangers_command_is_not_run_unasked(place: Place) -> None:
    a_case(place, "touch", "pwned")
    ended = resume(place, "c.cuwhy")
    assert ended.code == 2
    assert "the case would run here: touch pwned" in ended.err
    assert not (place.folder / "work" / "pwned").exists()
    assert resume(place, "--yes", "c.cuwhy").code == 1
    assert (place.folder / "work" / "pwned").exists()


@pytest.mark.parametrize(
    ("command", "directory", "words"),
    [
        (("no-such-program",), "work", "no-such-program is not here"),
        (("true",), "elsewhere", "a folder called 'elsewhere'"),
        ((), "work", "does not say which command"),
        (("run", "--api-key", "abc"), "work", "is not whole"),
    ],
)
def test_what_cannot_be_resumed_is_refused(
    place: Place, command: tuple[str, ...], directory: str, words: str
) -> None:
    a_case(place, *command, directory=directory)
    ended = resume(place, "--yes", "c.cuwhy")
    assert ended.code == 2
    assert words in ended.err
    assert len(ended.err.splitlines()) <= 2


def test_the_command_can_be_given_again(place: Place) -> None:
    a_case(place, "run", "--api-key", "abc")
    ended = resume(place, "--oracle", "false", "c.cuwhy", "--", "true")
    assert ended.code == 1
    assert len(reruns(place.folder / "work" / "c.cuwhy")) > 1
    with open_case(place.folder / "work" / "c.cuwhy") as case:
        assert json.loads(case.read("reruns.json"))["asked"]["oracle"] == "false"


def test_recorded_variables_are_set_and_ours_are_not(place: Place) -> None:
    write_case(
        place.folder / "work" / "c.cuwhy", {"a.log": b"x\n"}, kinds={"a.log": "log"}, command=("env",),
        directory="work",
        environment={"CUDA_MODULE_LOADING": "EAGER", "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1"},
    )  # fmt: skip
    resume(place, "--yes", "--oracle", "cp $CUWHY_STDOUT seen; false", "c.cuwhy")
    seen = (place.folder / "work" / "seen").read_text()
    assert "CUDA_MODULE_LOADING=EAGER" in seen
    assert "COREDUMP" not in seen

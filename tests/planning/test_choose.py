"""The plan as a function of what is known: recorded cases, and histories of reruns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwhy import diagnose
from cuwhy.diagnosing import conclude
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.facts import ErrorReport, Fact, Fault, Rerun, SanitizerSummary, Setting
from cuwhy.planning import Options, Step, Stop, Tools, cost_of, next_step, pursue

CORPUS = Path(__file__).parents[2] / "corpus"
ALL = Tools(sanitizer=True, recorder=True, torch=True)
DUMPS = Setting("core-dumps")
JUDGED = Options(judged=True)


def known(*facts: Fact) -> Diagnosis:
    return conclude(facts)


def run(*settings: Setting, passed: bool | None, seconds: float = 2.0, **more: Any) -> Rerun:
    return Rerun(settings, passed, 0 if passed else 1, seconds, **more)


def step(diagnosis: Diagnosis, options: Options = JUDGED, tools: Tools = ALL, left: float = 900) -> Step:
    found = next_step(diagnosis, options, tools, left)
    assert isinstance(found, Step), found
    return found


def stop(diagnosis: Diagnosis, options: Options = JUDGED, tools: Tools = ALL, left: float = 900) -> Stop:
    found = next_step(diagnosis, options, tools, left)
    assert isinstance(found, Stop), found
    return found


# -- recorded cases ------------------------------------------------------------------------


def case_facts(name: str) -> list[Fact]:
    (path,) = CORPUS.glob(f"*/*/{name}/evidence.cuwhy")
    return list(diagnose(path).facts)


def test_a_cause_that_one_dump_names_needs_no_plan() -> None:
    dump = [f for f in case_facts("bad_starter_misaligned") if not type(f).__name__.startswith("Sanitizer")]
    diagnosis = known(*dump, run(DUMPS, passed=False))
    assert diagnosis.primary is not None
    assert not pursue(diagnosis, Options())
    assert stop(diagnosis, Options()).why == "the cause is named"


def test_memcheck_is_narrowed_to_the_kernel_of_the_dump() -> None:
    # The same dump, as a reader without nvdisasm has it, with a cause that no rule knows.
    fault = next(f for f in case_facts("bad_starter_misaligned") if isinstance(f, Fault))
    assert fault.launch is not None
    diagnosis = known(replace(fault, exception=99, address=None), run(DUMPS, passed=False, seconds=6.0))
    assert pursue(diagnosis, Options())
    first = step(diagnosis, Options())
    assert (first.checker, first.kernel) == ("memcheck", fault.launch.kernel)
    # Measured: 7 s where the program alone took 6 s; the model must not promise less.
    assert 7.0 <= first.seconds <= 10.0
    assert "measured" in first.basis

    clean: list[Fact] = [*diagnosis.facts, run(*first.settings, passed=None), SanitizerSummary("memcheck", 0)]
    second = step(known(*clean), Options())
    assert [s.kind for s in second.settings] == ["memcheck", "no-caching"]
    without_torch = step(known(*clean), Options(), replace(ALL, torch=False))
    assert without_torch.name == "memcheck of all kernels"


def test_of_a_kernel_launched_often_only_the_launches_around_the_failure_are_checked() -> None:
    fault = next(f for f in case_facts("bad_starter_misaligned") if isinstance(f, Fault))
    assert fault.launch is not None
    kernel = fault.launch.kernel
    facts: list[Fact] = [replace(fault, exception=99, address=None), run(DUMPS, passed=False)]
    window = next_step(known(*facts), Options(), ALL, 900, before=200)
    assert isinstance(window, Step)
    assert window.settings == (Setting("memcheck", 197, 205, kernel=kernel),)
    # Nothing there: then all launches of the kernel.
    facts.append(run(*window.settings, passed=None))
    whole = next_step(known(*facts), Options(), ALL, 900, before=200)
    assert isinstance(whole, Step)
    assert whole.settings == (Setting("memcheck", kernel=kernel),)


def test_what_memcheck_reports_ends_the_plan() -> None:
    facts = case_facts("bad_forward_difference")
    assert stop(known(*facts, run(DUMPS, passed=False)), Options()).why == "the cause is named"


# -- failures of other kinds --------------------------------------------------------------


def test_a_program_that_fails_for_its_own_reasons_is_not_run_again() -> None:
    diagnosis = known(run(DUMPS, passed=False))
    assert not pursue(diagnosis, Options())
    assert stop(diagnosis, Options()).why == "nothing speaks of the GPU"


def test_a_run_that_passes_under_capture_is_tried_without_and_then_under_memcheck() -> None:
    options = Options(fails=True)
    passed = known(run(DUMPS, passed=True))
    assert pursue(passed, options)
    first = step(passed, options)
    assert first.settings == ()
    assert "store to address 0" in first.why
    hidden = known(run(DUMPS, passed=True), run(passed=False, error=700))
    second = step(hidden, options)
    assert (second.checker, second.kernel) == ("memcheck", "")
    assert "silent under core dumps" in second.why


def test_asked_checks_come_first_and_once() -> None:
    options = Options(checks=("racecheck", "initcheck"))
    runs: list[Fact] = [run(DUMPS, passed=True)]
    assert pursue(known(*runs), options)
    for tool in options.checks:
        found = step(known(*runs), options)
        assert found.checker == tool
        runs.append(run(*found.settings, passed=None))
    assert stop(known(*runs), options).why == "the program does not fail"
    missing = stop(known(run(DUMPS, passed=True)), options, Tools())
    assert "compute-sanitizer is not installed" in missing.why
    assert missing.unfinished


def test_the_budget_ends_the_plan_with_the_cost_of_what_is_left_out() -> None:
    diagnosis = known(run(DUMPS, passed=False, seconds=100.0))
    end = stop(diagnosis, left=60)
    assert end.unfinished
    assert end.why == "the budget is used up: plain run would take about 100 s (its own time), 60 s are left"


def test_a_step_that_is_too_dear_gives_way_to_a_cheaper_one() -> None:
    error = ErrorReport(700, "cudaErrorIllegalAddress", "…")
    diagnosis = known(error, run(DUMPS, passed=False, seconds=10.0))
    assert step(diagnosis, Options(), left=200).checker == "memcheck"
    assert step(diagnosis, Options(), left=60).name == "plain run"


def test_costs_are_learnt() -> None:
    runs = [run(DUMPS, passed=False, seconds=2.0)]
    blocking = (Setting("launch-blocking"),)
    assert cost_of(blocking, runs).seconds == pytest.approx(3.8)
    runs.append(run(*blocking, passed=True, seconds=2.5))
    assert cost_of(blocking, runs).seconds == 2.5


# -- whole plans against programs whose fault is known ---------------------------------------


def play(
    fails: Callable[[tuple[Setting, ...]], bool],
    launches: int = 40,
    tools: Tools = ALL,
    limit: int = 400,
) -> tuple[Diagnosis, Stop, list[Step]]:
    """Carry the plan out on a program that is a function; checkers find nothing."""
    facts: list[Fact] = [run(DUMPS, passed=not fails((DUMPS,)), launches=launches)]
    steps: list[Step] = []
    while isinstance(found := next_step(known(*facts), JUDGED, tools, 9e9), Step):
        steps.append(found)
        assert len(steps) < limit, "the plan does not end"
        passed = None if found.checker else not fails(found.settings)
        facts.append(run(*found.settings, passed=passed, launches=launches))
    return known(*facts), found, steps


def ordering_fault(earlier: int, later: int) -> Callable[[tuple[Setting, ...]], bool]:
    def fails(settings: tuple[Setting, ...]) -> bool:
        if any(s.kind == "launch-blocking" for s in settings):
            return False
        return not any(
            s.kind == "synchronized" and max(s.first, earlier + 1) <= min(s.last, later) for s in settings
        )

    return fails


@settings(deadline=None, max_examples=40)
@given(st.data(), st.integers(1, 500))
def test_an_ordering_fault_is_pursued_to_its_two_launches(data: st.DataObject, launches: int) -> None:
    later = data.draw(st.integers(1, launches))
    earlier = data.draw(st.integers(0, later - 1))
    diagnosis, end, steps = play(ordering_fault(earlier, later), launches)
    pattern = conclude_pattern(diagnosis)
    assert pattern.pair is not None
    assert (pattern.pair.earlier, pattern.pair.later, pattern.pair.alone) == (earlier, later, True)
    assert pattern.cured_by("launch-blocking")
    assert end.why == "the launches whose order matters are found"
    assert not any(s.checker for s in steps), "no checker sees an order between launches"
    claimed = [o for o in pattern.others if [(s.first, s.last) for s in o.settings] == [(later, later)]]
    assert claimed
    assert all(o.chance <= 0.05 for o in claimed), "the pair itself is proven as any claim is"


def conclude_pattern(diagnosis: Diagnosis) -> Any:
    from cuwhy.causes.evidence import Evidence

    return Evidence.of(diagnosis.facts).rerun_pattern()


def test_without_a_recorder_the_order_is_named_and_the_pair_is_not() -> None:
    diagnosis, end, _ = play(ordering_fault(3, 4), tools=replace(ALL, recorder=False, sanitizer=False))
    assert conclude_pattern(diagnosis).cured_by("launch-blocking")
    assert end.unfinished
    assert "recorder" in end.why


def test_a_copy_behind_the_last_launch_is_told_apart() -> None:
    _, end, _ = play(ordering_fault(40, 40))
    assert "an access by the host" in end.why


def test_wrong_results_that_no_order_explains_go_through_all_checkers() -> None:
    _, end, steps = play(lambda settings: True)
    tools = [s.checker for s in steps if s.checker]
    assert tools == ["racecheck", "synccheck", "initcheck", "memcheck"]
    assert [s.name for s in steps].count("launch-blocking") == 1, "one failure shows that it does not cure"
    assert end.why == "every step that makes sense was taken"


def test_a_rare_fault_is_made_regular_before_it_is_bisected() -> None:
    counter = iter(range(10**6))
    inner = ordering_fault(20, 22)

    def fails(settings: tuple[Setting, ...]) -> bool:
        late = any(s.kind == "delayed" and s.first <= 20 <= s.last for s in settings)
        return inner(settings) and (late or next(counter) % 5 == 0)

    diagnosis, _, steps = play(fails)
    names = [s.name for s in steps]
    assert names.index("delay") < names.index("bisection")
    assert conclude_pattern(diagnosis).plain.runs == 10
    pair = conclude_pattern(diagnosis).pair
    assert (pair.earlier, pair.later) == (20, 22)
    blocking = [s for s in steps if s.name == "launch-blocking"]
    assert len(blocking) == 33, "2 failures in 10 runs: 33 passes in a row are needed"


def test_a_run_that_never_ends_is_tried_twice_at_most() -> None:
    facts: list[Fact] = [run(DUMPS, passed=False), *[run(passed=False)] * 2]
    for _ in range(2):
        found = step(known(*facts))
        assert found.name == "launch-blocking"
        facts.append(run(*found.settings, passed=None, ended="not finished"))
    assert step(known(*facts)).name != "launch-blocking"

"""The pattern over reruns: bisection against programs with known unordered pairs; honest statistics."""

from __future__ import annotations

import time
from math import comb

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.reruns import (
    CHANCE,
    Narrowing,
    OrderedPair,
    Ranges,
    chance_of,
    joined,
    narrow,
    passes_needed,
    pattern_of,
)
from cuwhy.model.facts import Rerun, Setting


def cures(ranges: Ranges, pairs: list[tuple[int, int]]) -> bool:
    """What the GPU does: each pair (p, c) needs a synchronisation before some k with p < k <= c."""
    return all(any(max(a, p + 1) <= min(b, c) for a, b in ranges) for p, c in pairs)


def bisect(pairs: list[tuple[int, int]], launches: int) -> tuple[Narrowing, int]:
    known: dict[Ranges, bool] = {}
    while (state := narrow(known, launches)).ask is not None:
        assert state.ask not in known
        before = state.steps_left
        known[state.ask] = cures(state.ask, pairs)
        assert narrow(known, launches).steps_left < before, "the promised number of steps is an upper bound"
    return state, len(known)


@settings(deadline=None)
@given(st.data(), st.integers(1, 100_000))
def test_one_pair_is_found(data: st.DataObject, launches: int) -> None:
    later = data.draw(st.integers(1, launches))
    earlier = data.draw(st.integers(0, later - 1))
    state, runs = bisect([(earlier, later)], launches)
    assert state.pair == OrderedPair(earlier, later, alone=True)
    assert runs <= 2 * launches.bit_length() + 2


@settings(deadline=None)
@given(st.data(), st.integers(1, 1000))
def test_of_many_pairs_a_true_one_is_found(data: st.DataObject, launches: int) -> None:
    pair = st.tuples(st.integers(0, launches - 1), st.integers(1, launches)).filter(lambda t: t[0] < t[1])
    pairs = data.draw(st.lists(pair, min_size=2, max_size=6))
    state, _ = bisect(pairs, launches)
    assert state.pair is not None
    last = max(p for p, _ in pairs)
    assert state.pair.earlier == last
    assert state.pair.later == min(c for p, c in pairs if p == last)
    assert state.pair.alone is cures(((state.pair.later,) * 2,), pairs)


def test_a_fault_between_a_launch_and_a_copy_behind_all_launches_is_said_to_be_out_of_reach() -> None:
    state, runs = bisect([(10, 10)], 10)
    assert state.useless
    assert state.pair is None
    assert runs == 1


def test_ranges_are_joined() -> None:
    assert joined([(5, 6), (1, 0), (1, 3), (4, 4)]) == ((1, 6),)
    assert joined([(1, 2), (4, 4)]) == ((1, 2), (4, 4))


# -- statistics --------------------------------------------------------------------------


def test_fishers_test_on_known_values() -> None:
    # Fisher's tea: 3 of 4 right; one-sided p = 17/70 (Fisher 1935).
    assert chance_of(3, 4, 1, 4) == pytest.approx(17 / 70)
    # Never again in n runs after k failures in m: C(m, k) / C(m + n, k).
    assert chance_of(2, 10, 0, 33) == pytest.approx(comb(10, 2) / comb(43, 2))
    assert chance_of(0, 5, 0, 5) == 1.0
    assert chance_of(3, 3, 0, 0) == 1.0


def test_a_rare_failure_needs_many_passes() -> None:
    assert passes_needed(2, 10) == 33
    assert passes_needed(10, 10) == 2
    assert passes_needed(3, 3) == 3
    assert passes_needed(0, 10, limit=50) == 50
    needed = passes_needed(1, 4)
    assert chance_of(1, 4, 0, needed) <= CHANCE < chance_of(1, 4, 0, needed - 1)


BLOCKING = Setting("launch-blocking")
DUMPS = Setting("core-dumps")


def runs(*settings: Setting, passed: int = 0, failed: int = 0) -> list[Rerun]:
    return [Rerun(settings, True)] * passed + [Rerun(settings, False, 1)] * failed


def test_the_pattern_of_an_ordering_fault() -> None:
    reruns = runs(DUMPS, failed=1) + runs(failed=9) + runs(BLOCKING, passed=10)
    for ranges in [((1, 40),), ((1, 20),), ((1, 10),), ((1, 15),), ((1, 17),), ((1, 16),), ((17, 17),)]:
        spans = [Setting("synchronized", a, b) for a, b in ranges]
        hit = cures(ranges, [(16, 17)])
        reruns += runs(*spans, passed=3 if hit else 0, failed=0 if hit else 1)
    pattern = Evidence.of([*reruns]).rerun_pattern()
    assert (pattern.plain.passes, pattern.plain.failures) == (0, 10)
    assert pattern.cured_by("launch-blocking")
    assert not pattern.hidden_by_capture
    assert pattern.sentences[0] == "as it is, the program fails 10 of 10"
    assert pattern.sentences[1] == "with CUDA_LAUNCH_BLOCKING=1, it passes 10 of 10 (p = 5e-06)"
    state = pattern.narrowing()
    assert state is not None
    while state.ask is not None:
        spans = [Setting("synchronized", a, b) for a, b in state.ask]
        reruns += runs(*spans, passed=3) if cures(state.ask, [(16, 17)]) else runs(*spans, failed=1)
        state = pattern_of(reruns).narrowing()
        assert state is not None
    assert pattern_of(reruns).pair == OrderedPair(16, 17, alone=True)


def test_one_pass_of_a_rare_failure_is_no_cure() -> None:
    pattern = pattern_of(runs(passed=8, failed=2) + runs(BLOCKING, passed=5))
    assert pattern.rare
    assert not pattern.cured_by("launch-blocking")
    assert pattern_of(runs(passed=8, failed=2) + runs(BLOCKING, passed=33)).cured_by("launch-blocking")


def test_what_core_dumps_hide_is_not_counted_as_a_pass() -> None:
    one = pattern_of(runs(DUMPS, passed=1) + runs(failed=1))
    assert one.differs_by_capture
    assert not one.hidden_by_capture, "one run each may be luck"
    assert one.rare
    pattern = pattern_of(runs(DUMPS, passed=3) + runs(failed=3))
    assert pattern.hidden_by_capture
    assert not pattern.rare
    assert (pattern.plain.passes, pattern.plain.failures) == (0, 3)


def test_many_strange_reruns_take_bounded_time() -> None:
    hostile = [
        Rerun(
            (*(Setting("memcheck", kernel=f"{i}-{j}") for j in range(60)), Setting("synchronized", 1, i + 1)),
            True,
        )
        for i in range(2000)
    ]
    begin = time.process_time()
    pattern = pattern_of(hostile)
    assert pattern.pair is None
    assert len(pattern.sentences) <= 2001
    assert time.process_time() - begin < 5


def test_undecided_runs_count_nowhere() -> None:
    pattern = pattern_of([Rerun((BLOCKING,), None), Rerun((), None)])
    assert pattern.plain.runs == 0
    assert pattern.outcome("launch-blocking") is None

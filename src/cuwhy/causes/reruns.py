"""The pattern of passes and failures over controlled reruns, and what it proves.

Work on a GPU is ordered where the program says so.  Where it does not, one operation *p* may be
overtaken by a later one *c* that needs it.  A synchronisation before launch *k* puts all that
was issued before *k* in front of all that comes after; so, of one unordered pair, the run
passes with it exactly when p < k <= c.  Both ends of that interval are found by bisection, and
they are the pair.  See :func:`narrow`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import comb

from cuwhy.model.facts import Rerun, Setting

#: A claim ("it vanishes with …") is made when chance explains the passes no better than this.
CHANCE = 0.05
#: Launch numbers of forced synchronisations: ranges, ascending, disjoint, both ends included.
Ranges = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How often the command passed and failed under the same settings.

    Attributes:
        settings: empty for the command as it is.
        passes, failures: undecided runs are in neither.
        chance: probability of at most so many failures if the settings changed nothing (Fisher's
            exact test, one-sided, against the runs of the command as it is); 1 for those themselves.
    """

    settings: tuple[Setting, ...]
    passes: int
    failures: int
    chance: float = 1.0

    @property
    def runs(self) -> int:
        """Decided runs."""
        return self.passes + self.failures

    @property
    def cured(self) -> bool:
        """True when it never failed, and chance hardly explains that."""
        return self.passes > 0 and self.failures == 0 and self.chance <= CHANCE

    @property
    def text(self) -> str:
        """``fails 10 of 10``, ``passes 12 of 12 (p = 0.0004)``."""
        if self.failures:
            return f"fails {self.failures} of {self.runs}"
        return f"passes {self.passes} of {self.runs}" + (
            f" (p = {self.chance:.1g})" if self.chance < 1 else ""
        )


@dataclass(frozen=True, slots=True)
class OrderedPair:
    """Two launches whose order matters, although nothing orders them.

    Attributes:
        earlier: what must be finished is this launch, or a copy or memset issued between it and the
            next launch; 0: something issued before the first launch.
        later: the launch that must wait, or something issued between it and the next launch.
        alone: True when one synchronisation, before ``later``, cures; False when there are more such
            pairs (the same lines in each iteration of a loop, say) and this is the last of them;
            None when that was not tried.
    """

    earlier: int
    later: int
    alone: bool | None = None

    @property
    def sentence(self) -> str:
        """What the bisection showed."""
        first = self.earlier + 1
        where = f"launch {first}" if first == self.later else f"any of the launches {first} to {self.later}"
        what = f"launch {self.earlier}" if self.earlier else "what was issued before the first launch"
        if self.alone:
            return (
                f"one synchronisation, before {where}, cures; before any other launch it does not: "
                f"launch {self.later} must wait for {what}"
            )
        if self.alone is None:
            return f"launch {self.later} must wait for {what}; whether that is all was not tried"
        return (
            f"the last pair of launches that nothing orders is {self.earlier} and {self.later}; there are more, as a "
            "synchronisation there alone does not cure"
        )


@dataclass(frozen=True, slots=True)
class Narrowing:
    """Where the bisection stands.

    Attributes:
        ask: synchronisations to try next, None when nothing is left to try.
        pair: what was found, None so far or for good.
        low, high: the pair is known to lie within these launch numbers.
        useless: True when even a synchronisation before every launch does not cure.
        steps_left: outcomes that are still needed at most.
    """

    ask: Ranges | None = None
    pair: OrderedPair | None = None
    low: int = 0
    high: int = 0
    useless: bool = False
    steps_left: int = 0


def narrow(known: Mapping[Ranges, bool], launches: int) -> Narrowing:
    """Return the next synchronisations to try, or the pair.

    Args:
        known: whether the command passed, by the ranges of launches it was synchronised before.
        launches: of a whole run, in its busiest context.

    With several pairs (i: p_i < k <= c_i each need a k) the prefix 1..a cures from
    a = max(p_i) + 1 on, so the pair found is the one that begins last; with 1..a-1 kept
    synchronised, all others stay cured while the end of this one is sought.
    """
    n = max(launches, 1)
    whole = known.get(((1, n),))
    if whole is None:
        return Narrowing(((1, n),), low=0, high=n, steps_left=2 * n.bit_length() + 2)
    if not whole:
        return Narrowing(useless=True, low=0, high=n)
    # The shortest prefix that cures: `high` does, `low` does not (0: the command as it is).
    low, high = 0, n
    while high - low > 1:
        middle = (low + high) // 2
        passed = known.get(((1, middle),))
        if passed is None:
            left = (high - low - 1).bit_length() + n.bit_length() + 1
            return Narrowing(((1, middle),), low=low, high=n, steps_left=left)
        low, high = (low, middle) if passed else (middle, high)
    begin = high
    # The last single launch that still cures, the earlier pairs being cured by the prefix.
    last, beyond = begin, n + 1
    while beyond - last > 1:
        middle = (last + beyond) // 2
        ranges = joined([(1, begin - 1), (middle, middle)])
        passed = known.get(ranges)
        if passed is None:
            return Narrowing(
                ranges, low=begin - 1, high=beyond - 1, steps_left=(beyond - last - 1).bit_length() + 1
            )
        last, beyond = (middle, beyond) if passed else (last, middle)
    alone = known.get(((last, last),))
    pair = OrderedPair(begin - 1, last, alone)
    return Narrowing(
        None if alone is not None else ((last, last),),
        pair,
        begin - 1,
        last,
        steps_left=0 if alone is not None else 1,
    )


def joined(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges ascending and disjoint, those that touch made one, empty ones dropped."""
    result: list[tuple[int, int]] = []
    for first, last in sorted(r for r in ranges if r[0] <= r[1]):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


def words_of(settings: Sequence[Setting]) -> str:
    """Return settings as a person reads them."""
    ranges = joined((s.first, s.last) for s in settings if s.kind == "synchronized")
    words = [s.text for s in settings if s.kind != "synchronized"]
    if ranges:
        spans = [str(a) if a == b else f"{a} to {b}" for a, b in ranges]
        several = len(spans) > 1 or ranges[0][0] != ranges[0][1]
        words.append(f"a synchronisation before launch{'es' if several else ''} {' and '.join(spans)}")
    return " and ".join(words)


def chance_of(failures: int, runs: int, failures_then: int, runs_then: int) -> float:
    """Return the one-sided p-value of Fisher's exact test.

    Args:
        failures: of the command as it is, in ``runs`` runs.
        runs: how many those were.
        failures_then: with a setting, in ``runs_then`` runs.
        runs_then: how many those were.

    Returns:
        The probability of ``failures_then`` or fewer failures, were the setting without effect.
    """
    total, bad = runs + runs_then, failures + failures_then
    if not runs_then or not bad:
        return 1.0
    ways = comb(total, bad)
    return sum(comb(runs_then, x) * comb(runs, bad - x) for x in range(failures_then + 1)) / ways


def passes_needed(failures: int, runs: int, chance: float = CHANCE, limit: int = 1000) -> int:
    """Return how many passing runs in a row show that a setting cures; ``limit`` when more are needed."""
    count = 1
    while count < limit and chance_of(failures, runs, 0, count) > chance:
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class RerunPattern:
    """All reruns of a case, by setting.

    Attributes:
        plain: the command as it is (with and without core dumps, which change nothing but where they do).
        captured: with core dumps on only; uncaptured: without them.
        others: every other combination of settings, in the order they were first tried.
    """

    plain: Outcome
    captured: Outcome
    uncaptured: Outcome
    others: tuple[Outcome, ...] = ()

    @property
    def differs_by_capture(self) -> bool:
        """True when so far it failed only without core dumps, and passed with them."""
        return self.uncaptured.failures > 0 and self.captured.passes > 0 and self.captured.failures == 0

    @property
    def hidden_by_capture(self) -> bool:
        """True when core dumps hide the failure, and chance hardly explains the difference."""
        plain = self.uncaptured
        return self.differs_by_capture and (
            chance_of(plain.failures, plain.runs, 0, self.captured.passes) <= CHANCE
        )

    @property
    def rare(self) -> bool:
        """True when the command as it is both passes and fails."""
        return self.plain.passes > 0 and self.plain.failures > 0

    def outcome(self, *kinds: str) -> Outcome | None:
        """Return the outcome with settings of exactly these kinds; of the first such, where ranges differ."""
        for outcome in self.others:
            if {setting.kind for setting in outcome.settings} == set(kinds):
                return outcome
        return None

    def cured_by(self, *kinds: str) -> bool:
        """True when the failure vanishes with just these settings, and chance hardly explains it."""
        outcome = self.outcome(*kinds)
        return outcome is not None and outcome.cured

    def narrowing(self, base: Sequence[Setting] = ()) -> Narrowing | None:
        """Return where the bisection over synchronisations stands, None when there was none.

        Args:
            base: settings that were on all the while (a delay that makes the fault regular).
        """
        known = self._bisections().get(tuple(base))
        return None if known is None else _narrowed(known)

    def _bisections(self) -> dict[tuple[Setting, ...], dict[Ranges, bool]]:
        """What synchronisations gave, by the settings that were on all the while."""
        found: dict[tuple[Setting, ...], dict[Ranges, bool]] = {}
        for outcome in self.others:
            ranges = joined((s.first, s.last) for s in outcome.settings if s.kind == "synchronized")
            if ranges:
                base = tuple(s for s in outcome.settings if s.kind != "synchronized")
                found.setdefault(base, {})[ranges] = not outcome.failures
        return found

    @property
    def pair(self) -> OrderedPair | None:
        """The two launches whose order matters, where the bisection came to its end."""
        for base, known in self._bisections().items():
            plain = next((o for o in self.others if o.settings == base), None) if base else self.plain
            if plain is None or not plain.failures:
                # Nothing was cured that never failed.
                continue
            found = _narrowed(known)
            if found is not None and found.pair is not None:
                return found.pair
        return None

    @property
    def sentences(self) -> tuple[str, ...]:
        """The pattern in words, one sentence for each combination of settings."""
        lines = [f"as it is, the program {self.plain.text}"] if self.plain.runs else []
        if self.differs_by_capture:
            lines = [
                f"as it is, the program {self.uncaptured.text}",
                f"with GPU core dumps on, it {self.captured.text}",
            ]
        for outcome in self.others:
            if any(setting.kind == "synchronized" for setting in outcome.settings):
                # The steps of the bisection say nothing singly.
                continue
            lines.append(f"with {words_of(outcome.settings)}, it {outcome.text}")
        pair = self.pair
        if pair is not None:
            lines.append(pair.sentence)
        return tuple(lines)


def _narrowed(known: Mapping[Ranges, bool]) -> Narrowing | None:
    # The first question is always the whole run, so the widest range is the number of launches.
    widths = [ranges[0][1] for ranges in known if len(ranges) == 1 and ranges[0][0] == 1]
    return narrow(known, max(widths)) if widths else None


def pattern_of(reruns: Iterable[Rerun]) -> RerunPattern:
    """Sort decided reruns by their settings."""
    counts: dict[tuple[Setting, ...], list[int]] = {}
    for rerun in reruns:
        if rerun.passed is not None:
            counts.setdefault(rerun.settings, [0, 0])[0 if rerun.passed else 1] += 1
    dumps = (Setting("core-dumps"),)
    captured = Outcome(dumps, *counts.pop(dumps, (0, 0)))
    uncaptured = Outcome((), *counts.pop((), (0, 0)))
    plain = Outcome((), captured.passes + uncaptured.passes, captured.failures + uncaptured.failures)
    if RerunPattern(plain, captured, uncaptured).hidden_by_capture:
        # Runs with core dumps are then not runs of the command as it is.
        plain = uncaptured
    others = tuple(
        Outcome(
            settings, passes, failures, chance_of(plain.failures, plain.runs, failures, passes + failures)
        )
        for settings, (passes, failures) in counts.items()
    )
    return RerunPattern(plain, captured, uncaptured, others)

"""The next step, out of what is known.

Deterministic: everything that was tried stands in the facts, so the same case gives the same step.
The order follows cost and what each step can rule out: how often the command fails; checkers, where an
access is in question; controlled reruns, where an order is; and last what only makes a fault visible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from cuwhy.causes.reruns import CHANCE, Outcome, RerunPattern, passes_needed, pattern_of
from cuwhy.model.diagnosis import Diagnosis
from cuwhy.model.facts import ErrorReport, Fault, Rerun, SanitizerFault, Setting
from cuwhy.planning.costs import cost_of
from cuwhy.planning.steps import Options, Step, Stop, Tools

#: Runs of the command as it is: a first look, and when their outcomes differ.
_FEW, _MANY = 3, 10
#: A failure that comes less often than this is made regular before anything is bisected.
_REGULAR = 0.6
#: Runs that one claim of "cured" may cost at most.
_MAX_PASSES = 60
#: A kernel launched so often before the failure is checked around it first, so many launches to each side.
_MANY_LAUNCHES, _AROUND = 50, 4
#: All delays of one run together, and the shortest and longest single one.
_DELAY_TOTAL_US, _DELAY_LEAST_US, _DELAY_MOST_US = 4_000_000, 200, 20_000
#: What chance may explain at one question of the bisection; its answer is proven as any claim is.
_DOUBT = 0.1
_BLOCKING = Setting("launch-blocking")
_UNKNOWN = "unknown/"


def next_step(
    diagnosis: Diagnosis, options: Options, tools: Tools, seconds_left: float, before: int = 0
) -> Step | Stop:
    """Return what to run next, or why nothing.

    Args:
        diagnosis: of everything so far; its facts say what was tried.
        options: what the user asked for.
        tools: what the machine can do.
        seconds_left: of the budget.
        before: launches of the accused kernel before the accused one, 0 when unknown.
    """
    view = replace(_View.of(diagnosis, options, tools), before=before)
    too_dear: Step | None = None
    for step in _candidates(view):
        if step.seconds <= seconds_left:
            return step
        too_dear = too_dear or step
    if too_dear is not None:
        return Stop(
            f"the budget is used up: {too_dear.name} would take about {too_dear.seconds:.0f} s "
            f"({too_dear.basis}), {max(seconds_left, 0):.0f} s are left",
            unfinished=True,
        )
    return _end(view)


@dataclass(frozen=True, slots=True)
class _View:
    """What the choice looks at."""

    diagnosis: Diagnosis
    options: Options
    tools: Tools
    reruns: tuple[Rerun, ...]
    pattern: RerunPattern
    before: int = 0

    @classmethod
    def of(cls, diagnosis: Diagnosis, options: Options, tools: Tools) -> _View:
        reruns = tuple(fact for fact in diagnosis.facts if isinstance(fact, Rerun))
        return cls(diagnosis, options, tools, reruns, pattern_of(reruns))

    @property
    def named(self) -> bool:
        """True when a cause explains the failure."""
        primary = self.diagnosis.primary
        return primary is not None and not primary.cause.name.startswith(_UNKNOWN)

    @property
    def fault(self) -> Fault | None:
        return next((f for f in self.diagnosis.facts if isinstance(f, Fault)), None)

    @property
    def kernel(self) -> str:
        """Mangled name of the kernel that the dump accuses."""
        fault = self.fault
        return fault.launch.kernel if fault is not None and fault.launch is not None else ""

    @property
    def access_in_question(self) -> bool:
        """True when a device error was seen, so a checker may see the access."""
        return self.fault is not None or any(
            isinstance(f, ErrorReport) and f.code >= 200 for f in self.diagnosis.facts
        )

    def tried(self, *kinds: str) -> list[Rerun]:
        """Return the runs with settings of just these kinds."""
        return [r for r in self.reruns if {s.kind for s in r.settings} == set(kinds)]

    def checked(self, *kinds: str, kernel: str | None = None) -> bool:
        """True when such a checker ran, narrowed to ``kernel`` or to whatever."""
        return any(
            kernel is None
            or any(s.kernel == kernel and not s.first for s in r.settings if s.kernel or not kernel)
            for r in self.tried(*kinds)
        )

    def reported(self, tool: str) -> bool:
        """True when this checker reported something that is an error of the program's."""
        return any(
            isinstance(f, SanitizerFault) and f.tool == tool and f.kind not in ("api-error", "leak", "other")
            for f in self.diagnosis.facts
        )

    def step(self, name: str, settings: Sequence[Setting], why: str, settles: str, more: int = 0) -> Step:
        """Make a step and estimate its cost."""
        kernel = next((s.kernel for s in settings if s.kernel), "")
        cost = cost_of(settings, self.reruns, one_kernel=bool(kernel))
        return Step(name, tuple(settings), why, settles, cost.seconds, cost.basis, more, kernel)


def _candidates(view: _View) -> Iterator[Step]:
    """Yield the steps that make sense now, best first."""
    yield from _asked(view)
    if not view.reruns:
        yield view.step(
            "plain run", (), "how long it takes is not known, nor whether it still fails", "both", 0
        )
        return
    if not view.pattern.plain.failures:
        yield from _does_it_fail(view)
        return
    if view.pattern.differs_by_capture or view.access_in_question:
        if view.named and not _ordering_open(view):
            return
        yield from _memory_checks(view)
        if view.named and not _ordering_open(view):
            return
    elif not view.options.judged and not view.options.fails:
        # A program that fails for reasons of its own is not run again unasked.
        return
    yield from _baseline(view)
    yield from _ordering(view)
    if view.named or view.pattern.cured_by("launch-blocking"):
        return
    yield from _other_checks(view)
    yield from _uninitialized(view)


# -- the parts of the plan ----------------------------------------------------------


def _asked(view: _View) -> Iterator[Step]:
    for tool in view.options.checks:
        if view.tools.sanitizer and not view.tried(tool):
            setting = Setting(tool, kernel=view.kernel)
            yield view.step(tool, (setting,), f"--check asks for {tool}", _SETTLES[tool])


def _does_it_fail(view: _View) -> Iterator[Step]:
    """It passed under capture: does it fail without?"""
    if not (view.options.fails or view.options.judged):
        return
    runs = len([r for r in view.reruns if r.passed is not None])
    wanted = view.options.repeat or (_FEW if view.options.fails else 1)
    plain = view.pattern.uncaptured.runs
    if plain < wanted:
        yield view.step(
            "plain run", (),
            f"it has not failed in {runs} run{'s' if runs != 1 else ''} so far; core dumps are off now, which hide "
            "a store to address 0",
            "whether it fails without cuwhy",
            wanted - plain - 1,
        )  # fmt: skip
    elif view.options.fails:
        # The user has seen it fail: what is latent, memcheck sees as well.
        yield from _memory_checks(view)


def _memory_checks(view: _View) -> Iterator[Step]:
    if not view.tools.sanitizer or view.reported("memcheck"):
        return
    kernel = "" if view.pattern.differs_by_capture else view.kernel
    if kernel and view.before >= _MANY_LAUNCHES and not view.tried("memcheck"):
        first, last = max(1, view.before + 1 - _AROUND), view.before + 1 + _AROUND
        yield view.step(
            "memcheck of a few launches",
            (Setting("memcheck", first, last, kernel=kernel),),
            f"the kernel of the core dump is launched {view.before} times before it fails; memcheck looks at its "
            f"launches {first} to {last}",
            _SETTLES["memcheck"],
        )
        return
    if not view.checked("memcheck", kernel=kernel):
        where = "narrowed to the kernel of the core dump" if kernel else "of all kernels"
        why = (
            "it passes with core dumps on and fails without: a store to address 0 is silent under core dumps"
            if view.pattern.differs_by_capture
            else "the core dump knows the address, memcheck knows the allocations"
            if view.fault is not None
            else "an error without a core dump names no kernel; memcheck does"
        )
        yield view.step(
            "memcheck", (Setting("memcheck", kernel=kernel),), f"{why} ({where})", _SETTLES["memcheck"]
        )
        return
    if view.tools.torch and not view.tried("memcheck", "no-caching"):
        yield view.step(
            "memcheck without PyTorch's cache",
            (Setting("memcheck", kernel=kernel), Setting("no-caching")),
            "memcheck saw nothing; PyTorch's cached segments hide overruns and uses after free inside them",
            "whether a tensor's own bounds are overrun",
        )
    elif kernel and not view.checked("memcheck", kernel=""):
        yield view.step(
            "memcheck of all kernels",
            (Setting("memcheck"),),
            "the accused kernel does nothing wrong by itself; another may have spoilt what it reads",
            _SETTLES["memcheck"],
        )


def _baseline(view: _View) -> Iterator[Step]:
    """How often does it fail as it is?"""
    outcome = view.pattern.plain
    wanted = view.options.repeat or (_MANY if outcome.passes and outcome.failures else _FEW)
    if outcome.runs < wanted and _undecided(view, ()) < 2:
        yield view.step(
            "plain run", (),
            "how often it fails decides how many passes prove anything",
            "the failure rate",
            wanted - outcome.runs - 1,
        )  # fmt: skip


def _ordering_open(view: _View) -> bool:
    """True when launch-blocking cures, and which launches it is about is not known."""
    if not view.pattern.cured_by("launch-blocking") or not view.tools.recorder:
        return False
    narrowing = view.pattern.narrowing(_base(view))
    return narrowing is None or narrowing.ask is not None


def _ordering(view: _View) -> Iterator[Step]:
    blocking = view.pattern.outcome("launch-blocking")
    if blocking is None or not blocking.failures:
        step = _until_proven(
            view, "launch-blocking", (_BLOCKING,), blocking, view.pattern.plain,
            "an ordering fault vanishes when each launch is waited for",
            "whether an order between launches is missing",
        )  # fmt: skip
        if step is not None:
            yield step
    if not view.pattern.cured_by("launch-blocking") or not view.tools.recorder:
        return
    if _rate(view.pattern.plain) < _REGULAR and not _base(view):
        yield from _delays(view)
    yield from _bisection(view)


def _until_proven(
    view: _View,
    name: str,
    settings: tuple[Setting, ...],
    so_far: Outcome | None,
    plain: Outcome,
    why: str,
    settles: str,
    chance: float = CHANCE,
) -> Step | None:
    """Repeat until one run fails, or so many passed that chance does not explain it."""
    if so_far is not None and so_far.failures:
        return None
    needed = passes_needed(plain.failures, plain.runs, chance, _MAX_PASSES)
    passes = so_far.passes if so_far is not None else 0
    if passes >= needed or _undecided(view, settings) >= 2:
        return None
    rate = f"{plain.failures} of {plain.runs} runs failed, so {needed} passes in a row are needed (p <= {chance:g})"
    return view.step(name, settings, f"{why}; {rate}", settles, needed - passes - 1)


def _bisection(view: _View) -> Iterator[Step]:
    base = _base(view)
    plain = _outcome(view, base) if base else view.pattern.plain
    launches = max((r.launches for r in view.reruns), default=0)
    if plain is None or not launches:
        return
    narrowing = view.pattern.narrowing(base)
    ask = ((1, launches),) if narrowing is None else narrowing.ask
    # A pass that is not proven yet is asked for again before the next question.
    for outcome in view.pattern.others:
        ranges = [s for s in outcome.settings if s.kind == "synchronized"]
        if not ranges or _without_sync(outcome.settings) != base or outcome.failures:
            continue
        # The last question decides; an error at another one shows there.
        pair = narrowing.pair if narrowing is not None else None
        last = pair is not None and [(s.first, s.last) for s in ranges] == [(pair.later, pair.later)]
        step = _until_proven(
            view, "bisection", outcome.settings, outcome, plain, _BISECT, _PAIR, CHANCE if last else _DOUBT
        )
        if step is not None:
            yield step
            return
    if ask is None:
        return
    settings = (*base, *(Setting("synchronized", first, last) for first, last in ask))
    if _undecided(view, settings) >= 2:
        return
    left = narrowing.steps_left - 1 if narrowing is not None else 2 * launches.bit_length() + 1
    where = (
        f"the pair lies within launches {narrowing.low} to {narrowing.high}"
        if narrowing is not None
        else f"it makes {launches} launches"
    )
    yield view.step("bisection", settings, f"{_BISECT}; {where}", _PAIR, left)


_PAIR = "which launch must wait for which"
_BISECT = "a synchronisation before the right launch cures, before another it does not"


def _delays(view: _View) -> Iterator[Step]:
    """Delay parts of the run, ever smaller, until one makes the failure regular."""
    launches = max((r.launches for r in view.reruns), default=0)
    if launches < 2:
        return
    for parts in (2, 4, 8):
        if parts > launches:
            return
        for part in range(parts):
            first = part * launches // parts + 1
            last = (part + 1) * launches // parts
            each = max(_DELAY_LEAST_US, min(_DELAY_MOST_US, _DELAY_TOTAL_US // (last - first + 1)))
            settings = (Setting("delayed", first, last, each),)
            outcome = _outcome(view, settings)
            if outcome is not None and outcome.passes:
                continue
            if (outcome is None or outcome.failures < _FEW) and _undecided(view, settings) < 2:
                yield view.step(
                    "delay",
                    settings,
                    f"it fails only {view.pattern.plain.failures} times in {view.pattern.plain.runs}; work that "
                    "comes late makes a missing order show every time",
                    "settings under which the failure is regular",
                    _FEW - 1,
                )
                return


def _base(view: _View) -> tuple[Setting, ...]:
    """The delay that makes a rare failure regular, nothing when it is regular or none does."""
    if _rate(view.pattern.plain) >= _REGULAR:
        return ()
    for outcome in view.pattern.others:
        delayed = {s.kind for s in outcome.settings} == {"delayed"}
        if delayed and not outcome.passes and outcome.failures >= _FEW:
            return outcome.settings
    return ()


def _other_checks(view: _View) -> Iterator[Step]:
    """Wrong results that no order explains."""
    if not view.tools.sanitizer:
        return
    for tool in ("racecheck", "synccheck", "initcheck", "memcheck"):
        if not view.tried(tool):
            yield view.step(tool, (Setting(tool, kernel=view.kernel),), _WHY[tool], _SETTLES[tool])
            return


def _uninitialized(view: _View) -> Iterator[Step]:
    outcome = view.pattern.outcome("nan-filled")
    settings = (Setting("nan-filled"),)
    if view.tools.fill and (outcome is None or outcome.runs < _FEW) and _undecided(view, settings) < 2:
        yield view.step(
            "NaN fill", settings,
            "what reads memory that was never written gives NaN when fresh PyTorch memory is filled with it",
            "whether results depend on uninitialised memory",
            _FEW - 1 - (outcome.runs if outcome is not None else 0),
        )  # fmt: skip


_WHY = {
    "racecheck": "results are wrong or vary, and no order between launches explains it: within one, racecheck does",
    "synccheck": "a barrier that part of a block does not reach gives no error on recent GPUs",
    "initcheck": "results can depend on memory that was never written",
    "memcheck": "an overrun inside mapped memory raises no error, and spoils what it hits",
}
_SETTLES = {
    "memcheck": "which access leaves which allocation, and by how much",
    "racecheck": "which two lines race in shared memory",
    "synccheck": "which barrier is reached by a part of the threads only",
    "initcheck": "which line reads memory that was never written",
}


# -- helpers --------------------------------------------------------------------------


def _rate(outcome: Outcome) -> float:
    return outcome.failures / outcome.runs if outcome.runs else 0.0


def _without_sync(settings: Sequence[Setting]) -> tuple[Setting, ...]:
    return tuple(s for s in settings if s.kind != "synchronized")


def _outcome(view: _View, settings: tuple[Setting, ...]) -> Outcome | None:
    return next((o for o in view.pattern.others if o.settings == settings), None)


def _undecided(view: _View, settings: tuple[Setting, ...]) -> int:
    return sum(r.passed is None for r in view.reruns if r.settings == settings)


def _end(view: _View) -> Stop:
    """Say why there is no step."""
    pattern, tools = view.pattern, view.tools
    if pattern.pair is not None:
        return Stop("the launches whose order matters are found")
    if view.named:
        return Stop("the cause is named")
    if not pattern.plain.failures:
        if view.options.checks and not view.tools.sanitizer:
            return Stop(
                "compute-sanitizer is not installed (`cuwhy doctor` says how to get it)", unfinished=True
            )
        return Stop("the program does not fail")
    if pattern.cured_by("launch-blocking"):
        narrowing = pattern.narrowing(_base(view))
        if narrowing is not None and narrowing.useless:
            return Stop(
                "it passes with launch-blocking, but not with a synchronisation before every launch: the order "
                "that is missing is between the last launch and a copy, or an access by the host"
            )
        if not tools.recorder:
            return Stop(
                "an order between launches is missing; which one, the launch recorder would tell "
                "(`cuwhy doctor` says how to get it)",
                unfinished=True,
            )
        return Stop("an order between launches is missing; which one could not be told", unfinished=True)
    wants_checks = view.access_in_question or view.options.judged or view.options.fails
    if wants_checks and not tools.sanitizer:
        return Stop("compute-sanitizer is not installed (`cuwhy doctor` says how to get it)", unfinished=True)
    if not (view.access_in_question or view.options.judged or view.options.fails):
        return Stop("nothing speaks of the GPU")
    return Stop("every step that makes sense was taken")


def pursue(diagnosis: Diagnosis, options: Options) -> bool:
    """Tell whether the plan should start at all: the cause is open, and the GPU is in question."""
    view = _View.of(diagnosis, options, Tools())
    if options.checks or options.fails or options.judged:
        return True
    return bool(view.pattern.plain.failures) and view.access_in_question and not view.named

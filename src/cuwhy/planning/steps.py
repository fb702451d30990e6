"""The vocabulary of the plan."""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.model.facts import Setting

#: Tools of Compute Sanitizer, as `--check` takes them.
CHECKERS = ("memcheck", "racecheck", "synccheck", "initcheck")


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for.

    Attributes:
        checks: checkers to run whatever the evidence says, in this order.
        fails: the user says that the command fails without cuwhy.
        judged: True when the user said how to tell a failure (``--oracle``, ``--fails-with``), so
            that wrong results count.
        repeat: runs of the command as it is, to learn how often it fails; 0: 3, and 10 when they differ.
    """

    checks: tuple[str, ...] = ()
    fails: bool = False
    judged: bool = False
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Tools:
    """What the machine can do.

    Attributes:
        sanitizer: Compute Sanitizer is installed.
        recorder: the launch recorder works, so launches can be synchronised and delayed.
        torch: the program uses PyTorch.
        fill: fresh PyTorch memory can be filled with NaN.
    """

    sanitizer: bool = False
    recorder: bool = False
    torch: bool = False
    fill: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One run of the command.

    Attributes:
        name: of the step; the runs of one bisection share it.
        settings: what differs from the command as it is.
        why: the reason, one sentence.
        settles: what it could settle, one sentence.
        seconds: estimated cost; basis: where the estimate comes from.
        more: such runs that may follow at most.
        kernel: mangled name to narrow a checker to, empty: all kernels.
    """

    name: str
    settings: tuple[Setting, ...]
    why: str
    settles: str
    seconds: float
    basis: str
    more: int = 0
    kernel: str = ""

    @property
    def checker(self) -> str:
        """The Compute Sanitizer tool of this step, empty when it is a plain rerun."""
        return next((s.kind for s in self.settings if s.kind in CHECKERS), "")


@dataclass(frozen=True, slots=True)
class Stop:
    """Nothing more is done.

    Attributes:
        why: one sentence.
        unfinished: True when more could be done with more budget or a tool that is missing.
    """

    why: str
    unfinished: bool = False

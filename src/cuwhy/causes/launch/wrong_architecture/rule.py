"""The kernel's body was compiled for another architecture: on this chip all that is left of it is a trap."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes import build, words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity

CAUSE = Cause(
    "launch/wrong-architecture",
    "the kernel's body was compiled for another architecture; on this chip a trap stands in its place",
    Severity.CRASH,
    misleads="719 'unspecified launch failure', which says nothing",
)

_FIXES = (
    Fix("read the `#if` around this line: build for the architecture that it asks for (sm_90a and sm_90 are two), "
        "or launch the kernel that was written for this chip"),
    Fix("ask for the compute capability on the host before the launch, and refuse there with a message", safe=True),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match traps in kernels that never read a parameter and never touch memory."""
    for fault in evidence.faults:
        launch = fault.launch
        if not fault.only_traps or launch is None:
            continue
        chip = next(
            (machine.architecture for machine in evidence.machines if machine.architecture), "this chip"
        )
        count = words.plural(len(launch.arguments), "parameter")
        yield build.from_fault(
            evidence,
            CAUSE,
            fault,
            f"`{launch.short}` as it was compiled for {chip} is nothing but a trap",
            why=(
                f"{words.counts(fault.threads)} stand behind "
                f"{fault.place.sass if fault.place and fault.place.sass else 'a trap'}",
                f"the compiled kernel reads none of its {count} and touches no memory before it traps: its real body was "
                "left out when it was compiled",
                "no kernel line is wrong: the build is, or the choice of the kernel",
            ),
            misleading=words.misleading(evidence, fault, "the kernel stopped itself on purpose, with a trap"),
            details=(("chip", chip),),
            fixes=_FIXES,
            weight=88,
        )

"""The program holds no code that this chip can run."""

from __future__ import annotations

from collections.abc import Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_place, launch_of, named
from cuwhy.model.cuda import describe_error
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.facts import ErrorReport, RefusedLaunch

CAUSE = Cause(
    "launch/no-kernel-image",
    "the program holds no code that this chip can run",
    Severity.CRASH,
)

_NO_BINARY = 209
_FIXES = (
    Fix("compile for this chip: `-gencode arch=compute_NN,code=sm_NN`, TORCH_CUDA_ARCH_LIST or CMAKE_CUDA_ARCHITECTURES; "
        "`cuobjdump --list-elf --list-ptx FILE` says what is inside"),
    Fix("embed PTX of the oldest architecture too (`code=compute_NN`): the driver compiles it for newer chips",
        caution="the first start compiles, and architecture-specific PTX (compute_90a) runs on that one alone"),
)  # fmt: skip


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match refused loads and launches with code 209, else the code in the program's output."""
    refused = [r for r in evidence.refused if r.record.code == _NO_BINARY]
    errors = [e for e in evidence.errors if e.code == _NO_BINARY]
    if not refused and not errors:
        return
    if evidence.faults or evidence.waits:
        # A kernel ran: whatever could not be loaded is another matter.
        errors = []
    facts: tuple[RefusedLaunch | ErrorReport, ...] = (*refused[:8], *errors[:8])
    if not facts:
        return
    why = [
        f"the driver answered {describe_error(_NO_BINARY)}",
        "no kernel line is wrong: the build is; a cubin runs on its own architecture and on later minor versions of it, "
        "PTX on any later one",
    ]
    chip = _chip(evidence, refused)
    if chip:
        why.insert(1, f"the chip is {chip}")
    records = [named(r.record) for r in refused]
    place = next((place for record in records if (place := host_place(record)) is not None), None)
    kernel = next((launch_of(record) for record in records if record.kernel), None)
    name = f"`{kernel.short}`" if kernel is not None else "a kernel"
    yield Finding(
        CAUSE,
        f"{name} cannot be loaded: the program holds no code for this chip" + (f" ({chip})" if chip else ""),
        tuple(why),
        place=place,
        kernel=kernel.short if kernel is not None else "",
        host=place.user if place is not None else evidence.host_line(),
        fixes=_FIXES,
        facts=facts,
        # Libraries try one image after the other; only where the program fails is it the reason.
        role=Role.PRIMARY if errors or not evidence.clean else Role.LATENT,
        weight=91 if errors else 60,
    )


def _chip(evidence: Evidence, refused: list[RefusedLaunch]) -> str:
    for one in refused:
        major, minor = one.limit("compute_major"), one.limit("compute_minor")
        if major is not None and minor is not None:
            return f"sm_{major}{minor}"
    return next((machine.architecture for machine in evidence.machines if machine.architecture), "")

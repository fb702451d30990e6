"""The driver refused a launch: it asked for more than the kernel or the chip can give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cuwhy.causes import words
from cuwhy.causes.evidence import Evidence
from cuwhy.causes.host import host_place, launch_of
from cuwhy.launching.check import Problem, validate_launch_config
from cuwhy.model.architecture import ARCHITECTURES, MAX_THREADS_PER_BLOCK
from cuwhy.model.cuda import describe_error
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role, Severity
from cuwhy.model.errors import InputError
from cuwhy.model.facts import RefusedLaunch

CAUSE = Cause(
    "launch/launch-refused",
    "the driver refused a launch that asks for more than the kernel or the chip can give",
    Severity.WRONG,
    misleads="nothing at all where nobody asks: the kernel never ran, and what it should have written is old",
)

#: What the driver answers to sizes that it cannot launch (cuda.h: INVALID_VALUE, LAUNCH_OUT_OF_RESOURCES,
#: COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_CLUSTER_SIZE); anything else is about handles, or an earlier failure that sticks.
_REFUSED = (1, 701, 720, 912)
#: Codes that mean a refused launch when the runtime prints them and nothing else is known.
_TELLING = {
    9: "a grid or block dimension is zero or above its limit, or the block has more threads than the kernel or the "
    "chip allows, or the shared memory asked for is above the kernel's limit",
    701: "registers a thread x threads are more than a block can have",
    720: "a cooperative grid has more blocks than are resident at once",
    912: "a cluster has more blocks than the chip or the kernel allows, or the grid is no multiple of it",
}
_CHECKED = Fix(
    "check the status of every launch: cudaGetLastError() behind `<<<>>>`, the return value of cudaLaunchKernelEx",
    safe=True,
)
_CALCULATE = Fix(
    "`cuwhy launch-check` says for a grid, block, registers and shared memory what each chip allows",
    safe=True,
)


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match refused launches that the recorder saw, else an error code that says so."""
    seen: dict[tuple[object, ...], list[RefusedLaunch]] = {}
    for refused in evidence.refused:
        record = refused.record
        if record.kind in ("kernel", "cooperative") and record.code in _REFUSED:
            shape = (record.kernel, record.grid, record.block, record.cluster, record.dynamic_shared)
            seen.setdefault((*shape, record.kind, record.code), []).append(refused)
    for group in seen.values():
        yield _from_records(evidence, group)
    if not seen and not _something_else(evidence):
        yield from _from_log(evidence)


def _something_else(evidence: Evidence) -> bool:
    """True when there is an exception, a hang or a report that is a failure of its own."""
    return bool(
        evidence.faults
        or evidence.waits
        or evidence.asserts
        or any(report.kind not in ("api-error", "leak", "unused-memory") for report in evidence.reports)
    )


def _from_records(evidence: Evidence, group: list[RefusedLaunch]) -> Finding:
    refused = group[0]
    record = refused.record
    problems = problems_of(refused)
    kernel = launch_of(record)
    place = host_place(record)
    asked = "; ".join(p.text for p in problems)
    sentence = f"the launch of `{kernel.short}` was refused"
    sentence += f": {asked}" if asked else f" with {describe_error(record.code or 0)}"
    if len(group) > 1:
        sentence += f" ({len(group)} times)"
    why = [
        f"the driver answered {_answer(record.code or 0)} to `{kernel.short}`<<<{_dim(record.grid)}, {_dim(record.block)}"
        + (f", {record.dynamic_shared:,} bytes" if record.dynamic_shared else "")
        + ">>>"
        + (f" in clusters of {_dim(record.cluster)}" if max(record.cluster) > 1 else ""),
        "no kernel line is wrong: the launch is; the kernel has not run, and what it should have written is as it was",
    ]
    if not problems:
        why.append(
            "by the limits that are known the sizes fit: look at attributes and arguments of the launch"
        )
    details = [("requested", f"{p.requested:,}") for p in problems if p.requested is not None]
    details += [("limit", f"{p.limit:,}") for p in problems if p.limit is not None]
    details += _known(refused)
    fixes = [Fix(p.fix) for p in problems if p.fix]
    host = place.user if place is not None else None
    # A library may try and fall back, and says nothing of it.
    tried = host is not None and host.is_library and not evidence.errors
    elsewhere = tried or _something_else(evidence) or bool(evidence.clean)
    return Finding(
        CAUSE,
        sentence,
        tuple(why),
        place=place,
        launch=kernel,
        kernel=kernel.short,
        host=host or evidence.host_line(),
        details=tuple(details),
        fixes=(*fixes, _CHECKED),
        facts=tuple(group),
        # With a failure of another kind the refusal is a second matter.
        role=Role.LATENT if elsewhere else Role.PRIMARY,
        weight=92 if problems else 70,
    )


def _known(refused: RefusedLaunch) -> Iterator[tuple[str, str]]:
    """What the driver told of the kernel and the chip."""
    texts = (
        ("registers", "{:,} registers a thread"),
        ("static_shared", "{:,} bytes of static shared memory"),
        ("function_max_threads", "at most {:,} threads a block"),
        ("max_dynamic_shared", "at most {:,} bytes of dynamic shared memory"),
    )
    known = [text.format(refused.limit(name)) for name, text in texts if refused.limit(name) is not None]
    if known:
        yield "kernel", ", ".join(known)
    if refused.limit("sm_count") is not None:
        yield "chip", f"{_architecture(refused)}, {refused.limit('sm_count')} SMs"


def _architecture(refused: RefusedLaunch) -> str:
    return f"sm_{refused.limit('compute_major') or 0}{refused.limit('compute_minor') or 0}"


def problems_of(refused: RefusedLaunch) -> tuple[Problem, ...]:
    """Return what was asked for above a limit; none when everything known fits."""
    record = refused.record
    name = _architecture(refused)
    bounds = refused.limit("function_max_threads") or MAX_THREADS_PER_BLOCK
    try:
        check = validate_launch_config(
            # The limits that every chip has tell even where this one is not in the tables.
            name if name in ARCHITECTURES else "sm_90",
            grid=record.grid,
            block=record.block,
            cluster=tuple(max(size, 1) for size in record.cluster),
            registers=max(refused.limit("registers") or 0, 0),
            static_shared=max(refused.limit("static_shared") or 0, 0),
            dynamic_shared=record.dynamic_shared,
            max_dynamic_shared=refused.limit("max_dynamic_shared"),
            # With too many registers the driver reports fewer threads; the product says more.
            max_threads_per_block=MAX_THREADS_PER_BLOCK if record.code == 701 else max(bounds, 1),
            cooperative=record.kind == "cooperative",
            sm_count=max(refused.limit("sm_count") or 0, 0),
        )
    except InputError:
        return ()
    return check.errors if name in ARCHITECTURES else tuple(_universal(check.errors))


def _universal(problems: Iterable[Problem]) -> Iterator[Problem]:
    """Those that hold on any chip."""
    universal = ("threads-per-block", "launch-bounds", "grid-axis", "block-axis", "registers-per-block")
    return (p for p in problems if p.code in universal)


def _from_log(evidence: Evidence) -> Iterator[Finding]:
    error = next((e for e in evidence.errors if e.code in _TELLING), None)
    # What came first counts; later codes follow from it.
    if error is None or any(e.code >= 200 and e.code not in _TELLING for e in evidence.errors):
        return
    yield Finding(
        CAUSE,
        f"a launch was refused: {describe_error(error.code)}",
        (
            f"{error.code} means that {_TELLING[error.code]}",
            "no kernel line is wrong: the launch is; `cuwhy run` records which one, what it asked for and the limit",
        ),
        host=evidence.host_line(),
        details=(("error", error.text),),
        fixes=(_CALCULATE, _CHECKED),
        facts=(error,),
        weight=50,
    )


def _answer(code: int) -> str:
    """The driver's code; its 1 reaches the program as 9 or 1, so the text would be another."""
    return "CUDA_ERROR_INVALID_VALUE (1)" if code == 1 else describe_error(code)


def _dim(dim: tuple[int, int, int]) -> str:
    return words.index(dim)

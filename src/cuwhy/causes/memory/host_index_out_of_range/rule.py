"""The host hands PyTorch an index that is out of range; a device assert of the library fires."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cuwhy.causes import words
from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Severity
from cuwhy.model.facts import AssertMessage, Fault, Launch

CAUSE = Cause(
    "memory/host-index-out-of-range",
    "an index tensor holds a value outside of the dimension it indexes",
    Severity.CRASH,
    misleads="710 at an innocent later call, as the assert fires asynchronously",
)

_ASSERT = 12
#: ATen's and Inductor's checks of indices, by what they say.
_EXPRESSION = re.compile(
    r"ind(ex|ices)?\b|idx|ind_dim_size|srcIndex|dstIndex|out of bounds|\bt >= 0 && t < n_classes|tmp\d+", re.I
)
#: ATen kernels that check their indices, with the position of the argument that holds the limit.
_KERNELS = {
    "vectorized_gather_kernel": 5,
    "indexSelectSmallIndex": None,
    "indexSelectLargeIndex": None,
    "indexFuncSmallIndex": None,
    "indexFuncLargeIndex": None,
    "index_elementwise_kernel": None,
    "_scatter_gather_elementwise_kernel": None,
    "nll_loss_forward_reduce_cuda_kernel_2d": None,
    "nll_loss_forward_no_reduce_cuda_kernel": None,
    "embedding_bag": None,
}
_FIXES = (
    Fix("check the indices on the host line before the call: `assert 0 <= idx.min() and idx.max() < size`",
        safe=True, caution="synchronises; take it out again once the producer is right"),
    Fix("find what made the index: a padding id, `ignore_index`, a label equal to the class count, or a vocabulary "
        "that is larger than the embedding"),
)  # fmt: skip


def is_index_assert(message: AssertMessage) -> bool:
    """True for an assertion of a library that checks an index."""
    library = message.file.endswith((".cu", ".cuh", ".py")) and (
        "/aten/src/ATen/" in message.file or message.file[:15] == "aten/src/ATen/" or "/c10/" in message.file
        or "torchinductor" in message.file or "unknown:0" in message.file
    )  # fmt: skip
    return library and _EXPRESSION.search(message.expression) is not None


def is_index_kernel(launch: Launch | None) -> bool:
    """True for a kernel of ATen whose asserts check indices."""
    return launch is not None and launch.short in _KERNELS and "at::native" in launch.name


def match(evidence: Evidence) -> Iterator[Finding]:
    """Match ATen's index asserts, from the log, the dump, or both."""
    messages = [m for m in evidence.asserts if is_index_assert(m)]
    faults = [f for f in evidence.faults if f.exception == _ASSERT and is_index_kernel(f.launch)]
    if not messages and not faults:
        return
    message = messages[0] if messages else None
    fault = faults[0] if faults else None
    launch = fault.launch if fault is not None else None
    host = evidence.host_line()
    name = launch.short if launch is not None else message.function if message is not None else "the kernel"
    limit = _limit(launch)
    sentence = "an index handed to PyTorch is out of range"
    sentence += f": it must lie in 0 to {limit - 1:,}" if limit is not None else ""
    sentence += f"; `{name}` checks it and stops"
    why, rows = [], []
    if message is not None:
        why.append(
            f"the program's output: {message.file}:{message.line}: assertion `{message.expression}` failed"
        )
        rows.append(("assertion", message.expression))
        if message.threads.count:
            rows.append(("threads that failed", words.counts(message.threads)))
    if fault is not None:
        why.append(words.raised(fault))
    why.append("no line of the kernel is wrong: the index comes from the host")
    if limit is not None:
        rows.append(("size of the indexed dimension", f"{limit:,}"))
    yield Finding(
        CAUSE,
        sentence,
        tuple(why),
        place=fault.place if fault is not None else None,
        launch=launch,
        kernel=name,
        threads=fault.threads if fault is not None else message.threads if message is not None else None,
        host=host,
        misleading=_misleading(evidence, fault),
        details=tuple(rows),
        fixes=_FIXES,
        facts=(*faults[:1], *messages[:1]),
        weight=95,
    )


def _limit(launch: Launch | None) -> int | None:
    position = _KERNELS.get(launch.short) if launch is not None else None
    if launch is None or position is None or position >= len(launch.arguments):
        return None
    value = launch.arguments[position].value
    return value if isinstance(value, int) else None


def _misleading(evidence: Evidence, fault: Fault | None) -> str:
    host = evidence.host_line()
    if host is None:
        return ""
    return (
        f"the traceback ends at {host.short}, but launches are asynchronous: the bad index was used at that line "
        "or at an earlier one"
    )

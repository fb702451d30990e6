"""What one event of a numeric trace is a case of; the rules of the class ``numeric`` share this reading."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from cuwhy.causes.evidence import Evidence
from cuwhy.model.diagnosis import Cause, Finding, Fix, Role
from cuwhy.model.numerics import LARGEST, SMALLEST, NumericEvent, NumericOp, TensorRange

HALF_OVERFLOW = "half-overflow"
INF_MINUS_INF = "inf-minus-inf"
DIVISION_BY_ZERO = "division-by-zero"
ZERO_TIMES_INF = "zero-times-inf"
DOMAIN = "log-sqrt-domain"
EPSILON = "epsilon-lost-in-cast"
DOUBLE_MASK = "double-mask"
UNINITIALIZED = "uninitialized-memory"

_DIVISIONS = frozenset({"div", "divide", "true_divide", "reciprocal"})
_SUMS = frozenset({"add", "sub", "rsub"})
_PRODUCTS = frozenset({"mm", "bmm", "addmm", "baddbmm", "matmul", "linear", "dot", "mv", "convolution"})
_CENTRED = (
    "softmax",
    "logsumexp",
    "scaled_dot_product",
    "layer_norm",
    "batch_norm",
    "group_norm",
    "var",
    "std",
)
_DOMAINS = frozenset(
    {"log", "log2", "log10", "log1p", "sqrt", "rsqrt", "pow", "acos", "asin", "acosh", "atanh", "xlogy", "float_power"}
)  # fmt: skip


def base(operation: NumericOp) -> str:
    """Return the name of an operation without the marks of its variants (``_softmax``, ``add_``)."""
    return operation.name.strip("_")


def classify(event: NumericEvent) -> str:
    """Return the cause that an event is a case of, empty when it is of none that is known."""
    if event.kind == "uninitialized":
        return UNINITIALIZED
    if event.kind not in ("inf", "nan"):
        return ""
    name = base(event.operation)
    if _zero_divisor(event) is not None and lost_epsilon(event) is not None:
        return EPSILON
    return _of_inf(event, name) if event.kind == "inf" else _of_nan(event, name)


def _of_inf(event: NumericEvent, name: str) -> str:
    output = _output(event)
    if output is None:
        return ""
    if name in _SUMS and _two_masks(event, output.dtype):
        return DOUBLE_MASK
    if _zero_divisor(event) is not None:
        return DIVISION_BY_ZERO if name in _DIVISIONS else DOMAIN
    if output.dtype == "float16" and (event.exact is None or event.exact.finite):
        return HALF_OVERFLOW
    return ""


def _of_nan(event: NumericEvent, name: str) -> str:
    inputs = event.operation.inputs
    infinite = any(i.inf or i.minus_inf for i in inputs)
    infinite = infinite or any(math.isinf(value) for _, value in event.operation.scalars)
    if name in _DIVISIONS:
        if _zero_divisor(event) is not None:
            return DIVISION_BY_ZERO
        return ZERO_TIMES_INF if infinite else ""
    if not infinite:
        if name in _DOMAINS:
            return DOMAIN
        # The mean of nothing and the deviation of one element are 0/0.
        return DIVISION_BY_ZERO if name in ("mean", "std", "var", "std_mean", "var_mean") else ""
    if name in _SUMS or any(word in name for word in _CENTRED):
        return INF_MINUS_INF
    if name in ("mul", "lerp", "addcmul"):
        return ZERO_TIMES_INF
    if name in ("sum", "mean", "cumsum"):
        return INF_MINUS_INF if any(i.inf and i.minus_inf for i in inputs) else ""
    if name in _PRODUCTS:
        return ZERO_TIMES_INF if any(i.zeros for i in inputs) else INF_MINUS_INF
    return ""


def _output(event: NumericEvent) -> TensorRange | None:
    outputs = event.operation.outputs
    return next((o for o in outputs if not o.finite), outputs[0] if outputs else None)


def _two_masks(event: NumericEvent, dtype: str) -> bool:
    limit = LARGEST.get(dtype)
    if limit is None or len(event.at) < 2:
        return False
    # Each alone is within range, but more than half of the way to its end.
    return all(
        at is not None and at.high is not None and at.finite and at.high <= -limit / 2 for at in event.at[:2]
    )


def _zero_divisor(event: NumericEvent) -> TensorRange | None:
    """The input whose zeros an Inf or NaN comes from: a divisor, or what a log or root is taken of."""
    name = base(event.operation)
    inputs, at = event.operation.inputs, event.at
    position = 1 if name in ("div", "divide", "true_divide") else 0
    if (name not in _DIVISIONS and name not in _DOMAINS) or position >= len(inputs):
        return None
    if position < len(at) and (spot := at[position]) is not None:
        return inputs[position] if spot.zeros else None
    return inputs[position] if inputs[position].zeros else None


def lost_epsilon(event: NumericEvent) -> tuple[NumericOp, float | None] | None:
    """Return the operation before a zero divisor that should have made it positive and did not.

    Either a constant was added (or used as a lower limit) that is 0 in the type of the result, which
    goes with the operation, or positive numbers became 0 when they were cast to a smaller type.
    """
    divisor = _zero_divisor(event)
    if divisor is None:
        return None
    smallest = SMALLEST.get(divisor.dtype)
    if smallest is None:
        return None
    for earlier in reversed(event.history):
        output = earlier.outputs[0] if earlier.outputs else None
        if output is None or output.shape != divisor.shape or output.dtype != divisor.dtype:
            continue
        name = base(earlier)
        if name in ("add", "clamp", "clamp_min"):
            epsilon = earlier.scalar("other" if name == "add" else "min")
            # Half of the smallest number is rounded to even: to 0.
            if epsilon is not None and 0 < epsilon <= smallest / 2:
                return earlier, epsilon
        if name == "to_copy" and earlier.inputs and earlier.inputs[0].low is not None:
            before = earlier.inputs[0]
            if before.dtype != output.dtype and (before.low or 0) > 0 and output.low == 0:
                return earlier, None
    return None


def findings(
    evidence: Evidence, cause: Cause, sentence: Callable[[NumericEvent], str], fixes: tuple[Fix, ...]
) -> Iterator[Finding]:
    """Yield a finding for each event of this cause: the first of a process is primary, later ones follow from it."""
    wanted = cause.name.partition("/")[2]
    firsts: set[int] = set()
    for event in evidence.numerics:
        first = event.process not in firsts
        if classify(event) == wanted:
            yield _finding(cause, event, sentence(event), fixes, _role(evidence, event, first))
        if not _harmless(evidence, event):
            firsts.add(event.process)


def _harmless(evidence: Evidence, event: NumericEvent) -> bool:
    """Tell what a program may do on purpose: log(0) as a mask, or a step that gradient scaling skips."""
    if event.scaled and event.operation.phase == "backward":
        return True
    later = (e for e in evidence.numerics if e.process == event.process and e.kind == "nan")
    only_minus = all(not o.nan and not o.inf for o in event.operation.outputs)
    return (
        event.kind == "inf"
        and only_minus
        and classify(event) == DOMAIN
        and not any(e.operation.number > event.operation.number for e in later)
    )


def _role(evidence: Evidence, event: NumericEvent, first: bool) -> Role:
    if _harmless(evidence, event):
        return Role.LATENT
    return Role.PRIMARY if first else Role.CASCADE


def where(operation: NumericOp) -> str:
    """Return "`sum` (model.py:12)"."""
    line = operation.line
    return f"`{base(operation)}`" + (f" ({line.short})" if line is not None else "")


def event_rows(event: NumericEvent) -> tuple[tuple[str, str], ...]:
    """Return the rows of the values block: module, operation, ranges, and the operations before, latest first."""
    operation = event.operation
    rows: list[tuple[str, str]] = []
    if operation.module:
        rows.append(("module", operation.module))
    rows.append(
        (
            "op",
            f"`{base(operation)}`, {operation.phase}; operation {operation.number:,} of process {event.process}",
        )
    )
    rows += [("input", item.text) for item in operation.inputs]
    rows += [("output", item.text) for item in operation.outputs]
    if event.exact is not None and event.exact.low is not None:
        rows.append(("float64", event.exact.text))
    rows += [("there", item.text) for item in event.at if item is not None]
    rows += [(name, f"{value:g}") for name, value in operation.scalars]
    rows += [("before", _line(earlier)) for earlier in reversed(event.history)]
    return tuple(rows)


def _finding(cause: Cause, event: NumericEvent, sentence: str, fixes: tuple[Fix, ...], role: Role) -> Finding:
    operation = event.operation
    why = [_origin(event)]
    if operation.phase == "backward":
        caller = next((f for f in operation.frames if not f.is_library), None)
        why.append(
            "it happened in the backward pass"
            + (f", called at {caller.short}" if caller is not None else "")
            + ("; the line given is the forward operation's" if operation.forward else "")
        )
    if event.absorbed is not None:
        after = event.absorbed.outputs[0].text if event.absorbed.outputs else ""
        why.append(f"then {where(event.absorbed)} made finite values out of it: {after}")
    if role is Role.LATENT and event.scaled:
        why.append(
            "gradient scaling skips a step with Inf or NaN in its gradients: normal in the first steps"
        )
    return Finding(
        cause,
        sentence,
        tuple(why),
        host=operation.line,
        details=event_rows(event),
        fixes=fixes,
        facts=(event,),
        role=role,
        weight=90,
    )


def _origin(event: NumericEvent) -> str:
    if event.kind == "uninitialized":
        return "fresh memory was filled with a NaN of its own, and the operation read it"
    what = "Inf" if event.kind == "inf" else "NaN"
    of = "no Inf and no NaN" if event.kind == "inf" else "no NaN"
    return (
        f"every input of {where(event.operation)} held {of}, its output holds {what}: it came into being here"
    )


def _line(operation: NumericOp) -> str:
    inputs = ", ".join(item.text for item in operation.inputs) or "nothing"
    outputs = ", ".join(item.text for item in operation.outputs) or "nothing"
    return f"{operation.number} {where(operation)}: {inputs} -> {outputs}"

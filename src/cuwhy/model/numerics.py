"""What a numeric trace says: operations of PyTorch, the ranges they read and made, and where a value stopped being finite."""

from __future__ import annotations

from dataclasses import dataclass

from cuwhy.model.origin import Origin
from cuwhy.model.place import Frame

#: Largest finite value of the types that training uses, and the smallest that is not 0.
LARGEST = {"float16": 65504.0, "bfloat16": 3.3895313892515355e38, "float32": 3.4028234663852886e38}
SMALLEST = {"float16": 2.0**-24, "bfloat16": 2.0**-133, "float32": 2.0**-149}


@dataclass(frozen=True, slots=True)
class TensorRange:
    """The range of one tensor, never its contents.

    Attributes:
        shape: elements by dimension; dtype: "float16"; device: "cuda:0".
        low, high: extremes of the finite values, None when there is none (or it is not known).
        tiny: smallest finite magnitude that is not 0, None likewise.
        nan, inf, minus_inf, zeros: how many elements are that.
        poison: how many hold the NaN that fresh memory was filled with.
        finite: False when an element is NaN or infinite.
    """

    shape: tuple[int, ...]
    dtype: str
    device: str = ""
    low: float | None = None
    high: float | None = None
    tiny: float | None = None
    nan: int = 0
    inf: int = 0
    minus_inf: int = 0
    zeros: int = 0
    poison: int = 0
    finite: bool = True

    @property
    def elements(self) -> int:
        """How many elements it has."""
        count = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def text(self) -> str:
        """``float16[4, 64] from -169.5 to 158.9``, and how many are not finite."""
        parts = [f"{self.dtype}{list(self.shape)}"]
        if self.low is not None and self.high is not None:
            parts.append(f"from {self.low:.6g} to {self.high:.6g}")
        odd = [(self.nan, "NaN"), (self.inf, "Inf"), (self.minus_inf, "-Inf")]
        told = [f"{count:,} {name}" for count, name in odd if count]
        if not told and not self.finite:
            told = ["not all finite"]
        return " ".join(parts) + (f" ({', '.join(told)})" if told else "")


@dataclass(frozen=True, slots=True)
class NumericOp:
    """One operation, as PyTorch's dispatcher saw it below autograd and autocast.

    Attributes:
        number: counts operations of the process from 1.
        name: "sum"; module: "Llama.layers.3.mlp", empty outside of modules.
        phase: "forward" or "backward".
        frames: the Python stack without PyTorch's own, innermost first.
        forward: of a backward operation, the stack of the forward operation it belongs to.
        scalars: names and values of its arguments that are numbers.
        inputs: before it ran; outputs: after.
    """

    number: int
    name: str
    module: str = ""
    phase: str = "forward"
    frames: tuple[Frame, ...] = ()
    forward: tuple[Frame, ...] = ()
    scalars: tuple[tuple[str, float], ...] = ()
    inputs: tuple[TensorRange, ...] = ()
    outputs: tuple[TensorRange, ...] = ()

    @property
    def line(self) -> Frame | None:
        """The line of the user's that a person would look at: of the forward pass where one is known."""
        frames = self.forward or self.frames
        return next((f for f in frames if not f.is_library), frames[0] if frames else None)

    def scalar(self, name: str) -> float | None:
        """Return one number among its arguments, None when it has none of that name."""
        return dict(self.scalars).get(name)


@dataclass(frozen=True, slots=True)
class NumericEvent:
    """An operation that made an Inf or NaN out of none, or read one that no operation made.

    Attributes:
        kind: "inf", "nan", "arrived" (it was in an input, and nothing seen made it) or
            "uninitialized" (it is what fresh memory was filled with).
        operation: what ran.
        at: of each input, only the elements that stand where the output is not finite; None where
            input and output do not correspond by element.
        masked_rows: rows of the first input along the operation's dimension that are all -Inf.
        exact: the first output, computed in float64 from the same inputs; None when it was not.
        absorbed: the first operation after it that made only finite values out of its Inf, None where none was seen.
        allocated: the stack that allocated the memory with the NaN, where it came from ``torch.empty``.
        history: the operations before it, the latest last.
        process: pid.
        scaled: the program uses gradient scaling, which skips steps with Inf or NaN in the gradients.
    """

    kind: str
    operation: NumericOp
    at: tuple[TensorRange | None, ...] = ()
    masked_rows: int = 0
    exact: TensorRange | None = None
    absorbed: NumericOp | None = None
    allocated: tuple[Frame, ...] = ()
    history: tuple[NumericOp, ...] = ()
    process: int = 0
    scaled: bool = False
    origin: Origin = Origin("")


@dataclass(frozen=True, slots=True)
class NumericTrace:
    """That a process was watched, and how much of it.

    Attributes:
        operations: how many ran; module_calls: calls of modules; events: how many were found.
        unread: operations that could not be looked at.
        poisoned: fresh memory was filled with a NaN of its own.
        devices: "cpu", "cuda"; torch: version; process: pid.
    """

    operations: int
    module_calls: int
    events: int
    unread: int = 0
    poisoned: bool = False
    devices: tuple[str, ...] = ()
    torch: str = ""
    process: int = 0
    origin: Origin = Origin("")

"""What a profiler measured of one kernel launch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cuwhy.model.facts import Dim3


@dataclass(frozen=True, slots=True)
class Metric:
    """One measured value; ``unit`` as the profiler prints it, empty for counts and ratios."""

    value: float | int | str
    unit: str = ""


@dataclass(frozen=True, slots=True)
class RuleResult:
    """What one of Nsight Compute's own rules said.

    Attributes:
        rule: its identifier; section: of the report.
        title, message: its words.
        kind: "info", "ok", "optimization", "warning" or "error".
        speedup: estimated gain in percent, None when the rule gives none.
    """

    rule: str
    section: str
    title: str
    message: str
    kind: str
    speedup: float | None = None


@dataclass(frozen=True, slots=True)
class InstructionCost:
    """One instruction with what was counted at it.

    Attributes:
        offset: bytes from the kernel's first instruction.
        sass: its text.
        file, line: source line as the report has it (the innermost of an inline chain), "" and 0 without.
        counters: by metric; a counter that is missing was not collected here, which is not zero.
    """

    offset: int
    sass: str
    file: str = ""
    line: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProfiledLaunch:
    """One launch of a report.

    Attributes:
        index: position in the report, from 0: with the report's name the launch's identity.
        kernel: mangled symbol; name: demangled with parameters; short: base name.
        grid, block, cluster: (0, 0, 0) where not recorded.
        metrics: by name; what was not collected is not in it.
        rules: what Nsight Compute's own rules said.
        instructions: in order of address.
    """

    index: int
    kernel: str
    name: str
    short: str
    grid: Dim3 = (0, 0, 0)
    block: Dim3 = (0, 0, 0)
    cluster: Dim3 = (0, 0, 0)
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    rules: tuple[RuleResult, ...] = ()
    instructions: tuple[InstructionCost, ...] = ()

    def value(self, *names: str) -> float | None:
        """The number of the first of these metrics that was collected, None when none was."""
        for name in names:
            metric = self.metrics.get(name)
            if metric is not None and not isinstance(metric.value, str):
                return float(metric.value)
        return None

    def text(self, name: str) -> str:
        """A metric that is a text, empty when it was not collected."""
        metric = self.metrics.get(name)
        return metric.value if metric is not None and isinstance(metric.value, str) else ""

    def counted(self, metric: str) -> Iterator[tuple[InstructionCost, float]]:
        """Instructions at which ``metric`` was collected, with its value."""
        for instruction in self.instructions:
            value = instruction.counters.get(metric)
            if value is not None:
                yield instruction, value

    @property
    def architecture(self) -> str:
        """``sm_90``, empty when the report does not say."""
        major = self.value("device__attribute_compute_capability_major")
        minor = self.value("device__attribute_compute_capability_minor")
        return f"sm_{int(major)}{int(minor)}" if major is not None and minor is not None else ""

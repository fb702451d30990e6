"""Causes, findings and the diagnosis."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cuwhy.model.facts import Fact, Launch, LaunchRecord, Threads
from cuwhy.model.place import Frame, Place


class Severity(str, Enum):
    """How bad: what happens to the program when the cause acts."""

    CRASH = "crash"
    HANG = "hang"
    WRONG = "wrong results"
    LATENT = "latent"
    SLOW = "slow"


class Role(str, Enum):
    """How a finding relates to what the user saw."""

    PRIMARY = "primary"
    CASCADE = "cascade"
    LATENT = "latent"


@dataclass(frozen=True, slots=True)
class Cause:
    """One kind of failure, as the catalogue lists it.

    Attributes:
        name: ``class/fault`` in the field's words; never the remedy.
        title: one line for lists.
        severity: of this cause in general.
        misleads: what the runtime tends to call it instead, empty if nothing.
    """

    name: str
    title: str
    severity: Severity
    misleads: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """What to change.

    Attributes:
        text: one or two sentences, in the imperative.
        safe: True when the change cannot alter correct results.
        caution: what could make it wrong; empty when nothing does.
    """

    text: str
    safe: bool = False
    caution: str = ""


@dataclass(frozen=True, slots=True)
class Confidence:
    """How sure: the Beta(1+hits, 1+misses) posterior of the rule over the corpus."""

    hits: int
    misses: int

    @property
    def value(self) -> float:
        """The posterior's mean, between 0 and 1."""
        return (1 + self.hits) / (2 + self.hits + self.misses)


@dataclass(frozen=True, slots=True)
class Finding:
    """A cause that this case supports.

    Attributes:
        cause: from the catalogue.
        sentence: what happened, in one sentence with the values.
        why: how the facts lead there, in order; one sentence each.
        place: where; ``other``: the second side of a race or barrier pair.
        launch: the kernel launch, where one is known.
        kernel: the kernel's short name (also known without a launch).
        threads: who.
        host: the host line that led here, where one is known.
        misleading: what the runtime says and why that is wrong; empty if it is right.
        details: label and text pairs for the "values" block (address, index, limit).
        fixes: best first.
        facts: what it rests on.
        role: primary, cascade or latent.
        weight: rank among findings of the same role; higher first.
        confidence: filled from the calibration by ``diagnose``.
    """

    cause: Cause
    sentence: str
    why: tuple[str, ...] = ()
    place: Place | None = None
    other: Place | None = None
    launch: Launch | None = None
    kernel: str = ""
    threads: Threads | None = None
    host: Frame | None = None
    misleading: str = ""
    details: tuple[tuple[str, str], ...] = ()
    fixes: tuple[Fix, ...] = ()
    facts: tuple[Fact, ...] = ()
    role: Role = Role.PRIMARY
    weight: int = 0
    confidence: Confidence | None = None


@dataclass(frozen=True, slots=True)
class Next:
    """What would settle what is open: the step, its cost, and why."""

    step: str
    why: str
    cost: str = ""


@dataclass(frozen=True, slots=True)
class Artefact:
    """One input of a diagnosis.

    Attributes:
        name: file name; kind: see :mod:`cuwhy.read.recognize`; size: bytes.
        sha256: of the content, hex.
        problem: why it could only be read in part, empty when all was read.
    """

    name: str
    kind: str
    size: int
    sha256: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One line of a source that was handed over: file as in the line table, 1-based line, text."""

    file: str
    line: int
    text: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The lines around a place that a finding names: file as in the line table, 1-based first line, texts."""

    file: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The answer for one failure.

    Attributes:
        findings: primary first, best first.
        facts: everything that was read.
        artefacts: what was read.
        open: what is not known and what would tell.
        notes: limits of this reading ("nvdisasm is not installed: no SASS").
        excerpts: source lines that findings name, where the source is at hand.
        listings: the same with the lines around them.
        timeline: launches of the failing process up to the one that the first finding is about, oldest first.
    """

    findings: tuple[Finding, ...] = ()
    facts: tuple[Fact, ...] = ()
    artefacts: tuple[Artefact, ...] = ()
    open: tuple[Next, ...] = ()
    notes: tuple[str, ...] = ()
    excerpts: tuple[Excerpt, ...] = ()
    listings: tuple[Listing, ...] = ()
    timeline: tuple[LaunchRecord, ...] = ()

    @property
    def primary(self) -> Finding | None:
        """The finding that explains what the user saw, or None."""
        for finding in self.findings:
            if finding.role is Role.PRIMARY:
                return finding
        return None

    @property
    def named(self) -> bool:
        """True when a finding names a cause, rather than saying that none is known."""
        return any(not finding.cause.name.startswith("unknown/") for finding in self.findings)

    def excerpt(self, frame: Frame | None) -> str | None:
        """Return the source line of a frame, None when it is not at hand."""
        if frame is None:
            return None
        return next((e.text for e in self.excerpts if (e.file, e.line) == (frame.file, frame.line)), None)

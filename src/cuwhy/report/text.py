"""Diagnosis -> terminal text: short first, everything with ``verbose``."""

from __future__ import annotations

import textwrap

from cuwhy.locate.tensors import describe
from cuwhy.model.diagnosis import Diagnosis, Finding, Role
from cuwhy.model.facts import Launch, LaunchProfile, Wait
from cuwhy.model.place import Place
from cuwhy.report.escape import safe
from cuwhy.report.words import (
    clean_texts,
    fact_text,
    finding_tags,
    launch_text,
    measured_text,
    origin_text,
    threads_text,
    who_text,
)

#: Profiled launches that are listed where no cause was found.
_MAX_PROFILES = 5
_LABEL = 9
_BOLD, _RED, _DIM, _GREEN, _END = "\033[1m", "\033[31m", "\033[2m", "\033[32m", "\033[0m"
_NAME_LIMIT = 160
#: Longest command that is printed on a line of its own, whatever the width.
_COMMAND = 400
#: Values that the short screen shows too.
_SHOWN = ("memory", "tensor", "module", "op", "input", "output", "float64")


class _Page:
    """Lines under construction; wraps text below labels."""

    def __init__(self, width: int, colour: bool) -> None:
        self.width = max(40, width)
        self.colour = colour
        self.lines: list[str] = []

    def style(self, text: str, code: str) -> str:
        return f"{code}{text}{_END}" if self.colour and text else text

    def line(self, text: str = "") -> None:
        self.lines.append(text)

    def wrap(self, text: str, indent: int = 2) -> None:
        self.lines += textwrap.wrap(
            safe(text), self.width, initial_indent=" " * indent, subsequent_indent=" " * indent,
            break_on_hyphens=False,
        )  # fmt: skip

    def item(self, label: str, text: str) -> None:
        """A label in a column of its own, the text wrapped beside it."""
        wrapped = textwrap.wrap(safe(text), self.width - _LABEL - 2, break_on_hyphens=False) or [""]
        self.lines.append("  " + self.style(f"{label:<{_LABEL}}", _DIM) + wrapped[0])
        self.lines += [" " * (_LABEL + 2) + rest for rest in wrapped[1:]]

    def code(self, text: str) -> None:
        """A line of code below an item: cut, never wrapped."""
        room = self.width - _LABEL - 4
        text = safe(text)
        self.lines.append(" " * (_LABEL + 4) + (text if len(text) <= room else text[: room - 1] + "…"))


def render(diagnosis: Diagnosis, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """Return the diagnosis as text that ends in a newline.

    Args:
        diagnosis: what to show.
        width: columns.
        colour: with ANSI colours.
        verbose: with the reasons, values, arguments, facts and artefacts.
    """
    page = _Page(width, colour)
    if not diagnosis.findings:
        running = [fact for fact in diagnosis.facts if isinstance(fact, Wait)]
        profiles = [fact for fact in diagnosis.facts if isinstance(fact, LaunchProfile)]
        page.line(
            page.style("nothing found", _GREEN)
            + (
                ": the kernel was running when the dump was taken"
                if running
                else ": no cause of the catalogue holds these launches up"
                if profiles
                else ": these files show no failure"
            )
        )
        for wait in running[:3]:
            page.wrap(
                f"{wait.kind.value} at {wait.place.short if wait.place else '?'}: {threads_text(wait.threads)}"
            )
        for profile in profiles[:_MAX_PROFILES]:
            page.wrap(measured_text(profile))
        for summary in clean_texts(diagnosis):
            page.wrap(summary)
    shown = 0
    for finding in diagnosis.findings:
        if shown and not verbose and finding.role is not Role.PRIMARY:
            continue
        if shown:
            page.line()
        if shown < 3 or verbose:
            _finding(page, diagnosis, finding, verbose)
        shown += 1
    rest = len(diagnosis.findings) - (len(diagnosis.findings) if verbose else min(shown, 3))
    if rest > 0:
        page.line()
        page.wrap(f"{rest} more finding{'s' if rest != 1 else ''} with -v", 0)
    for question in diagnosis.open:
        page.line()
        cost = f" (costs {question.cost})" if question.cost else ""
        words = question.step.split()
        if len(question.step) <= _COMMAND and any(len(word) > page.width - _LABEL - 2 for word in words):
            # A command must be there to be copied: it is never broken.
            page.item("next", f"{question.why}{cost}:")
            page.line(" " * (_LABEL + 2) + safe(question.step))
        else:
            page.item("next", f"{question.step}: {question.why}{cost}")
    for note in diagnosis.notes:
        page.line()
        page.item("note", note)
    if verbose:
        _appendix(page, diagnosis)
    return "\n".join(page.lines) + "\n"


def _finding(page: _Page, diagnosis: Diagnosis, finding: Finding, verbose: bool) -> None:
    page.line(f"{page.style(safe(finding.cause.name), _BOLD + _RED)}  ({', '.join(finding_tags(finding))})")
    page.wrap(finding.sentence)
    page.line()
    if finding.place is not None:
        _place(page, diagnosis, "place", finding.place, verbose)
    if finding.other is not None:
        _place(page, diagnosis, "and", finding.other, verbose)
    _kernel(page, diagnosis, finding)
    if finding.threads is not None and finding.threads.count:
        page.item("threads", who_text(finding))
    if finding.host is not None:
        where = f" in {finding.host.function}" if finding.host.function else ""
        page.item("host", finding.host.short + where)
        text = diagnosis.excerpt(finding.host)
        if text is not None:
            page.code(f"{finding.host.line} | {text}")
    for label, value in finding.details:
        if label in _SHOWN:
            page.item(label, value)
    for fix in finding.fixes[: None if verbose else 1]:
        text = fix.text
        if verbose:
            text += f" ({'safe' if fix.safe else 'check it'}{': ' + fix.caution if fix.caution else ''})"
        page.item("fix", text)
    if finding.misleading:
        page.item("beware", finding.misleading)
    if verbose:
        for reason in finding.why:
            page.item("because", reason)
        for label, value in finding.details:
            if label not in _SHOWN:
                page.item("value", f"{label}: {value}")
        if finding.launch is not None:
            _arguments(page, finding.launch)


def _place(page: _Page, diagnosis: Diagnosis, label: str, place: Place, verbose: bool) -> None:
    """The inline chain, innermost first, with the source line and the instruction."""
    chain = place.frames
    if not chain:
        page.item(label, f"{place.short[:_NAME_LIMIT]} (no line table)")
    else:
        parts = [f"{f.short}{' in ' + f.function if f.function else ''}" for f in chain]
        user = place.user
        if user is not None and user is not chain[0]:
            position = chain.index(user)
            parts[position] += " (your code)"
        page.item(label, ", inlined at ".join(parts))
        for frame in chain if user is chain[0] else (user, *chain):
            text = diagnosis.excerpt(frame)
            if text is not None and frame is not None:
                page.code(f"{frame.line} | {text}")
                break
    if place.sass is not None:
        page.code(place.sass)
    if verbose and place.ptx is not None:
        page.code(place.ptx)


def _kernel(page: _Page, diagnosis: Diagnosis, finding: Finding) -> None:
    launch = finding.launch
    if launch is None:
        if finding.kernel:
            page.item("kernel", finding.kernel)
        return
    page.item("kernel", launch_text(diagnosis, launch))


def _arguments(page: _Page, launch: Launch) -> None:
    for argument in launch.arguments:
        kind = f" {argument.type}" if argument.type else ""
        name = f" {argument.name}" if argument.name else ""
        page.item(f"arg {argument.position}", f"{argument.text}  ({argument.size} bytes{kind}{name})")
        if argument.target is not None:
            page.item("", describe(argument.target))


def _appendix(page: _Page, diagnosis: Diagnosis) -> None:
    page.line()
    page.line("facts, and where they were read")
    for fact in diagnosis.facts[:40]:
        if text := fact_text(fact):
            page.item("", f"{text}  [{origin_text(fact)}]")
    if len(diagnosis.facts) > 40:
        page.item("", f"and {len(diagnosis.facts) - 40} more (--json has all)")
    page.line()
    page.line("read")
    for artefact in diagnosis.artefacts:
        page.item(
            "", f"{artefact.name}: {artefact.kind}, {artefact.size:,} bytes, sha256 {artefact.sha256[:16]}…"
        )

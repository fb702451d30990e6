"""Diagnosis -> one HTML file: no script, no network, no other file."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib.resources import files

from cuwhy.locate.tensors import describe
from cuwhy.model.diagnosis import Diagnosis, Finding, Next
from cuwhy.model.facts import Launch, Wait
from cuwhy.model.place import Place
from cuwhy.report.html.grid import grid_picture
from cuwhy.report.html.markup import Child, Markup, el, join, text
from cuwhy.report.html.memory import memory_picture
from cuwhy.report.html.source import chain, source_tables
from cuwhy.report.html.timeline import timeline_table
from cuwhy.report.words import (
    clean_texts,
    fact_text,
    finding_tags,
    launch_text,
    origin_text,
    threads_text,
    who_text,
)

#: Facts in the table; the rest is counted, and is in the JSON.
_MAX_FACTS = 400


@lru_cache(maxsize=1)
def _style() -> str:
    return files("cuwhy.report.html").joinpath("page.css").read_text("utf-8")


def render(diagnosis: Diagnosis) -> str:
    """Return the diagnosis as an HTML document.

    It loads nothing and runs nothing: its content security policy allows the one style sheet that stands
    in it, by its hash, and nothing else.
    """
    from cuwhy import __version__

    style = _style()
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode("ascii")
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    primary = diagnosis.findings[0] if diagnosis.findings else None
    title = (
        f"{primary.cause.name}: {primary.place.short if primary.place else primary.kernel or 'cuwhy'}"
        if primary
        else "nothing found"
    )
    sections = _sections(diagnosis, primary)
    names = ", ".join(artefact.name for artefact in diagnosis.artefacts)
    return (
        "<!doctype html>\n"
        + el(
            "html",
            el(
                "head",
                el("meta", charset="utf-8"),
                el("meta", http_equiv="Content-Security-Policy", content=Markup(policy)),
                el("meta", name="viewport", content="width=device-width, initial-scale=1"),
                el("meta", name="color-scheme", content="light dark"),
                el("title", f"{title} · cuwhy"),
                Markup(f"<style>{style}</style>"),
            ),
            el(
                "body",
                el("a", "Skip to the evidence", href="#evidence", class_="skip"),
                el("header", _verdict(diagnosis, primary), class_=None if primary else "clean"),
                el("main", *sections, id="evidence"),
                el(
                    "footer",
                    el(
                        "p",
                        f"cuwhy {__version__}, from {names or 'no file'}. This page loads nothing and runs no script.",
                    ),
                ),
            ),
            lang="en",
        )
        + "\n"
    )


def _verdict(diagnosis: Diagnosis, primary: Finding | None) -> Markup:
    if primary is None:
        waits = [fact for fact in diagnosis.facts if isinstance(fact, Wait)]
        lines = clean_texts(diagnosis) + [
            f"{w.kind.value} at {w.place.short if w.place else '?'}: {threads_text(w.threads)}"
            for w in waits[:3]
        ]
        return join(
            el("div", el("strong", "nothing found"), class_="cause"),
            el(
                "h1",
                "The kernel was running when the dump was taken."
                if waits
                else "These files show no failure.",
            ),
            *(el("p", line) for line in lines),
        )
    return join(
        el(
            "div",
            el("strong", primary.cause.name),
            *(el("span", tag, class_="tag") for tag in finding_tags(primary)),
            class_="cause",
        ),
        el("h1", primary.sentence),
        _about(diagnosis, primary),
        _fixes(primary),
        _beware(primary),
    )


def _about(diagnosis: Diagnosis, finding: Finding) -> Markup:
    """Place, kernel, threads, host line and values as pairs."""
    pairs: list[tuple[str, Child]] = []
    if finding.place is not None:
        pairs.append(("place", _place(finding.place)))
    if finding.other is not None:
        pairs.append(("and", _place(finding.other)))
    if finding.launch is not None:
        pairs.append(("kernel", el("span", launch_text(diagnosis, finding.launch), class_="code")))
    elif finding.kernel:
        pairs.append(("kernel", el("span", finding.kernel, class_="code")))
    if who := who_text(finding):
        pairs.append(("threads", who))
    if finding.host is not None:
        where = f" in {finding.host.function}" if finding.host.function else ""
        pairs.append(("host", el("span", f"{finding.host.short}{where}", class_="code")))
    pairs += [(label, value) for label, value in finding.details]
    cells = [join(el("dt", label), el("dd", value)) for label, value in pairs]
    return el("dl", *cells, class_="facts")


def _place(place: Place) -> Markup:
    frame = place.user
    function = f" in {frame.function}" if frame is not None and frame.function else ""
    return join(
        el("span", place.short + function, class_="code"),
        text("" if place.frames else " (no line table)"),
        el("div", place.sass, class_="code soft") if place.sass is not None else Markup(""),
    )


def _fixes(finding: Finding) -> Markup:
    lines = []
    for fix in finding.fixes:
        note = f" ({'safe' if fix.safe else 'check it'}{': ' + fix.caution if fix.caution else ''})"
        lines.append(el("p", el("span", "Fix: ", class_="label"), fix.text, el("span", note, class_="soft")))
    return el("div", *lines, class_="fix") if lines else Markup("")


def _beware(finding: Finding) -> Markup:
    if not finding.misleading:
        return Markup("")
    return el("div", el("p", el("span", "Beware: ", class_="label"), finding.misleading), class_="beware")


def _section(title: str, name: str, *content: Child) -> Markup:
    return el("section", el("h2", title, id=name), *content, aria_labelledby=name)


def _sections(diagnosis: Diagnosis, primary: Finding | None) -> list[Markup]:
    found: list[Markup] = []
    if primary is not None:
        found += _evidence(diagnosis, primary)
    others = [finding for finding in diagnosis.findings if finding is not primary]
    if others:
        found.append(
            _section("Other findings", "others", *(_other(diagnosis, finding) for finding in others))
        )
    if diagnosis.timeline:
        found.append(_section("Launches before it", "launches", timeline_table(diagnosis.timeline)))
    if diagnosis.open:
        found.append(
            _section("What would tell more", "next", *(_next(question) for question in diagnosis.open))
        )
    if diagnosis.notes:
        found.append(
            _section("Limits of this reading", "notes", *(el("p", note) for note in diagnosis.notes))
        )
    found.append(_section("Facts, and where they were read", "facts", _facts(diagnosis)))
    return found


def _evidence(diagnosis: Diagnosis, finding: Finding) -> list[Markup]:
    found: list[Markup] = []
    source = source_tables(diagnosis, finding)
    frames = finding.place is not None and len(finding.place.frames) > 1
    if source is not None or frames:
        found.append(
            _section(
                "Source",
                "source",
                source,
                join(el("h3", "Inline and call chain, innermost first"), chain(finding.place))
                if finding.place is not None and frames
                else None,
            )
        )
    if finding.why:
        found.append(
            _section("Why", "why", el("ol", *(el("li", reason) for reason in finding.why), class_="chain"))
        )
    memory = memory_picture(diagnosis, finding)
    if memory is not None:
        found.append(_section("Memory", "memory", memory))
    grid = grid_picture(finding.launch, finding.threads)
    if grid is not None:
        found.append(_section("Blocks and threads", "grid", grid))
    if finding.launch is not None and finding.launch.arguments:
        found.append(_section("Kernel arguments", "arguments", _arguments(finding.launch)))
    return found


def _arguments(launch: Launch) -> Markup:
    rows = [
        el(
            "tr",
            el("td", str(argument.position), class_="num"),
            el("td", argument.name or "–", class_="code"),
            el("td", argument.type or "–", class_="code"),
            el("td", argument.text, class_="code wide"),
            el("td", f"{argument.size}", class_="num"),
            el("td", describe(argument.target) if argument.target is not None else "", class_="wide"),
        )
        for argument in launch.arguments
    ]
    head = [
        el("th", title, scope="col") for title in ("", "name", "type", "value", "bytes", "what it points to")
    ]
    return el(
        "div",
        el("table", el("caption", launch.name), el("thead", el("tr", *head)), el("tbody", *rows)),
        class_="scroll",
    )


def _other(diagnosis: Diagnosis, finding: Finding) -> Markup:
    tags = [el("span", tag, class_="tag") for tag in finding_tags(finding)]
    source = source_tables(diagnosis, finding)
    return el(
        "article",
        el("div", el("strong", finding.cause.name), *tags, class_="cause"),
        el("p", finding.sentence),
        _about(diagnosis, finding),
        _fixes(finding),
        _beware(finding),
        el("details", el("summary", "source"), source) if source is not None else None,
        class_="more",
    )


def _next(question: Next) -> Markup:
    cost = f" Costs {question.cost}." if question.cost else ""
    return join(el("p", f"{question.why[:1].upper()}{question.why[1:]}.{cost}"), el("pre", question.step))


def _facts(diagnosis: Diagnosis) -> Markup:
    rows = []
    for fact in diagnosis.facts[:_MAX_FACTS]:
        if words := fact_text(fact):
            rows.append(
                el(
                    "tr",
                    el("td", type(fact).__name__),
                    el("td", words, class_="wide"),
                    el("td", origin_text(fact), class_="code wide"),
                )
            )
    hidden = len(diagnosis.facts) - min(len(diagnosis.facts), _MAX_FACTS)
    files_read = [
        el(
            "li",
            el("span", a.name, class_="code"),
            f": {a.kind}, {a.size:,} bytes, sha256 ",
            el("span", a.sha256[:16] + "…", class_="code"),
        )
        for a in diagnosis.artefacts
    ]
    head = [el("th", title, scope="col") for title in ("kind", "fact", "read in")]
    table = el("div", el("table", el("thead", el("tr", *head)), el("tbody", *rows)), class_="scroll")
    return join(
        el(
            "details",
            el("summary", f"{len(rows)} facts"),
            table,
            el("p", f"and {hidden:,} more in the JSON") if hidden else None,
        ),
        el("h3", "Files read"),
        el("ul", *files_read),
    )


__all__ = ["render"]

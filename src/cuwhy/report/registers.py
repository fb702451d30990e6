"""Register pressure as a terminal page, as JSON, and as an SVG heat map (instruction × register)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from cuwhy.locate.sources import SourceBook
from cuwhy.model.place import Frame
from cuwhy.registers.analysis import Line, RegisterReport, step_of
from cuwhy.report.escape import safe

_BARS = " ▁▂▃▄▅▆▇█"
#: Rows that the SVG draws at most; more instructions share rows.
MAX_SVG_ROWS = 1500
_CELL, _ROW_HEIGHT, _LEFT, _TOP = 6, 4, 330, 64


def _name(line: Line | None) -> str:
    return (
        f"{line[0].replace(chr(92), '/').rpartition('/')[2]}:{line[1]}" if line is not None else "(no line)"
    )


def _source(book: SourceBook, line: Line | None, width: int) -> str:
    if line is None:
        return ""
    text = book.line(Frame("", line[0], line[1]))
    return safe(" ".join((text or "").split()), width) if text else ""


def render_text(report: RegisterReport, book: SourceBook, *, width: int = 80, lines: int = 12) -> str:
    """Return a terminal page about one kernel.

    Args:
        report: what was found.
        book: source texts that were handed over.
        width: columns.
        lines: source lines to list at most, those with the most live registers.
    """
    out: list[str] = []
    resources = report.resources
    allocated = (
        f"{resources.registers} registers a thread" if resources.registers else "registers not recorded"
    )
    out.append(
        f"{safe(report.name, 120)} ({report.architecture}): {allocated}, {report.peak} live at the peak"
    )
    at = report.rows[report.at].instruction
    out.append(f"  peak      {_name(report.lines[report.at])}, at +{at.offset:#x}: {safe(at.text, 60)}")
    for holding in report.holders[:6]:
        text = _source(book, holding.line, max(16, width - 38))
        out.append(f"    {holding.count:>3} written on {_name(holding.line):<20} {text}".rstrip())
    rest = sum(h.count for h in report.holders[6:])
    if rest:
        out.append(f"    {rest:>3} on {len(report.holders) - 6} other lines")
    out += _local_text(report, book, width)
    out += _steps_text(report)
    by_line = report.by_line()
    if by_line:
        most = max(live for _, live in by_line) or 1
        chosen = {line for line, _ in sorted(by_line, key=lambda item: -item[1])[:lines]}
        out.append("  live by line")
        for line, live in by_line:
            if line in chosen:
                bar = _BARS[max(1, live * 8 // most)]
                text = _source(book, line, max(20, width - 36))
                out.append(f"    {bar} {live:>3}  {_name(line):<20} {text}".rstrip())
        if len(by_line) > len(chosen):
            out.append(f"    ({len(by_line) - len(chosen)} lines with fewer)")
    else:
        out.append("  no line information: build with -lineinfo")
    return "\n".join(line[: max(width, 20)] for line in out) + "\n"


def _local_text(report: RegisterReport, book: SourceBook, width: int) -> Iterator[str]:
    if not report.local:
        if report.resources.frame_bytes:
            yield f"  stack     {report.resources.frame_bytes} bytes a thread, not accessed by itself"
        return
    for indexed, title in ((False, "spills"), (True, "arrays")):
        found = [t for t in report.local if t.indexed is indexed]
        if not found:
            continue
        stored, loaded = sum(t.store_bytes for t in found), sum(t.load_bytes for t in found)
        what = "registers that did not fit" if not indexed else "local arrays"
        yield f"  {title:<9} {stored:,} bytes a thread stored, {loaded:,} loaded ({what})"
        for t in found[:4]:
            text = _source(book, t.line, max(16, width - 50))
            yield f"    {t.stores:>4} stores {t.loads:>4} loads on {_name(t.line):<20} {text}".rstrip()


def _steps_text(report: RegisterReport) -> Iterator[str]:
    now = step_of(report)
    if not report.steps:
        yield f"  occupancy not known for {report.architecture}"
        return
    assumed = " (assumed; --block says otherwise)" if report.assumed else ""
    yield f"  occupancy by registers, {report.threads} threads a block{assumed}"
    chosen = range(max(0, now - 1), min(len(report.steps), now + 4)) if now >= 0 else range(len(report.steps))
    for i in chosen:
        step = report.steps[i]
        mark = "  <- now" if i == now else ""
        if now >= 0 and i > now:
            mark = f"  {report.resources.registers - step.registers} fewer"
        yield f"    up to {step.registers:>3}: {step.blocks:>2} blocks, {step.fraction:>4.0%} of the warps{mark}"


def as_json(report: RegisterReport) -> dict[str, Any]:
    """Return the report as JSON values; offsets in bytes from the kernel's entry."""
    return {
        "kernel": report.kernel,
        "name": report.name,
        "architecture": report.architecture,
        "registers": report.resources.registers,
        "stack_bytes": report.resources.frame_bytes,
        "static_shared_bytes": report.resources.shared_bytes,
        "max_threads": report.resources.max_threads,
        "peak": {
            "live": report.peak,
            "offset": report.rows[report.at].instruction.offset,
            "sass": report.rows[report.at].instruction.text,
            "line": _json_line(report.lines[report.at]),
            "holders": [
                {"line": _json_line(h.line), "count": h.count, "registers": list(h.registers)}
                for h in report.holders
            ],
        },
        "local_memory": [
            {
                "line": _json_line(t.line),
                "stores": t.stores,
                "loads": t.loads,
                "store_bytes": t.store_bytes,
                "load_bytes": t.load_bytes,
                "indexed": t.indexed,
            }
            for t in report.local
        ],
        "block": report.threads,
        "block_assumed": report.assumed,
        "steps": [
            {"registers": s.registers, "blocks": s.blocks, "occupancy": s.fraction} for s in report.steps
        ],
        "by_line": [{"line": _json_line(line), "live": live} for line, live in report.by_line()],
        "instructions": [
            {
                "offset": row.instruction.offset,
                "live": row.live,
                "uniform": row.uniform,
                "line": _json_line(line),
            }
            for row, line in zip(report.rows, report.lines, strict=True)
        ],
    }


def _json_line(line: Line | None) -> dict[str, Any] | None:
    return {"file": line[0], "line": line[1]} if line is not None else None


# -- SVG ---------------------------------------------------------------------------

_STYLE = (
    "text{font:11px ui-monospace,Menlo,Consolas,monospace;fill:#1f2328}.t{font-size:14px;font-weight:600}"
    ".m{fill:#59636e}.l{fill:#a9c7f5}.r{fill:#3d7fe0}.w{fill:#c2410c}.b{fill:#7c2d92}.g{stroke:#d1d9e0}"
    ".p{fill:none;stroke:#c2410c}"
    "@media(prefers-color-scheme:dark){svg{background:#0d1117}text{fill:#e6edf3}.m{fill:#9198a1}"
    ".l{fill:#1f3d66}.r{fill:#4f93f5}.w{fill:#f0883e}.b{fill:#c77ddb}.g{stroke:#30363d}}"
)
_CLASS = {":": "l", "v": "r", "^": "w", "x": "b"}
#: Of several instructions in one row the mark that says most wins.
_ORDER = ":v^x"


def render_svg(report: RegisterReport, book: SourceBook) -> str:
    """Return an SVG: one column a register, one row an instruction, source lines at the left.

    More than MAX_SVG_ROWS instructions share rows evenly.
    """
    per_row = -(-len(report.rows) // MAX_SVG_ROWS)
    groups = [range(i, min(i + per_row, len(report.rows))) for i in range(0, len(report.rows), per_row)]
    columns = 1 + max((r for row in report.rows for r, _ in row.marks), default=0)
    width = _LEFT + columns * _CELL + 120
    height = _TOP + len(groups) * _ROW_HEIGHT + 20
    marks = [_merged(report, group) for group in groups]
    title = f"{report.name} ({report.architecture}): {report.peak} of {columns} registers live at the peak"
    note = "" if per_row == 1 else f", {per_row} instructions a row"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img">',
        f"<title>{_xml(title)}</title><style>{_STYLE}</style>",
        f'<text class="t" x="10" y="22">{_xml(title)}</text>',
        f'<text class="m" x="10" y="40">columns: registers R0 to R{columns - 1}; rows: instructions{note}; '
        "</text>",
        *_legend(columns),
    ]
    parts += _columns(marks, columns)
    parts += _labels(report, book, groups)
    peak = next(i for i, group in enumerate(groups) if report.at in group)
    y = _TOP + peak * _ROW_HEIGHT
    parts.append(
        f'<rect class="p" x="{_LEFT - 2}" y="{y - 1}" width="{columns * _CELL + 4}" height="{_ROW_HEIGHT + 2}"/>'
    )
    parts.append(f'<text x="{_LEFT + columns * _CELL + 8}" y="{y + 5}">peak: {report.peak} live</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def _xml(text: str) -> str:
    return escape(safe(text, 200))


def _merged(report: RegisterReport, group: range) -> dict[int, str]:
    merged: dict[int, str] = {}
    for i in group:
        for register, mark in report.rows[i].marks:
            old = merged.get(register)
            if old is None or _ORDER.index(mark) > _ORDER.index(old):
                merged[register] = mark
    return merged


def _legend(columns: int) -> Iterator[str]:
    x = _LEFT
    for name, css in (("live", "l"), ("read", "r"), ("written", "w"), ("both", "b")):
        yield f'<rect class="{css}" x="{x}" y="46" width="8" height="8"/>'
        yield f'<text class="m" x="{x + 12}" y="54">{name}</text>'
        x += 70


def _columns(marks: Sequence[dict[int, str]], columns: int) -> Iterator[str]:
    """One rectangle for each run of equal marks down a column; runs of one colour are one path."""
    paths: dict[str, list[str]] = {css: [] for css in _CLASS.values()}
    for register in range(columns):
        start, current = 0, ""
        for i in range(len(marks) + 1):
            mark = marks[i].get(register, "") if i < len(marks) else ""
            if mark == current and i < len(marks):
                continue
            if current:
                y, run = _TOP + start * _ROW_HEIGHT, (i - start) * _ROW_HEIGHT
                paths[_CLASS[current]].append(
                    f"M{_LEFT + register * _CELL} {y}h{_CELL - 1}v{run}h-{_CELL - 1}z"
                )
            start, current = i, mark
    for css, found in paths.items():
        if found:
            yield f'<path class="{css}" d="{"".join(found)}"/>'


def _labels(report: RegisterReport, book: SourceBook, groups: Sequence[range]) -> Iterator[str]:
    """The source line where it changes, as far apart as text needs."""
    last: Line | None = None
    free = 0
    for i, group in enumerate(groups):
        line = report.lines[group[0]]
        y = _TOP + i * _ROW_HEIGHT
        if line == last or line is None or y < free:
            continue
        last, free = line, y + 12
        text = f"{_name(line)} {_source(book, line, 60)}"
        yield f'<path class="g" d="M{_LEFT - 8} {y}h6"/><text class="m" x="10" y="{y + 4}">{_xml(text[:46])}</text>'

"""The launches before the one that failed."""

from __future__ import annotations

from collections.abc import Sequence

from cuwhy.locate.demangle import demangle
from cuwhy.locate.recorded import host_frame
from cuwhy.model.facts import LaunchRecord
from cuwhy.report.html.markup import Markup, el
from cuwhy.report.words import dims_text


def timeline_table(records: Sequence[LaunchRecord]) -> Markup | None:
    """Return the table of launches, the failing one last and marked; None when none was recorded."""
    if not records:
        return None
    last = records[-1]
    streams = {stream: number for number, stream in enumerate(dict.fromkeys(r.stream for r in records))}
    rows = []
    for record in records:
        host = host_frame(record)
        name = demangle(record.kernel).short if record.kernel else record.kind
        before = last.microseconds - record.microseconds
        rows.append(
            el(
                "tr",
                el("td", str(record.number or "–"), class_="num"),
                el("td", "this launch" if record is last else _before(before), class_="num"),
                el("td", name, class_="code wide"),
                el("td", f"{dims_text(record.grid)} × {dims_text(record.block)}", class_="code"),
                el("td", str(streams[record.stream]), class_="num"),
                el(
                    "td",
                    f"{host.short}{' in ' + host.function if host.function else ''}" if host else "",
                    class_="code wide",
                ),
                class_="here" if record is last else None,
            )
        )
    head = [
        el("th", title, scope="col")
        for title in ("launch", "before", "kernel", "grid × block", "stream", "host line")
    ]
    many = len(streams)
    words = (
        f"The last {len(records)} launches of this process and context" if len(records) > 1 else "The launch"
    )
    return el(
        "div",
        el(
            "table",
            el(
                "caption",
                f"{words}, as the launch recorder saw them asked for; on {many} stream{'s' if many != 1 else ''}. A launch is asked for long before it runs.",
            ),
            el("thead", el("tr", *head)),
            el("tbody", *rows),
        ),
        class_="scroll",
    )


def _before(microseconds: int) -> str:
    if microseconds < 1000:
        return f"{microseconds} µs"
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    return f"{microseconds / 1_000_000:.2f} s"

"""A strict look at a page: elements balance, nothing is loaded, nothing runs, landmarks and names are there."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "col", "link"}
#: Everything that the reports are made of; what is not here must not appear.
ALLOWED = VOID | {
    "html",
    "head",
    "body",
    "title",
    "style",
    "header",
    "main",
    "footer",
    "section",
    "article",
    "figure",
    "figcaption",
    "h1",
    "h2",
    "h3",
    "p",
    "div",
    "span",
    "strong",
    "a",
    "ol",
    "ul",
    "li",
    "dl",
    "dt",
    "dd",
    "pre",
    "details",
    "summary",
    "table",
    "caption",
    "thead",
    "tbody",
    "tr",
    "th",
    "td",
    "svg",
    "g",
    "rect",
    "line",
    "text",
    "path",
}


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.seen: dict[str, int] = {}
        self.ids: list[str] = []
        self.named: list[str] = []
        self.targets: list[str] = []
        self.texts: list[str] = []
        self.policy = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ALLOWED, tag
        self.seen[tag] = self.seen.get(tag, 0) + 1
        for name, value in attrs:
            assert not name.startswith("on"), name
            assert name not in {"style", "src", "srcset", "action", "formaction", "data", "xlink:href"}, name
            if name == "href":
                assert value is not None
                assert value.startswith("#"), value
                self.targets.append(value[1:])
            if name == "id":
                self.ids.append(value or "")
            if name == "aria-labelledby":
                self.named.append(value or "")
        if tag == "meta" and dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs).get("content") or ""
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.texts.append(data)


@dataclass
class Page:
    """What a document holds."""

    text: str
    seen: dict[str, int] = field(default_factory=dict)
    policy: str = ""

    @classmethod
    def of(cls, document: str) -> Page:
        """Parse and check a document."""
        parser = _Parser()
        parser.feed(document)
        parser.close()
        assert not parser.open
        for tag in ("header", "main", "footer", "h1", "title"):
            assert parser.seen.get(tag) == 1, tag
        assert len(set(parser.ids)) == len(parser.ids), "an id stands twice"
        assert set(parser.named) <= set(parser.ids)
        assert set(parser.targets) <= set(parser.ids)
        assert parser.policy.startswith("default-src 'none'; style-src 'sha256-")
        assert not [c for c in document if not c.isprintable() and c != "\n"]
        return cls("".join(parser.texts), parser.seen, parser.policy)

"""Source files that were handed over: lines to show, and the names of kernel parameters.

Paths in a line table come from a stranger's file, so they are never opened.  Only
texts from the case and files below folders that the user named are looked at.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path, PurePosixPath

from cuwhy.model.place import Frame, Place

_MAX_SOURCE_BYTES = 2 << 20
_SUFFIXES = frozenset(
    {".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".ptx", ".py"}
)
_MAX_LINE = 200
#: Return type, attributes and launch bounds between `__global__` and the kernel's name.
_MAX_QUALIFIERS = 400


class SourceBook:
    """Finds source texts by the path that a line table holds."""

    def __init__(self, texts: dict[str, str] | None = None, folders: tuple[Path, ...] = ()) -> None:
        """Keep texts (by base name) and folders to look into."""
        self._texts = dict(texts or {})
        self._folders = folders
        self._found: dict[str, list[str] | None] = {}

    def lines(self, file: str | None) -> list[str] | None:
        """Return the lines of a file, None when it was not handed over."""
        if file is None:
            return None
        if file not in self._found:
            text = self._text(file)
            self._found[file] = text.splitlines() if text is not None else None
        return self._found[file]

    def _text(self, file: str) -> str | None:
        path = PurePosixPath(file.replace("\\", "/"))
        if path.name in self._texts:
            return self._texts[path.name]
        if path.suffix.lower() not in _SUFFIXES or ".." in path.parts:
            return None
        parts = [p for p in path.parts if p not in ("/", ".")]
        for folder in self._folders:
            # The longest tail of the path that exists below the folder.
            for start in range(max(0, len(parts) - 8), len(parts)):
                candidate = folder.joinpath(*parts[start:])
                try:
                    if candidate.is_symlink() or not candidate.is_file():
                        continue
                    if candidate.stat().st_size > _MAX_SOURCE_BYTES:
                        continue
                    return candidate.read_text("utf-8", "replace")
                except (OSError, ValueError):
                    continue
        return None

    def line(self, frame: Frame | None) -> str | None:
        """Return the text of a frame's line, stripped, at most 200 characters."""
        if frame is None or frame.line is None:
            return None
        lines = self.lines(frame.file)
        if lines is None or not 0 < frame.line <= len(lines):
            return None
        return lines[frame.line - 1].strip()[:_MAX_LINE] or None

    @staticmethod
    def clipped(text: str) -> str:
        """Return a line as it is indented, tabs as blanks, at most 200 characters."""
        return text.expandtabs(4).rstrip()[:_MAX_LINE]

    def parameters(self, place: Place | None, kernel: str) -> list[str]:
        """Return the names of a kernel's parameters, in order; empty when they cannot be told."""
        frame = place.frames[-1] if place is not None and place.frames else None
        lines = self.lines(frame.file) if frame is not None else None
        if frame is None or lines is None or frame.file is None:
            return []
        text = "\n".join(lines)
        return _python_names(text, kernel) if frame.file.endswith(".py") else _cuda_names(text, kernel)


def _python_names(text: str, kernel: str) -> list[str]:
    """Run-time parameters of a Triton kernel: ``tl.constexpr`` ones are compiled in."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name == kernel:
            arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            return [
                a.arg for a in arguments if a.annotation is None or "constexpr" not in ast.dump(a.annotation)
            ]
    return []


def _without_comments(text: str) -> str:
    """Blank C comments; linear also where a ``/*`` is never closed."""
    pieces, at = [], 0
    while True:
        slash = text.find("/", at)
        if slash < 0 or slash + 1 >= len(text):
            break
        kind = text[slash + 1]
        if kind not in "/*":
            pieces.append(text[at : slash + 1])
            at = slash + 1
            continue
        end = text.find("\n", slash) if kind == "/" else text.find("*/", slash + 2)
        pieces.append(text[at:slash] + " ")
        if end < 0:
            return "".join(pieces)
        at = end if kind == "/" else end + 2
    pieces.append(text[at:])
    return "".join(pieces)


def _cuda_names(text: str, kernel: str) -> list[str]:
    text = _without_comments(text)
    # The name with its parameter list, where `__global__` stands shortly before it.
    for found in re.finditer(r"\b" + re.escape(kernel) + r"\s{0,8}\(", text):
        before = text[max(0, found.start() - _MAX_QUALIFIERS) : found.start()]
        if "__global__" in re.split(r"[;{}]", before)[-1]:
            break
    else:
        return []
    depth, start = 1, found.end()
    end = start
    while end < len(text) and depth and end - start < 8192:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    names, level, current = [], 0, ""
    for char in text[start : end - 1] + ",":
        level += {"(": 1, "<": 1, "[": 1, ")": -1, ">": -1, "]": -1}.get(char, 0)
        if char == "," and level == 0:
            inner = re.search(r"\(\s*[*&]\s*(\w+)", current)
            words = re.findall(r"[A-Za-z_]\w*", re.sub(r"\[[^]]*\]|=.*", "", current))
            names.append(inner[1] if inner is not None else words[-1] if words else "")
            current = ""
        else:
            current += char
    return names if all(names) else []

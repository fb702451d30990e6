"""What a file is, by its content, never by its name."""

from __future__ import annotations

from cuwhy.read.coredump import looks_like_coredump

#: How much of a file is looked at.
HEAD_BYTES = 1 << 16


def recognize(data: bytes | memoryview) -> str:
    """Return the kind of an artefact.

    One of "coredump", "sanitizer-xml", "sanitizer-text", "case", "ncu-report",
    "launchlog", "launchlog-raw", "sass", "reruns", "tensors", "numerics", "log" (any other text), "pickle" or "binary".
    """
    head = bytes(memoryview(data)[:HEAD_BYTES])
    if looks_like_coredump(head):
        return "coredump"
    if head[:4] == b"PK\x03\x04":
        return "case"
    if head[:4] == b"NVR\0":
        return "ncu-report"
    if head[:8] == b"CUWHYLL1":
        return "launchlog-raw"
    if head.startswith(b'{"cuwhy_launchlog":'):
        return "launchlog"
    if head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        return "pickle"
    from cuwhy.read.numerics import looks_like_numerics
    from cuwhy.read.reruns import looks_like_reruns
    from cuwhy.read.sanitizer import looks_like_sanitizer_text, looks_like_sanitizer_xml
    from cuwhy.read.tensors import looks_like_tensors

    if looks_like_sanitizer_xml(head):
        return "sanitizer-xml"
    if b"\0" in head[:8192] or head[:4] == b"\x7fELF":
        return "binary"
    if head.startswith(b"# cuwhy sass "):
        return "sass"
    if looks_like_reruns(head):
        return "reruns"
    if looks_like_numerics(head):
        return "numerics"
    if looks_like_tensors(head):
        return "tensors"
    return "sanitizer-text" if looks_like_sanitizer_text(head) else "log"

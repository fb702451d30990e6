"""Reports of Compute Sanitizer, as XML and as text; one place to import both readers from."""

from __future__ import annotations

from cuwhy.read.sanitizer_text import looks_like_sanitizer_text, read_sanitizer_text
from cuwhy.read.sanitizer_xml import looks_like_sanitizer_xml, read_sanitizer_xml

__all__ = [
    "looks_like_sanitizer_text",
    "looks_like_sanitizer_xml",
    "read_sanitizer_text",
    "read_sanitizer_xml",
]

"""The memory of a PyTorch process at its first CUDA error (``docs/tensors.schema.json``)."""

from __future__ import annotations

import re

_MARK = re.compile(rb'\s*\{\s*"format"\s*:\s*"cuwhy-tensors"')


def looks_like_tensors(head: bytes) -> bool:
    """Tell from its beginning whether a file is what the PyTorch hook writes."""
    return _MARK.match(head) is not None

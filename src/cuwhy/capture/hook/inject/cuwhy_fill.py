"""What runs inside a PyTorch program in a rerun that fills fresh memory, so that reading it shows.

``torch.use_deterministic_algorithms`` fills as well, but it also changes which algorithms run.  Here
nothing else changes: what Python code gets from the functions below holds NaN (integers their largest
value, booleans True).  Memory that operators allocate for their own results is not touched, nor is what
code compiled by Inductor allocates.

It runs under the program's Python (3.8 and later) and imports nothing of cuwhy.
"""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any

_FUNCTIONS = ("empty", "empty_like", "empty_strided", "empty_permuted")
_METHODS = ("new_empty", "new_empty_strided")


def arm(torch: ModuleType) -> None:
    """Wrap the functions that hand out uninitialised memory."""
    for owner, names in ((torch, _FUNCTIONS), (torch.Tensor, _METHODS)):
        for name in names:
            plain = getattr(owner, name, None)
            if plain is not None:
                setattr(owner, name, _filling(torch, plain))


def _filling(torch: Any, plain: Any) -> Any:
    @functools.wraps(plain)
    def fresh(*arguments: Any, **options: Any) -> Any:
        tensor = plain(*arguments, **options)
        try:
            _fill(torch, tensor)
        except Exception:
            # A kind of tensor that cannot be filled; the program must not notice.
            pass
        return tensor

    return fresh


def _fill(torch: Any, tensor: Any) -> None:
    dtype = tensor.dtype
    with torch.no_grad():
        if dtype.is_floating_point or dtype.is_complex:
            tensor.fill_(float("nan"))
        elif dtype == torch.bool:
            tensor.fill_(True)
        else:
            tensor.fill_(torch.iinfo(dtype).max)

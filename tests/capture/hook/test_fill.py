"""Fresh PyTorch memory filled with NaN: with the real PyTorch where there is one, and the wrapping without."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from cuwhy.capture.hook import FILL

from .conftest import Bench

REAL = importlib.util.find_spec("torch")

PROGRAM = """
import torch
x = torch.empty(5)
assert x.isnan().all()
assert torch.empty_like(x, dtype=torch.int32).eq(2**31 - 1).all()
assert torch.empty(3, dtype=torch.bool).all()
assert torch.zeros(2).new_empty((4,)).isnan().all()
assert torch.empty_strided((2, 3), (3, 1), dtype=torch.float16).isnan().all()
assert torch.empty(2, requires_grad=True).requires_grad
assert torch.empty(2, device="meta").shape == (2,)
assert torch.empty((0,)).numel() == 0
torch.manual_seed(0)
layer = torch.nn.Linear(3, 3)
assert not layer(torch.ones(2, 3)).isnan().any()
scripted = torch.jit.script(torch.nn.ReLU())
assert scripted(torch.ones(2)).eq(1).all()
print("filled", torch.arange(3).sum().item(), torch.ones(2, 2).mm(torch.ones(2, 2)).sum().item())
"""

STAND_IN = """
class Type:
    is_floating_point = True
    is_complex = False
class Filled:
    dtype = Type()
    value = 0
    def fill_(self, value):
        self.value = value
class Broken:
    dtype = Type()
    def fill_(self, value):
        raise RuntimeError("no memory behind it")
class Tensor:
    pass
class no_grad:
    def __enter__(self): pass
    def __exit__(self, *rest): pass
def empty(broken=False):
    '''Documentation.'''
    return Broken() if broken else Filled()
"""


@pytest.mark.skipif(REAL is None, reason="PyTorch is not installed")
def test_the_real_pytorch(bench: Bench) -> None:
    assert REAL is not None
    assert REAL.origin is not None
    path = str(Path(REAL.origin).parents[1])
    filled = bench.start(PROGRAM, PYTHONPATH=path, **{FILL: "1"})
    assert (filled.code, filled.out) == (0, b"filled 3 8.0\n"), filled.err.decode()


def test_what_is_handed_out_is_filled_and_nothing_else_changes(bench: Bench) -> None:
    (bench.work / "torch").mkdir()
    (bench.work / "torch" / "__init__.py").write_text(STAND_IN)
    code = "import torch; print(torch.empty().value, torch.empty.__doc__, hasattr(torch.empty(broken=True), 'value'))"
    plain = bench.start(code, PYTHONPATH=str(bench.work))
    assert plain.out == b"0 Documentation. False\n"
    filled = bench.start(code, PYTHONPATH=str(bench.work), **{FILL: "1"})
    assert (filled.code, filled.err) == (0, b"")
    assert filled.out == b"nan Documentation. False\n"

"""Errors that CUDA's kernels raise and PyTorch's shape functions do not: a script that counts on one goes its way."""

from pathlib import Path

import pytest

from tests.warm_traces import WARM
from vramtui.core.estimate.devices import card
from vramtui.estimators.traced.process.results import TraceRequest

pytestmark = pytest.mark.torch
SETUP = """
import torch
def ones(*sizes, dtype=None):
    return torch.ones(*sizes, dtype=dtype, device="cuda")
def places(*sizes):
    return torch.zeros(*sizes, dtype=torch.long, device="cuda")
def is_refused(call, error):
    try:
        call()
    except error as refused:
        return type(refused) is error
    return False
"""
REFUSED = (
    SETUP
    + """
x, functional = ones(3, 2), torch.nn.functional
for call in (
    lambda: x.uniform_(3, -1),
    lambda: torch.complex(x, x.int()),
    lambda: torch.complex(x, x.double()),
    lambda: torch.complex(x, x, out=ones(3, 2, dtype=torch.complex128)),
    lambda: x.masked_scatter(x.byte(), x),
    lambda: x.masked_fill(x.byte(), 0),
    lambda: x.masked_fill_(x.byte(), 0),
    lambda: x.masked_fill(x.byte(), x.sum()),
    lambda: torch.native_layer_norm(x, [2], ones(1, 2), None, 1e-5),
    lambda: torch.native_layer_norm(x, [2], None, ones(1, 2), 1e-5),
    lambda: torch.native_layer_norm(x, [], None, None, 1e-5),
    lambda: functional.gelu(x, approximate="exact"),
    lambda: x.index_add(0, places(2), ones(2)),
    lambda: torch.multinomial(x.long(), 1),
    lambda: torch.multinomial(x, 0),
    lambda: torch.multinomial(x, 3),
    lambda: torch.multinomial(ones(1 << 24).new_ones((1 << 24) + 1), 1),
    lambda: torch.bucketize(x, x),
    lambda: torch.as_strided_scatter(x, ones(2, 2), [2, 2], [200, 200]),
    lambda: functional.embedding(places(2), ones(2, 2, 2)),
    lambda: torch.cat([ones(()), ones(())]),
    lambda: torch.aminmax(x, dim=0, out=(ones(2, dtype=torch.float64), ones(2))),
    lambda: torch.linalg.lstsq(ones(3), ones(3)),
):
    assert is_refused(call, RuntimeError), call.__code__.co_firstlineno
for call in (lambda: ones(0, 2).amax(0), lambda: ones(2, 0).amin(-1), lambda: torch.aminmax(ones(0, 2), dim=0)):
    assert is_refused(call, IndexError), call.__code__.co_firstlineno
"""
)
TAKEN = (
    SETUP
    + """
x = ones(3, 2)
x.uniform_(1, 1)
torch.complex(x, x)
x.masked_scatter(x > 0, x)
x.masked_fill(x > 0, 0).masked_fill_(x > 0, x.sum())
torch.layer_norm(x, [2])
torch.native_layer_norm(x, [3, 2], x, x, 1e-5)
torch.nn.functional.gelu(x, approximate="tanh")
x.index_add(0, places(2), ones(2, 2))
x.index_add(-1, places(1), ones(3, 1))
ones(()).index_add(0, places(1), ones(1))
torch.multinomial(x, 2)
torch.multinomial(x, 9, replacement=True)
torch.bucketize(x, ones(3))
torch.as_strided_scatter(x, ones(2, 2), [2, 2], [2, 1], 2)
torch.as_strided_scatter(x, ones(0, 2), [0, 2], [99, 99])
x.amax(), x.amax(1), torch.aminmax(x), ones(0, 2).amax(1)
torch.aminmax(x, dim=0, out=(ones(2), ones(2)))
torch.linalg.lstsq(ones(3, 2), ones(3, 1))
"""
)


@pytest.mark.parametrize("text", [REFUSED, TAKEN], ids=["refused", "taken"])
def test_what_the_kernels_refuse_is_refused_and_nothing_else(tmp_path: Path, text: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(text, encoding="utf-8")
    WARM.trace(TraceRequest(path=str(script), device=card("H200")))

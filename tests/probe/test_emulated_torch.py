"""The probe's part on an emulated card, with PyTorch's CPU build: what is not on the card keeps its own answers."""

import subprocess
import sys

import pytest

JOB = """
import torch
from vramtui.probe import emulated
emulated.prepare(torch)
ones, zeros = torch.ones(3), torch.zeros(3)
print(bool(ones.all()), bool(zeros.all()), bool(torch.all(zeros)), bool(zeros.any()))
print(torch.equal(ones, ones), torch.equal(ones, zeros), torch.allclose(ones, zeros), ones.allclose(ones))
print(zeros.reshape(1, 3).all(dim=1).tolist(), torch.all(ones, dim=0, keepdim=True).tolist())
print(torch.distributions.Normal(zeros, ones).batch_shape)
try:
    torch.distributions.Normal(zeros, -ones)
except ValueError as error:
    print(str(error).split(" of shape")[0])
"""


@pytest.mark.torch
@pytest.mark.slow
def test_what_is_not_on_the_card_keeps_its_own_answers() -> None:
    pytest.importorskip("torch")
    ran = subprocess.run([sys.executable, "-c", JOB], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines() == [
        "True False False False",
        "True False False True",
        "[False] [True]",
        "torch.Size([3])",
        "Expected parameter scale (Tensor",
    ]

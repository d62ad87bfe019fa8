"""A small training job on the CPU. Arguments: the number of steps."""

import sys

import no_compiler  # type: ignore[import-not-found]  # noqa: F401 - beside this file, for its effect
import torch

model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
    for _accumulated in range(2):
        model(torch.randn(4, 32)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
sys.stdout.write("trained\n")

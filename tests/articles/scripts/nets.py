"""Small nets of the articles: `vramtui trace nets.py:FUNCTION`."""

import torch
from torch import nn

SIDE = 2048  # a square of so many fp32 numbers takes 16 MiB


def three_blocks() -> None:
    """Linear, ReLU, Linear and Sigmoid, three times, on a batch of five."""
    blocks = [nn.Sequential(nn.Linear(200, 100), nn.ReLU(), nn.Linear(100, 200), nn.Sigmoid()) for _ in range(3)]
    model = nn.Sequential(*blocks).to("cuda")
    model(torch.zeros(5, 200, device="cuda")).sum().backward()


def anew() -> None:
    """An activation whose result is a tensor of its own."""
    numbers = torch.zeros(SIDE, SIDE, device="cuda")
    nn.functional.relu(numbers)


def in_place() -> None:
    """The same activation over its input."""
    numbers = torch.zeros(SIDE, SIDE, device="cuda")
    nn.functional.relu(numbers, inplace=True)


def relu_in_place() -> None:
    """Eight linear layers with ReLU in place: what ReLU overwrites nobody else would have kept."""
    _train(inplace=True)


def relu_anew() -> None:
    """The same without it."""
    _train(inplace=False)


def _train(*, inplace: bool) -> None:
    layers = [layer for _ in range(8) for layer in (nn.Linear(1024, 1024), nn.ReLU(inplace=inplace))]
    model = nn.Sequential(*layers).to("cuda")
    model(torch.zeros(4096, 1024, device="cuda")).sum().backward()

"""The networks of the recorded training runs: perceptrons, a GPT with two ways to attend, ResNet-50."""

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


class SpelledNorm(nn.Module):
    """Layer norm out of plain operators, each of which leaves an activation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(-1, keepdim=True)
        variance = ((x - mean) ** 2).mean(-1, keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.scale + self.shift


def perceptron(norm: Callable[[int], nn.Module] | None = None) -> nn.Module:
    """Four hidden layers of 1024, ten classes."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers.append(nn.Linear(1024, 1024))
        if norm is not None:
            layers.append(norm(1024))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.Linear(1024, 10))


class Attention(nn.Module):
    """Causal self-attention, fused or with its scores spelled out."""

    mask: Tensor

    def __init__(self, width: int, heads: int, context: int, *, fused: bool) -> None:
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.drop = nn.Dropout(0.0)
        if not fused:
            self.register_buffer("mask", torch.ones(context, context).tril()[None, None], persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        # A generator: nothing but q, k and v holds on to the product of all three.
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        if self.fused:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(-2, -1) / math.sqrt(k.shape[-1])
            scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, -math.inf)
            mixed = self.drop(functional.softmax(scores, -1)) @ v
        out: Tensor = self.drop(self.out(mixed.transpose(1, 2).reshape(batch, length, width)))
        return out


class Block(nn.Module):
    """Attention and a network four times as wide, each behind a norm and beside a residual."""

    def __init__(self, width: int, heads: int, context: int, *, fused: bool) -> None:
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.attention = Attention(width, heads, context, fused=fused)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.0))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.before(x))
        y: Tensor = x + self.wide(self.between(x))
        return y


class Gpt(nn.Module):
    """GPT-2's shape; the head shares the embedding's weights."""

    def __init__(
        self, vocabulary: int, width: int, layers: int, heads: int, context: int, *, fused: bool, checkpointed: bool
    ) -> None:
        super().__init__()
        self.checkpointed = checkpointed
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.drop = nn.Dropout(0.0)
        self.blocks = nn.ModuleList(Block(width, heads, context, fused=fused) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        out: Tensor = self.head(self.norm(x))
        return out


class Bottleneck(nn.Module):
    """A residual block as torchvision has it: ReLU and sum in place."""

    def __init__(self, before: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, inner, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, 4 * inner, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(4 * inner)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module | None = None
        if stride > 1 or before != 4 * inner:
            self.shortcut = nn.Sequential(
                nn.Conv2d(before, 4 * inner, 1, stride, bias=False), nn.BatchNorm2d(4 * inner)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.conv1(x)
        out = self.relu(self.bn1(out))
        out = self.conv2(out)
        out = self.relu(self.bn2(out))
        out = self.conv3(out)
        out = self.bn3(out)
        if self.shortcut is not None:
            identity = self.shortcut(x)
        out += identity
        y: Tensor = self.relu(out)
        return y


def resnet50() -> nn.Module:
    """Stages of 3, 4, 6 and 3 blocks, a thousand classes."""
    layers: list[Any] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    before = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner = 64 << stage
        for block in range(blocks):
            layers.append(Bottleneck(before, inner, 2 if stage and not block else 1))
            before = 4 * inner
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))

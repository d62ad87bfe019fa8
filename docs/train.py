"""A GPT-2 of 124 million parameters trained in bf16: the script of the README's first example."""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
asked = parser.parse_args()


class Block(nn.Module):
    """Attention, then an MLP, each after a norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch, tokens and width stay as they are."""
        b, t, c = x.shape
        q, k, v = (part.view(b, t, 12, c // 12).transpose(1, 2) for part in self.qkv(self.first(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.mlp(self.second(x))


model = nn.Sequential(nn.Embedding(50257, 768), *(Block(768) for _ in range(12)), nn.Linear(768, 50257)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    tokens = torch.randint(50257, (asked.batch_size, 1024), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()

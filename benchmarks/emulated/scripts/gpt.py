"""A GPT of 124 million parameters as nanoGPT trains it: autocast, fused AdamW, micro-batches, clipping."""

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, HEADS, LAYERS, LENGTH, VOCABULARY = 768, 12, 12, 1024, 50304


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH, bias=False), nn.Linear(WIDTH, WIDTH, bias=False)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH, bias=False), nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        q, k, v = (
            one.view(batch, length, HEADS, -1).transpose(1, 2) for one in self.qkv(self.norm1(x)).split(WIDTH, dim=2)
        )
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH, bias=False), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def main() -> None:
    torch.manual_seed(1)
    model = Gpt().to("cuda")
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95), fused=True)
    data = torch.randint(0, VOCABULARY, (1 << 16,))
    for _ in range(3):
        for _ in range(5):
            at = torch.randint(len(data) - LENGTH, (12,))
            x = torch.stack([data[i : i + LENGTH] for i in at]).pin_memory().to("cuda", non_blocking=True)
            y = torch.stack([data[i + 1 : i + 1 + LENGTH] for i in at]).pin_memory().to("cuda", non_blocking=True)
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(x, y) / 5
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item())


if __name__ == "__main__":
    main()

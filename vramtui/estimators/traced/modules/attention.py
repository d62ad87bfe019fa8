"""Self-attention, fused or with its scores spelled out: a decoder's with dropouts and a stored mask, and a list's."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.models.kinds.attention import AttentionModule


class CausalSelfAttention(nn.Module):
    """Causal self-attention, fused or with its scores spelled out."""

    mask: Tensor | None

    def __init__(self, module: AttentionModule, model: TransformerModel, *, eager: bool) -> None:
        super().__init__()
        width, rows = module.hidden, model.max_position_embeddings or 1024
        self.heads, self.dropout = module.heads, model.attention_dropout
        self.qkv = nn.Linear(width, 3 * width, bias=module.bias)
        self.out = nn.Linear(width, width, bias=module.output_bias)
        self.drop, self.drop_scores = nn.Dropout(model.hidden_dropout), nn.Dropout(model.attention_dropout)
        mask = torch.ones(rows, rows).tril()[None, None] if eager else None
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        if self.mask is None:
            dropout = self.dropout if self.training else 0.0
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=dropout)
        else:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            scores = scores.masked_fill(self.mask[:, :, :tokens, :tokens] == 0, float("-inf"))
            mixed = self.drop_scores(functional.softmax(scores, -1)) @ v
        out = self.drop(self.out(mixed.transpose(1, 2).reshape(batch, tokens, width)))
        assert isinstance(out, Tensor)
        return out


class MultiHeadAttention(nn.Module):
    """Self-attention over (tokens, width)."""

    def __init__(self, width: int, heads: int, *, bias: bool, causal: bool, eager: bool) -> None:
        super().__init__()
        self.heads, self.causal, self.eager = heads, causal, eager
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=bias), nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """The shape stays."""
        batch, tokens, width = x.shape
        q, k, v = (part.view(batch, tokens, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1))
        if self.eager:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            if self.causal:
                ahead = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(1)
                scores = scores.masked_fill(ahead, float("-inf"))
            mixed = functional.softmax(scores, -1) @ v
        else:
            mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        mixed = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        assert isinstance(mixed, Tensor)
        return mixed

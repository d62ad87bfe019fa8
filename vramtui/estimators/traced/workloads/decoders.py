"""Language models: a plain GPT in torch.nn, and those of the transformers library."""

import json
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.traced.modules.attention import CausalSelfAttention
from vramtui.estimators.traced.modules.mlp import torch_mlp
from vramtui.models.kinds.attention import AttentionModule
from vramtui.models.kinds.mlp import MlpModule
from vramtui.models.specs.decoder import decoder_spec

LONGEST = 400


class DecoderBlock(nn.Module):
    """Attention and MLP, each behind a layer norm and beside a residual.

    They are made in the order that such models have them: where freed blocks are taken again depends on it.
    """

    def __init__(self, model: TransformerModel, *, eager: bool) -> None:
        super().__init__()
        block, width = decoder_spec(model).blocks[0], model.hidden_size
        self.norm_1 = nn.LayerNorm(width)
        self.attention = CausalSelfAttention(block.part(AttentionModule), model, eager=eager)
        self.norm_2 = nn.LayerNorm(width)
        self.mlp = torch_mlp(block.part(MlpModule), model.hidden_dropout)

    def forward(self, x: Tensor) -> Tensor:
        """(batch, tokens, width) to the same."""
        x = x + self.attention(self.norm_1(x))
        out = x + self.mlp(self.norm_2(x))
        assert isinstance(out, Tensor)
        return out


class PlainGPT(nn.Module):
    """A GPT-2 as one writes it oneself: fused kernels where torch has them, logits in the compute type."""

    def __init__(self, model: TransformerModel, *, eager: bool, again: bool) -> None:
        super().__init__()
        width = model.hidden_size
        self.again = again
        self.tokens = nn.Embedding(model.vocab_size, width)
        self.positions = nn.Embedding(model.max_position_embeddings or 1024, width)
        self.drop = nn.Dropout(model.hidden_dropout)
        self.blocks = nn.ModuleList(DecoderBlock(model, eager=eager) for _ in range(model.num_hidden_layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, model.vocab_size, bias=model.lm_head_bias)
        if model.tie_word_embeddings:
            self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        """(batch, tokens) to logits (batch, tokens, vocabulary)."""
        x = self.drop(self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device)))
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again and self.training else block(x)
        logits = self.head(self.norm(x))
        assert isinstance(logits, Tensor)
        return logits


def build_from_config(config: dict[str, Any], *, attention: str, again: bool) -> Any:
    """The language model of transformers with this config, on the CPU and without values; one that reads images too is
    run with words alone. Unless it is to be `eager`, its kernel of attention is transformers' own choice: not every
    model takes every one.

    Raises:
        UserError: transformers knows no such config, or refuses to build it; the sentence is its own.
    """
    import transformers  # noqa: PLC0415 - it takes seconds to load, and most traces need none of it

    try:
        model_config = transformers.AutoConfig.for_model(**config)
    except Exception as error:  # noqa: BLE001 - a config's own checks raise what they like
        raise UserError(f"model.config: transformers cannot read it: {_sentence(error)}") from None
    if attention == "eager":
        model_config._attn_implementation = "eager"
    builders: list[Any] = [transformers.AutoModelForCausalLM, transformers.AutoModelForImageTextToText]
    fitting = [one for one in builders if type(model_config) in one._model_mapping]
    if not fitting:
        kind = config["model_type"]
        raise UserError(f"model.config: transformers has no causal language model of the type {kind!r}")
    try:
        build: Any = fitting[0].from_config
        model = build(model_config)
    except Exception as error:  # noqa: BLE001 - as above, and a model's code does the same
        raise UserError(f"model.config: transformers cannot build it: {_sentence(error)}") from None
    if again:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def _sentence(error: Exception) -> str:
    """What the library says, in one line."""
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__


def decoded(config: str) -> dict[str, Any]:
    """A config's JSON as what transformers takes."""
    values: dict[str, Any] = json.loads(config)
    # What it is stored in says nothing of what it runs in here: that is the run's precision.
    return {key: value for key, value in values.items() if key not in {"dtype", "torch_dtype", "quantization_config"}}

"""The shapes of models, named as Hugging Face's config files name them; the `[model]` table of a preset."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1, le=2**40)]
Probability = Annotated[float, Meta(ge=0.0, lt=1.0)]

Activation = Literal["gelu", "gelu_new", "gelu_pytorch_tanh", "relu", "silu"]
Norm = Literal["layernorm", "rmsnorm"]
Position = Literal["learned", "rope", "none"]
Implementation = Literal["huggingface", "plain"]


class TransformerModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="transformer"
):
    """A decoder-only transformer.

    Attributes:
        intermediate_size: width of the MLP; 4 x hidden_size when absent.
        gated_mlp: gate and up projections beside the down projection (SwiGLU, GeGLU).
        attention_bias: biases on the q, k, v projections; `output_bias` on the attention's output projection.
        mlp_bias: biases in the MLP.
        norms_per_layer: 2 for most; 4 where each block is also normed after itself (Gemma 2).
        qk_norm: a norm of head_dim over queries and another over keys.
        fused_qkv: one projection makes queries, keys and values (GPT-2).
        implementation: whose modelling code it is, for what the shapes leave open. `huggingface` spells RMS norms and
            `gelu_new` out in single operators and computes the loss on fp32 logits; `plain` uses torch's fused ones
            and leaves the logits in the compute type, as nanoGPT does.
        parameters: the model card's exact count; checked against the shapes when given.
    """

    hidden_size: Count
    num_hidden_layers: Count
    num_attention_heads: Count
    vocab_size: Count
    num_key_value_heads: Count | None = None
    head_dim: Count | None = None
    intermediate_size: Count | None = None
    max_position_embeddings: Count | None = None
    position: Position = "rope"
    hidden_act: Activation = "silu"
    gated_mlp: bool = True
    norm: Norm = "rmsnorm"
    norms_per_layer: Annotated[int, Meta(ge=1, le=4)] = 2
    qk_norm: bool = False
    fused_qkv: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    tie_word_embeddings: bool = False
    hidden_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    implementation: Implementation = "huggingface"
    parameters: Count | None = None

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads: as many as heads (MHA) unless given (GQA, MQA)."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        """Width of one head."""
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def ffn_size(self) -> int:
        """Width of the MLP."""
        return self.intermediate_size or 4 * self.hidden_size


class RuleModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="rule"):
    """No shapes at all: the preset's `[rule]` table holds what a published rule takes. Only `rules` answers for it."""


Model = TransformerModel | RuleModel

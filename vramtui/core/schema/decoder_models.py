"""The shapes of models, named as Hugging Face's config files name them; the `[model]` table of a preset."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from vramtui.core.schema.bounds import (
    Activation,
    Count,
    Experts,
    Heads,
    Implementation,
    Layers,
    LayersOrNone,
    Norm,
    ParameterCount,
    Position,
    Probability,
    Tokens,
    Words,
    check_parameters,
)
from vramtui.core.schema.encoder_models import (
    DiffusionTransformerModel,
    EncoderDecoderModel,
    EncoderModel,
    PipelineModel,
    UNetModel,
)
from vramtui.core.schema.layer_models import ConvNetModel, SequentialModel
from vramtui.core.schema.stored_tensors import ImageTokens, LayerCache, TensorGroup, TowerShape

NormsPerLayer = Annotated[int, Meta(ge=1, le=4)]
Positive = Annotated[float, Meta(gt=0)]
KindOfLayer = Literal["full", "sliding"]
Basis = Literal["shapes", "family", "generic"]


class TransformerModel(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="transformer"
):
    """A decoder-only transformer: dense or with experts, any of the usual attentions.

    Attributes:
        hidden_size: width of the residual stream.
        num_hidden_layers: number of blocks.
        num_attention_heads: query heads.
        vocab_size: rows of the embedding, padding included.
        num_key_value_heads: key/value heads; as many as query heads (MHA) when absent, 1 is MQA.
        head_dim: width of one head; hidden_size / heads when absent.
        intermediate_size: width of the MLP; 4 x hidden_size when absent.
        max_position_embeddings: the longest sequence; the number of rows of learned positions.
        position: learned positions are parameters, rotary ones are not.
        hidden_act: the MLP's activation function.
        gated_mlp: gate and up projections beside the down projection (SwiGLU, GeGLU).
        norm: the kind of norm; `gemma_rmsnorm` multiplies by the weight in fp32.
        norms_per_layer: 2 for most; 4 where each block is also normed after itself (Gemma 2); 1 where attention and
            MLP share one (GPT-J).
        qk_norm: a norm of head_dim over queries and another over keys.
        fused_qkv: one projection makes queries, keys and values (GPT-2, GPT-NeoX, Phi-3).
        enable_gqa: key/value heads that queries share are repeated, or scaled_dot_product_attention is told of them;
            where neither is done (Falcon's multi-query attention) no fused kernel of torch takes them.
        parallel_residual: attention and MLP read the same input and are added together (GPT-J, GPT-NeoX).
        attention_bias: biases on the q, k, v projections.
        output_bias: bias on the attention's output projection.
        mlp_bias: biases in the MLP.
        lm_head_bias: bias on the output layer.
        tie_word_embeddings: the output layer is the embedding.
        hidden_dropout: dropout after embeddings, attention and MLP.
        attention_dropout: dropout on the attention's weights.
        sliding_window: tokens that a sliding layer looks back.
        sliding_window_pattern: every n-th layer looks back all the way, the others slide; all slide when absent.
        num_experts: routed experts in each MLP; dense when absent.
        num_experts_per_tok: experts that each token is sent to.
        moe_intermediate_size: width of one expert; intermediate_size when absent.
        n_shared_experts: experts that every token is sent to.
        shared_expert_intermediate_size: width of the shared expert where it is not n x moe_intermediate_size.
        shared_expert_gate: a gate of hidden_size on the shared expert (Qwen 2 MoE).
        first_k_dense_replace: the first layers that have a dense MLP instead (DeepSeek).
        router_bias: a bias for each expert on the router (DeepSeek V3).
        q_lora_rank: rank of the compressed queries; not compressed when absent.
        kv_lora_rank: rank of the compressed keys and values; its presence makes the attention MLA (DeepSeek).
        qk_nope_head_dim: width of a head without positions, in MLA.
        qk_rope_head_dim: width of the rotary part of a head, in MLA.
        v_head_dim: width of a head of values, in MLA.
        final_logit_softcapping: logits are squeezed by tanh to this size (Gemma 2).
        attn_logit_softcapping: so are eager attention's scores (Gemma 2); torch's fused kernels pass over it.
        implementation: whose modelling code it is, for what the shapes leave open. `huggingface` spells RMS norms and
            `gelu_new` out in single operators and computes the loss on fp32 logits; `plain` uses torch's fused ones
            and leaves the logits in the compute type, as nanoGPT does.
        parameters: the model card's exact count; checked against the shapes when given.
        tensors: every tensor, where the sizes above do not give them; weights are then counted only by these.
        caches: what the layers keep of a sequence, where the sizes above do not say it.
        image_tokens: how many tokens of a sequence an image takes.
        tower: what the tower for images holds while it runs.
        audio_tower: the same of one for sound.
        basis: how sure it is: every operator follows from the `shapes`; the tensors and caches of its `family` are
            exact, and what comes and goes is the nearest decoder's; or all is read from the usual keys (`generic`).
    """

    hidden_size: Count
    num_hidden_layers: Layers
    num_attention_heads: Heads
    vocab_size: Words
    num_key_value_heads: Heads | None = None
    head_dim: Count | None = None
    intermediate_size: Count | None = None
    max_position_embeddings: Tokens | None = None
    position: Position = "rope"
    hidden_act: Activation = "silu"
    gated_mlp: bool = True
    norm: Norm = "rmsnorm"
    norms_per_layer: NormsPerLayer = 2
    qk_norm: bool = False
    fused_qkv: bool = False
    enable_gqa: bool = True
    parallel_residual: bool = False
    attention_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    lm_head_bias: bool = False
    tie_word_embeddings: bool = False
    hidden_dropout: Probability = 0.0
    attention_dropout: Probability = 0.0
    sliding_window: Tokens | None = None
    sliding_window_pattern: Layers | None = None
    num_experts: Experts | None = None
    num_experts_per_tok: Experts | None = None
    moe_intermediate_size: Count | None = None
    n_shared_experts: Experts | None = None
    shared_expert_intermediate_size: Count | None = None
    shared_expert_gate: bool = False
    first_k_dense_replace: LayersOrNone = 0
    router_bias: bool = False
    q_lora_rank: Count | None = None
    kv_lora_rank: Count | None = None
    qk_nope_head_dim: Count | None = None
    qk_rope_head_dim: Count | None = None
    v_head_dim: Count | None = None
    final_logit_softcapping: Positive | None = None
    attn_logit_softcapping: Positive | None = None
    implementation: Implementation = "huggingface"
    parameters: ParameterCount | None = None
    tensors: tuple[TensorGroup, ...] = ()
    caches: tuple[LayerCache, ...] = ()
    image_tokens: ImageTokens | None = None
    tower: TowerShape | None = None
    audio_tower: TowerShape | None = None
    basis: Basis = "shapes"

    def __post_init__(self) -> None:
        layers = {"num_hidden_layers": self.num_hidden_layers, "hidden_size": self.hidden_size}
        heads = {"num_attention_heads": self.num_attention_heads, "head_dim": self.head_size}
        check_parameters("model", layers | heads)
        if self.num_experts is None:
            check_parameters("model", layers | {"intermediate_size": self.ffn_size})
        else:
            experts = {"num_experts": self.num_experts, "moe_intermediate_size": self.expert_size}
            check_parameters("model", layers | experts)
        check_parameters("model.tensors", {"numbers": sum(group.numel * group.count for group in self.tensors)})

    @property
    def kv_heads(self) -> int:
        """Number of key/value heads: as many as heads (MHA) unless given (GQA, MQA)."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def head_size(self) -> int:
        return self.head_dim or self.hidden_size // self.num_attention_heads

    @property
    def ffn_size(self) -> int:
        return self.intermediate_size or 4 * self.hidden_size

    @property
    def expert_size(self) -> int:
        return self.moe_intermediate_size or self.ffn_size

    @property
    def shared_size(self) -> int:
        """Width of the shared experts together; 0 where there are none."""
        return self.shared_expert_intermediate_size or (self.n_shared_experts or 0) * self.expert_size

    def looks_back(self, layer: int) -> KindOfLayer:
        """Return whether the layer (from 0) slides over a window or looks back all the way."""
        if self.sliding_window is None:
            return "full"
        pattern = self.sliding_window_pattern
        return "full" if pattern is not None and (layer + 1) % pattern == 0 else "sliding"


class TorchModel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="torch"):
    """Someone's own PyTorch code, which runs only if a person asks for it.

    Attributes:
        file: the Python file, relative to the preset.
        function: which function of it, without arguments; the file runs as a script when absent.
        arguments: what a script finds in `sys.argv`.
    """

    file: str
    function: str | None = None
    arguments: tuple[str, ...] = ()


Model = (
    TransformerModel
    | EncoderModel
    | EncoderDecoderModel
    | ConvNetModel
    | SequentialModel
    | UNetModel
    | DiffusionTransformerModel
    | PipelineModel
    | TorchModel
)

"""What vLLM's profiling run needs at its fullest, and its CUDA graphs."""

import msgspec

from vramtui.core.base.units import KIB
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.estimators.analytic.sizes.parameters import latent_dims
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.torch_facts.allocator_sizes import rounded

# Bytes the sampler holds for each logit: 16 bits as computed, fp32, fp32 sorted, and their int64 places.
SAMPLED = 2 + 4 + 4 + 8
# 0.73 GiB for 51 graphs in pieces and 35 whole ones of some 40 layers (vLLM 0.25's own estimate).
GRAPH_PER_LAYER = 192 * KIB
MOST_CAPTURED = 512
# Tensors of the residual stream alive at once: the residual, what was normed, and what it was normed from.
STREAMS = 3


class Profiled(msgspec.Struct, frozen=True):
    """Bytes of the profiled batch at its fullest, and where that is."""

    bytes: int
    formula: str


def profiled_batch(share: Share, tokens: int, sequences: int, itemsize: int) -> Profiled:
    """The fullest moment of one pass over `tokens` tokens and of sampling for `sequences` sequences."""
    model, wide = share.model, tokens * share.model.hidden_size * itemsize
    stream = STREAMS * rounded(wide)
    moments = [
        Profiled(stream + rounded(tokens * numbers * itemsize), f"{tokens:,} tokens x {itemsize} B x ({words})")
        for numbers, words in (_attention(model), _feed_forward(model, share))
    ]
    if share.ends:
        vocabulary = share.model.vocab_size
        sampled = rounded(wide) + rounded(sequences * vocabulary * SAMPLED)
        words = (
            f"sampling for {sequences} sequences: {vocabulary:,} logits x {SAMPLED} B, beside {tokens:,} tokens x "
            f"{model.hidden_size} x {itemsize} B"
        )
        moments.append(Profiled(sampled, words))
    return max(moments, key=lambda moment: moment.bytes)


def _attention(model: TransformerModel) -> tuple[int, str]:
    """Numbers for each token beside the residual stream while a layer attends."""
    heads, stream = model.num_attention_heads, f"{STREAMS} x {model.hidden_size} stream"
    if model.kv_lora_rank is None:
        queries, keys = heads * model.head_size, 2 * model.kv_heads * model.head_size
        return 2 * queries + keys, f"{stream} + {queries + keys} queries, keys, values + {queries} answers"
    plain, rope_dim, values = latent_dims(model)
    wide = heads * (2 * (plain + rope_dim) + plain + 2 * values)
    return wide, f"{stream} + {heads} heads x {wide // heads} unpacked from the latent"


def _feed_forward(model: TransformerModel, share: Share) -> tuple[int, str]:
    """The same while a layer's MLP or experts work."""
    twice = 2 if model.gated_mlp else 1
    stream = f"{STREAMS} x {model.hidden_size} stream"
    if model.num_experts is None or share.stop <= model.first_k_dense_replace:
        inner = (twice + 1) * model.ffn_size
        return inner, f"{stream} + {twice + 1} x {model.ffn_size} MLP"
    copies = model.num_experts_per_tok or 1
    numbers = copies * ((twice + 1) * model.expert_size + model.hidden_size)
    return numbers, f"{stream} + {copies} experts x ({twice + 1} x {model.expert_size} + {model.hidden_size})"


def graphs_captured(sequences: int) -> int:
    """Graphs: of whole passes for batches of up to `sequences`, and in pieces for up to twice as many.

    Sizes are 1, 2, 4, by eights to 256, and by sixteens beyond.
    """
    largest = min(2 * sequences, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
    return sum((size <= largest) + (size <= min(sequences, 256)) for size in sizes)


def graph_bytes(layers: int, sequences: int) -> int:
    """Bytes of all captured graphs."""
    return GRAPH_PER_LAYER * layers * graphs_captured(sequences)

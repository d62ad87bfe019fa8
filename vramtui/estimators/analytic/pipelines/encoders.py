"""What a pipeline's text encoder holds while it reads prompts, beside its weights.

Source: transformers 5.23, modeling_clip.py, modeling_t5.py, modeling_qwen2_5_vl.py; nothing is kept for a backward
pass. The shapes are small beside any denoiser's, so that whole tensors are counted and no operator is followed.

Shapes: stream (b, s, h), MLP (b, s, i), biases (n, s, s), logits (b, s, v); b prompts of s tokens.
"""

from vramtui.core.schema.diffusion_models import PipelineEncoder

# Tensors of the stream's size that a block holds at its attention: the stream, its norm in fp32 and back, queries,
# keys, values and the answer.
STREAMS = 8
# Copies of T5's biases that are there at once: 2 in T5, 3 in UMT5, whose blocks make one each.
BIASES = 3


def reading_bytes(encoder: PipelineEncoder, prompts: int, itemsize: int) -> int:
    """The most that it holds over `prompts` prompts, in bytes."""
    tokens = prompts * encoder.tokens
    stream = tokens * encoder.hidden_size * itemsize
    inner = tokens * encoder.intermediate_size * itemsize
    attention = STREAMS * stream + _biases(encoder, itemsize)
    mlp = 3 * stream + (3 if encoder.gated_mlp else 2) * inner
    kept = encoder.num_hidden_layers * stream if encoder.keeps_states else 0
    logits = tokens * (encoder.output_size or 0) * itemsize
    return kept + max(attention, mlp, 2 * stream + logits)


def _biases(encoder: PipelineEncoder, itemsize: int) -> int:
    """A bias for each pair of tokens: what all blocks share or one block makes, and what a kernel copies of it."""
    return BIASES * encoder.num_attention_heads * encoder.tokens**2 * itemsize if encoder.position_bias else 0

"""What a pipeline's text encoder holds while it reads prompts, beside its weights.

Source: transformers 5.23, modeling_clip.py, modeling_t5.py, modeling_qwen2_5_vl.py; nothing is kept for a backward
pass. The shapes are small beside any denoiser's, so that whole tensors are counted and no operator is followed.
"""

from vramtui.core.schema.diffusion_models import PipelineEncoder

# Tensors of the stream's size that a block holds at its attention: the stream, its norm in fp32 and back, queries,
# keys, values and the answer.
STREAMS = 8
FP32 = 4


def reading_bytes(encoder: PipelineEncoder, prompts: int, itemsize: int) -> int:
    """The most that it holds over `prompts` prompts, in bytes."""
    tokens = prompts * encoder.tokens
    stream = tokens * encoder.hidden_size * itemsize
    inner = tokens * encoder.intermediate_size * itemsize
    attention = STREAMS * stream + _scores(encoder, prompts, itemsize)
    mlp = 3 * stream + (3 if encoder.gated_mlp else 2) * inner
    kept = encoder.num_hidden_layers * stream if encoder.keeps_states else 0
    logits = tokens * (encoder.output_size or 0) * itemsize
    return kept + max(attention, mlp, 2 * stream + logits)


def _scores(encoder: PipelineEncoder, prompts: int, itemsize: int) -> int:
    """Spelled-out scores: with their bias, raised to fp32, after the softmax, and the bias that all blocks share."""
    if not encoder.spelled_scores:
        return 0
    numbers = prompts * encoder.num_attention_heads * encoder.tokens**2
    shared = encoder.num_attention_heads * encoder.tokens**2 * itemsize
    return numbers * (itemsize + 2 * FP32) + shared

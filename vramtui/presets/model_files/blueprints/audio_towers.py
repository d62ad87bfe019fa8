"""Towers for sound, and what makes a few tokens of the many that a tower puts out, in the language of `blueprint`."""

from vramtui.presets.model_files.blueprints.layers import LAYERS

QFORMER = """
every = cross_attention_frequency
crossing = (n + every - 1) // every
norm: h; bias
each n:
qkvo: h, h; bias; x 4
layer_norm: h; bias; x 2
query_up: i, h; bias
query_down: h, i; bias
once:
each crossing:
cross_qo: h, h; bias; x 2
cross_kv: h, encoder_hidden_size; bias; x 2
cross_norm: h; bias
once:
"""
QFORMER_WORDS = (
    QFORMER
    + """
words: vocab_size, h
positions: max_position_embeddings, h
up: i, h; bias; x n
down: h, i; bias; x n
word_norm: h; bias; x n
"""
)
PERCEIVER = """
inner = resampler_n_heads * resampler_head_dim
keys = num_key_value_heads * resampler_head_dim
latents: resampler_n_latents, h
norm: h
each resampler_depth:
q: inner, h
kv: keys, h; x 2
o: h, inner
norms: h; x 3
gate_up: 4 * h, h; x 2
down: h, 4 * h
once:
"""
OMNI_AUDIO = (
    """
freq = (((num_mel_bins + 1) // 2 + 1) // 2 + 1) // 2
wide = downsample_hidden_size
conv_in: wide, 1, 3, 3; bias
conv_in: wide, wide, 3, 3; bias; x 2
conv_out: d_model, wide * freq
n = encoder_layers
i = encoder_ffn_dim
h = d_model
"""
    + LAYERS
    + """
post_norm: h; bias
proj_1: h, h; bias
proj_2: output_dim, h; bias
"""
)
OMNI_AUDIO_2_5 = """
h = d_model
n = encoder_layers
i = encoder_ffn_dim
conv_in: h, num_mel_bins, 3; bias
conv_in: h, h, 3; bias
ends: 2, output_dim
each n:
qvo: h, h; bias; x 3
key: h, h
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
post_norm: h; bias
proj: output_dim, h; bias
"""

WHISPER = """
mels = get(num_mel_bins, 80)
conv_in: h, mels, 3; bias
conv_in: h, h, 3; bias
positions: max_source_positions, h
each n:
qvo: h, h; bias; x 3
key: h, h
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
post_norm: h; bias
"""

SOUND: dict[str, str] = {
    "blip_2_qformer": QFORMER,
    **dict.fromkeys(("instructblip_qformer", "instructblipvideo_qformer"), QFORMER_WORDS),
    "idefics2_perceiver": PERCEIVER,
    "qwen2_5_omni_audio_encoder": OMNI_AUDIO_2_5,
    "qwen3_omni_moe_audio_encoder": OMNI_AUDIO,
}

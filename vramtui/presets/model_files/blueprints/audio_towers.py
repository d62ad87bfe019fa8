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
OMNI_AUDIO_TOWER = (
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
"""
)
OMNI_OUT = "proj_1: h, h; bias\nproj_2: output_dim, h; bias\n"
# The layers of Whisper's encoder, whose keys have no bias.
WHISPER_LAYERS = """
each n:
qvo: h, h; bias; x 3
key: h, h
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
post_norm: h; bias
"""
OMNI_AUDIO_2_5 = (
    """
h = d_model
n = encoder_layers
i = encoder_ffn_dim
conv_in: h, num_mel_bins, 3; bias
conv_in: h, h, 3; bias
ends: 2, output_dim
"""
    + WHISPER_LAYERS
    + "proj: output_dim, h; bias\n"
)

WHISPER = (
    """
mels = get(num_mel_bins, 80)
conv_in: h, mels, 3; bias
conv_in: h, h, 3; bias
"""
    + WHISPER_LAYERS
)

WHISPER_PLACED = WHISPER + "positions: max_source_positions, h\n"
CONFORMER = """
h = hidden_dim
n = num_layers
inner = num_heads * dim_head
wide = h * feedforward_mult
conv = h * conv_expansion_factor
input: h, input_dim; bias
out: output_dim, h; bias
out_mid: h, output_dim; bias
each n:
ff_norm: h; bias; x 2
ff_up: wide, h; bias; x 2
ff_down: h, wide; bias; x 2
norm: h; bias; x 3
q: inner, h
kv: 2 * inner, h
o: h, inner; bias
relative: 2 * max_pos_emb + 1, dim_head
conv_up: 2 * conv, h, 1; bias
conv_depth: conv, 1, conv_kernel_size
batch_norm: conv; bias
conv_down: h, conv, 1; bias
once:
"""
PHI4_AUDIO = """
channels = nemo_conv_channels
halvings = log2(time_reduction)
conv_embed: channels, 1, 3, 3; bias; x halvings
conv_embed_point: channels, channels, 1, 1; bias; x halvings - 1
embed_out: h, channels * nemo_final_size; bias
relative: (1 if bias_symmetric else 2) * bias_max_distance, heads
each num_blocks:
ff_norm: h; bias; x 2
gate_up: 2 * i, h; bias; x 2
down: h, i; bias; x 2
qkvo: h, h; bias; x 4
norm: h; bias; x 3
glu: ext_pw_out_channel; x 2
conv_glu: 2 * ext_pw_out_channel, h, 1; bias
conv_depth: h * depthwise_multiplier, 1, kernel_size; bias
conv_point: depthwise_separable_out_channel, h * depthwise_multiplier, 1; bias
conv_out: h, ext_pw_out_channel, 1; bias
once:
"""
GEMMA4_AUDIO = """
first = subsampling_conv_channels[0]
second = subsampling_conv_channels[1]
conv_in: first, 1, 3, 3
conv_in: second, first, 3, 3
in_norm: first
in_norm: second
input: h, first // 4 * second
each n:
ff_up: 4 * h, h; x 2
ff_down: h, 4 * h; x 2
norm: h; x 9
scale: h // heads
qkv: h, h; x 3
o: h, h
relative: h, h
start: 2 * h, h
end: h, h
conv_depth: h, 1, conv_kernel_size
once:
out: output_proj_dims, h; bias
"""

VOXTRAL_REALTIME = """
inner = heads * head_dim
conv_in: h, num_mel_bins, 3; bias
conv_in: h, h, 3; bias
each n:
qv: inner, h; bias; x 2
key: inner, h
o: h, inner; bias
norm: h; x 2
gate_up: i, h; x 2
down: h, i; bias
once:
post_norm: h
"""
# A memory of the last steps beside attention (FSMN, Gao et al. 2022, arXiv 2206.08317); the first layer is as wide as
# the stacked frames that it reads.
FUN_ASR = """
stacked = num_mel_bins * num_stacked_frames
first_qkv: h, stacked; bias; x 3
first_norm: stacked; bias
qkv: h, h; bias; x 3 * (n - 1)
norm: h; bias; x 2 * n - 1
each n:
o: h, h; bias
conv_memory: h, 1, fsmn_kernel_size
up: i, h; bias
down: h, i; bias
once:
last_norm: h; bias; x 2
"""
NEMOTRON_LAYERS = """
each n:
qkv: h, h; x 3
o: h, h; bias
qk_norm: h // heads; bias; x 2; if normed
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
post_norm: h; bias
"""
NEMOTRON_AUDIO = (
    """
input: h, num_mel_bins * subsampling_factor
norm_in: h; bias
"""
    + NEMOTRON_LAYERS
)
# Who speaks when: a head of its own size over a tower of its own.
NEMOTRON_SPEAKERS = """
w = head_config['hidden_size']
speakers = head_config['num_speakers']
silence: audio_config['hidden_size']
proj: w, head_config['audio_hidden_size']; bias
conv_faster: w * head_config['subsampling_factor'], w, 3; bias
dense: w, w; bias
classes: speakers, w; bias
"""
OMNI_TALKER = """
inner = heads * head_dim
keys = num_key_value_heads * head_dim
embed_codes: vocab_size, embedding_size
from_thinker: h, embedding_size; bias
each n:
q: inner, h; bias
kv: keys, h; bias; x 2
o: h, inner
gate_up: i, h; x 2
down: h, i
norm: h; x 2
once:
post_norm: h
codes: vocab_size, h
"""
GEMMA3N_AUDIO = """
n = conf_num_hidden_layers
heads = conf_num_attention_heads
channels = get(sscp_conv_channel_size, [128, 32])
first = channels[0]
second = channels[1]
conv_in: first, 1, 3, 3
conv_in: second, first, 3, 3
in_norm: first
in_norm: second
input: h, second * ((input_feat_size + 3) // 4)
each n:
ff_up: 4 * h, h; x 2
ff_down: h, 4 * h; x 2
norm: h; x 9
scale: h // heads
qkv: h, h; x 3
o: h, h
relative: h, h
start: 2 * h, h
end: h, h
conv_depth: h, 1, conf_conv_kernel_size
once:
"""

SOUND: dict[str, str] = {
    **dict.fromkeys(("blip_2_qformer", "granite_speech_projector"), QFORMER),
    **dict.fromkeys(("instructblip_qformer", "instructblipvideo_qformer"), QFORMER_WORDS),
    "idefics2_perceiver": PERCEIVER,
    "qwen2_5_omni_audio_encoder": OMNI_AUDIO_2_5,
    "qwen3_omni_moe_audio_encoder": OMNI_AUDIO_TOWER + OMNI_OUT,
    "qwen3_asr_encoder": OMNI_AUDIO_TOWER,
    **dict.fromkeys(("voxtral_encoder", "qwen2_audio_encoder", "audioflamingo3_encoder",
                     "moss_transcribe_diarize_audio", "whisper"), WHISPER_PLACED),
    "glmasr_encoder": WHISPER,
    **dict.fromkeys(("granite_speech_encoder", "granite_speech_plus_encoder"), CONFORMER),
    "phi4_multimodal_audio": PHI4_AUDIO,
    "gemma4_audio": GEMMA4_AUDIO,
    "gemma4_unified_audio": "",
    "gemma3n_audio": GEMMA3N_AUDIO,
    "voxtral_realtime_encoder": VOXTRAL_REALTIME,
    "fun_asr_nano_encoder": FUN_ASR,
    "nemotron3_5_transcribe_asr_audio": "normed = True\n" + NEMOTRON_AUDIO,
    "nemotron3_diarization_audio": "normed = False\n" + NEMOTRON_AUDIO,
    "nemotron3_diarization": NEMOTRON_SPEAKERS,
    "nemotron3_5_transcribe_audio": """
norm: asr_config['hidden_size']; bias
norm_speakers: diarization_config['head_config']['num_speakers']; bias
""",
    "nemotron3_5_transcribe_word_timestamp": """
normed = True
conv_faster: h, h, upsampling_factor
conv_faster: h
norm_in: h; bias
conv_words: vocab_size, h, 1; bias
""" + NEMOTRON_LAYERS,
    "qwen2_5_omni_talker": OMNI_TALKER,
    "qwen2_5_omni_token2wav": "",
}  # fmt: skip

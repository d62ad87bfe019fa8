"""What joins the towers of a model to its words, by the model's type; the language is that of `blueprint`."""

from vramtui.presets.model_files.blueprints.layers import CLIP

LLAVA = """
layers = len(get(vision_feature_layer, -2))
linear_1: text.h, vision.h * layers; bias=get(multimodal_projector_bias, True)
linear_2: text.h, text.h; bias=get(multimodal_projector_bias, True)
"""
NEWLINE = "newline: text.h\n"
SHUFFLE = """
wide = vision.h * int(1 / downsample_ratio)**2
norm: wide; bias
linear_1: text.h, wide; bias
linear_2: text.h, text.h; bias
"""
QUERIES = "query_tokens: num_query_tokens, qformer.h\nlanguage_projection: text.h, qformer.h; bias\n"

JOINTS: dict[str, str] = {
    "llava": LLAVA,
    "llava_next": LLAVA + NEWLINE,
    "llava_next_video": LLAVA + NEWLINE,
    "llava_onevision": LLAVA + NEWLINE,
    "video_llava": LLAVA + "in vision:\n" + CLIP,
    "paligemma": "linear: get(projection_dim, text.h), vision.h; bias\n",
    "gemma3": "input_projection: vision.h, text.h\nsoft_norm: vision.h\n",
    "mistral3": """
layers = len(get(vision_feature_layer, -1))
norm: vision.h
merging: vision.h, vision.h * spatial_merge_size**2
linear_1: text.h, vision.h * layers; bias=multimodal_projector_bias
linear_2: text.h, text.h; bias=multimodal_projector_bias
""",
    **dict.fromkeys(("idefics3", "smolvlm"), "proj: text.h, vision.h * scale_factor**2\n"),
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe", "glm4v",
                     "glm46v", "glm4v_moe", "cosmos3_omni"), ""),
    **dict.fromkeys(("internvl", "qianfan_ocr"), SHUFFLE),
    "cohere2_vision": """
wide = vision.h * downsample_factor**2
linear_1: alignment_intermediate_size, wide; bias
linear_2: text.h, alignment_intermediate_size // 2; bias
""",
    "got_ocr2": """
out = vision.output_channels
conv_up: 2 * out, out, 3, 3
conv_up: 4 * out, 2 * out, 3, 3
linear: text.h, text.h; bias
""",
    **dict.fromkeys(("blip-2", "instructblip", "instructblipvideo"), QUERIES),
    "cosmos3_edge": """
wide = vision.h * get(vision.spatial_merge_size, 2)**2
norm: vision.h; bias
linear_1: projector_hidden_size, wide; bias
linear_2: text.h, projector_hidden_size; bias
""",
    "blip": "",
    "modernvbert": "linear: text.h, vision.h * pixel_shuffle_factor**2\n",
    "ultravbert": "linear: text.h, vision.h * pixel_shuffle_factor**2\nnorm: text.h\n",
    "aya_vision": """
wide = vision.h * downsample_factor**2
norm: wide; bias
linear_1: get(alignment_intermediate_size, text.h), wide; bias
linear_2: text.h, get(alignment_intermediate_size, text.h) // 2; bias
""",
    "gemma4": """
vision: text.h, vision.h; if has(vision)
audio: text.h, audio.output_proj_dims; if has(audio)
""",
    "gemma4_unified": """
vision: text.h, vision.output_proj_dims; if has(vision)
audio: text.h, audio.audio_embed_dim; if has(audio)
""",
    "internvl_chat": """
wide = vision.h * int(1 / downsample_ratio)**2
norm: wide; bias
linear_1: text.h, wide; bias
linear_2: text.h, text.h; bias
""",
    "glmasr": "linear_1: 2 * text.h, audio.i; bias\nlinear_2: text.h, 2 * text.h; bias\n",
    "voxtral": "linear_1: text.h, audio.i\nlinear_2: text.h, text.h\n",
    "qwen2_audio": "linear: text.h, audio.d_model; bias\n",
    "audioflamingo3": "linear_1: text.h, audio.h; bias\nlinear_2: text.h, text.h; bias\n",
    "moss_transcribe_diarize": """
linear_1: text.h, audio.h * audio_merge_size; bias=projector_bias
linear_2: text.h, text.h; bias=projector_bias
norm: text.h; bias
""",
    "qwen3_asr": "linear_1: audio.d_model, audio.d_model; bias\nlinear_2: audio.output_dim, audio.d_model; bias\n",
    **dict.fromkeys(("granite_speech", "granite_speech_plus"), """
query: window_size // downsample_rate, projector.h
linear: text.h, projector.h; bias
"""),
    "phi4_multimodal": """
features: vision.h; x 2
vision_up: h, vision.h; bias
vision_down: h, h; bias
audio_up: h, audio.h; bias; x 2
audio_down: h, h; bias; x 2
""",
    **dict.fromkeys(("qwen2_5_omni", "kyutai_speech_to_text"), ""),
    "nemo_speechlm": "linear: text.h, audio.asr_config['hidden_size']; bias\n",
    "voxtral_realtime": "linear_1: text.h, audio.h * downsample_factor\nlinear_2: text.h, text.h\n",
    "vibevoice_asr": """
acoustic: text.h, acoustic_tokenizer_encoder.h; bias
semantic: text.h, semantic_tokenizer_encoder.h; bias
norm: text.h; x 2
out: text.h, text.h; bias; x 2
""",
    "fun_asr_nano": """
in adaptor:
wide = projector_hidden_size
linear_1: wide, root.audio_config['hidden_size']; bias
linear_2: h, wide; bias
each n:
qkvo: h, h; bias; x 4
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
""",
    "gemma3n": """
vision: vision.vocab_size, vision.h
vision_norm: vision.h; x 2
vision_out: text.h, vision.h
audio: audio.vocab_size, audio.h
audio_norm: audio.h; x 2
audio_out: text.h, audio.h
""",
    "deepseek_vl_hybrid": """
in high_res_vision:
first = output_channels
alpha: 1
conv_neck: first, h, 1, 1
conv_neck: first, first, 3, 3
neck_norm: first; bias; x 2
conv_proj: 2 * first, first, 3, 3
conv_proj: 4 * first, 2 * first, 3, 3
in root:
half = text.h // 2
vision_proj: half, vision.h; bias
high_res_proj: half, 4 * high_res_vision.output_channels; bias
proj: text.h, text.h; bias
""",
    "deepseek_vl": "linear_1: text.h, vision.h; bias\nlinear_2: text.h, text.h; bias\n",
    "ernie4_5_vl_moe": """
wide = vision.h * vision.spatial_merge_size**2
spatial: wide, wide; bias; x 2
spatial_norm: wide; bias
temporal: wide, wide * vision.temporal_merge_size; bias
temporal: wide, wide; bias
temporal_norm: wide; bias
mlp: text.h, wide; bias
norm: text.h
""",
    **dict.fromkeys(("exaone4_5", "glm_ocr", "qwen2_5_omni_thinker", "qwen3_omni_moe_thinker"), ""),
    "granite_docling": """
in vision:
coarse = h * scale_factor**2
fine = h * (scale_factor // 2)**2
out = out_hidden_size
merged = len(get(deepstack_visual_indexes, [3, 7, 10]))
norm: h; bias
coarse: out, coarse
coarse_norm: coarse; bias; x merged
coarse_1: out, coarse; bias; x merged
coarse_2: out, out; bias; x merged
fine: out, fine; if use_fine_route
fine_norm: fine; bias; x merged; if use_fine_route
fine_1: out, fine; bias; x merged; if use_fine_route
fine_2: out, out; bias; x merged; if use_fine_route
mid_norm: out; bias; if use_fine_route
mlp: out, out; if use_fine_route
out_norm: out; bias; if use_fine_route
""",
    **dict.fromkeys(("glm5_next", "pix2struct", "pp_formulanet"), ""),
    "vision-encoder-decoder": """
enc_to_dec: decoder.h, encoder.h; bias; if encoder.h != decoder.h
in decoder:
crosses = model_type in ['bert', 'roberta', 'camembert', 'xlm-roberta', 'electra']
cross_qkvo: h, h; bias; x 4 * n; if crosses
cross_norm: h; bias; x n; if crosses
""",
    "florence2": """
out = vision.projection_dim
wide = vision.embed_dim[3]
projection: out, wide
norm: out; bias
positions: vision.max_position_embeddings, wide // 2; x 2
""",
    "fuyu": "patch: text.h, num_channels * patch_size**2; bias\n",
    "git": """
linear: text.h, vision.h; bias
norm: text.h; bias
temporal: 1, 1, vision.h; x get(num_image_with_embedding, 0)
""",
    "hyperclovax_vision_v2": "linear: text.h, vision.out_hidden_size; bias\n",
    "kimi_k25": """
wide = vision.h * vision.merge_kernel_size[0] * vision.merge_kernel_size[1]
norm: projection_hidden_size; bias
linear_1: wide, wide; bias
linear_2: text.h, wide; bias
""",
    "paddleocr_vl": """
wide = vision.h * vision.spatial_merge_size**2
norm: vision.h; bias
linear_1: wide, wide; bias
linear_2: text.h, wide; bias
""",
    **dict.fromkeys(("kosmos-2", "kosmos-2.5"), """
latents: latent_query_num, text.h
dense: text.h, vision.h; bias
qkvo: text.h, text.h; bias; x 4
"""),
    "lfm3_vl": """
wide = vision.h * vision.spatial_merge_size**2
norm: vision.h; bias
linear_1: projector_hidden_size, wide; bias=projector_bias
linear_2: text.h, projector_hidden_size; bias=projector_bias
""",
    "lighton_ocr": """
norm: vision.h
merging: vision.h, vision.h * spatial_merge_size**2
linear_1: text.h, vision.h
linear_2: text.h, text.h
""",
    **dict.fromkeys(("minicpm_ocr", "minicpmv4_6", "minicpmv4_7"), """
wide = vision.h * merge_kernel_size[0] * merge_kernel_size[1]
norm: wide; bias; x merger_times
linear_1: wide, wide; bias; x merger_times
linear_2: vision.h, wide; bias; x merger_times - 1
linear_2: text.h, wide; bias
"""),
    "minimax_m3_vl": """
linear_1: projector_hidden_size, vision.h; bias
linear_2: text.h, projector_hidden_size; bias
merge_1: projector_hidden_size, text.h * get(vision.spatial_merge_size, 2)**2; bias
merge_2: text.h, projector_hidden_size; bias
""",
    "molmo2": """
wide = adapter.num_attention_heads * adapter.head_dim
keys = adapter.num_key_value_heads * adapter.head_dim
layers = vision.h * len(adapter.vision_feature_layer)
pool_q: wide, layers; bias
pool_kv: keys, layers; bias; x 2
pool_o: adapter.h, wide; bias
gate_up: adapter.i, adapter.h; x 2
down: adapter.text_hidden_size, adapter.i
""",
    "muse_glimmer": """
fc1: projector_hidden_size, out_hidden_size
fc2: projector_hidden_size, projector_hidden_size
projection: text.h, projector_hidden_size
""",
    "nemotron_h_omni": """
wide = vision.h * int(1 / downsample_ratio)**2
norm: wide
linear_1: projector_hidden_size, wide
linear_2: text.h, projector_hidden_size
""",
    "ovis2": "table: vision.vocab_size, hidden_size\n",
    "step3p7": "linear: text.h, 4 * vision.h; bias=projector_bias\n",
    "unlimited_ocr": """
separator: text.h
newline: text.h
linear: text.h, vision.encoder_config['hidden_size'] + vision.sam_config['downsample_channels'][1]; bias
""",
    "video_llama_3": "linear_1: text.h, vision.h; bias\nlinear_2: text.h, text.h; bias\n",
    "vipllava": """
wide = vision.h * len(vision_feature_layers)
norm: wide; bias
linear_1: text.h, wide; bias
linear_2: text.h, text.h; bias
""".replace("_layers)", "_layer)"),
    "idefics2": """
gate_up: text.i, vision.h; x 2
down: text.h, text.i
""",
    "idefics": """
every = cross_layer_interval
each n // every:
gates: 1; x 2
qo: h, h; x 2
kv: h, vision.embed_dim; x 2
gate_up: i, h; x 2
down: h, i
norm: h; x 2
once:
""",
    "llama4": "linear: text.h, vision.vision_output_dim\n",
    "mllama": "linear: text.h, vision.vision_output_dim; bias\n",
    "mistral_large4": """
norm: vision.h
merging: vision.h, vision.h * spatial_merge_size**2
linear_1: text.h, vision.h * len(get(vision_feature_layer, -1)); bias=multimodal_projector_bias
linear_2: text.h, text.h; bias=multimodal_projector_bias
""",
    "aria": """
query: max_value_projector_patch_to_query_dict, vision.h
qkv: vision.h, vision.h; x 3
attention_in: 3 * vision.h, vision.h; bias
attention_out: vision.h, vision.h; bias; x 2
norm: vision.h; bias; x 3
linear_in: text.h, vision.h
linear_out: text.h, text.h
""",
    "lfm2_vl": """
wide = vision.h * downsample_factor**2
norm: wide; bias; if get(projector_use_layernorm, True)
linear_1: projector_hidden_size, wide; bias=projector_bias
linear_2: text.h, projector_hidden_size; bias=projector_bias
""",
}  # fmt: skip

# What a tower like Whisper's encoder runs over, as `TowerShape` has it: positions to a token, positions to which a
# clip is filled up, tokens of a second, and of a clip where it is always whole (processing_*.py of transformers 5.23).
WHOLE_CLIPS = "clip = audio.max_source_positions\n"
HEARD: dict[str, str] = {
    **dict.fromkeys(("qwen2_audio", "audioflamingo3"), WHOLE_CLIPS + "per_token = 2\ntokens_per_second = 25\n"),
    "voxtral": WHOLE_CLIPS + "per_token = 4\ntokens_per_second = 12.5\ntokens_per_clip = 375\n",
    "glmasr": "clip = 1500\nper_token = 4\ntokens_per_second = 12.5\n",
    **dict.fromkeys(("qwen2_5_omni", "qwen2_5_omni_thinker"), "per_token = 2\ntokens_per_second = 25\n"),
    "voxtral_realtime": "per_token = 4\ntokens_per_second = 12.5\n",
}

# How many tokens of a sequence an image takes, as `ImageTokens` has it; bounds are those of the models' own
# preprocessor_config.json on huggingface.co. The last is LLaVA with another tower: Pixtral 12B.
QWEN2_IMAGES = "cell = vision.p * vision.spatial_merge_size\nleast = 56 * 56\nmost = 12845056"
QWEN3_IMAGES = "cell = vision.p * vision.spatial_merge_size\nleast = 65536\nmost = 16777216"
IMAGES: dict[str, str] = {
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), QWEN2_IMAGES),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe"), QWEN3_IMAGES),
    **dict.fromkeys(("paligemma", "llava"), "fixed = vision.grid"),
    "gemma3": "fixed = mm_tokens_per_image",
    "gemma3n": "fixed = vision_soft_tokens_per_image",
    "mistral3": "cell = vision.p * spatial_merge_size\nlongest = vision.image_size\nper_row = 1",
    **dict.fromkeys(("blip-2", "instructblip"), "fixed = num_query_tokens"),
    "idefics2": "fixed = perceiver.resampler_n_latents",
    "llava of pixtral": "cell = vision.p\nlongest = vision.image_size\nper_row = 1",
}

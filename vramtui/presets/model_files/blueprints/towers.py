"""Towers by the type of their config; the language is that of `blueprint`."""

from vramtui.presets.model_files.blueprints.audio_towers import SOUND
from vramtui.presets.model_files.blueprints.layers import BLIP, CLIP, LAYERS, PATCH, PLAIN, POOL
from vramtui.presets.model_files.blueprints.merged_towers import MERGED
from vramtui.presets.model_files.blueprints.staged_towers import STAGED

PIXTRAL = """
conv_patch: h, c, p, p
pre_norm: h
each n:
qkvo: h, h; x 4
norm: h; x 2
gate_up: i, h; x 2
down: h, i
once:
"""
INTERN = (
    PATCH
    + """
class: h
positions: grid + 1, h
each n:
qkv: h, h; bias=attention_bias; x 3
proj: h, h; bias
qk_norm: h; x 2; if get(use_qk_norm, False)
norm: h; bias=get(norm_type, 'layer_norm') == 'layer_norm'; x 2
scale: h; x 2
up: i, h; bias
down: h, i; bias
once:
"""
)
SAM = """
conv_patch: h, c, p, p; bias
side = image_size // p
inner = mlp_dim
width = get(head_dim, h // heads)
wide = len(global_attn_indexes)
positions: side * side, h; if get(use_abs_pos, True)
relative: 2 * window_size - 1, width; x 2 * (n - wide); if get(use_rel_pos, True)
relative: 2 * side - 1, width; x 2 * wide; if get(use_rel_pos, True)
each n:
qkv: 3*h, h; bias=get(qkv_bias, True)
proj: h, h; bias
norm: h; bias; x 2
up: inner, h; bias
down: h, inner; bias
once:
conv_neck: output_channels, h, 1, 1
conv_neck: output_channels, output_channels, 3, 3
neck_norm: output_channels; bias; x 2
"""
LLAMA4 = """
class: h
positions: grid + 1, h
patch: h, c * p * p
norm_outer: h; bias; x 2
each n:
qkvo: h, h; bias; x 4
up: i, h; bias
down: h, i; bias
norm: h; bias; x 2
once:
adapter_up: projector_input_dim, int(i // (1 / pixel_shuffle_ratio)**2 * (1 / pixel_shuffle_ratio)**2)
adapter_down: projector_output_dim, projector_input_dim
"""
MLLAMA = """
tiles = max_num_tiles
places = grid + 1
kinds = 9 if tiles == 4 else len(get(supported_aspect_ratios, [])) + 1
class: h
conv_patch: h, c, p, p
gate: 1; x 3
positions: places, h
tile_positions: kinds, tiles * places * h
tile_embedding: kinds, tiles * h; x 2
norm_outer: h; bias; x 2
each n + num_global_layers:
qkvo: h, h; x 4
up: i, h; bias
down: h, i; bias
norm: h; bias; x 2
once:
gates: 1; x 2 * num_global_layers
"""
PLAIN_PATCHED = (
    """
patch: h, c * p * p; bias
positions: num_patches, h
"""
    + LAYERS
    + "post_norm: h; bias\n"
)
MINICPM = (
    PLAIN
    + """
window = window_kernel_size[0] * window_kernel_size[1]
wide = h * window
merger_qkvo: h, h; bias; x 4
merger_norm: h; bias
merger_pre_norm: wide; bias
merger_up: 4 * wide, wide; bias
merger_down: h, 4 * wide; bias
""".replace("4 * wide", "i * window")
)
KIMI = (
    """
conv_patch: h, c, p, p; bias
positions: pos_emb_height, pos_emb_width, h
"""
    + LAYERS
    + "post_norm: h; bias\n"
)
RADIO = """
side = max_img_size // p
positions: side * side, h
registers: num_cls_tokens + num_registers, h
patch: h, patch_dim
video_patch: h, video_patch_dim; if get(video_patch_dim, 0)
inner = int(h * mlp_ratio)
each n:
qkv: h, h; bias=qkv_bias; x 3
proj: h, h; bias
norm: h; bias; x 2
scale: h; x 2
up: inner, h; bias
down: h, inner; bias
once:
"""
PIX2STRUCT = """
inner = heads * get(d_kv, get(head_dim, 64))
wide = get(d_ff, get(intermediate_size, 0))
places = get(seq_len, get(max_num_patches, 4096))
patch: h, patch_embed_hidden_size; bias
rows: places, h; x 2
norm: h
each n:
qkv: inner, h; x 3
o: h, inner
gate_up: wide, h; x 2
down: h, wide
norms: h; x 2
once:
"""


# OpenGVLab/InternVL2_5-8B, modeling_intern_vit.py.
INTERN_VIT = (
    PATCH
    + """
rms = get(norm_type, 'rms_norm') == 'rms_norm'
class: h
positions: grid + 1, h
each n:
qkv: 3 * h, h; bias=get(qkv_bias, False)
proj: h, h; bias
qk_norm: h; x 2; if get(qk_normalization, True)
norm: h; bias=not rms; x 2
scale: h; x 2
up: i, h; bias
down: h, i; bias
once:
"""
)
GEMMA4 = """
inner = heads * head_dim
keys = num_key_value_heads * head_dim
positions: 2, position_embedding_size, h
patch: h, 3 * p * p
each n:
q: inner, h; bias=attention_bias
kv: keys, h; bias=attention_bias; x 2
o: h, inner; bias=attention_bias
qk_norm: head_dim; x 2
gate_up: i, h; x 2
down: h, i
norm: h; x 4
once:
"""


def _davit() -> str:
    """DaViT (Ding et al. 2022, arXiv 2204.03645): four stages, each of blocks over windows and over channels."""
    lines = []
    for stage in range(4):
        before = f"embed_dim[{stage - 1}]" if stage else "in_channels"
        lines += [
            f"w = embed_dim[{stage}]",
            f"conv_patch: w, {before}, patch_size[{stage}], patch_size[{stage}]; bias",
            f"norm_patch: {before}; bias; if get(patch_prenorm, [False, True, True, True])[{stage}]",
            f"norm_patch: w; bias; if not get(patch_prenorm, [False, True, True, True])[{stage}]",
            f"each 2 * depths[{stage}]:",
            "conv_depth: w, 1, 3, 3; bias; x 2",
            "norm: w; bias; x 2",
            "qkv: 3 * w, w; bias=qkv_bias",
            "proj: w, w; bias",
            "up: int(w * mlp_ratio), w; bias",
            "down: w, int(w * mlp_ratio); bias",
            "once:",
        ]
    return "\n".join(lines)


TOWERS: dict[str, str] = {
    **SOUND,
    **MERGED,
    **STAGED,
    "": "",  # a part without a type is counted by what it belongs to
    **dict.fromkeys(("idefics2_vision", "idefics3_vision", "smolvlm_vision", "paddleocr_vl_vision",
                     "granite_docling_vision"), PLAIN),
    "video_llama_3_vision": PATCH + LAYERS + "post_norm: h; bias\n",
    "cosmos3_edge_vision": PLAIN_PATCHED,
    **dict.fromkeys(("minicpm_ocr_vision", "minicpmv4_6_vision", "minicpmv4_7_vision"), MINICPM),
    "kimi_k25_vision": KIMI,
    "radio": RADIO,
    "llama4_vision_model": LLAMA4,
    "mllama_vision_model": MLLAMA,
    "git_vision_model": CLIP,
    **dict.fromkeys(("kosmos_2_vision_model",), CLIP),
    "molmo2_vision": """
wide = heads * head_dim
keys = num_key_value_heads * head_dim
positions: num_position_embeddings, h
patch: h, c * p * p; bias
each n:
qo: wide, h; bias; x 2
kv: keys, h; bias; x 2
norm: h; bias; x 2
up: i, h; bias
down: h, i; bias
once:
""",
    "molmo2_adapter": "",
    "muse_glimmer_vision": """
patch: h, c * p * p * patch_temporal
positions: pos_emb_height * pos_emb_width, h
norm_outer: h; bias; x 2
""" + LAYERS,
    "ovis2_vision": PATCH + """
positions: grid, h
norm_outer: h; x 2
each n:
qkv: h, h; bias=qkv_bias; x 3
proj: h, h; bias=qkv_bias
norm: h; x 2
gate_up: i, h; bias=mlp_bias; x 2
down: h, i; bias=mlp_bias
once:
words = vocab_size - num_visual_indicator_tokens
head: words, h * hidden_stride**2
head_norm: words; bias
""",
    "step3p5_vision": """
conv_patch: h, c, p, p
positions: grid, h
pre_norm: h; bias
conv_down: 2 * h, h, 3, 3; bias
conv_down: 4 * h, 2 * h, 3, 3; bias
scale: h; x 2 * n
""" + LAYERS,
    "unlimited_ocr_vision": "",
    "unlimited_ocr_vision_encoder": "class: h\npositions: grid + 1, h\npre_norm: h; bias\n" + LAYERS,
    "unlimited_ocr_sam_vision_model": SAM + """
first = downsample_channels[0]
conv_proj: first, output_channels, 3, 3
conv_proj: downsample_channels[1], first, 3, 3
""",
    "sam_vision_model": SAM,
    "phi4_multimodal_vision": PLAIN + POOL,
    "gemma4_vision": GEMMA4,
    "gemma4_unified_vision": """
wide = 3 * (p * pooling_kernel_size)**2
positions: mm_posemb_size, 2, mm_embed_dim
patch_norm: wide; bias
patch: mm_embed_dim, wide; bias
norm: mm_embed_dim; bias; x 2
""",
    **dict.fromkeys(("intern_vit_6b", "intern_vit_300m"), INTERN_VIT),
    "florence_vision": _davit(),
    **dict.fromkeys(("kosmos_2_5_vision_model", "pix2struct_vision_model"), PIX2STRUCT),
    "pp_formulanet_vision": SAM + """
conv_join: post_conv_mid_channels, post_conv_in_channels, 3, 3
conv_join: post_conv_out_channels, post_conv_mid_channels, 3, 3
linear_1: post_conv_out_channels, post_conv_out_channels; bias
linear_2: decoder_hidden_size, post_conv_out_channels; bias
""",
    "vit": PATCH + "class: h\npositions: grid + 1, h\npooler: h, h; bias\n" + LAYERS + "post_norm: h; bias\n",
    "janus_vision_model": PATCH + "positions: grid, h\npost_norm: h; bias\ni = int(h * mlp_ratio)\n" + LAYERS,
    "minimax_m3_vl_vision": "conv_patch: h, c, temporal_patch_size, p, p\npre_norm: h; bias\n" + LAYERS,
    "siglip_vision_model": PLAIN + POOL,
    "clip_vision_model": CLIP,
    "idefics_vision": "h = embed_dim\n" + CLIP,
    **dict.fromkeys(("blip_vision_model", "blip_2_vision_model", "instructblip_vision_model",
                     "instructblipvideo_vision_model"), BLIP),
    "pixtral": PIXTRAL,
    **dict.fromkeys(("internvl_vision", "qianfan_ocr_vision"), INTERN),
    "got_ocr2_vision": SAM,
    "siglip2_vision_model": PLAIN_PATCHED + POOL,
}  # fmt: skip

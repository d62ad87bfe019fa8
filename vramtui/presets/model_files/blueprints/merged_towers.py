"""Towers whose own end merges neighbouring patches (Qwen-VL, GLM-V and their kin), in the language of `blueprint`."""

from vramtui.presets.model_files.blueprints.layers import BLOCKS

QWEN3 = (
    """
conv_patch: h, c, temporal_patch_size, p, p; bias
positions: num_position_embeddings, h
"""
    + BLOCKS
    + """
wide = h * spatial_merge_size**2
merger_norm: h; bias
merger_up: wide, wide; bias
merger_down: out_hidden_size, wide; bias
"""
)
DEEPSTACK = (
    QWEN3
    + """
stacked = len(get(deepstack_visual_indexes, [])) if get(deepstack_visual_indexes, []) else 0
deep_norm: wide; bias; x stacked
deep_up: wide, wide; bias; x stacked
deep_down: out_hidden_size, wide; bias; x stacked
"""
)
QWEN2 = (
    """
out_hidden_size = hidden_size
h = embed_dim
i = int(embed_dim * mlp_ratio)
n = depth
conv_patch: h, c, temporal_patch_size, p, p
"""
    + BLOCKS
    + """
wide = h * spatial_merge_size**2
merger_norm: h; bias
merger_up: wide, wide; bias
merger_down: out_hidden_size, wide; bias
"""
)
# Gated blocks from `proj` on, and what makes one token of several patches.
GATED_AND_MERGED = """
proj: h, h; bias
norm: h; x 2
gate_up: i, h; bias; x 2
down: h, i; bias
once:
wide = h * spatial_merge_size**2
merger_norm: h
merger_up: wide, wide; bias
merger_down: out_hidden_size, wide; bias
"""
QWEN2_5 = (
    """
conv_patch: h, c, temporal_patch_size, p, p
each depth:
qkv: 3*h, h; bias
"""
    + GATED_AND_MERGED
)
GLM = """
conv_patch: h, c, temporal_patch_size, p, p; bias
positions: grid, h
each depth:
qkv: 3*h, h; bias=get(attention_bias, False)
proj: h, h; bias=get(attention_bias, False)
norm: h; x 2
gate_up: out_hidden_size, h; x 2
down: h, out_hidden_size
once:
post_conv_norm: h
post_norm: h
conv_downsample: out_hidden_size, h, spatial_merge_size, spatial_merge_size; bias
merger_proj: out_hidden_size, out_hidden_size
merger_norm: out_hidden_size; bias
merger_gate_up: i, out_hidden_size; x 2
merger_down: out_hidden_size, i
"""
ERNIE = (
    """
patch: h, c * p * p
"""
    + BLOCKS
    + """
post_norm: h; bias
"""
)
EXAONE = (
    """
conv_patch: h, c, temporal_patch_size, p, p
width = h // heads
each depth:
qkv: h + 2 * num_key_value_heads * width, h; bias
"""
    + GATED_AND_MERGED
)
GLM_OCR = """
out = out_hidden_size
inner = out * get(in_channels, 3)
width = h // heads
conv_patch: h, c, temporal_patch_size, p, p; bias
each depth:
qkv: 3*h, h; bias=attention_bias
proj: h, h; bias=attention_bias
qk_norm: width; x 2
norm: h; x 2
gate_up: i, h; bias=attention_bias; x 2
down: h, i; bias=attention_bias
once:
post_norm: h
conv_downsample: out, h, spatial_merge_size, spatial_merge_size; bias
merger_proj: out, out
merger_norm: out; bias
merger_gate_up: inner, out; x 2
merger_down: out, inner
"""

MERGED: dict[str, str] = {
    **dict.fromkeys(("qwen3_vl_vision", "qwen3_vl_moe_vision", "qwen3_omni_moe_vision_encoder"), DEEPSTACK),
    **dict.fromkeys(("qwen3_5_vision", "qwen3_5_moe_vision"), QWEN3),
    **dict.fromkeys(("qwen2_5_vl_vision", "qwen2_5_omni_vision_encoder"), QWEN2_5),
    **dict.fromkeys(("glm4v_vision", "glm4v_moe_vision"), GLM),
    "qwen2_vl_vision": QWEN2,
    "glm_ocr_vision": GLM_OCR,
    "ernie4_5_vl_moe_vision": ERNIE,
    "exaone4_5_vision": EXAONE,
    "glm5_next_vision": GLM_OCR.replace("out * get(in_channels, 3)", "projection_intermediate_size"),
}  # fmt: skip

"""Language models that are not built like Llama or BERT, by their type; the language is that of `blueprint`."""

from functools import cache

from vramtui.presets.model_files.architectures.family import Family
from vramtui.presets.model_files.architectures.keys import Keys
from vramtui.presets.model_files.architectures.tensor_list import CacheList, TensorList
from vramtui.presets.model_files.blueprints.blueprint import Blueprint, add_tensors, parse
from vramtui.presets.model_files.blueprints.encoders import ENCODERS
from vramtui.presets.model_files.blueprints.scope import Scope

HEAD = "lm_head: vocab_size, h; if not get(tie_word_embeddings, True)\n"
LAYER = """
qkvo: h, h; bias; x 4
up: i, h; bias
down: h, i; bias
layer_norm: h; bias; x 2
"""
KEPT = "kept: 2 * h; x n\n"
# A decoder that also attends to an encoder.
CROSSED = """
qkvo: h, h; bias; x 8
up: decoder_ffn_dim, h; bias
down: h, decoder_ffn_dim; bias
layer_norm: h; bias; x 3
"""
KOSMOS = (
    """
embed_tokens: vocab_size, h
norm: h; bias
each n:
"""
    + LAYER
    + "ffn_norm: i; bias\n"
)

WHOLE: dict[str, str] = {
    **ENCODERS,
    "opt": """
width = get(word_embed_proj_dim, h)
embed_tokens: vocab_size, width
embed_positions: max_position_embeddings + 2, h
project_out: width, h; if width != h
project_in: h, width; if width != h
norm: h; bias; if get(do_layer_norm_before, True) and not get(_remove_final_layer_norm, False)
each n:
""" + LAYER + "once:\n" + KEPT + "lm_head: vocab_size, width; if not get(tie_word_embeddings, True)\n",
    "git": """
embed_tokens: vocab_size, h
embed_positions: max_position_embeddings, h
embed_norm: h; bias
each n:
""" + LAYER + "once:\n" + KEPT + """
lm_head: vocab_size, h; if not get(tie_word_embeddings, False)
lm_head: vocab_size
""",
    "blip_text_model": """
embed_tokens: vocab_size, h
embed_positions: max_position_embeddings, h
embed_norm: h; bias
each n:
""" + LAYER + """
cross_qo: h, h; bias; x 2
cross_kv: h, encoder_hidden_size; bias; x 2
cross_norm: h; bias
once:
""" + KEPT + """
head_dense: h, h; bias
head_norm: h; bias
lm_head: vocab_size
""",
    "kosmos_2_text_model": KOSMOS + "inner_norm: h; bias\nonce:\n" + KEPT + HEAD,
    "kosmos_2_5_text_model": KOSMOS + "once:\nembed_segments: 2, h\n" + KEPT + HEAD,
    "pp_formulanet_text": """
n = decoder_layers
embed_tokens: vocab_size, h
embed_positions: max_position_embeddings + 2, h
embed_norm: h; bias
norm: h; bias
each n:
""" + CROSSED + "once:\n" + KEPT + "lm_head: vocab_size, h; if not get(tie_word_embeddings, False)\n",
    "pix2struct_text_model": """
inner = heads * d_kv
embed_tokens: vocab_size, h
relative: relative_attention_num_buckets, heads
norm: h
each n:
qkvo: h, inner; x 8
gate_up: d_ff, h; x 2
down: h, d_ff
layer_norm: h; x 3
once:
kept: 2 * inner; x n
lm_head: vocab_size, h
""",
}  # fmt: skip


@cache
def _blueprint(kind: str) -> Blueprint:
    return parse(WHOLE[kind], WHOLE)


def _family(kind: str) -> Family:
    def build(tensors: TensorList, caches: CacheList, keys: Keys, _family: Family) -> None:
        add_tensors(tensors, _blueprint(kind), Scope(keys.values, inside=keys.inside), caches)

    return Family(whole=build, tied=True, norm=2, gated=False, bias=True, mlp_bias=True)


WHOLE_FAMILIES: dict[str, Family] = {kind: _family(kind) for kind in WHOLE}

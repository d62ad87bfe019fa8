"""Encoders that are not built like BERT, by their type; the language is that of `blueprint`."""

WORDS = """
width = get(embedding_size, h)
embed_tokens: vocab_size, width
embed_token_types: type_vocab_size, width; if get(type_vocab_size, 0)
embed_norm: width; bias
"""
PLACES = "embed_positions: max_position_embeddings, width\n"
LAYER = """
qkvo: h, h; bias; x 4
up: i, h; bias
down: h, i; bias
layer_norm: h; bias; x 2
"""
LAYERS = "each n:\n" + LAYER + "once:\nkept: 2 * h; x n\n"
HEAD = """
head_dense: h, h; bias
head_norm: h; bias
lm_head: vocab_size, h; if not get(tie_word_embeddings, True)
lm_head: vocab_size
"""
POOLER = "pooler: h, h; bias\n"
GATED = """
gate_up: i, h; x 2
layer_norm: h; bias; x 2
"""
DEBERTA = """
width = get(embedding_size, h)
relative = get(relative_attention, False)
kinds = get(pos_att_type, '')
shared = get(share_att_key, False)
places = get(max_relative_positions, -1)
known = places if places > 0 else max_position_embeddings
buckets = get(position_buckets, -1)
embed_tokens: vocab_size, width
embed_positions: max_position_embeddings, width; if get(position_biased_input, True)
embed_token_types: type_vocab_size, width; if get(type_vocab_size, 0)
embed_projection: h, width; if width != h
embed_norm: h; bias
"""
MODERN = """
embed_tokens: vocab_size, h
embed_norm: h; bias=norm_bias
norm: h; bias=norm_bias
each n:
qkv: 3 * h, h; bias=attention_bias
o: h, h; bias=attention_bias
up: 2 * i, h; bias=mlp_bias
down: h, i; bias=mlp_bias
layer_norm: h; bias=norm_bias
once:
attention_norm: h; bias=norm_bias; x n - 1
kept: 2 * h; x n
head_dense: h, h; bias=classifier_bias
head_norm: h; bias=norm_bias
lm_head: vocab_size, h; if not get(tie_word_embeddings, True)
lm_head: vocab_size; if get(decoder_bias, True)
"""
ULTRA = """
inner = heads * head_dim
keys = num_key_value_heads * head_dim
embed_tokens: vocab_size, h
norm: h
each n:
q: inner, h; bias=attention_bias
kv: keys, h; bias=attention_bias; x 2
o: h, inner; bias=attention_bias
gate_up: i, h; bias=mlp_bias; x 2
down: h, i; bias=mlp_bias
layer_norm: h; x 2
once:
kept: 2 * keys; x n
head_down: prediction_head_size, h
head_up: h, prediction_head_size
lm_head: vocab_size, h; if not get(tie_word_embeddings, True)
"""
# A translator with all of its encoder and decoder; a norm after the last layers where `last` says so.
TRANSLATOR = """
embed_tokens: vocab_size, h
embed_positions: max_position_embeddings + 2, h; x 2
embed_norm: h; bias; x 2
each encoder_layers:
qkvo: h, h; bias; x 4
up: encoder_ffn_dim, h; bias
down: h, encoder_ffn_dim; bias
layer_norm: h; bias; x 2
once:
each decoder_layers:
qkvo: h, h; bias; x 8
up: decoder_ffn_dim, h; bias
down: h, decoder_ffn_dim; bias
layer_norm: h; bias; x 3
once:
kept: 2 * h; x decoder_layers
lm_head: vocab_size, h; if not get(tie_word_embeddings, True)
"""

ENCODERS: dict[str, str] = {
    "albert": WORDS + PLACES + """
embed_projection: h, width; bias
each get(num_hidden_groups, 1) * get(inner_group_num, 1):
""" + LAYER + """
once:
kept: 2 * h; x n
head_dense: width, h; bias
head_norm: width; bias
lm_head: vocab_size, width; if not get(tie_word_embeddings, True)
lm_head: vocab_size
""",
    "convbert": WORDS + PLACES + """
heads = heads // head_ratio if heads // head_ratio > 1 else 1
inner = h // (heads * head_ratio) * heads
embed_projection: h, width; bias; if width != h
each n:
qkv: inner, h; bias; x 3
conv_bias: inner
conv_depth: h, 1, conv_kernel_size
conv_point: inner, h
kernel: heads * conv_kernel_size, inner; bias
conv_out: inner, h; bias
o: h, h; bias
up: i, h // num_groups; bias
down: h, i // num_groups; bias
layer_norm: h; bias; x 2
once:
kept: 2 * h; x n
head_norm: width; bias
head_dense: width, h; bias
lm_head: vocab_size
""",
    "deberta": DEBERTA + """
relative: 2 * known, h; if relative
each n:
in_proj: 3 * h, h
qv_bias: h; x 2
o: h, h; bias
pos_key: h, h; if relative and 'c2p' in kinds
pos_query: h, h; bias; if relative and 'p2c' in kinds
up: i, h; bias
down: h, i; bias
layer_norm: h; bias; x 2
once:
kept: 2 * h; x n
""" + HEAD,
    "deberta-v2": DEBERTA + """
spread = buckets if buckets > 0 else known
kernel = get(conv_kernel_size, 0)
relative: 2 * spread, h; if relative
relative_norm: h; bias; if relative and 'layer_norm' in get(norm_rel_ebd, 'none')
conv_layer: h, h // get(conv_groups, 1), kernel; bias; if kernel
conv_norm: h; bias; if kernel
each n:
""" + LAYER + """
pos_key: h, h; bias; if relative and not shared and 'c2p' in kinds
pos_query: h, h; bias; if relative and not shared and 'p2c' in kinds
once:
kept: 2 * h; x n
""" + HEAD,
    "distilbert": "i = hidden_dim\n" + WORDS + PLACES + LAYERS + HEAD,
    "esmc": """
inner = heads * head_dim
keys = num_key_value_heads * head_dim
embed_tokens: vocab_size, h
norm: h
each n:
q: inner, h; bias=attention_bias
kv: keys, h; bias=attention_bias; x 2
o: h, inner; bias=attention_bias
q_norm: inner
k_norm: keys
gate_up: i, h; bias=mlp_bias; x 2
down: h, i; bias=mlp_bias
layer_norm: h; bias; x 2
once:
kept: 2 * keys; x n
""" + HEAD,
    "fnet": WORDS + PLACES + POOLER + """
embed_projection: h, h; bias
each n:
up: i, h; bias
down: h, i; bias
layer_norm: h; bias; x 2
once:
""" + HEAD,
    "funnel": """
n = sum(block_sizes)
repeated = n + num_decoder_layers
inner = n_head * d_head
embed_tokens: vocab_size, d_model
embed_norm: d_model; bias
each repeated:
r_bias: n_head, d_head; x 3
r_kernel: d_model, n_head, d_head
seg: 2, n_head, d_head
q: inner, d_model
kv: inner, d_model; bias; x 2
o: d_model, inner; bias
up: d_inner, d_model; bias
down: d_model, d_inner; bias
layer_norm: d_model; bias; x 2
once:
lm_head: vocab_size, d_model; if not get(tie_word_embeddings, True)
lm_head: vocab_size
""",
    "gte": WORDS + "each n:\nqkvo: h, h; bias; x 4\n" + GATED + "down: h, i; bias\nonce:\nkept: 2 * h; x n\n" + HEAD,
    "jina_embeddings_v3": WORDS + LAYERS + HEAD,
    "layoutlm": WORDS + PLACES + POOLER + "embed_places: max_2d_position_embeddings, h; x 4\n" + LAYERS + HEAD,
    "longformer": WORDS + PLACES + "global_qkv: h, h; bias; x 3 * n\n" + LAYERS + HEAD,
    "luke": WORDS + PLACES + POOLER + """
embed_entities: entity_vocab_size, entity_emb_size
embed_entity_dense: h, entity_emb_size; if entity_emb_size != h
embed_entity_positions: max_position_embeddings, h
embed_entity_types: type_vocab_size, h
embed_entity_norm: h; bias
aware: h, h; bias; x 3 * n; if use_entity_aware_attention
entity_bias: entity_vocab_size
entity_dense: entity_emb_size, h; bias
entity_norm: entity_emb_size; bias
""" + LAYERS + """
head_dense: h, h; bias
head_norm: h; bias
lm_head: vocab_size, h
lm_head: vocab_size
""",
    "mobilebert": """
inner = true_hidden_size
networks = num_feedforward_networks
embed_tokens: vocab_size, embedding_size
embed_positions: max_position_embeddings, h
embed_token_types: type_vocab_size, h
embed_transformation: h, 3 * embedding_size; bias
embed_norm: h; bias
each n:
qk: inner, inner; bias; x 2
value: inner, h; bias
o: inner, inner; bias
up: i, inner; bias; x networks
down: inner, i; bias; x networks
norm: inner; bias; x networks + 1
bottleneck_out: h, inner; bias
bottleneck_norm: h; bias
bottleneck_in: inner, h; bias; x 2
bottleneck_in_norm: inner; bias; x 2
once:
kept: 2 * inner; x n
head_dense: h, h; bias
head_norm: h; bias
lm_head: h - embedding_size, vocab_size
lm_head: vocab_size
""",
    "modernbert": MODERN,
    "mpnet": WORDS + PLACES + "relative: relative_attention_num_buckets, heads\n" + LAYERS + HEAD,
    **dict.fromkeys(("mra", "yoso"), WORDS + "embed_positions: max_position_embeddings + 2, h\n" + LAYERS + HEAD),
    "nystromformer": WORDS + """
embed_positions: max_position_embeddings + 2, h
conv_residual: heads, 1, conv_kernel_size; x n
""" + LAYERS + HEAD,
    "nomic_bert": WORDS + "each n:\nqkvo: h, h; x 4\n" + GATED + "down: h, i\nonce:\nkept: 2 * h; x n\n" + HEAD,
    "squeezebert": WORDS + PLACES + POOLER + """
each n:
q: h, h // q_groups; bias
k: h, h // k_groups; bias
v: h, h // v_groups; bias
o: h, h // post_attention_groups; bias
up: i, h // intermediate_groups; bias
down: h, i // output_groups; bias
layer_norm: h; bias; x 2
once:
kept: 2 * h; x n
""" + HEAD,
    "tapas": """
width = h
embed_tokens: vocab_size, h
embed_token_types: sum(type_vocab_sizes), h
embed_norm: h; bias
""" + PLACES + LAYERS + HEAD,
    "ultrabert": ULTRA,
    "bart_whole": TRANSLATOR,
    "mbart_whole": TRANSLATOR + "norm: h; bias; x 2\n",
}  # fmt: skip

"""Decoder-only architectures: what their config.json says, and what their code in transformers adds to it."""

from vramtui.models.readers.bounded import Unmodelled
from vramtui.models.readers.fields import Fields, Table

GPT2_ACTIVATIONS = {"gelu_fast": "gelu_new", "gelu_python": "gelu", "swish": "silu"}


def activation(name: str) -> str:
    """The activation by the name models use here."""
    return GPT2_ACTIVATIONS.get(name, name)


def llama(config: Fields, **fixed: object) -> Table:
    """Llama and all that is built like it: RMS norms, rotary positions, a gated MLP."""
    return {
        "kind": "transformer",
        "hidden_size": config.whole("hidden_size"),
        "num_hidden_layers": config.whole("num_hidden_layers"),
        "num_attention_heads": config.whole("num_attention_heads"),
        "num_key_value_heads": config.whole("num_key_value_heads", None),
        "head_dim": config.whole("head_dim", None),
        "intermediate_size": config.whole("intermediate_size"),
        "vocab_size": config.whole("vocab_size"),
        "max_position_embeddings": config.whole("max_position_embeddings", None),
        "hidden_act": activation(config.text("hidden_act", "silu")),
        "attention_bias": config.flag("attention_bias", default=False),
        "output_bias": config.flag("attention_bias", default=False),
        "mlp_bias": config.flag("mlp_bias", default=False),
        "tie_word_embeddings": config.flag("tie_word_embeddings", default=False),
        "attention_dropout": config.number("attention_dropout", 0.0),
        **fixed,
    }


def smollm3(config: Fields) -> Table:
    """SmolLM3: tied unless it says otherwise."""
    return llama(config, tie_word_embeddings=config.flag("tie_word_embeddings", default=True))


def mistral(config: Fields) -> Table:
    """Mistral: eight key/value heads and a window of 4096 tokens where nothing else is said."""
    window = config.whole("sliding_window", None) if "sliding_window" in config.values else 4096
    return llama(config, num_key_value_heads=config.whole("num_key_value_heads", 8), sliding_window=window)


def qwen2(config: Fields, **fixed: object) -> Table:
    """Qwen 2: biases on queries, keys and values only."""
    return llama(config, attention_bias=True, output_bias=False, **_qwen_window(config), **fixed)


def qwen3(config: Fields, *, usual_head: int | None = 128, **fixed: object) -> Table:
    """Qwen 3: no biases, a norm on queries and keys, heads of 128 where nothing else is said."""
    head_dim = config.whole("head_dim", usual_head)
    return llama(config, head_dim=head_dim, qk_norm=True, **_qwen_window(config), **fixed)


def _qwen_window(config: Fields) -> Table:
    if not config.flag("use_sliding_window", default=False):
        return {}
    first, layers = config.whole("max_window_layers", 28), config.whole("num_hidden_layers")
    if 0 < first < layers:
        raise Unmodelled(f"lets only layers from {first} on slide over a window, which is not modelled")
    return {} if first else {"sliding_window": config.whole("sliding_window", 4096)}


def gemma(config: Fields, **fixed: object) -> Table:
    """Gemma: heads of 256, embeddings tied, norms that multiply in fp32."""
    act = config.text("hidden_activation", config.text("hidden_act", "gelu_pytorch_tanh"))
    return llama(
        config,
        head_dim=config.whole("head_dim", 256),
        hidden_act="gelu_pytorch_tanh" if act == "gelu" else activation(act),
        norm="gemma_rmsnorm",
        tie_word_embeddings=config.flag("tie_word_embeddings", default=True),
        **fixed,
    )


def gemma2(config: Fields) -> Table:
    """Gemma 2: four norms a layer, every other layer slides, logits are capped."""
    return gemma(
        config,
        norms_per_layer=4,
        final_logit_softcapping=config.number("final_logit_softcapping", 30.0),
        attn_logit_softcapping=config.number("attn_logit_softcapping", 50.0),
        **_window(config, 2),
    )


def gemma3(config: Fields) -> Table:
    """Gemma 3's language model: a norm on queries and keys, five layers of six slide."""
    known = {
        "hidden_size": 2304,
        "num_hidden_layers": 26,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "intermediate_size": 9216,
        "vocab_size": 262208,
        "max_position_embeddings": 131072,
    }
    whole = Fields(known | {key: value for key, value in config.values.items() if value is not None})
    pattern = whole.whole("sliding_window_pattern", whole.whole("_sliding_window_pattern", 6))
    return gemma(whole, norms_per_layer=4, qk_norm=True, **_window(whole, pattern))


def _window(config: Fields, pattern: int) -> Table:
    """The window, and which layers look back all the way."""
    window = config.whole("sliding_window", 4096)
    kinds = config.texts("layer_types")
    if not kinds:
        return {"sliding_window": window, "sliding_window_pattern": pattern}
    full = [number for number, kind in enumerate(kinds, 1) if kind == "full_attention"]
    if len(full) == len(kinds):
        return {}
    if not full:
        return {"sliding_window": window}
    if full != list(range(full[0], len(kinds) + 1, full[0])):
        raise Unmodelled("has layer_types without a regular pattern, which is not modelled")
    return {"sliding_window": window, "sliding_window_pattern": full[0]}


def phi(config: Fields) -> Table:
    """Phi 1 and 2: attention and MLP beside one another under one norm, biases everywhere."""
    if config.flag("qk_layernorm", default=False):
        raise Unmodelled("norms queries and keys with biases, which is not modelled")
    return llama(
        config,
        intermediate_size=config.whole("intermediate_size", 4 * config.whole("hidden_size")),
        hidden_act=activation(config.text("hidden_act", "gelu_new")),
        hidden_dropout=config.number("resid_pdrop", 0.0),
        norms_per_layer=1,
        parallel_residual=True,
        **_old(fused=False),
        lm_head_bias=True,
    )


def phi3(config: Fields) -> Table:
    """Phi 3 and 4: Llama with one projection for queries, keys and values."""
    return llama(
        config,
        fused_qkv=True,
        hidden_dropout=config.number("resid_pdrop", 0.0),
        sliding_window=config.whole("sliding_window", None),
    )


def _old(*, fused: bool) -> Table:
    """Layer norms, biases and a plain MLP, as before Llama."""
    return {
        "norm": "layernorm",
        "gated_mlp": False,
        "fused_qkv": fused,
        "attention_bias": True,
        "output_bias": True,
        "mlp_bias": True,
    }


def _gpt2_names(config: Fields) -> Table:
    hidden = config.whole("n_embd")
    return {
        "kind": "transformer",
        "hidden_size": hidden,
        "num_hidden_layers": config.whole("n_layer"),
        "num_attention_heads": config.whole("n_head"),
        "intermediate_size": config.whole("n_inner", 4 * hidden),
        "vocab_size": config.whole("vocab_size"),
        "max_position_embeddings": config.whole("n_positions", 1024),
        "hidden_act": activation(config.text("activation_function", "gelu_new")),
        "hidden_dropout": config.number("resid_pdrop", 0.1),
        "attention_dropout": config.number("attn_pdrop", 0.1),
    }


def gpt2(config: Fields, **fixed: object) -> Table:
    """GPT-2: learned positions, embeddings tied."""
    tied = config.flag("tie_word_embeddings", default=True)
    return _gpt2_names(config) | _old(fused=True) | {"position": "learned", "tie_word_embeddings": tied} | fixed


def gpt_bigcode(config: Fields) -> Table:
    """StarCoder: GPT-2 with one head of keys and values."""
    heads = 1 if config.flag("multi_query", default=True) else None
    act = config.text("activation_function", "gelu_pytorch_tanh")
    return gpt2(config, num_key_value_heads=heads, hidden_act=activation(act))


def gptj(config: Fields) -> Table:
    """GPT-J: attention and MLP beside one another, no biases in the attention."""
    return (
        _gpt2_names(config)
        | _old(fused=False)
        | {
            "max_position_embeddings": config.whole("n_positions", 2048),
            "attention_bias": False,
            "output_bias": False,
            "parallel_residual": True,
            "norms_per_layer": 1,
            "lm_head_bias": True,
            "hidden_dropout": config.number("resid_pdrop", 0.0),
            "attention_dropout": config.number("attn_pdrop", 0.0),
            "tie_word_embeddings": config.flag("tie_word_embeddings", default=False),
        }
    )


def gpt_neox(config: Fields) -> Table:
    """GPT-NeoX and Pythia."""
    bias = config.flag("attention_bias", default=True)
    return llama(
        config,
        **_old(fused=True)
        | {"attention_bias": bias, "output_bias": bias}
        | {"hidden_act": activation(config.text("hidden_act", "gelu"))},
        hidden_dropout=config.number("hidden_dropout", 0.0),
        parallel_residual=config.flag("use_parallel_residual", default=True),
    )


def falcon(config: Fields) -> Table:
    """Falcon: attention and MLP beside one another, one head of keys and values, or a few in the later ones."""
    if config.flag("alibi", default=False):
        raise Unmodelled("tells positions by biases on the attention (alibi), which is not modelled")
    later = config.flag("new_decoder_architecture", default=False)
    bias = config.flag("bias", default=False)
    heads = config.whole("num_attention_heads")
    shared = heads if later or not config.flag("multi_query", default=True) else 1
    beside = later or config.flag("parallel_attn", default=True)
    norms = config.whole("num_ln_in_parallel_attn", 2 if later else 1) if beside else 2
    hidden = config.whole("hidden_size")
    return llama(
        Fields({**config.values, "intermediate_size": config.whole("ffn_hidden_size", 4 * hidden)}),
        **_old(fused=True)
        | {"attention_bias": bias, "output_bias": bias, "mlp_bias": bias}
        | {"hidden_act": activation(config.text("activation", "gelu"))},
        num_key_value_heads=config.whole("num_kv_heads", shared) if later else shared,
        enable_gqa=later or shared == heads,
        norms_per_layer=norms,
        parallel_residual=beside,
        hidden_dropout=config.number("hidden_dropout", 0.0),
        tie_word_embeddings=config.flag("tie_word_embeddings", default=True),
    )


def opt(config: Fields) -> Table:
    """OPT: two rows of positions more than there are positions."""
    hidden = config.whole("hidden_size")
    if config.whole("word_embed_proj_dim", hidden) != hidden or not config.flag("do_layer_norm_before", default=True):
        raise Unmodelled("projects its embeddings or norms after each part (OPT-350m), which is not modelled")
    return llama(
        Fields({**config.values, "intermediate_size": config.whole("ffn_dim")}),
        **_old(fused=False),
        max_position_embeddings=config.whole("max_position_embeddings", 2048) + 2,
        position="learned",
        hidden_act=activation(config.text("activation_function", "relu")),
        hidden_dropout=config.number("dropout", 0.1),
        tie_word_embeddings=config.flag("tie_word_embeddings", default=True),
    )


def starcoder2(config: Fields) -> Table:
    """StarCoder 2: layer norms, biases, grouped queries."""
    bias = config.flag("use_bias", default=True)
    return llama(
        config,
        **_old(fused=False) | {"attention_bias": bias, "output_bias": bias, "mlp_bias": bias},
        num_key_value_heads=config.whole("num_key_value_heads", 2),
        hidden_act=activation(config.text("hidden_act", "gelu_pytorch_tanh")),
        hidden_dropout=config.number("residual_dropout", 0.0),
        sliding_window=config.whole("sliding_window", None),
        tie_word_embeddings=config.flag("tie_word_embeddings", default=True),
    )

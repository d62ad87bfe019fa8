"""Families whose every operator is followed: what of them a `[model]` table says beside the sizes of a decoder.

Each function adds the keys of its family, with the defaults of transformers 5.23 where a config says nothing; None
where this very config has operators that are not followed. Its tensors are still its family's.
"""

from collections.abc import Callable

from vramtui.models.families.keys import POSITIONS, Keys, Table, activation, dropout_of

Operators = Callable[[Keys], Table | None]


def llama(keys: Keys) -> Table:
    """Llama and all that is built like it."""
    return {
        "hidden_act": activation(keys.text("hidden_act", "silu")),
        **dropout_of(keys, "", "attention_dropout", 0.0),
    }


def gemma(keys: Keys) -> Table:
    """Gemma: the older key of its activation meant the approximate one."""
    act = keys.text("hidden_activation") or keys.text("hidden_act", "gelu_pytorch_tanh")
    return llama(keys) | {"hidden_act": "gelu_pytorch_tanh" if act == "gelu" else activation(act)}


def gemma2(keys: Keys) -> Table:
    """Gemma 2: logits and scores are capped."""
    caps = (("final_logit_softcapping", 30.0), ("attn_logit_softcapping", 50.0))
    return gemma(keys) | {name: keys.number(name, usual) for name, usual in caps}


def phi3(keys: Keys) -> Table:
    """Phi 3 and 4: one projection for queries, keys and values."""
    return llama(keys) | {"fused_qkv": True, "hidden_dropout": keys.number("resid_pdrop", 0.0)}


def qwen2_moe(keys: Keys) -> Table:
    """Qwen 2 with experts: a gate on the expert for all tokens."""
    return llama(keys) | {"shared_expert_gate": True}


def deepseek_v2(keys: Keys) -> Table:
    """DeepSeek V2: experts for all tokens are counted by their number."""
    return llama(keys) | {
        "head_dim": None,
        "num_key_value_heads": keys.maybe("num_key_value_heads"),
        "n_shared_experts": keys.maybe("n_shared_experts"),
        "shared_expert_intermediate_size": None,
    }


def deepseek_v3(keys: Keys) -> Table:
    """DeepSeek V3: a bias for each expert on the router."""
    return deepseek_v2(keys) | {"router_bias": True}


def _gpt(keys: Keys, act: str, dropout: float, **fixed: object) -> Table:
    act = activation(keys.text("activation_function", act))
    return {"hidden_act": act, **dropout_of(keys, "resid_pdrop", "attn_pdrop", dropout), **fixed}


def gpt2(keys: Keys) -> Table:
    """GPT-2: one projection for queries, keys and values."""
    return _gpt(keys, "gelu_new", 0.1, fused_qkv=True)


def gpt_bigcode(keys: Keys) -> Table:
    """StarCoder: GPT-2 with one head of keys and values."""
    return _gpt(keys, "gelu_pytorch_tanh", 0.1, fused_qkv=True)


def gptj(keys: Keys) -> Table:
    """GPT-J: attention and MLP beside one another under one norm."""
    return _gpt(keys, "gelu_new", 0.0, parallel_residual=True)


def gpt_neox(keys: Keys) -> Table:
    """GPT-NeoX and Pythia: attention and MLP beside one another, a norm each."""
    return llama(keys) | {
        "hidden_act": activation(keys.text("hidden_act", "gelu")),
        "hidden_dropout": keys.number("hidden_dropout", 0.0),
        "parallel_residual": keys.flag("use_parallel_residual", default=True),
        "fused_qkv": True,
    }


def phi(keys: Keys) -> Table:
    """Phi 1 and 2: attention and MLP beside one another under one norm."""
    return llama(keys) | {
        "hidden_act": activation(keys.text("hidden_act", "gelu_new")),
        "hidden_dropout": keys.number("resid_pdrop", 0.0),
        "parallel_residual": True,
    }


def falcon(keys: Keys) -> Table | None:
    """Falcon: attention and MLP beside one another; its shared heads are repeated for torch in the later ones alone."""
    if keys.flag("alibi"):
        return None
    later = keys.flag("new_decoder_architecture")
    return llama(keys) | {
        "hidden_act": activation(keys.text("activation", "gelu")),
        "hidden_dropout": keys.number("hidden_dropout", 0.0),
        "fused_qkv": True,
        "enable_gqa": later or not keys.flag("multi_query", default=True),
        "norms_per_layer": falcon_norms(keys),
        "parallel_residual": falcon_is_parallel(keys),
    }


def falcon_is_parallel(keys: Keys) -> bool:
    """Return whether attention and MLP read the same input."""
    return keys.flag("new_decoder_architecture") or keys.flag("parallel_attn", default=True)


def falcon_norms(keys: Keys) -> int:
    """Norms over the stream in each layer."""
    usual = 2 if keys.flag("new_decoder_architecture") else 1
    return keys.whole("num_ln_in_parallel_attn", default=usual) if falcon_is_parallel(keys) else 2


def opt(keys: Keys) -> Table | None:
    """OPT: two rows of positions more than there are positions. OPT-350m norms after each part."""
    hidden = keys.whole("hidden_size")
    if keys.whole("word_embed_proj_dim", default=hidden) != hidden or not keys.flag("do_layer_norm_before", True):
        return None
    return llama(keys) | {
        "max_position_embeddings": keys.whole(*POSITIONS) + 2,
        "position": "learned",
        "hidden_act": activation(keys.text("activation_function", "relu")),
        "hidden_dropout": keys.number("dropout", 0.1),
    }


def starcoder2(keys: Keys) -> Table:
    """StarCoder 2: layer norms, biases, grouped queries."""
    return llama(keys) | {
        "hidden_act": activation(keys.text("hidden_act", "gelu_pytorch_tanh")),
        "hidden_dropout": keys.number("residual_dropout", 0.0),
    }

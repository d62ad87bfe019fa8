"""Decoder-only architectures whose MLPs are made of experts; see `decoders`."""

from vramtui.models.readers.bounded import Unmodelled
from vramtui.models.readers.decoders import llama, qwen2, qwen3
from vramtui.models.readers.fields import Fields, Table


def mixtral(config: Fields) -> Table:
    """Mixtral: every MLP has experts."""
    return llama(
        config,
        num_key_value_heads=config.whole("num_key_value_heads", 8),
        sliding_window=config.whole("sliding_window", None),
        num_experts=config.whole("num_local_experts"),
        num_experts_per_tok=config.whole("num_experts_per_tok", 2),
    )


def qwen2_moe(config: Fields) -> Table:
    """Qwen 2 with experts, and one more for all tokens behind a gate."""
    shared = config.whole("shared_expert_intermediate_size", 5632)
    return qwen2(
        config, shared_expert_intermediate_size=shared, shared_expert_gate=True, **_qwen_experts(config, 60, 1408, 4)
    )


def qwen3_moe(config: Fields) -> Table:
    """Qwen 3 with experts; its heads share the width out where nothing else is said."""
    return qwen3(config, usual_head=None, **_qwen_experts(config, 128, 768, 8))


def _qwen_experts(config: Fields, experts: int, width: int, chosen: int) -> Table:
    if config.whole("decoder_sparse_step", 1) != 1 or config.has("mlp_only_layers"):
        raise Unmodelled("has dense layers among those with experts, which is not modelled")
    return {
        "num_experts": config.whole("num_experts", config.whole("num_local_experts", experts)),
        "num_experts_per_tok": config.whole("num_experts_per_tok", chosen),
        "moe_intermediate_size": config.whole("moe_intermediate_size", width),
    }


def deepseek_v2(config: Fields, **fixed: object) -> Table:
    """DeepSeek V2: compressed keys and values, routed and shared experts after the first dense layers."""
    if config.whole("moe_layer_freq", 1) != 1:
        raise Unmodelled("has dense layers among those with experts, which is not modelled")
    ranks = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "moe_intermediate_size")
    return llama(
        config,
        head_dim=None,
        **{key: config.whole(key) for key in ranks},
        q_lora_rank=config.whole("q_lora_rank", None),
        num_experts=config.whole("n_routed_experts"),
        num_experts_per_tok=config.whole("num_experts_per_tok"),
        n_shared_experts=config.whole("n_shared_experts", None),
        first_k_dense_replace=config.whole("first_k_dense_replace", 0),
        **fixed,
    )


def deepseek_v3(config: Fields) -> Table:
    """DeepSeek V3: V2 with a bias for each expert on the router."""
    return deepseek_v2(config, router_bias=True)

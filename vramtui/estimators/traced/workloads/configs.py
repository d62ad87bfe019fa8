"""A decoder's shapes as the config of the transformers architecture that has them; no torch here."""

from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.models.specs.decoder import decoder_spec


def config_of(model: TransformerModel) -> dict[str, Any]:
    """`model_type` and the keys of its config.

    Raises:
        UserError: transformers has no such model, or one whose operators depend on data.
    """
    if model.num_experts is not None:
        raise UserError(
            "model.num_experts: experts take as many tokens as the router sends them, a shape that depends on data "
            "and that a trace does not have"
        )
    if model.kv_lora_rank is not None:
        raise UserError("model.kv_lora_rank: the tracer builds no transformers model with compressed keys and values")
    if model.tensors and _numbers(model) != _numbers(msgspec.structs.replace(model, tensors=())):
        raise UserError(
            "model.tensors: they are not those of a decoder of these shapes, and the tracer builds no other; a model "
            'of transformers is built from its config: model.kind = "huggingface"'
        )
    kind = _kind(model)
    if kind is None:
        raise UserError(
            "model: no architecture of transformers that the tracer knows has these shapes; it knows GPT-2, GPT-NeoX, "
            "Llama, Mistral, Qwen 2, Qwen 3, Phi 3, Gemma 1, 2 and 3"
        )
    if kind == "gpt2":
        return _gpt2(model)
    if kind == "gpt_neox":
        return _shared(model) | {
            "model_type": kind,
            "attention_bias": model.attention_bias,
            "hidden_dropout": model.hidden_dropout,
            "use_parallel_residual": True,
        }
    config = _shared(model) | {
        "model_type": kind,
        "num_key_value_heads": model.kv_heads,
        "rms_norm_eps": 1e-6,
        "attention_bias": model.attention_bias,
        "mlp_bias": model.mlp_bias,
        "hidden_activation": model.hidden_act,
    }
    if kind not in {"phi3", "qwen2"}:
        config["head_dim"] = model.head_size
    if kind == "qwen2":
        del config["attention_bias"]
    if kind == "phi3":
        config |= {"pad_token_id": None, "resid_pdrop": model.hidden_dropout}
    return config | _window(model, kind)


def _numbers(model: TransformerModel) -> int:
    return sum(tensor.numel * tensor.count for tensor in decoder_spec(model).tensors())


def _kind(model: TransformerModel) -> str | None:
    if model.norm == "layernorm":
        return _with_layer_norms(model)
    if model.position != "rope" or not model.gated_mlp or model.parallel_residual or model.lm_head_bias:
        return None
    if model.norm == "gemma_rmsnorm" or model.norms_per_layer == 4:
        # All of Gemma's norms are its own kind, also where a preset does not say so.
        kinds = {(2, False): "gemma", (4, False): "gemma2", (4, True): "gemma3_text"}
        return kinds.get((model.norms_per_layer, model.qk_norm))
    return None if model.norms_per_layer != 2 else _with_rms_norms(model)


def _with_rms_norms(model: TransformerModel) -> str | None:
    if model.fused_qkv:
        return "phi3" if not model.attention_bias else None
    if model.qk_norm:
        return "qwen3"
    if model.attention_bias and not model.output_bias:
        return "qwen2" if not model.mlp_bias else None
    return "mistral" if model.sliding_window is not None else "llama"


def _with_layer_norms(model: TransformerModel) -> str | None:
    if model.gated_mlp or not model.fused_qkv or not model.mlp_bias or model.norms_per_layer != 2:
        return None
    if model.position == "learned" and not model.parallel_residual:
        return "gpt2" if model.kv_heads == model.num_attention_heads else None
    return "gpt_neox" if model.position == "rope" and model.parallel_residual else None


def _shared(model: TransformerModel) -> dict[str, Any]:
    return {
        "hidden_size": model.hidden_size,
        "num_hidden_layers": model.num_hidden_layers,
        "num_attention_heads": model.num_attention_heads,
        "intermediate_size": model.ffn_size,
        "vocab_size": model.vocab_size,
        "max_position_embeddings": model.max_position_embeddings or 1 << 17,
        "hidden_act": model.hidden_act,
        "tie_word_embeddings": model.tie_word_embeddings,
        "attention_dropout": model.attention_dropout,
    }


def _gpt2(model: TransformerModel) -> dict[str, Any]:
    return {
        "model_type": "gpt2",
        "n_embd": model.hidden_size,
        "n_layer": model.num_hidden_layers,
        "n_head": model.num_attention_heads,
        "n_inner": model.ffn_size,
        "n_positions": model.max_position_embeddings or 1024,
        "vocab_size": model.vocab_size,
        "activation_function": model.hidden_act,
        "resid_pdrop": model.hidden_dropout,
        "embd_pdrop": model.hidden_dropout,
        "attn_pdrop": model.attention_dropout,
        "tie_word_embeddings": model.tie_word_embeddings,
    }


def _window(model: TransformerModel, kind: str) -> dict[str, Any]:
    """Which layers slide, and how far."""
    if kind in {"llama", "gemma"}:
        return {}
    if model.sliding_window is None:
        full = {"layer_types": ["full_attention"] * model.num_hidden_layers} if kind.startswith("gemma") else {}
        return full | ({} if kind.startswith("gemma") else {"sliding_window": None})
    window: dict[str, Any] = {"sliding_window": model.sliding_window}
    if kind in {"mistral", "phi3"}:
        return window
    names = {"full": "full_attention", "sliding": "sliding_attention"}
    layers = [names[model.looks_back(number)] for number in range(model.num_hidden_layers)]
    return window | {"layer_types": layers, "use_sliding_window": True}

"""Bundled decoders have as many parameters as transformers builds from the sizes that were published for them."""

from typing import Any

import pytest

from tests.loaded_once import Module, bundled_presets
from vramtui.core.schema.models import TransformerModel

torch, transformers = Module("torch"), Module("transformers")

BUNDLED = {found.key: found.preset for found in bundled_presets()}
# Those that list their tensors are held to the module in tests/models/readers/test_architectures.py.
DECODERS = {
    key: found.model
    for key, found in BUNDLED.items()
    if isinstance(found.model, TransformerModel) and not found.model.tensors
}


SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size")


def sizes(*numbers: int, **more: Any) -> dict[str, Any]:
    """The five sizes in their order and the vocabulary's, and what else there is to say."""
    return {**dict(zip((*SIZES, "vocab_size"), numbers, strict=True)), "tie_word_embeddings": False, **more}


def gpt2(width: int, layers: int, heads: int) -> dict[str, Any]:
    return {"n_embd": width, "n_layer": layers, "n_head": heads}


LATENT = {"kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
# By the beginning of the preset's key: transformers' model, and what its published config.json says.
PUBLISHED: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek-v2": (
        "DeepseekV2ForCausalLM",
        sizes(5120, 60, 128, 128, 12288, 102400, q_lora_rank=1536, n_routed_experts=160, n_shared_experts=2)
        | LATENT
        | {"moe_intermediate_size": 1536, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    ),
    "deepseek-v2-lite": (
        "DeepseekV2ForCausalLM",
        sizes(2048, 27, 16, 16, 10944, 102400, q_lora_rank=None, n_routed_experts=64, n_shared_experts=2)
        | LATENT
        | {"moe_intermediate_size": 1408, "num_experts_per_tok": 6, "first_k_dense_replace": 1},
    ),
    "deepseek-v3": (
        "DeepseekV3ForCausalLM",
        sizes(7168, 61, 128, 128, 18432, 129280, q_lora_rank=1536, n_routed_experts=256, n_shared_experts=1)
        | LATENT
        | {"moe_intermediate_size": 2048, "num_experts_per_tok": 8, "first_k_dense_replace": 3},
    ),
    "kimi-k2": (
        "DeepseekV3ForCausalLM",
        sizes(7168, 61, 64, 64, 18432, 163840, q_lora_rank=1536, n_routed_experts=384, n_shared_experts=1)
        | LATENT
        | {"moe_intermediate_size": 2048, "num_experts_per_tok": 8, "first_k_dense_replace": 1},
    ),
    "mistral-large-3": (
        "DeepseekV3ForCausalLM",
        sizes(7168, 61, 128, 128, 18432, 131072, q_lora_rank=1536, n_routed_experts=128, n_shared_experts=1)
        | LATENT
        | {"moe_intermediate_size": 4096, "num_experts_per_tok": 4, "first_k_dense_replace": 3},
    ),
    "gemma-2-2b": ("Gemma2ForCausalLM", sizes(2304, 26, 8, 4, 9216, 256000, head_dim=256, tie_word_embeddings=True)),
    "gemma-2-9b": ("Gemma2ForCausalLM", sizes(3584, 42, 16, 8, 14336, 256000, head_dim=256, tie_word_embeddings=True)),
    "gemma-2-27b": (
        "Gemma2ForCausalLM",
        sizes(4608, 46, 32, 16, 36864, 256000, head_dim=128, tie_word_embeddings=True),
    ),
    "gemma-3-1b": ("Gemma3ForCausalLM", sizes(1152, 26, 4, 1, 6912, 262144, head_dim=256, tie_word_embeddings=True)),
    "gemma-3-4b": ("Gemma3ForCausalLM", sizes(2560, 34, 8, 4, 10240, 262208, head_dim=256, tie_word_embeddings=True)),
    "gemma-3-12b": ("Gemma3ForCausalLM", sizes(3840, 48, 16, 8, 15360, 262208, head_dim=256, tie_word_embeddings=True)),
    "gemma-3-27b": (
        "Gemma3ForCausalLM",
        sizes(5376, 62, 32, 16, 21504, 262208, head_dim=128, tie_word_embeddings=True),
    ),
    "gpt-j-6b": ("GPTJForCausalLM", {**gpt2(4096, 28, 16), "vocab_size": 50400, "rotary_dim": 64}),
    "gpt-neox-20b": ("GPTNeoXForCausalLM", sizes(6144, 44, 64, 64, 24576, 50432)),
    "gpt2-1.5b": ("GPT2LMHeadModel", gpt2(1600, 48, 25)),
    "gpt2-124m": ("GPT2LMHeadModel", gpt2(768, 12, 12)),
    "gpt2-355m": ("GPT2LMHeadModel", gpt2(1024, 24, 16)),
    "gpt2-774m": ("GPT2LMHeadModel", gpt2(1280, 36, 20)),
    "llama-3.1-405b": ("LlamaForCausalLM", sizes(16384, 126, 128, 8, 53248, 128256)),
    "llama-3.1-70b": ("LlamaForCausalLM", sizes(8192, 80, 64, 8, 28672, 128256)),
    "llama-3.1-8b": ("LlamaForCausalLM", sizes(4096, 32, 32, 8, 14336, 128256)),
    "llama-3.2-1b": ("LlamaForCausalLM", sizes(2048, 16, 32, 8, 8192, 128256, head_dim=64, tie_word_embeddings=True)),
    "llama-3.2-3b": ("LlamaForCausalLM", sizes(3072, 28, 24, 8, 8192, 128256, head_dim=128, tie_word_embeddings=True)),
    "llama-3.3-70b": ("LlamaForCausalLM", sizes(8192, 80, 64, 8, 28672, 128256)),
    "mistral-7b": ("MistralForCausalLM", sizes(4096, 32, 32, 8, 14336, 32768)),
    "mistral-nemo-12b": ("MistralForCausalLM", sizes(5120, 40, 32, 8, 14336, 131072, head_dim=128)),
    "mistral-small-24b": ("MistralForCausalLM", sizes(5120, 40, 32, 8, 32768, 131072, head_dim=128)),
    # The base model; the instructed one has 768 tokens more.
    "mixtral-8x22b": ("MixtralForCausalLM", sizes(6144, 56, 48, 8, 16384, 32000)),
    "mixtral-8x7b": ("MixtralForCausalLM", sizes(4096, 32, 32, 8, 14336, 32000)),
    "phi-2": ("PhiForCausalLM", sizes(2560, 32, 32, 32, 10240, 51200)),
    "phi-3-mini": ("Phi3ForCausalLM", sizes(3072, 32, 32, 32, 8192, 32064)),
    "phi-4-14b": ("Phi3ForCausalLM", sizes(5120, 40, 40, 10, 17920, 100352, pad_token_id=0)),
    "qwen-2.5-0.5b": ("Qwen2ForCausalLM", sizes(896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True)),
    "qwen-2.5-14b": ("Qwen2ForCausalLM", sizes(5120, 48, 40, 8, 13824, 152064)),
    "qwen-2.5-32b": ("Qwen2ForCausalLM", sizes(5120, 64, 40, 8, 27648, 152064)),
    "qwen-2.5-72b": ("Qwen2ForCausalLM", sizes(8192, 80, 64, 8, 29568, 152064)),
    "qwen-2.5-7b": ("Qwen2ForCausalLM", sizes(3584, 28, 28, 4, 18944, 152064)),
    "qwen-3-0.6b": ("Qwen3ForCausalLM", sizes(1024, 28, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True)),
    "qwen-3-235b-a22b": (
        "Qwen3MoeForCausalLM",
        sizes(4096, 94, 64, 4, 12288, 151936, head_dim=128, moe_intermediate_size=1536, num_experts=128),
    ),
    "qwen-3-30b-a3b": (
        "Qwen3MoeForCausalLM",
        sizes(2048, 48, 32, 4, 6144, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128),
    ),
    "qwen-3-32b": ("Qwen3ForCausalLM", sizes(5120, 64, 64, 8, 25600, 151936, head_dim=128)),
    "qwen-3-8b": ("Qwen3ForCausalLM", sizes(4096, 36, 32, 8, 12288, 151936, head_dim=128)),
}
# A model of this project's own.
OWN = {"tiny-gpt"}
# Numbers of the checkpoint that transformers keeps as buffers.
BUFFERS = ("e_score_correction_bias",)


def published(key: str) -> str:
    """The longest of the names above that a preset's key begins with."""
    return max((name for name in PUBLISHED if key == name or key.startswith(f"{name}-")), key=len)


def test_each_of_them_stands_for_a_preset() -> None:
    assert {published(key) for key in DECODERS if key not in OWN} == set(PUBLISHED)


@pytest.mark.torch
@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_as_many_parameters_as_transformers_builds(name: str) -> None:
    architecture, said = PUBLISHED[name]
    kind = getattr(transformers, architecture)
    with torch.device("meta"):
        built = kind(kind.config_class(**said))
    buffers = (buffer for at, buffer in built.named_buffers() if at.endswith(BUFFERS))
    count = sum(tensor.numel() for tensor in (*built.parameters(), *buffers))
    presets = {key: model.parameters for key, model in DECODERS.items() if key not in OWN and published(key) == name}
    assert presets == dict.fromkeys(presets, count)

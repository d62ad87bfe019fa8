"""The jobs that stated errors are measured on: public models by their configs, each in a few ways to train and to ask.

Nobody wrote or fitted an estimator beside them. A job is plain JSON: its kind and family, the model's config as it is
published, the class of transformers that builds it, the run and the parallelism as a preset says them, and the card.
"""

from typing import Any

Job = dict[str, Any]
# Blocks of a model that are kept, so that a bench takes minutes; all else is as published.
MOST_BLOCKS = 6
_BLOCKS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "encoder_layers", "decoder_layers")


def _llama(hidden: int, layers: int, heads: int, kv: int, wide: int, vocab: int, **more: object) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": wide,
        "vocab_size": vocab,
    } | more


def classic_config(hidden: int, layers: int, heads: int, vocab: int, **more: object) -> dict[str, Any]:
    """A config whose MLP is four times as wide as its hidden state, as those of GPT-NeoX, Phi and BERT.

    Args:
        hidden: the hidden size.
        layers: how many blocks.
        heads: of attention, of each block.
        vocab: the vocabulary's size.
        more: other keys, which stand over these.
    """
    return {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "vocab_size": vocab,
    } | more


def shortened(config: dict[str, Any], most: int = MOST_BLOCKS) -> dict[str, Any]:
    """The config with as many blocks as are kept, `most` of them; of blocks in pairs whole pairs."""
    short = {key: min(value, most) if key in _BLOCKS else value for key, value in config.items()}
    if "attention_types" in short:
        pairs = -(-most // 2)
        short |= {"attention_types": [[["global", "local"], pairs]], "num_layers": 2 * pairs}
    return short


# family: (model_type, architecture, config)
DECODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "pythia-410m": ("gpt_neox", "GPTNeoXForCausalLM", classic_config(1024, 24, 16, 50304, rotary_pct=0.25)),
    "pythia-1.4b": ("gpt_neox", "GPTNeoXForCausalLM", classic_config(2048, 24, 16, 50304, rotary_pct=0.25)),
    "opt-125m": ("opt", "OPTForCausalLM", {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
        "ffn_dim": 3072, "vocab_size": 50272, "word_embed_proj_dim": 768}),
    "opt-1.3b": ("opt", "OPTForCausalLM", {"hidden_size": 2048, "num_hidden_layers": 24, "num_attention_heads": 32,
        "ffn_dim": 8192, "vocab_size": 50272, "word_embed_proj_dim": 2048}),
    "phi-1.5": ("phi", "PhiForCausalLM", classic_config(2048, 24, 32, 51200, partial_rotary_factor=0.5)),
    "phi-2": ("phi", "PhiForCausalLM", classic_config(2560, 32, 32, 51200, partial_rotary_factor=0.4,
        resid_pdrop=0.1)),
    "phi-3-mini": ("phi3", "Phi3ForCausalLM", _llama(3072, 32, 32, 32, 8192, 32064, pad_token_id=32000,
        max_position_embeddings=4096)),
    "stablelm-2-1.6b": ("stablelm", "StableLmForCausalLM", _llama(2048, 24, 32, 32, 5632, 100352, use_qkv_bias=True,
        partial_rotary_factor=0.25)),
    "stablelm-3b": ("stablelm", "StableLmForCausalLM", _llama(2560, 32, 32, 32, 6912, 50304)),
    "falcon-rw-1b": ("falcon", "FalconForCausalLM", {"hidden_size": 2048, "num_hidden_layers": 24,
        "num_attention_heads": 32, "vocab_size": 50304, "alibi": True, "bias": True, "multi_query": False,
        "parallel_attn": False, "new_decoder_architecture": False}),
    "falcon-mqa": ("falcon", "FalconForCausalLM", {"hidden_size": 2048, "num_hidden_layers": 16,
        "num_attention_heads": 32, "vocab_size": 65024, "alibi": False, "bias": False, "multi_query": True,
        "parallel_attn": True, "new_decoder_architecture": False}),
    "bloom-560m": ("bloom", "BloomForCausalLM", {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size":
        250880}),
    "gpt-neo-125m": ("gpt_neo", "GPTNeoForCausalLM", {"hidden_size": 768, "num_layers": 12, "num_heads": 12,
        "vocab_size": 50257, "max_position_embeddings": 2048, "attention_types": [[["global", "local"], 6]]}),
    "codegen-350m": ("codegen", "CodeGenForCausalLM", {"n_embd": 1024, "n_layer": 20, "n_head": 16, "vocab_size":
        51200, "rotary_dim": 32, "n_positions": 2048}),
    "starcoder2-3b": ("starcoder2", "Starcoder2ForCausalLM", _llama(3072, 30, 24, 2, 12288, 49152,
        sliding_window=4096, max_position_embeddings=16384)),
    "santacoder": ("gpt_bigcode", "GPTBigCodeForCausalLM", {"n_embd": 2048, "n_layer": 24, "n_head": 16, "vocab_size":
        49280, "multi_query": True, "n_positions": 2048}),
    "qwen2.5-0.5b": ("qwen2", "Qwen2ForCausalLM", _llama(896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True)),
    "qwen3-0.6b": ("qwen3", "Qwen3ForCausalLM", _llama(1024, 28, 16, 8, 3072, 151936, head_dim=128,
        tie_word_embeddings=True)),
    "gemma-3-1b": ("gemma3_text", "Gemma3ForCausalLM", _llama(1152, 26, 4, 1, 6912, 262144, head_dim=256,
        sliding_window=512, query_pre_attn_scalar=256)),
    "smollm2-135m": ("llama", "LlamaForCausalLM", _llama(576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True)),
    "tinyllama-1.1b": ("llama", "LlamaForCausalLM", _llama(2048, 22, 32, 4, 5632, 32000)),
    "olmo-1b": ("olmo", "OlmoForCausalLM", _llama(2048, 16, 16, 16, 8192, 50304, tie_word_embeddings=True)),
    "olmo2-1b": ("olmo2", "Olmo2ForCausalLM", _llama(2048, 16, 16, 16, 8192, 100352)),
    "granite-3-2b": ("granite", "GraniteForCausalLM", _llama(2048, 40, 32, 8, 8192, 49155, tie_word_embeddings=True,
        attention_dropout=0.1)),
    "olmoe-a1b": ("olmoe", "OlmoeForCausalLM", _llama(2048, 4, 16, 16, 1024, 50304, num_experts=64,
        num_experts_per_tok=8)),
}  # fmt: skip
BERT_LIKE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
ENCODERS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "roberta-base": ("roberta", "RobertaForMaskedLM", BERT_LIKE | {"vocab_size": 50265, "type_vocab_size": 1}),
    "bert-large": ("bert", "BertForMaskedLM", {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads":
        16, "intermediate_size": 4096, "vocab_size": 30522}),
    "bert-classes": ("bert", "BertForSequenceClassification", BERT_LIKE | {"vocab_size": 30522, "num_labels": 2}),
    "electra-base": ("electra", "ElectraForMaskedLM", BERT_LIKE | {"vocab_size": 30522, "embedding_size": 768}),
    "deberta-v3-base": ("deberta-v2", "DebertaV2ForMaskedLM", BERT_LIKE | {"vocab_size": 128100, "relative_attention":
        True, "position_buckets": 256, "pos_att_type": ["p2c", "c2p"], "share_att_key": True, "norm_rel_ebd":
        "layer_norm", "type_vocab_size": 0, "position_biased_input": False, "max_relative_positions": -1}),
    "distilbert": ("distilbert", "DistilBertForMaskedLM", {"dim": 768, "n_layers": 6, "n_heads": 12, "hidden_dim":
        3072, "vocab_size": 30522}),
    "albert-base": ("albert", "AlbertForMaskedLM", BERT_LIKE | {"vocab_size": 30000, "embedding_size": 128}),
    "mpnet-base": ("mpnet", "MPNetForMaskedLM", BERT_LIKE | {"vocab_size": 30527}),
    "modernbert-base": ("modernbert", "ModernBertForMaskedLM", {"hidden_size": 768, "num_hidden_layers": 22,
        "num_attention_heads": 12, "intermediate_size": 1152, "vocab_size": 50368}),
    "vit-base": ("vit", "ViTForImageClassification", BERT_LIKE | {"image_size": 224, "num_labels": 1000}),
    "vit-large-384": ("vit", "ViTForImageClassification", {"hidden_size": 1024, "num_hidden_layers": 24,
        "num_attention_heads": 16, "intermediate_size": 4096, "image_size": 384, "num_labels": 1000}),
    "deit-base": ("deit", "DeiTForImageClassification", BERT_LIKE | {"image_size": 224, "num_labels": 1000}),
    "dinov2-base": ("dinov2", "Dinov2ForImageClassification", BERT_LIKE | {"image_size": 224, "num_labels": 1000}),
    "convnext-tiny": ("convnext", "ConvNextForImageClassification", {"hidden_sizes": [96, 192, 384, 768], "depths":
        [3, 3, 9, 3], "image_size": 224, "num_labels": 1000}),
}  # fmt: skip
# stages of a ResNet as torchvision's: (block, blocks of each, convolution's width)
RESNETS: dict[str, tuple[str, tuple[int, ...]]] = {
    "resnet18": ("basic", (2, 2, 2, 2)),
    "resnet34": ("basic", (3, 4, 6, 3)),
    "resnet50": ("bottleneck", (3, 4, 6, 3)),
    "resnet101": ("bottleneck", (3, 4, 23, 3)),
    "resnet152": ("bottleneck", (3, 8, 36, 3)),
}

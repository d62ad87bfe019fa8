"""Shapes read from config.json have as many parameters as transformers makes of that very config."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.loaded_once import Module
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import Model
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.models.registry import parameter_count
from vramtui.models.families.encoders import BERT_HEADS
from vramtui.models.families.families import FAMILIES
from vramtui.models.readers.config_json import LANGUAGE, parse_config, read_config
from vramtui.models.shapes.known import shape_table
from vramtui.presets.model_presets import preset_of

torch, transformers = Module("torch"), Module("transformers")

# What differs from the defaults: each choice that a reader has to follow.
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "LlamaForCausalLM": [
        {"num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 14336},
        {"tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "head_dim": 64},
    ],
    "MistralForCausalLM": [{"head_dim": 128, "hidden_size": 5120}],
    "GPT2LMHeadModel": [{"n_embd": 1024, "n_layer": 24, "n_head": 16}],
    "GPTNeoXForCausalLM": [{"tie_word_embeddings": True, "use_parallel_residual": False}],
    "Qwen2MoeForCausalLM": [{"num_experts": 8, "shared_expert_intermediate_size": 1024}],
    "DeepseekV2ForCausalLM": [{"num_experts_per_tok": 6, "first_k_dense_replace": 1, "q_lora_rank": None}],
    "Qwen3MoeForCausalLM": [{"head_dim": 128, "num_experts": 16}],
    "DeepseekV3ForCausalLM": [{"q_lora_rank": None, "num_hidden_layers": 5, "n_routed_experts": 16}],
    "FalconForCausalLM": [
        {"new_decoder_architecture": True, "num_kv_heads": 8, "hidden_size": 1024, "num_attention_heads": 16},
        {"parallel_attn": False, "multi_query": False, "bias": True, "hidden_size": 512, "num_attention_heads": 8},
        {"new_decoder_architecture": True, "num_kv_heads": 1, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 999},
    ],
    "CLIPTextModelWithProjection": [{"hidden_size": 768, "intermediate_size": 3072, "projection_dim": 768}],
    "CLIPVisionModelWithProjection": [{"patch_size": 14, "hidden_size": 1024, "num_attention_heads": 16}],
    "XLMRobertaForMaskedLM": [{"vocab_size": 250002, "type_vocab_size": 1, "max_position_embeddings": 514}],
    "T5ForConditionalGeneration": [{"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False, "d_kv": 32}],
    "BertForSequenceClassification": [{"num_labels": 7, "hidden_size": 256, "num_attention_heads": 4}],
    "ViTForImageClassification": [{"num_labels": 10, "image_size": 384, "patch_size": 32}],
}
FOLLOWED = [shape_table().class_of("causal", kind) for kind, family in FAMILIES.items() if family.operators is not None]
ENCODERS = {
    "BartForConditionalGeneration", *(name + head for name in ("Bert", "Roberta", "XLMRoberta") for head in BERT_HEADS),
    "CLIPTextModel", "CLIPTextModelWithProjection", "CLIPVisionModel", "CLIPVisionModelWithProjection",
    "MT5ForConditionalGeneration", "T5ForConditionalGeneration", "ViTForImageClassification", "ViTModel",
    "WhisperForConditionalGeneration",
}  # fmt: skip
NAMES = sorted({*filter(None, FOLLOWED), "OPTForCausalLM", *ENCODERS})
# transformers' own default of these is no model.
NO_DEFAULT = {"DeepseekV2ForCausalLM"}
CASES = [
    (name, changes) for name in NAMES for changes in (*([] if name in NO_DEFAULT else [{}]), *VARIANTS.get(name, []))
]
# Weights of the checkpoint that transformers keeps as buffers.
BUFFERS = ("e_score_correction_bias",)


def _read(config: dict[str, Any], folder: Path) -> Model:
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    model: Model = msgspec.convert(read_config(path).model, Model)
    return model


@pytest.mark.torch
@pytest.mark.parametrize(("name", "changes"), CASES, ids=lambda case: case if isinstance(case, str) else ",".join(case))
def test_as_many_parameters_as_transformers_makes(name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    kind = getattr(transformers, name)
    config = kind.config_class(**changes)
    config.architectures = [name]
    with torch.device("meta"):
        model = kind(config)
    buffers = (buffer for name, buffer in model.named_buffers() if name.endswith(BUFFERS))
    made = sum(tensor.numel() for tensor in (*model.parameters(), *buffers))
    assert parameter_count(_read(config.to_dict(), tmp_path)) == made


@pytest.mark.torch
def test_a_folder_is_its_config(tmp_path: Path) -> None:
    config = transformers.LlamaConfig(num_hidden_layers=2)
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(tmp_path)
    preset = preset_of(tmp_path)
    assert preset == preset_of(tmp_path / "config.json")
    assert isinstance(preset.run, InferRun)


@pytest.mark.parametrize(("content", "said"), [
    (b"", "config.json"),
    (b"{", "config.json"),
    (b"[]", "config.json"),
    (b'{"architectures": ["LLamaForCausalLM"]}', "LLamaForCausalLM. but has no hidden_size"),
    (b'{"architectures": ["LlamaForCausalLM"], "hidden_size": "wide"}', "hidden_size"),
    (b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 1}', "num_hidden_layers"),
    (b'{"architectures": ["LlamaForCausalLM"], "hidden_size": 1e400}', "config.json"),
    (b"[" * 100_000, "config.json"),
    (b'{"a": "' + b"x" * (1 << 23) + b'"}', "config.json"),
], ids=["empty", "cut", "list", "misspelt", "text", "missing", "endless", "deep", "large"])  # fmt: skip
def test_what_is_wrong_is_one_sentence(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(UserError, match=said) as caught:
        preset_of(path)
    assert "\n" not in str(caught.value)


def test_an_encoder_that_nothing_describes_is_said_to_be_left_out() -> None:
    """SeamlessM4T's decoder is read; its encoder of speech, as large again, only of a class that is known."""
    speech = {"speech_encoder_layers": 24, "encoder_layers": 24, "decoder_layers": 24, "num_hidden_layers": 24}
    sizes = {"hidden_size": 1024, "vocab_size": 256102, "decoder_ffn_dim": 8192, "decoder_attention_heads": 16}
    config = {"architectures": ["SeamlessM4Tv2ForNothingKnown"], "model_type": "seamless_m4t_v2"}
    assert parse_config({**config, **speech, **sizes}).partial == LANGUAGE
    whole = parse_config({**config, **speech, **sizes, "architectures": ["SeamlessM4Tv2ForSpeechToText"]})
    assert not whole.partial
    assert whole.counted
    assert not parse_config({**config, **sizes, "model_type": "unknown", "num_hidden_layers": 24}).partial


RW = {"architectures": ["RWForCausalLM"], "alibi": False, "bias": False, "parallel_attn": True, "vocab_size": 65024}
RW_7B = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32, "multi_query": True}
RW_40B = {"model_type": "RefinedWeb", "hidden_size": 8192, "n_head": 128, "n_head_kv": 8, "n_layer": 60}


@pytest.mark.parametrize(("config", "parameters"), [(RW_7B, 6_921_720_704), (RW_40B, 41_303_293_952)])
def test_falcons_own_configs(config: dict[str, Any], parameters: int, tmp_path: Path) -> None:
    """As they lay beside Falcon 7B and 40B before transformers knew them."""
    assert parameter_count(_read(config | RW, tmp_path)) == parameters

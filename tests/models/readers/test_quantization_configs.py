import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recorded.architectures import preset_from, recorded
from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic import ANALYTIC
from vramtui.models.readers.config_json import read_config
from vramtui.models.specs.decoder import decoder_spec

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
GPT_OSS = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24,
    "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 2880,
    "num_local_experts": 32, "num_experts_per_tok": 4, "attention_bias": True, "sliding_window": 128,
    "tie_word_embeddings": False, "vocab_size": 201088, "max_position_embeddings": 131072,
}  # fmt: skip
MXFP4 = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
PACKED = {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128, "symmetric": True}}}
FLOATS = {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}


@pytest.mark.parametrize(("said", "read"), [
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
    ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8"),
    ({"quant_method": "awq", "bits": 4, "version": "gemm"}, "int4"),
    ({"bits": 4, "group_size": 128, "damp_percent": 0.01, "desc_act": False}, "int4"),
    ({"quant_method": "auto-round", "bits": 4}, "int4"),
    ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
    ({"quant_method": "fbgemm_fp8"}, "fp8"),
    ({"quant_method": "compressed-tensors", "format": "float-quantized", "config_groups": FLOATS}, "fp8"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": PACKED}, "int4"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
    ({"quant_method": "modelopt", "quant_algo": "FP8"}, "fp8"),
    ({"load_in_4bit": True, "bnb_4bit_use_double_quant": True, "quant_method": "bitsandbytes"}, "nf4-double"),
    ({"load_in_8bit": True, "quant_method": "bitsandbytes"}, "int8"),
    (MXFP4, "mxfp4"),
    ({"quant_method": "spqr"}, None),
])  # fmt: skip
def test_methods_of_public_files(said: dict[str, Any], read: str | None) -> None:
    run = preset_from(LLAMA | {"quantization_config": said}).run
    assert isinstance(run, InferRun)
    assert run.quantization == read


def test_public_files_of_gpt_oss_and_kimi_have_their_sizes() -> None:
    """openai/gpt-oss-20b, model.safetensors.index.json: 13,761,264,768 bytes; blocks of 512 B on top."""
    estimate = ANALYTIC.estimate(preset_from(GPT_OSS | {"quantization_config": MXFP4}).workload, card("H100"))
    weights = next(part.bytes for part in estimate.parts if part.name == "weights")
    assert weights == pytest.approx(13_761_264_768, rel=1e-5)
    config = _public("kimi-k2.5")
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": PACKED}
    preset = preset_from(config | {"text_config": config["text_config"] | {"quantization_config": packed}})
    assert isinstance(preset.run, InferRun)
    assert preset.run.quantization == "int4"
    groups = {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 32}, "targets": ["Linear"]}}
    said = {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized", "config_groups": groups}
    linear = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096 + 3 * 14336 * 4096)
    others = 2 * 128256 * 4096 + 65 * 4096
    # 4 bits of a weight, and 8 for each 32 of them.
    assert _weights(LLAMA | {"quantization_config": said, "torch_dtype": "bfloat16"}) == linear * 17 // 32 + 2 * others


def _public(name: str) -> dict[str, Any]:
    found: dict[str, Any] = next(row["config"] for row in recorded("public") if row["name"] == name)
    return found


@pytest.mark.parametrize(("left", "whole"), [(["visual"], True), (["lm_head"], False)])
def test_towers_that_are_left_keep_sixteen_bits(left: list[str], whole: bool) -> None:
    awq = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": left}
    preset = preset_from(_public("qwen2.5-vl-32b-awq") | {"quantization_config": awq})
    assert isinstance(preset.model, TransformerModel)
    assert isinstance(preset.run, InferRun)
    assert preset.run.quantization == "int4"
    bits = {group.bits for group in preset.model.tensors if group.place == "tower"}
    assert bits == ({16} if whole else {None})
    assert {group.bits for group in preset.model.tensors if group.place != "tower"} == {None}


@pytest.mark.parametrize(("said", "method"), rows(__file__, "a_method_that_is_not_known_is_said"))
def test_a_method_that_is_not_known_is_said(said: dict[str, Any], method: str) -> None:
    notes = preset_from(LLAMA | {"quantization_config": said}).notes
    assert ("is not known, and weights are counted as if they had none" in notes) == bool(method)
    assert method in notes


@pytest.mark.parametrize(("bits", "head"), [(4.0, 6), (3.5, 6), (2.25, 8)])
def test_exl3_is_counted_by_its_bits(bits: float, head: int) -> None:
    """Trellises of so many bits, two fp16 vectors for each linear layer, the embedding and norms in fp16."""
    said = {"quant_method": "exl3", "version": "0.0.6", "bits": bits, "head_bits": head}
    config = LLAMA | {"quantization_config": said}
    preset, plain = preset_from(config), preset_from(LLAMA)
    assert isinstance(preset.model, TransformerModel)
    assert isinstance(plain.model, TransformerModel)
    assert isinstance(preset.run, InferRun)
    assert preset.run.quantization is None
    assert "is not known" not in preset.notes
    kept = sum(group.numel * group.count * (group.bits or 16) for group in preset.model.tensors)
    sizes = {tensor.module: tensor for tensor in decoder_spec(plain.model).tensors()}
    whole = {name: tensor.numel * tensor.count for name, tensor in sizes.items()}
    linear = [tensor for tensor in sizes.values() if tensor.layer and len(tensor.shape) == 2]
    wanted = sum(tensor.numel * tensor.count for tensor in linear) * bits + whole["lm_head"] * head
    wanted += sum(16 * sum(tensor.shape) * tensor.count for tensor in [*linear, sizes["lm_head"]])
    wanted += 16 * sum(whole[name] for name in ("embed_tokens", "norm", "layer_norm"))
    assert kept == pytest.approx(wanted, rel=1e-6)


QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 40960,
}  # fmt: skip
DOWN, LEFT = {"group_size": 64, "bits": 8}, False


@pytest.mark.parametrize(("said", "bits"), rows(__file__, "mlx_is_counted_by_its_bits"))
def test_mlx_is_counted_by_its_bits(said: dict[str, Any], bits: float) -> None:
    """Linear layers and the embedding, 595,984,384 numbers, in groups with their scales; norms in 16 bits. Of the first
    mlx-community/Qwen3-0.6B-4bit has 335 MB.
    """
    wanted = 595_984_384 * bits / 8 + 2 * (596_049_920 - 595_984_384)
    assert _weights(QWEN3 | {"quantization": said}) == pytest.approx(wanted, rel=1e-4)
    assert _weights(QWEN3 | {"quantization": said, "quantization_config": said}) == pytest.approx(wanted, rel=1e-4)


MLX = r"quantization\.bits or quantization\.group_size that MLX has not"


@pytest.mark.parametrize(("config", "match"), [
    *(
        (LLAMA | {"quantization_config": {"quant_method": "exl3"} | bits}, r"quantization_config\.bits")
        for bits in ({}, {"bits": 0.5}, {"bits": 9})
    ),
    (QWEN3 | {"quantization": {"group_size": 64, "bits": 99}}, MLX),
    (QWEN3 | {"quantization": {"group_size": 0, "bits": 4}}, MLX),
])  # fmt: skip
def test_bits_that_exl3_and_mlx_have_not_are_one_sentence(config: dict[str, Any], match: str) -> None:
    with pytest.raises(UserError, match=match):
        preset_from(config)


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
GROUP_32 = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32}}}
KIMI = {
    "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": GROUP_32,
    "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*", r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
}  # fmt: skip


def _kept(config: dict[str, Any], said: dict[str, Any]) -> dict[str, set[int | None]]:
    model = preset_from(config | {"quantization_config": said}).model
    assert isinstance(model, TransformerModel)
    kept: dict[str, set[int | None]] = {}
    for group in model.tensors:
        if len(group.shape) > 1 and group.place == "layers":
            kept.setdefault(group.name, set()).add(group.bits)
    return kept


@pytest.mark.parametrize(("name", "said", "gigabytes"), [
    # Experts alone, with a 16-bit scale for each 32 numbers; experts with an 8-bit scale for each 32, the rest fp8.
    ("kimi-k2.5", KIMI, 594.2),
    ("deepseek-v4-flash", FP8 | {"expert_dtype": "fp4"}, 155.6),
])  # fmt: skip
def test_models_of_several_formats(name: str, said: dict[str, Any], gigabytes: float) -> None:
    estimate = ANALYTIC.estimate(preset_from(_public(name) | {"quantization_config": said}).workload, card("H100"))
    weights = next(part.bytes for part in estimate.parts if part.name == "weights")
    assert weights == pytest.approx(gigabytes * 1e9, rel=2e-3)


@pytest.mark.parametrize("kind", ["afmoe", "beam", "hrm_text", "hy_v4"])
def test_gates_of_attention_stay_with_attention(kind: str) -> None:
    """Their modules are called self_attn.gate_proj, those of the MLP mlp.gate_proj."""
    config = next(row["config"] for row in recorded("causal") if row["type"] == kind)
    for left, whole in (("self_attn", "attention"), ("mlp", "mlp")):
        how = {"quant_method": "awq", "bits": 4, "group_size": 128, "modules_to_not_convert": [left]}
        model = preset_from(config | {"quantization_config": how}).model
        assert isinstance(model, TransformerModel)
        wide = {group.shape for group in model.tensors if group.name == "up_proj"}
        gates = {
            ("mlp" if group.shape in wide else "attention"): group.bits
            for group in model.tensors
            if group.name == "gate_proj"
        }
        assert gates == {"attention": None, "mlp": None} | {whole: 16}, (kind, left)


def test_layers_that_are_named_have_bits_of_their_own() -> None:
    layers = {
        "model.layers.0.self_attn.q_proj": {"quant_algo": "FP8"},
        "model.layers.1.mlp.experts.0.up_proj": {"quant_algo": "NVFP4"},
    }
    said = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers}
    kept = _kept(_public("glm-4.5-air-infer"), said)
    assert (kept["q_proj"], kept["experts_down_proj"], kept["shared_up_proj"]) == ({8}, {None}, {16})
    plain = {"group_size": 64, "bits": 4}
    listed = {f"model.layers.{number}.mlp.down_proj": DOWN for number in range(7)}
    more = 7 * 1024 * 3072 * 4 / 8 + 151_936 * 1024 * (16 - 4.5) / 8
    found = _weights(QWEN3 | {"quantization": plain | listed | {"model.embed_tokens": LEFT}})
    assert found == pytest.approx(_weights(QWEN3 | {"quantization": plain}) + more, rel=1e-4)
    config = _public("glm-4.5-air-infer")
    nvfp4 = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    assert set().union(*_kept(config, nvfp4).values()) == {None}
    left = ["lm_head", "model.layers.0*", "model.layers.3.self_attn*", "model.layers.3.mlp.shared_experts*"]
    kept = _kept(config, nvfp4 | {"ignore": left})
    assert kept["q_proj"] == kept["shared_up_proj"] == {16, None}
    assert kept["up_proj"] == {16}  # the only dense layer is the first
    assert kept["experts_down_proj"] == {None}
    model = preset_from(config | {"quantization_config": nvfp4 | {"ignore": left}}).model
    assert isinstance(model, TransformerModel)
    assert [group.count for group in model.tensors if group.name == "q_proj" and group.bits == 16] == [2]


@pytest.mark.parametrize(
    "pattern", ["re:(a+)+$", "re:.*.*.*.*.*.*x", "*" * 40 + "x", "re:[", "model.layers.99999999999.x"]
)
def test_patterns_of_strangers_take_no_time(pattern: str) -> None:
    said = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [pattern] * 5000}
    begun = time.process_time()
    assert set().union(*_kept(_public("glm-4.5-air-infer"), said).values()) == {None}
    assert time.process_time() - begun < 1


def test_what_stands_beside_a_config_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    beside = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    assert read_config(tmp_path / "config.json").quantization is None
    (tmp_path / "hf_quant_config.json").write_text(json.dumps(beside))
    assert read_config(tmp_path / "config.json").quantization == "fp8"
    (tmp_path / "hf_quant_config.json").unlink()
    (tmp_path / "quant_config.json").write_text('{"zero_point": true, "q_group_size": 128, "w_bit": 4}')
    assert read_config(tmp_path / "config.json").quantization == "int4"
    (tmp_path / "quantize_config.json").write_text('{"bits": 8, "group_size": 128, "damp_percent": 0.01}')
    assert read_config(tmp_path / "config.json").quantization == "int8"


def _weights(config: dict[str, Any]) -> int:
    preset = preset_from(config)
    assert isinstance(preset.run, InferRun)
    parts = ANALYTIC.estimate(preset.workload, card("H100")).parts
    return sum(part.bytes for part in parts if part.name.startswith("weights"))


@pytest.mark.parametrize(
    ("said", "gigabytes"), rows(__file__, "groups_of_four_and_eight_bits_have_the_size_of_public_files")
)
def test_groups_of_four_and_eight_bits_have_the_size_of_public_files(said: dict[str, Any], gigabytes: float) -> None:
    qwen = {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28,
        "num_attention_heads": 28, "num_key_value_heads": 4, "intermediate_size": 18944, "vocab_size": 152064,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    whole = _weights(qwen | ({"quantization_config": said} if said else {}))
    assert whole / 1e9 == pytest.approx(gigabytes, abs=0.051)

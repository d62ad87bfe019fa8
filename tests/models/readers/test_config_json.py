import json
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.tables import rows

LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4,
    "num_attention_heads": 8, "intermediate_size": 4096, "vocab_size": 32000,
}  # fmt: skip


def estimate(folder: Path, config: dict[str, object], *words: str) -> tuple[int, str]:
    (folder / "config.json").write_text(json.dumps(LLAMA | config))
    done = invoke("estimate", str(folder), "--gpu", "H100", *words)
    return done.exit_code, " ".join(done.output.split())


@pytest.mark.parametrize(("config", "sentence"), rows(__file__, "a_value_that_is_guessed_is_told"))
def test_a_value_that_is_guessed_is_told(config: dict[str, object], sentence: str, tmp_path: Path) -> None:
    code, output = estimate(tmp_path, config)
    assert code == 0
    assert sentence in output


def test_nothing_is_told_of_what_is_right(tmp_path: Path) -> None:
    right: dict[str, object] = {
        "torch_dtype": "bfloat16",
        "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": -1},
    }
    code, output = estimate(tmp_path, {**right, "layer_types": ["full_attention"] * 4})
    assert code == 0
    assert "Read from a config of LlamaForCausalLM." in output


@pytest.mark.parametrize("config", [
    {"quantization_config": {"quant_method": "ours"}},
    {"quantization_config": {"ours": 1}},
    {"architectures": ["OursForCausalLM"], "model_type": "ours"},
])  # fmt: skip
def test_what_is_not_known_has_no_verdict(config: dict[str, object], tmp_path: Path) -> None:
    code, output = estimate(tmp_path, config)
    assert code == 4
    assert output.startswith("? unknown whether it fits H100: needs ")
    assert "its architecture or quantization is not known" in output
    code, output = estimate(tmp_path, config, "--json")
    (one,) = json.loads(output)["estimates"]
    assert (code, one["verdict"], one["fits"]) == (4, "unknown", None)

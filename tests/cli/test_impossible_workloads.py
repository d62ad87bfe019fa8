"""What cannot be, cannot be read or contradicts itself: one sentence naming the place, and exit code 2."""

import json
import struct
from pathlib import Path

import pytest

from tests.commands import invoke

IMPOSSIBLE = [
    ("llama-3.1-8b-full", "model.num_attention_heads=7", "does not divide model.hidden_size = 4096"),
    ("llama-3.1-8b-full", "model.head_dim=3", "model.head_dim = 3 is odd, and rotary positions turn pairs of numbers"),
    ("llama-3.1-8b-lora", "run.lora.target_modules=[]", "is not a linear layer of this model; it has: q_proj"),
    ("llama-3.1-8b-full", "model.num_key_value_heads=5", "does not divide model.num_attention_heads = 32"),
    ("llama-3.1-8b-fsdp", "parallel.zero_stage=4", "parallel.zero_stage is 4; it must be at most 3"),
    ("llama-3.1-8b-full", "run.batch_size=0", "run.batch_size is 0; it must be at least 1"),
    ("llama-3.1-8b-full", "run.batch_size=-3", "run.batch_size is -3; it must be at least 1"),
    ("llama-3.1-8b-full", "run.batch_size=many", "run.batch_size is text, a whole number is needed"),
    ("llama-3.1-8b-full", "run.batch_size=1000000000000000000", "it must be at most"),
    ("llama-3.1-8b-full", "model.num_hidden_layers=1e30", "a whole number is needed"),
    ("llama-3.1-8b-full", f"model.num_hidden_layers={10**30}", "it must be at most"),
    ("llama-3.1-8b-full", "run.bach_size=4", "did you mean batch_size?"),
    ("llama-3.1-8b-full", "run.precision=bf17", "did you mean bf16?"),
    ("llama-3.1-8b-full", "model.parameters=7", "the shapes give 8,030,261,248"),
    ("llama-3.1-8b-lora", 'run.lora.target_modules=["q_prj"]', "did you mean q_proj?"),
    ("gpt2-124m", "run.sequence_length=4096", "longer than model.max_position_embeddings = 1024"),
]
FILES = [
    ("config.json", b'{"architectures": ["LlamaForCasualLM"]}', "reads its weights' header"),
    ("config.json", b'{"model_type": "lama"}', "not known; `vramtui estimate"),
    ("config.json", b"{", "is not a config.json"),
    ("model.gguf", b"GGUF" + struct.pack("<I", 3), "is cut short"),
    ("model.gguf", b"", "is cut short"),
    ("mine.toml", b'name = "x"\n[model\n', "mine.toml:2: not valid TOML"),
]


def sentence(*arguments: str) -> str:
    done = invoke(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("vramtui: ")
    return line


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path / "own"))


@pytest.mark.parametrize("command", [["estimate"], ["fit", "--gpu", "H100"]], ids=["estimate", "fit"])
@pytest.mark.parametrize(("preset", "setting", "said"), IMPOSSIBLE, ids=[setting for _, setting, _ in IMPOSSIBLE])
def test_impossible_settings(command: list[str], preset: str, setting: str, said: str) -> None:
    line = sentence(*command, preset, "--set", setting)
    assert said in line
    assert setting.partition("=")[0] in line


@pytest.mark.parametrize("command", [["estimate"], ["fit", "--gpu", "H100"]], ids=["estimate", "fit"])
@pytest.mark.parametrize(("name", "content", "said"), FILES)
def test_files_that_tell_no_model(command: list[str], name: str, content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    line = sentence(*command, str(path))
    assert said in line
    assert name in line


@pytest.mark.parametrize("name", ["none.gguf", "none.toml", "none/config.json", "model.safetensors.index.json"])
def test_files_that_are_not_there(name: str, tmp_path: Path) -> None:
    line = sentence("estimate", str(tmp_path / name))
    assert name in line
    assert "does not exist" in line


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    assert "is a folder without a config.json" in sentence("estimate", str(tmp_path))


def test_a_config_is_estimated_and_trained_with_any_run(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    path.write_text(json.dumps({"architectures": ["LlamaForCausalLM"], "vocab_size": 100, **sizes}))
    found = {}
    for more in ([], ["run.kind=train", "run.batch_size=4", "run.sequence_length=64"]):
        settings = [part for setting in more for part in ("--set", setting)]
        done = invoke("estimate", str(path), "--json", *settings)
        assert done.exit_code == 0, done.stderr
        (one,) = json.loads(done.stdout)["estimates"]
        found[bool(more)] = one["allocated"]
    assert found[True] > found[False] > 0

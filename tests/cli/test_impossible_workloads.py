"""What cannot be, cannot be read or contradicts itself: one sentence naming the place, and exit code 2."""

import json
import struct
from pathlib import Path

import pytest

from tests.commands import invoke
from tests.tables import rows

IMPOSSIBLE = rows(__file__, "impossible")
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

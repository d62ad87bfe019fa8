import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest

from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import TrainRun
from vramtui.presets.draft import create_preset
from vramtui.presets.importers.derived import preset_of_job_file
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_from_hub
from vramtui.presets.named_presets import preset_named

CONFIG = {"architectures": ["SomeForCausalLM"], "model_type": "some", "hidden_size": 64, "intermediate_size": 128,
          "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}  # fmt: skip
HEADER = json.dumps(
    {"model.embed_tokens.weight": {"dtype": "BF16", "shape": [100, 64], "data_offsets": [0, 12800]}}
).encode()
SHARD = struct.pack("<Q", len(HEADER)) + HEADER + bytes(12800)
Asked = list[tuple[str, str, str]]


class Hub(BaseHTTPRequestHandler):
    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[Asked] = []
    elsewhere = ""

    def do_GET(self) -> None:
        name = self.path.rpartition("/")[2]
        self.asked.append((self.path, self.headers.get("Range", ""), self.headers.get("Authorization", "")))
        if self.elsewhere and name.endswith(".safetensors") and "/cdn/" not in self.path:
            self.send_response(302)
            self.send_header("Location", f"{self.elsewhere}/cdn/{name}")
            self.end_headers()
            return
        content = self.files.get(name)
        if content is None or "secret" in self.path:
            self.send_error(404 if content is None else 401)
            return
        part = content[: int(self.headers["Range"].rpartition("-")[2]) + 1]
        self.send_response(206)
        self.send_header("Content-Range", f"bytes 0-{len(part) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        """Silent."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    Hub.asked = []
    Hub.elsewhere = f"http://localhost:{server.server_port}"
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_config_and_headers_are_all_that_is_asked_for(endpoint: str) -> None:
    Hub.files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors": SHARD}
    address, preset = preset_from_hub("some-org/Some@v1", {"HF_ENDPOINT": endpoint, "HF_TOKEN": "hf_own"})
    assert address == f"{endpoint}/some-org/Some"
    assert isinstance(preset.model, TransformerModel)
    assert preset.model.parameters == 6400
    names = [path.rpartition("/")[2] for path, _, _ in Hub.asked]
    assert names == ["config.json", "model.safetensors.index.json", "model.safetensors", "model.safetensors"]
    assert all(path.startswith("/some-org/Some/resolve/v1/") for path, _, _ in Hub.asked[:3])
    assert all(asked.startswith("bytes=0-") for _, asked, _ in Hub.asked)
    # To the hub with the token, to where it sends for the file without.
    assert [token for _, _, token in Hub.asked] == ["Bearer hf_own"] * 3 + [""]


def test_shards_are_read_one_by_one(endpoint: str) -> None:
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    index = {"weight_map": {"a": shards[0], "b": shards[1]}}
    Hub.files = {"config.json": json.dumps(CONFIG).encode(), "model.safetensors.index.json": json.dumps(index).encode()}
    with pytest.raises(UserError, match="which is not there"):
        preset_from_hub("some-org/Some", {"HF_ENDPOINT": endpoint})
    Hub.files |= dict.fromkeys(shards, SHARD)
    _, preset = preset_from_hub("some-org/Some", {"HF_ENDPOINT": endpoint})
    assert isinstance(preset.model, TransformerModel)
    assert preset.model.parameters == 12800
    assert not any(token for _, _, token in Hub.asked)


@pytest.mark.parametrize(("name", "more", "said"), rows(__file__, "what_fails_is_one_sentence"))
def test_what_fails_is_one_sentence(name: str, more: dict[str, str], said: str, endpoint: str) -> None:
    Hub.files = {"config.json": json.dumps(CONFIG).encode()}
    with pytest.raises(UserError, match=said):
        preset_from_hub(name, {"HF_ENDPOINT": endpoint, "HOME": "/nonexistent"} | more)


def test_nothing_is_asked_without_the_option(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    Hub.files = {"config.json": json.dumps(CONFIG).encode()}
    with pytest.raises(UserError, match="--hub"):
        preset_named("some-org/None", PresetLibrary())
    assert Hub.asked == []
    assert preset_named("some-org/None", PresetLibrary(), hub=True).key == "some-org/None"
    written = create_preset(PresetLibrary(tmp_path), "mine", "some-org/None", hub=True)
    assert preset_named("mine", PresetLibrary(tmp_path)).preset.name == "some-org/None"
    assert "hidden_size = 64" in written.read_text()


def test_a_job_files_model_needs_the_option(endpoint: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    Hub.files = {"config.json": json.dumps(CONFIG).encode()}
    file = tmp_path / "sft.yaml"
    file.write_text("model_name_or_path: some-org/None\nfinetuning_type: full\ncutoff_len: 64\nbf16: true\n")
    with pytest.raises(UserError, match="--hub asks for it"):
        preset_of_job_file(file, PresetLibrary())
    assert Hub.asked == []
    found = preset_of_job_file(file, PresetLibrary(), hub=True)
    assert isinstance(found.preset.model, TransformerModel)
    assert found.preset.model.hidden_size == 64
    assert isinstance(found.preset.run, TrainRun)
    assert found.preset.run.sequence_length == 64
    # A model that is on this machine is not asked for.
    asked = len(Hub.asked)
    local = tmp_path / "local"
    local.mkdir()
    (local / "config.json").write_text(json.dumps(CONFIG))
    file.write_text(f"model_name_or_path: {local}\nfinetuning_type: full\ncutoff_len: 64\n")
    run = preset_of_job_file(file, PresetLibrary(), hub=True).preset.run
    # LLaMA-Factory's own defaults.
    assert run == TrainRun(sequence_length=64, checkpointing="full", use_reentrant=True, shorter_samples=True)
    assert len(Hub.asked) == asked

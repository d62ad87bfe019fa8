import contextlib
import json
import struct
from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import TransformerModel
from vramtui.models.readers.bounded import decode_object
from vramtui.models.stores.local_models import find_model, local_models
from vramtui.presets.draft import Draft, create_preset, draft_from_model
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_named

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100,
}  # fmt: skip
OLD, NEW = "a" * 40, "b" * 40


def gguf_bytes() -> bytes:
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    keys = {"block_count": 2, "embedding_length": 64, "feed_forward_length": 128, "attention.head_count": 4}
    pairs = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for name, value in keys.items():
        pairs += text(f"llama.{name}") + struct.pack("<II", 4, value)
    tensor = text("token_embd.weight") + struct.pack("<IQQIQ", 2, 64, 96, 1, 0)
    header = b"GGUF" + struct.pack("<IQQ", 3, 1, len(keys) + 1) + pairs + tensor
    return header + b"\0" * (-len(header) % 32 + 64 * 96 * 2)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def cached(cache: Path, repository: str, files: dict[str, bytes], commit: str = NEW, *, main: bool = True) -> Path:
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (folder / "blobs").mkdir(exist_ok=True)
    for name, content in files.items():
        blob = folder / "blobs" / f"{commit[:8]}{name.encode().hex()}"
        blob.write_bytes(content)
        (snapshot / name).symlink_to(Path("../..") / "blobs" / blob.name)
    if main:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return snapshot


def layers(config: dict[str, object], count: int) -> bytes:
    return json.dumps(config | {"num_hidden_layers": count}).encode()


def layer_count(name: str) -> int:
    model = preset_named(name, PresetLibrary()).preset.model
    assert isinstance(model, TransformerModel)
    return model.num_hidden_layers


def test_the_cache_gives_main_and_revisions(home: Path) -> None:
    cache = home / ".cache/huggingface/hub"
    cached(cache, "some-org/Some-Model-8B", {"config.json": layers(CONFIG, 2)}, OLD, main=False)
    cached(cache, "some-org/Some-Model-8B", {"config.json": layers(CONFIG, 5)}, NEW)
    assert layer_count("some-org/Some-Model-8B") == 5
    assert layer_count("https://huggingface.co/some-org/Some-Model-8B") == 5
    assert layer_count("some-org/Some-Model-8B@aaaaaaa") == 2
    found = preset_named("some-org/Some-Model-8B", PresetLibrary())
    assert (found.key, found.preset.name) == ("some-org/Some-Model-8B", "some-org/Some-Model-8B")
    with pytest.raises(UserError, match="not at the revision 'v2'"):
        find_model("some-org/Some-Model-8B@v2")


@pytest.mark.parametrize(
    ("variable", "inside"),
    [("HF_HUB_CACHE", ""), ("HF_HOME", "hub"), ("XDG_CACHE_HOME", "huggingface/hub"), ("HUGGINGFACE_HUB_CACHE", "")],
)
def test_the_cache_is_where_it_is_said(variable: str, inside: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(home / "there" / inside, "gpt-like", {"config.json": layers(CONFIG, 3)})
    assert find_model("gpt-like") is None
    told = find_model("gpt-like", {"HOME": str(home), variable: str(home / "there")})
    assert told.store == "the Hugging Face cache"
    monkeypatch.setenv(variable, str(home / "there"))
    assert layer_count("gpt-like") == 3
    assert local_models() == ("gpt-like",)


def test_shards_that_are_not_downloaded_leave_the_config_and_gguf_files_are_asked_about(home: Path) -> None:
    index = json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}).encode()
    files = {"config.json": layers(CONFIG, 4), "model.safetensors.index.json": index}
    cached(home / ".cache/huggingface/hub", "some-org/Partly", files)
    assert layer_count("some-org/Partly") == 4
    pointer = {"config.json": layers(CONFIG, 4), "model.safetensors": b"version https://git-lfs.github.com/spec/v1\n"}
    cached(home / ".cache/huggingface/hub", "some-org/Cloned", pointer)
    assert layer_count("some-org/Cloned") == 4
    cached(home / ".cache/huggingface/hub", "some-org/Words", {"tokenizer.json": b"{}"})
    with pytest.raises(UserError, match="without its config, safetensors or GGUF files"):
        find_model("some-org/Words")
    files = {f"Some-{kind}.gguf": gguf_bytes() for kind in ("Q4_K_M", "Q8_0")} | {"mmproj-Some-f16.gguf": b"x"}
    cached(home / ".cache/huggingface/hub", "some-org/Some-GGUF", files)
    with pytest.raises(UserError, match=r"2 models in the cache; name one as some-org/Some-GGUF:Some-Q4_K_M"):
        preset_named("some-org/Some-GGUF", PresetLibrary())
    found = preset_named("some-org/Some-GGUF:Q4_K_M", PresetLibrary())
    assert found.path.endswith("Some-Q4_K_M.gguf")
    assert Draft.open(found).text.startswith("name = ")
    with pytest.raises(UserError, match=r"0 GGUF files there have 'Q2_K' in their names"):
        preset_named("some-org/Some-GGUF:Q2_K", PresetLibrary())


def ollama(home: Path, inside: str, content: bytes) -> None:
    store = home / ".ollama/models"
    digest = f"{len(list(store.glob('blobs/*'))):064x}"
    manifest = store / "manifests" / inside
    manifest.parent.mkdir(parents=True, exist_ok=True)
    kept = {"mediaType": "application/vnd.ollama.image.model", "digest": f"sha256:{digest}", "size": len(content)}
    manifest.write_text(json.dumps({"schemaVersion": 2, "layers": [{"mediaType": "x", "digest": ""}, kept]}))
    (store / "blobs").mkdir(parents=True, exist_ok=True)
    (store / "blobs" / f"sha256-{digest}").write_bytes(content)


def test_ollamas_names(home: Path) -> None:
    ollama(home, "registry.ollama.ai/library/some/1b", gguf_bytes())
    ollama(home, "registry.ollama.ai/library/some/latest", gguf_bytes())
    ollama(home, "registry.ollama.ai/me/own/v2", gguf_bytes())
    ollama(home, "hf.co/some-org/Some-GGUF/Q4_K_M", gguf_bytes())
    assert local_models() == ("hf.co/some-org/Some-GGUF:Q4_K_M", "me/own:v2", "some:1b", "some:latest")
    for name in ("some", "some:1b", "me/own:v2", "hf.co/some-org/Some-GGUF:Q4_K_M"):
        found = preset_named(name, PresetLibrary())
        assert found.preset.name in name
        assert "sha256-" in found.path
        assert Draft.open(found).text
    (home / ".ollama/models/manifests/registry.ollama.ai/library/some/1b").write_text('{"layers": 3}')
    with pytest.raises(UserError, match="is not a manifest of Ollama's"):
        find_model("some:1b")


def test_lm_studios_folders(home: Path) -> None:
    folder = home / ".lmstudio/models/lmstudio-community/Some-GGUF"
    folder.mkdir(parents=True)
    (folder / "Some-Q4_K_M-00001-of-00002.gguf").write_bytes(b"")
    (folder / "Some-Q4_K_M-00002-of-00002.gguf").write_bytes(b"")
    found = find_model("lmstudio-community/Some-GGUF")
    assert found.path.name == "Some-Q4_K_M-00001-of-00002.gguf"
    assert local_models() == ("lmstudio-community/Some-GGUF",)


def test_a_path_goes_before_a_name_and_folders_are_looked_into(home: Path) -> None:
    cached(home / ".cache/huggingface/hub", "some-org/Some", {"config.json": layers(CONFIG, 2)})
    (home / "some-org/Some").mkdir(parents=True)
    (home / "some-org/Some/config.json").write_bytes(layers(CONFIG, 7))
    assert layer_count("some-org/Some") == 7
    (home / "one").mkdir()
    (home / "one/any.gguf").write_bytes(gguf_bytes())
    assert layer_count(str(home / "one")) == 2
    (home / "one/other.gguf").write_bytes(gguf_bytes())
    with pytest.raises(UserError, match=r"holds 2 models, name one: any.gguf, other.gguf"):
        preset_named(str(home / "one"), PresetLibrary())


def test_configs_of_two_folders_are_two_presets(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every config is called config.json: it goes by its folder's name, also from within the folder."""
    for name in ("first", "second"):
        (home / name).mkdir()
        (home / name / "config.json").write_bytes(layers(CONFIG, 2))
    library = PresetLibrary(user_folder=home / "own")
    assert [preset_named(f"{name}/config.json", library).key for name in ("first", "second")] == ["first", "second"]
    monkeypatch.chdir(home / "first")
    assert [preset_named(name, library).key for name in (".", "config.json")] == ["first", "first"]


def test_a_name_of_a_model_or_net_goes_into_drafts_and_presets(home: Path) -> None:
    cached(home / ".cache/huggingface/hub", "some-org/Some", {"config.json": layers(CONFIG, 6)})
    library = PresetLibrary(user_folder=home / "own")
    assert "num_hidden_layers = 6" in create_preset(library, "mine", "some-org/Some").read_text()
    draft = draft_from_model("some-org/Some")
    assert (draft.name, "num_hidden_layers = 6" in draft.text) == ("some-org-Some", True)
    (home / "own/named.toml").write_text(
        'name = "Named"\n[model]\nconfig = "some-org/Some"\n[run]\nkind = "infer"\nsequence_length = 8\n'
    )
    model = preset_named("named", PresetLibrary(user_folder=home / "own")).preset.model
    assert isinstance(model, TransformerModel)
    assert model.num_hidden_layers == 6
    library = PresetLibrary(user_folder=home / "own")
    written = create_preset(library, "net", "fasterrcnn_resnet50_fpn").read_text()
    assert 'kind = "sequential"' in written
    assert library.refresh()
    assert preset_named("net", library).preset.model == preset_named("fasterrcnn_resnet50_fpn", library).preset.model


@pytest.mark.parametrize("name", ["some-org/None", "some-org/None-8B@main", "none:7b"])
def test_an_unknown_name_says_where_it_was_looked_for(name: str, home: Path) -> None:
    assert home.is_dir()
    with pytest.raises(UserError) as told:
        preset_named(name, PresetLibrary())
    assert str(told.value).startswith(f"{name} not found (searched presets, files, the Hugging Face cache")
    assert "did you mean" not in str(told.value)


@pytest.mark.parametrize("name", ["../../etc", "a/../b", "a--b/c", "..", "a/b@../../x", "\0", "x" * 500, "a/b/c/d"])
def test_names_that_leave_the_store_are_none(name: str, home: Path) -> None:
    cached(home / ".cache/huggingface/hub", "a/b", {"config.json": layers(CONFIG, 2)})
    assert find_model(name) is None


def test_a_config_with_half_a_pair_of_surrogates_is_read_or_told_in_a_sentence(tmp_path: Path) -> None:
    assert decode_object(b'{"a": "\\ud800x", "b": Infinity}') == {"a": "?x", "b": float("inf")}
    config = {**CONFIG, "hidden_act": "\ud800"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with contextlib.suppress(UserError):
        preset_named(str(tmp_path / "config.json"), PresetLibrary())

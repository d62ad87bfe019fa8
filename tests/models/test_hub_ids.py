import json
import re
from pathlib import Path

import pytest

from tests.models.test_stores import CONFIG, cached
from tests.tables import for_each, rows
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.models.stores.resolve import HubConfig, configs_on_hub, known_by_folder, known_on_hub, names_on_hub
from vramtui.presets.importers.derived import derive, preset_of_job_file
from vramtui.presets.library import PresetLibrary
from vramtui.presets.model_presets import preset_of_values
from vramtui.presets.named_presets import preset_named

TORCHTUNE = """
model:
  _component_: torchtune.models.qwen3.qwen3_4b_instruct
checkpointer:
  _component_: torchtune.training.FullModelHFCheckpointer
  checkpoint_dir: /tmp/Qwen3-4B
optimizer:
  _component_: torch.optim.AdamW
batch_size: 2
dtype: bf16
"""


@pytest.fixture(autouse=True)
def nothing_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)


def test_each_name_is_the_model_of_its_preset_and_none_stands_twice() -> None:
    library = PresetLibrary()
    known = names_on_hub()
    assert len(known) > 100
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name, _ in known.values())
    for key, name in {key: name for name, key in known.values()}.items():
        preset, found = preset_named(key, library).preset, preset_named(name, library)
        assert found.preset.model == preset.model, name
        assert isinstance(found.preset.run, InferRun), name
        assert found.key == found.preset.name == name
        assert "from the bundled presets" in found.preset.notes
    named = [name.lower() for row in CONFIGS for name in row.names]
    assert len(named) == len(set(named)) > 250
    assert not set(named) & set(names_on_hub())
    assert all(re.fullmatch(r"[\w.-]+/[\w.-]+", name) for name in named)
    found = preset_named("Google/Gemma-3-27b-it", PresetLibrary())
    assert (found.key, parameter_count(found.preset.model)) == ("google/gemma-3-27b-it", 27_432_406_640)
    assert preset_named("Qwen/Qwen3-32B-FP8", PresetLibrary()).preset.run.quantization == "fp8"
    original = known_on_hub("Qwen/Qwen3-14B")[1]
    assert original is not None
    assert known_on_hub("unsloth/Qwen3-14B") == ("unsloth/Qwen3-14B", original)
    assert known_on_hub("NousResearch/Meta-Llama-3-70B")[1] is not None
    assert known_on_hub("somebody/Qwen3-14B") == ("somebody/Qwen3-14B", None)
    assert known_on_hub("unsloth/Qwen3-14B-bnb-4bit")[1] is None


CONFIGS = list({row.names[0]: row for _, row in configs_on_hub().values()}.values())


@for_each(CONFIGS)
def test_each_config_has_the_parameters_that_are_published(row: HubConfig) -> None:
    """Those of transformers 5.23 on the meta device, with routers' buffers; of Kimi K2.5, which it lacks, its files."""
    preset = preset_of_values(row.names[0], row.config)
    assert parameter_count(preset.model) == row.parameters
    assert "not downloaded" in preset.notes


@for_each([
    ("/data/models/Qwen3-14B", "Qwen/Qwen3-14B"),
    ("/data/models/qwen3-14b/", "Qwen/Qwen3-14B"),
    ("/srv/cache/hub/models--Qwen--Qwen3-14B/snapshots/0123abc", "Qwen/Qwen3-14B"),
    ("/data/models/Qwen3-14B-tuned", None),
    ("/data/models", None),
])  # fmt: skip
def test_a_folder_is_known_by_its_name(folder: str, name: str | None) -> None:
    known, found = known_by_folder(folder)
    assert (known if found is not None else None) == name


def test_files_in_few_bits_are_smaller_and_a_name_only_alike_is_refused() -> None:
    library = PresetLibrary()
    sizes = {
        name: weights(preset_named(f"Qwen/Qwen2.5-7B-Instruct{name}", library))
        for name in ("", "-GPTQ-Int8", "-GPTQ-Int4", "-AWQ")
    }
    assert sizes[""] > sizes["-GPTQ-Int8"] > sizes["-GPTQ-Int4"] == sizes["-AWQ"]
    assert weights(preset_named("Qwen/Qwen3-8B-FP8", library)) < 0.6 * weights(preset_named("Qwen/Qwen3-8B", library))
    library = PresetLibrary()
    assert preset_named("openai/gpt-oss-20b", library).preset.run.quantization == "mxfp4"
    assert preset_named("deepseek-ai/DeepSeek-R1", library).preset.run.quantization == "fp8"
    assert preset_named("meta-llama/Llama-3.3-70B-Instruct", library).preset.run.quantization is None
    with pytest.raises(UserError, match=r"--hub` asks.*preset llama-3.1-8b-infer has a model of that name and size"):
        preset_named("NousResearch/Hermes-9-Llama-3.1-8B", PresetLibrary())
    for other in ("sshleifer/tiny-gpt2", "black-forest-labs/FLUX.2-dev", "google/gemma-3n-E4B-it"):
        with pytest.raises(UserError, match=f"`vramtui estimate {other} --hub`((?!flux-dev|gemma-3-4b).)*$"):
            preset_named(other, PresetLibrary())


def weights(found: PresetFile) -> int:
    estimate = ANALYTIC.estimate(found.preset.workload, card("H100-80GB"))
    return sum(part.bytes for part in estimate.parts if part.line == "weights")


@for_each(["qwen/qwen3-8b", "https://huggingface.co/Qwen/Qwen3-8B", "hf.co/Qwen/Qwen3-8B/"])
def test_letters_of_either_case_and_addresses(name: str) -> None:
    assert preset_named(name, PresetLibrary()).key == "Qwen/Qwen3-8B"


@for_each(["Qwen3-14B", "qwen3-14b"])
def test_a_name_without_its_owner_is_the_one_model_of_that_name(name: str) -> None:
    assert preset_named(name, PresetLibrary()).key == "Qwen/Qwen3-14B"
    derived = derive(2**22 + 1, f"python chat.py --model {name}")
    assert (derived.key.lower(), bool(derived.assumed)) == ("derived:qwen3-14b", True)


@for_each([
    ("meta-llama/Lama-3.1-8B", "did you mean meta-llama/Llama-3.1-8B?"),
    ("Qwen3-14", "did you mean Qwen3-14B, Qwen3-14B-Base"),
    ("myorg/foo-7b", None),
])  # fmt: skip
def test_a_name_that_nothing_has_is_refused_with_the_nearest_that_is_known(name: str, meant: str | None) -> None:
    with pytest.raises(UserError) as refused:
        preset_named(name, PresetLibrary())
    assert meant in str(refused.value) if meant is not None else "did you mean" not in str(refused.value)


def test_a_local_copy_and_a_local_folder_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached(tmp_path / "hub", "Qwen/Qwen3-8B", {"config.json": json.dumps(CONFIG).encode()})
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    stored = preset_named("Qwen/Qwen3-8B", PresetLibrary()).preset.model
    assert getattr(stored, "hidden_size", None) == CONFIG["hidden_size"]
    (tmp_path / "Qwen" / "Qwen3-32B").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="Qwen/Qwen3-32B"):
        preset_named("Qwen/Qwen3-32B", PresetLibrary())


def test_a_server_of_somebody_else_is_known_by_its_command_line_alone(tmp_path: Path) -> None:
    """Its folder, environment and files are not for this user; nothing is there to be looked into."""
    command = "vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 8192 --gpu-memory-utilization 0.5"
    found = derive(100, command, tmp_path)
    run = found.preset.run
    assert isinstance(run, ServeRun)
    assert (run.max_model_len, run.gpu_memory_utilization) == (8192, 0.5)
    assert found.derived == "meta-llama/Llama-3.1-8B-Instruct in the bundled models"
    assert derive(100, "python train.py --model somebody/their-own-8b", tmp_path) is None
    assert derive(100, "vllm serve /data/private/Qwen3-14B-tuned", tmp_path) is None


def test_a_folder_that_nobody_may_read_and_the_file_of_a_job_whose_model_lies_elsewhere(tmp_path: Path) -> None:
    found = derive(100, "vllm serve /data/private/Qwen3-14B --max-model-len 8192", tmp_path)
    assert found.derived == ("Qwen/Qwen3-14B in the folder's name, /data/private/Qwen3-14B, whose files cannot be read")
    assert found.assumed
    assert derive(100, "python train.py --output_dir /data/private/Qwen3-14B", tmp_path) is None
    job = tmp_path / "4B_full.yaml"
    job.write_text(TORCHTUNE, encoding="utf-8")
    found = preset_of_job_file(job, PresetLibrary())
    assert parameter_count(found.preset.model) == 4_022_468_096
    assert "The folder /tmp/Qwen3-4B is taken for it by its name: it is not on this machine." in found.preset.notes


def test_an_address_on_the_hub_is_a_name_and_no_folder(tmp_path: Path) -> None:
    """Nothing of it is assumed where the command says the rest: it is the very model."""
    address = "https://huggingface.co/Qwen/Qwen3-14B/"
    found = derive(100, f"vllm serve {address} --max-model-len 8192 --dtype bfloat16", tmp_path)
    assert found.derived == f"{address}: Qwen/Qwen3-14B in the bundled models"
    assert not found.assumed
    job = tmp_path / "axolotl.yaml"
    job.write_text(f"base_model: {address}\nmicro_batch_size: 1\nnum_epochs: 1\n", encoding="utf-8")
    preset = preset_of_job_file(job, PresetLibrary()).preset
    assert "Qwen/Qwen3-14B" in preset.notes
    assert "folder" not in preset.notes


@pytest.mark.parametrize(("name", "whole"), rows(__file__, "the_oldest_models_are_known_without_their_owner"))
def test_the_oldest_models_are_known_without_their_owner(name: str, whole: str, tmp_path: Path) -> None:
    assert preset_named(name, PresetLibrary()).key == whole
    found = derive(1, f"python run_clm.py --model_name_or_path {name} --per_device_train_batch_size 8", tmp_path)
    assert whole in found.derived

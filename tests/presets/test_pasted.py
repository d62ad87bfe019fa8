from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.tables import rows
from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import PipelineModel, UNetModel
from vramtui.core.schema.preset import Preset
from vramtui.core.schema.workload import ServeRun, TrainRun
from vramtui.presets.importers.command_lines import Pasted, command_in, containers_in, is_command, service_in
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_asked

LIBRARY = PresetLibrary()


def test_the_command_of_a_text_is_found() -> None:
    found = rows(__file__, "found")
    assert [(text, command_in(text).command) for text, _ in found] == found
    script = command_in("#SBATCH -N 2\n#SBATCH --gpus-per-node=h100:8\nsrun python train.py")
    assert (script.gpus, script.card) == (16, "h100")


@pytest.mark.parametrize("text", ["make all", "#!/bin/bash\n# vllm serve A/B", "ollama serve"])
def test_a_text_without_a_job_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"starts no training or server|name one: `ollama run"):
        command_in(text)


def test_a_service_is_chosen_by_its_name_and_names_are_not_commands() -> None:
    assert not any(map(is_command, ("qwen3 8b", "Llama 3.1 8B Instruct", "a.toml", "vllm", "models/my model")))
    assert all(map(is_command, ("vllm serve x", "A=1 ./run.sh", "python t.py --a 1", "./serve --model x")))
    ollama = {"image": "ollama/ollama", "entrypoint": ["sh", "-c", "ollama serve & ollama pull a:b; wait"]}
    vllm = {"image": "vllm/vllm-openai", "deploy": {"resources": {"reservations": {"devices": [{"count": 2}]}}}}
    vllm |= {"command": "A/B --port ${VLLM_P:-80}", "environment": ["VLLM_X=${X:-1}", "VLLM_P=${VLLM_P:-80}"]}
    tables = {"services": {"chat": vllm, "small": ollama, "db": {"image": "postgres"}}}
    assert service_in(tables, "f", "chat").command == "vllm serve A/B --port 80 VLLM_X=1"
    assert service_in(tables, "f", "chat").gpus == 2
    with pytest.raises(UserError, match=r"several model servers: chat \(vllm\), small .*choose one as f:chat"):
        service_in(tables, "f")
    with pytest.raises(UserError, match="no model server called chap"):
        service_in(tables, "f", "chap")
    pod: dict[str, Any] = {
        "image": "vllm/vllm-openai:v0.10.1",
        "name": "a",
        "args": ["A/B"],
        "env": [{"name": "X", "valueFrom": {}}],
    }
    pod["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    manifest = {
        "kind": "Deployment",
        "spec": {"template": {"spec": {"containers": [{"image": "nginx", "name": "n"}, pod]}}},
    }
    services = {"services": containers_in({"documents": [{"kind": "Service", "spec": {}}, manifest]})}
    assert service_in(services, "f") == Pasted("vllm serve A/B engine_version=0.10.1", 2, "")
    with pytest.raises(UserError, match="has no service that runs vLLM"):
        service_in({"services": {"db": {"image": "postgres"}}}, "f")


def test_what_a_command_does_not_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "vllm serve Qwen/Qwen3-8B --max-model-len 16384 --kv-cache-dtype odd --enable-lorra --port 1"
    served = preset_asked(text, LIBRARY)
    assert isinstance(served.preset.run, ServeRun)
    assert served.preset.run.max_model_len == 16384
    assert "Not used: --kv-cache-dtype odd, --enable-lorra (did you mean --enable-lora?). " in served.preset.notes
    text = "torchrun --nproc-per-node 2 train.py --model_name_or_path gpt2 --neftune_noise_alpha 5"
    trained = preset_asked(text, LIBRARY)
    assert isinstance(trained.preset.run, TrainRun)
    assert trained.preset.parallel.data == 2
    assert "Not used: --neftune_noise_alpha 5." in trained.preset.notes
    assert "so assumed: model, batch_size, sequence_length" in trained.preset.notes


def denoiser_of(preset: Preset) -> Any:
    return preset.model.denoiser if isinstance(preset.model, PipelineModel) else preset.model


@pytest.mark.parametrize(("text", "values"), rows(__file__, "a_text_states_the_job"))
def test_a_text_states_the_job(text: str, values: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text, encoding="utf-8")
    preset = preset_asked(text if " -" in text[:40] else str(tmp_path / "a.log"), LIBRARY).preset
    found = msgspec.to_builtins(preset.run) | msgspec.to_builtins(preset.parallel or {}) | {"notes": preset.notes[:40]}
    lora = found.get("lora") or {"rank": 0, "target_modules": ()}
    found |= {"lora": lora["rank"], "target_modules": list(lora["target_modules"])}
    found["sample"] = getattr(denoiser_of(preset), "sample_size", None)
    assert {key: found[key] for key in values} == values


@pytest.mark.parametrize(("name", "text", "values"), rows(__file__, "files_of_image_trainers"))
def test_files_of_image_trainers(name: str, text: str, values: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    images = "[general]\n[[datasets]]\nresolution = [768, 768]\nbatch_size = 4\n"
    (tmp_path / "d.toml").write_text(images)
    script = (
        f"accelerate launch flux_train_network.py --config_file {tmp_path / name} --dataset_config {tmp_path}/d.toml"
    )
    for asked, batch, side in ((str(tmp_path / name), values["batch_size"], values["sample"]), (script, 4, 768)):
        preset = preset_asked(asked, LIBRARY).preset
        run, denoiser = preset.run, denoiser_of(preset)
        assert isinstance(run, TrainRun)
        found = {"batch_size": run.batch_size, "sample": denoiser.sample_size, "lora": run.lora and run.lora.rank}
        found |= {"quantization": run.quantization, "offload": run.offload, "optimizer": run.optimizer}
        pixels = 8 if isinstance(denoiser, UNetModel) and side == 768 else 1
        wanted = {key: None if value == "none" else value for key, value in values.items()}
        assert found == {**wanted, "batch_size": batch, "sample": side // pixels}
    (tmp_path / name).write_text(text[:-3])
    with pytest.raises(UserError, match=r"not valid (TOML|JSON)"):
        preset_asked(str(tmp_path / name), LIBRARY)


@pytest.mark.parametrize(("command", "sentence"), rows(__file__, "a_command_without_a_known_model_is_refused"))
def test_a_command_without_a_known_model_is_refused(command: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        preset_asked(command, LIBRARY)

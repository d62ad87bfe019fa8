"""Commands as people paste them, batch scripts and compose files."""

from pathlib import Path

import pytest

from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import ServeRun, TrainRun
from vramtui.presets.importers.command_lines import command_in, is_command, service_in
from vramtui.presets.library import PresetLibrary
from vramtui.presets.named_presets import preset_asked

LIBRARY = PresetLibrary()
FOUND = {
    "vllm serve Qwen/Qwen3-8B --max-model-len 16384": "vllm serve Qwen/Qwen3-8B --max-model-len 16384",
    "CUDA_VISIBLE_DEVICES=0 HF_HOME=/x vllm serve A/B": "vllm serve A/B CUDA_VISIBLE_DEVICES=0",
    "sudo docker run --gpus all -v ~/.cache/vllm:/c -e VLLM_X=1 vllm/vllm-openai:v1 --model A/B": (
        "vllm serve --model A/B VLLM_X=1"
    ),
    "docker run --gpus all vllm/vllm-openai:v0.6.4.post1 --model A/B": "vllm serve --model A/B engine_version=0.6.4",
    "docker run -e MODEL_ID=A/B ghcr.io/huggingface/text-generation-inference:3 --num-shard 2": (
        "text-generation-launcher --model-id A/B --num-shard 2"
    ),
    "LLAMA_ARG_CTX_SIZE=4096 llama-server -m x.gguf": "llama-server --ctx-size 4096 -m x.gguf",
    "ollama run llama3.1:8b": "ollama runner -m llama3.1:8b",
    "ollama run llama3.2": "ollama runner -m llama3.2:latest",
    "OLLAMA_NUM_PARALLEL=2 OLLAMA_KV_CACHE_TYPE=q8_0 ollama run a:b": "ollama runner -m a:b -np 2 -ctk q8_0 -ctv q8_0",
    "cd /srv/vllm && source venv/bin/activate; M=A/B\nvllm serve $M --port ${PORT:-80} > log 2>&1 &\nsleep 5": (
        "vllm serve A/B --port 80"
    ),
    "python prepare.py\ntorchrun train.py --a 1\npython evaluate.py": "torchrun train.py --a 1",
    "pip install vllm\npython -m venv v\nsrun -n 4 python3 train.py \\\n  --a 1": "python3 train.py --a 1",
    "ARGS='--tp 2 --dp 2'\nsglang serve A/B $ARGS": "sglang serve A/B --tp 2 --dp 2",
    "bash -lc 'cd x; vllm serve A/B'": "vllm serve A/B",
    "#SBATCH --gres=gpu:4\n#SBATCH --nodes=2\ntorchrun --nproc-per-node $SLURM_GPUS_ON_NODE t.py": (
        "torchrun --nproc-per-node 4 t.py"
    ),
}


@pytest.mark.parametrize("text", FOUND)
def test_the_command_of_a_text_is_found(text: str) -> None:
    assert command_in(text).command == FOUND[text]


def test_a_scripts_gpus_are_counted_over_its_nodes() -> None:
    script = "#SBATCH -N 2\n#SBATCH --gpus-per-node=h100:8\nsrun python train.py"
    assert (command_in(script).gpus, command_in(script).card) == (16, "h100")


@pytest.mark.parametrize("text", ["make all", "#!/bin/bash\n# vllm serve A/B", "ollama serve"])
def test_a_text_without_a_job_is_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"starts no training or server|name one: `ollama run"):
        command_in(text)


def test_names_are_not_commands() -> None:
    assert not any(map(is_command, ("qwen3 8b", "Llama 3.1 8B Instruct", "a.toml", "vllm", "models/my model")))
    assert all(map(is_command, ("vllm serve x", "A=1 ./run.sh", "python t.py --a 1", "./serve --model x")))


def test_a_service_is_chosen_by_its_name() -> None:
    ollama = {"image": "ollama/ollama", "entrypoint": ["sh", "-c", "ollama serve & ollama pull a:b; wait"]}
    vllm = {"image": "vllm/vllm-openai", "command": "A/B", "environment": ["VLLM_X=${X:-1}"],
            "deploy": {"resources": {"reservations": {"devices": [{"count": 2}]}}}}  # fmt: skip
    tables = {"services": {"chat": vllm, "small": ollama, "db": {"image": "postgres"}}}
    assert service_in(tables, "f", "chat").command == "vllm serve A/B VLLM_X=1"
    assert service_in(tables, "f", "chat").gpus == 2
    with pytest.raises(UserError, match=r"several model servers: chat \(vllm\), small .*choose one as f:chat"):
        service_in(tables, "f")
    with pytest.raises(UserError, match="no model server called chap"):
        service_in(tables, "f", "chap")
    with pytest.raises(UserError, match="has no service that runs vLLM"):
        service_in({"services": {"db": {"image": "postgres"}}}, "f")


def test_what_a_command_does_not_use_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    served = preset_asked(
        "vllm serve Qwen/Qwen3-8B --max-model-len 16384 --kv-cache-dtype odd --enable-prefix-caching --port 1", LIBRARY
    )
    assert isinstance(served.preset.run, ServeRun)
    assert served.preset.run.max_model_len == 16384
    assert served.preset.notes.startswith("Not used: --kv-cache-dtype odd, --enable-prefix-caching. ")
    trained = preset_asked(
        "torchrun --nproc-per-node 2 train.py --model_name_or_path gpt2 --neftune_noise_alpha 5", LIBRARY
    )
    assert isinstance(trained.preset.run, TrainRun)
    assert trained.preset.parallel is not None
    assert trained.preset.parallel.data == 2
    assert "Not used: --neftune_noise_alpha 5." in trained.preset.notes
    assert "so assumed: model, batch_size, sequence_length" in trained.preset.notes


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("torchrun train.py --epochs 3", "the command names no model"),
        ("vllm serve Qwen3-9999B", "no preset is called 'Qwen3-9999B'"),
        ("vllm serve /nowhere/thing", "names /nowhere/thing, which is not known here"),
        ("trtllm-serve Qwen/Qwen3-8B --tp 2", "TensorRT-LLM"),
    ],
)
def test_a_command_without_a_known_model_is_refused(command: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        preset_asked(command, LIBRARY)

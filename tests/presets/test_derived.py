import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.models.test_stores import CONFIG, cached, gguf_bytes
from vramtui.core.estimate.assumptions import values_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun
from vramtui.presets.importers.derived import JobPlace, derive, derived_preset, why_none


class Host:
    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.work = folder / "work"
        self.work.mkdir()

    def start(self, pid: int, *words: str, parent: int = 1, environ: Mapping[str, str] | None = None) -> str:
        place = self.proc / str(pid)
        place.mkdir(parents=True)
        (place / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
        pairs = (f"{name}={value}\0" for name, value in (environ or {}).items())
        (place / "environ").write_bytes("".join(pairs).encode())
        (place / "status").write_text(f"Name:\t{words[0]}\nPPid:\t{parent}\n")
        (place / "root").symlink_to("/")
        (place / "cwd").symlink_to(self.work)
        return " ".join(words)

    def derived(self, *words: str, environ: Mapping[str, str] | None = None) -> PresetFile | None:
        return derive(100, self.start(100, *words, environ=environ), self.proc)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("HOME", str(tmp_path / "nobody"))
    for name in ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return Host(tmp_path)


def config_in(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))


def test_a_trainers_model_is_read_from_a_relative_path(host: Host) -> None:
    config_in(host.work / "models" / "mine")
    words = (
        "python finetune.py --model_name_or_path models/mine --per_device_train_batch_size 8 --max_length 512 --bf16"
    )
    found = host.derived(*words.split())
    assert found.key == "derived:mine"
    assert found.preset.model.num_hidden_layers == 2
    run = found.preset.run
    assert isinstance(run, TrainRun)
    assert (run.batch_size, run.sequence_length) == (8, 512)
    assert {one.key: one.words for one in found.known}["run.batch_size"] == "--per_device_train_batch_size 8"
    assert found.assumed == ("run.lora", "run.checkpointing"), "a script of people's own may have adapters, or be TRL's"
    assert derive(101, host.start(101, *words.replace(" --bf16", "").split()), host.proc).assumed == (
        "run.precision",
        "run.lora",
        "run.checkpointing",
    )
    assert not found.bundled
    assert found.derived == str(host.work / "models" / "mine")
    assert found.preset.match.all == (("finetune.py",), ("mine",))


def test_sizes_that_nobody_said_are_assumed(host: Host) -> None:
    config_in(host.work / "mine")
    found = host.derived("python", "chat.py", "mine")
    assert found is None, "a bare word is no path"
    found = derive(101, host.start(101, "python", "chat.py", "./mine"), host.proc)
    assert found is not None
    assert isinstance(found.preset.run, InferRun)
    assert found.assumed == ("run.kind", "run.batch_size", "run.sequence_length", "run.precision")
    assert values_of(found) == ("generation", "batch 1", "sequence 2048", "precision bf16")


def test_a_server_of_vllm_names_a_model_in_its_own_users_cache(host: Host, tmp_path: Path) -> None:
    cached(tmp_path / "hub", "acme/Tiny-1B", {"config.json": json.dumps(CONFIG).encode()})
    (tmp_path / "venv/lib/python3.12/site-packages/vllm-0.11.2.dist-info").mkdir(parents=True)
    flags = "--max-model-len 4096 --gpu-memory-utilization 0.8 --tensor-parallel-size 2"
    words = [str(tmp_path / "venv/bin/vllm"), "serve", "acme/Tiny-1B", *flags.split()]
    assert host.derived(*words) is None, "it is not in the cache that this process uses"
    command = host.start(200, *words, environ={"HF_HUB_CACHE": str(tmp_path / "hub")})
    found = derive(200, command, host.proc)
    run, parallel = found.preset.run, found.preset.parallel
    assert isinstance(run, ServeRun)
    assert (run.engine, run.max_model_len, run.gpu_memory_utilization) == ("vllm", 4096, 0.8)
    assert run.engine_version == "0.11.2", "of the environment of its program"
    assert parallel.tensor == 2
    assert found.derived == "acme/Tiny-1B in the Hugging Face cache"
    assert not found.assumed
    # The process on the GPU is a child that says nothing of the model.
    assert derive(201, host.start(201, "VLLM::EngineCore", parent=200), host.proc) == found
    assert derive(202, host.start(202, "bash", parent=200), host.proc) is None


@pytest.mark.parametrize(("words", "context", "assumed"), [
    ("llama-server -m tiny-Q4_K_M.gguf -c 4096 -ngl 99", 4096, False),
    ("llama-server -m tiny-Q4_K_M.gguf", None, True),
    ("/usr/bin/ollama runner --model sha256-{digest} --ctx-size 2048 --batch-size 512 --parallel 2", 2048, False),
    ("/usr/bin/ollama runner --ollama-engine --model sha256-{digest} --port 4001", None, True),
])  # fmt: skip
def test_servers_of_gguf_files_need_no_file(host: Host, words: str, context: int | None, *, assumed: bool) -> None:
    digest = "0" * 64
    for name in ("tiny-Q4_K_M.gguf", f"sha256-{digest}"):
        (host.work / name).write_bytes(gguf_bytes())
    found = host.derived(*words.format(digest=digest).split())
    run = found.preset.run
    assert isinstance(run, ServeRun)
    engine = "ollama" if "ollama" in words else "llama.cpp"
    assert (run.engine, run.max_model_len, bool(found.assumed)) == (engine, context, assumed)
    assert run.stored is not None


@pytest.mark.parametrize(("words", "variables", "known"), [
    ("", {"CONTEXT_LENGTH": "8192", "NUM_PARALLEL": "2", "KV_CACHE_TYPE": "q8_0"}, (16384, 2, "flash", "int8")),
    ("--ctx-size 4096", {"CONTEXT_LENGTH": "8192", "FLASH_ATTENTION": "1"}, (4096, None, "flash", None)),
    ("", {"KV_CACHE_TYPE": "q8_0", "FLASH_ATTENTION": "0", "CONTEXT_LENGTH": "0"}, (None, None, "eager", "fp16")),
])  # fmt: skip
def test_a_runner_of_ollama_has_its_settings_from_its_environment(
    host: Host, words: str, variables: dict[str, str], known: tuple[object, ...]
) -> None:
    (host.work / "blob.gguf").write_bytes(gguf_bytes())
    environ = {f"OLLAMA_{name}": value for name, value in variables.items()}
    command = host.start(300, *f"/usr/bin/ollama runner --model blob.gguf {words}".split(), environ=environ)
    run = derive(300, command, host.proc).preset.run
    assert (run.max_model_len, run.max_num_seqs, run.attention, run.kv_cache) == known


def test_a_config_beside_the_script_is_its_model(host: Host) -> None:
    config_in(host.work)
    found = host.derived("python", "train.py", "--batch-size", "2")
    assert isinstance(found.preset.run, TrainRun)
    assert found.preset.run.batch_size == 2
    assert found.preset.match is None, "train.py alone is everybody's"
    assert derive(101, host.start(101, "jupyter", "lab"), host.proc) is None


def test_nothing_is_made_of_what_is_no_model(host: Host) -> None:
    (host.work / "broken.gguf").write_bytes(b"GGUF" + b"\xff" * 64)
    (host.work / "list.json").write_text("[1, 2]")
    (host.work / "folder").mkdir()
    assert host.derived("llama-server", "-m", "broken.gguf") is None
    for pid, word in enumerate(("./list.json", "./folder", "/dev/zero", "./gone.gguf", "\udcff/x"), 300):
        command = host.start(pid, "python", "chat.py", word.encode(errors="replace").decode())
        assert derive(pid, command, host.proc) is None


def test_another_process_of_that_pid_is_not_looked_into(host: Host) -> None:
    config_in(host.work / "mine")
    host.start(100, "python", "serve.py", "--model", "./mine")
    assert derive(100, "python other.py --model ./mine", host.proc) is None
    assert derive(999, "python serve.py --model ./mine", host.proc) is None


def test_what_the_file_of_its_program_says_is_the_jobs(tmp_path: Path) -> None:
    """As `vramtui estimate lora.yml` reads it; the command line goes before it."""
    (tmp_path / "lora.yml").write_text(
        "base_model: NousResearch/Meta-Llama-3.1-8B\nadapter: lora\nlora_r: 16\nlora_target_linear: true\n"
        "load_in_8bit: true\nsequence_len: 4096\nmicro_batch_size: 2\nbf16: true\n"
    )
    found = derived_preset("python -m axolotl.cli.train lora.yml", JobPlace(tmp_path))
    run = found.preset.run
    assert isinstance(run, TrainRun)
    assert (run.batch_size, run.sequence_length, run.quantization) == (2, 4096, "int8")
    assert run.lora.rank == 16
    assert {one.key: one.words for one in found.known}["run.batch_size"] == "lora.yml: micro_batch_size = 2"
    assert not found.assumed
    own = derived_preset("python -m axolotl.cli.train lora.yml --micro-batch-size=4", JobPlace(tmp_path))
    assert isinstance(own.preset.run, TrainRun)
    assert own.preset.run.batch_size == 4


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_model_file_of_another_user_is_the_reason(tmp_path: Path) -> None:
    """As a user who really is another one: root may read everything."""
    (tmp_path / "blob.gguf").write_bytes(gguf_bytes())
    (tmp_path / "blob.gguf").chmod(0o600)
    command = f"ollama runner --model {tmp_path}/blob.gguf"
    told, tell = os.pipe()
    if not os.fork():
        os.setuid(12345)
        os.write(tell, why_none(1 << 22, command).encode())
        os._exit(0)
    assert os.read(told, 200) == b"model file not readable (owner root)"
    assert why_none(1 << 22, command) == "its model's file names no known model"
    assert why_none(1 << 22, f"{command}2") == "model file not found"

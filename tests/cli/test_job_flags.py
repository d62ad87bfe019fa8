import json
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest
from typer.testing import Result

from tests.commands import invoke
from tests.tables import rows
from vramtui.cli.synonyms import spell_words
from vramtui.presets import PresetLibrary
from vramtui.presets.overrides import apply_overrides

MODEL = "Llama-3.1-8B"


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("VRAMTUI_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "150")
    return tmp_path


def run(command: str, typed: str) -> Result:
    return invoke(command, MODEL, *shlex.split(typed))


def settings(typed: str) -> dict[str, Any]:
    """Run and parallel of the preset that `presets new` writes for what was typed."""
    done = invoke("presets", "new", "mine", "--from", MODEL, *shlex.split(typed))
    assert done.exit_code == 0, done.stderr

    preset = PresetLibrary().get("mine").preset
    import msgspec  # noqa: PLC0415 - as above

    tables: dict[str, Any] = msgspec.to_builtins(preset)
    return {"run": tables["run"], "parallel": tables["parallel"] or {}}


@pytest.mark.parametrize(("typed", "key", "value"), [
    ("--batch-size 8", "run.batch_size", 8),
    ("--batch 8", "run.batch_size", 8),
    ("-b 8", "run.batch_size", 8),
    ("-bs 8", "run.batch_size", 8),
    ("--per_device_train_batch_size 8", "run.batch_size", 8),
    ("--seq-len 32k", "run.sequence_length", 32_768),
    ("-s 4096", "run.sequence_length", 4096),
    ("--context 8k", "run.sequence_length", 8192),
    ("--seq-len 32,768", "run.sequence_length", 32_768),
    ("--max-model-len 32768", "run.sequence_length", 32_768),
    ("--serve --max-model-len 16k", "run.max_model_len", 16_384),
    ("--train", "run.kind", "train"),
    ("--infer", "run.kind", "infer"),
    ("--serve", "run.engine", "vllm"),
    ("--serve sglang", "run.engine", "sglang"),
    ("--vllm", "run.kind", "serve"),
    ("--sglang", "run.engine", "sglang"),
    ("--lora", "run.lora.rank", 16),
    ("--lora 32", "run.lora.rank", 32),
    ("--lora", "run.lora.target_modules", ["q_proj", "k_proj", "v_proj", "o_proj"]),
    ("--qlora", "run.quantization", "nf4-double"),
    ("--qlora", "run.lora.rank", 16),
    ("--quant 4bit", "run.quantization", "nf4"),
    ("--quant Q4_K_M", "run.quantization", "q4_k_m"),
    ("--quantization awq", "run.quantization", "int4"),
    ("--4bit", "run.quantization", "nf4"),
    ("--load-in-4bit", "run.quantization", "nf4"),
    ("--load_in_8bit True", "run.quantization", "int8"),
    ("--int8", "run.quantization", "int8"),
    ("--fp8", "run.quantization", "fp8"),
    ("--fp16", "run.precision", "fp16"),
    ("--bf16", "run.precision", "bf16"),
    ("--train --bf16", "run.precision", "bf16-mixed"),
    ("--train --fp16 True", "run.precision", "fp16-mixed"),
    ("--bf16 --lora", "run.precision", "bf16-mixed"),
    ("--train --precision bf16", "run.precision", "bf16"),
    ("--train --dtype bfloat16", "run.precision", "bf16"),
    ("--dtype float16", "run.precision", "fp16"),
    ("--precision fp32", "run.precision", "fp32"),
    ("--optimizer adafactor", "run.optimizer", "adafactor"),
    ("--optim adamw_bnb_8bit", "run.optimizer", "adamw_8bit"),
    ("--gradient-checkpointing", "run.checkpointing", "full"),
    ("--train --checkpointing none", "run.checkpointing", "none"),
    ("--attn-implementation sdpa", "run.attention", "flash"),
    ("--kv-cache-dtype fp8", "run.kv_cache", "fp8"),
    ("--serve llama.cpp --parallel 4", "run.max_num_seqs", 4),
    ("--serve --max-total-tokens 8k", "run.max_model_len", 8192),
    ("--tp 2", "parallel.tensor", 2),
    ("--pp 2", "parallel.pipeline", 2),
    ("--fsdp 8", "parallel.strategy", "fsdp"),
    ("--train --set lora=16", "run.lora.rank", 16),
    ("--train --set lora.rank=16", "run.lora.target_modules", ["q_proj", "k_proj", "v_proj", "o_proj"]),
    ("--train --set run.lora.target_modules=q_proj,v_proj", "run.lora.target_modules", ("q_proj", "v_proj")),
    ("--set seq=32k", "run.sequence_length", 32_768),
    ("--set sequence_length=32k", "run.sequence_length", 32_768),
    ("--set context=32k", "run.sequence_length", 32_768),
    ("--set quant=4bit", "run.quantization", "nf4"),
    ("--set dtype=half", "run.precision", "fp16"),
    ("--set tp=2", "parallel.tensor", 2),
    ("-q int4", "run.quantization", "int4"),
    ("--q4", "run.quantization", "q4_k_m"),
    ("-s 1M", "run.sequence_length", 1 << 20),
    ("-c 8192", "run.sequence_length", 8192),
    ("--num-ctx 8192", "run.sequence_length", 8192),
    ("-n 2", "parallel.tensor", 2),
    ("--rank 8", "run.lora.rank", 8),
    ("--peft lora", "run.lora.rank", 16),
    ("--use-peft true", "run.lora.rank", 16),
    ("--sft", "run.kind", "train"),
    ("--flash-attn", "run.attention", "flash"),
    ("--fsdp --gpus 4", "parallel.data", 4),
    ("--fsdp --gpus 4", "parallel.strategy", "fsdp"),
    ("--ddp --gpus 4", "parallel.strategy", "ddp"),
    ("--ddp --gpus 4", "parallel.data", 4),
])  # fmt: skip
def test_what_people_type_first_sets_the_key(typed: str, key: str, value: object) -> None:
    table: Any = settings(typed)
    for part in key.split("."):
        table = table[part]
    assert table == (tuple(value) if isinstance(value, list) else value)


@pytest.mark.parametrize("typed", ["--gpu 4090", '--gpu "RTX 4090"', "--gpu h100", "--gpu A100-80GB", "--gpu 24GB"])
@pytest.mark.parametrize("command", ["estimate", "fit"])
def test_a_card_is_its_name_or_its_size(command: str, typed: str) -> None:
    done = run(command, typed)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("✓ fits")


@pytest.mark.parametrize(("typed", "key", "value"), [
    ("--users 16", "run.batch_size", 16),
    ("--tokens 4096", "run.sequence_length", 4096),
    ("--max-new-tokens 64", "run.new_tokens", 64),
    ("--awq", "run.quantization", "int4"),
    ("--gguf Q4_K_M", "run.quantization", "q4_k_m"),
    ("--kv-quant fp8", "run.kv_cache", "fp8"),
    ("--mixed-precision bf16 --mode training", "run.precision", "bf16-mixed"),
    ("--train --grad-accum 8", "run.gradient_accumulation_steps", 8),
    ("--train --compile", "run.compile", True),
    ("--compile --train", "run.compile", True),
    ("--type qlora", "run.quantization", "nf4-double"),
    ("--finetune lora", "run.lora.rank", 16),
    ("--lora-rank 64 --lora-target all", "run.lora.target_modules", ("all-linear",)),
    ("--lora --target-modules q_proj,v_proj", "run.lora.target_modules", ("q_proj", "v_proj")),
    ("--lora --dora", "run.lora.use_dora", True),
    ("--backend vllm", "run.engine", "vllm"),
    ("--train --ddp 4", "parallel.data", 4),
])  # fmt: skip
def test_words_of_scripts_and_keys_of_presets_are_options(typed: str, key: str, value: object) -> None:
    words = spell_words(typed.split(), {"--set", "--gpu", "--memory", "--method"})
    settings = [word if "=" in word else f"{word}=" for word in words if word != "--set"]
    preset = apply_overrides(PresetLibrary().get("llama-3.1-8b-infer").preset, settings)
    table: Any = msgspec.to_builtins(preset)
    for part in key.split("."):
        table = table[part]
    assert table == value


@pytest.mark.parametrize(("typed", "words"), rows(__file__, "other_names_of_a_commands_own_options"))
def test_other_names_of_a_commands_own_options(typed: str, words: list[str]) -> None:
    assert spell_words(typed.split(), {"--set", "--gpu", "--memory", "--method"}) == words


@pytest.mark.parametrize(("typed", "sentence"), rows(__file__, "what_does_not_go_is_one_sentence"))
def test_what_does_not_go_is_one_sentence(typed: str, sentence: str) -> None:
    done = run("estimate", typed)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_job_of_a_flag_is_the_job_of_its_key_and_pick_takes_flags() -> None:
    flags = run("estimate", "--lora 8 -b 2 -s 1k --json")
    keys = run(
        "estimate",
        '--set run.kind=train --set \'run.lora={rank=8,target_modules=["q_proj","k_proj","v_proj","o_proj"]}\''
        " --set run.batch_size=2 --set run.sequence_length=1024 --json",
    )
    assert flags.exit_code == 0, flags.output
    assert json.loads(flags.stdout)["estimates"][0]["process"] == json.loads(keys.stdout)["estimates"][0]["process"]
    emptiest = invoke("pick", "--demo")
    assert emptiest.exit_code == 0, emptiest.output
    assert emptiest.stdout.strip().isdigit()
    job = invoke("pick", MODEL, "--quant", "4bit", "--demo")
    assert job.exit_code == 0, job.output
    lone = invoke("pick", "--lora", "--demo")
    assert lone.exit_code == 2
    assert "name its preset or model" in lone.stderr

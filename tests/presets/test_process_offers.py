"""A job's command line is read for what it says, and for nothing more."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.properties import examples
from vramtui.core.base.text import printable
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.presets import PresetLibrary, find_problems
from vramtui.presets.draft import fields_of, form_of
from vramtui.presets.importers.command_lines import read_command_line
from vramtui.presets.importers.derived import derived_preset
from vramtui.presets.importers.flags import FLAGS
from vramtui.presets.importers.job_files import Offer
from vramtui.presets.importers.process_offers import draft_from_process, family_of, start_from

LIBRARY = PresetLibrary(Path("/nowhere"))
COMMANDS = {
    "TRL with torchrun": (
        ("torchrun --nproc_per_node 8 --nnodes 2 train.py --model_name_or_path meta-llama/Llama-3.1-8B --bf16 True"
        " --per_device_train_batch_size 4 --gradient_checkpointing True --max_seq_length 8192 --lora_r 16 --optim"
        " adamw_torch --lora_target_modules q_proj,v_proj --max_grad_norm 1 --gradient_accumulation_steps=2"),
        {"preset": "llama-3.1-8b-lora", "run.kind": "train", "run.batch_size": "4", "run.precision": "bf16-mixed",
        "run.checkpointing": "full", "run.sequence_length": "8192", "run.lora.rank": "16",
        "run.lora.target_modules": '["q_proj", "v_proj"]', "run.optimizer": "adamw", "run.max_grad_norm": "1.0",
        "run.gradient_accumulation_steps": "2", "parallel.data": "16", "match.all": '[["train.py"], ["Llama-3.1-8B"]]'},
    ),
    "accelerate with FSDP, weights loaded in bf16": (
        ("/usr/bin/python3.11 /env/bin/accelerate launch --mixed_precision bf16 --num_processes 4 sft.py"
        " --model_name_or_path=Qwen/Qwen2.5-7B --fsdp 'full_shard auto_wrap' --torch_dtype bfloat16 --bf16"
        " --attn_implementation flash_attention_2 --use_liger_kernel --optim paged_adamw_8bit"),
        {"preset": "qwen-2.5-7b", "run.kind": "train", "run.precision": "bf16", "run.attention": "flash",
         "run.use_liger_kernel": "true", "run.optimizer": "paged_adamw_8bit", "parallel.data": "4",
         "parallel.strategy": "fsdp", "parallel.zero_stage": "3", "match.all": '[["sft.py"], ["Qwen2.5-7B"]]'},
    ),
    "vLLM": (
        ("/usr/bin/python3 /usr/local/bin/vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4"
        " --max-model-len 32k --gpu-memory-utilization 0.85 --enforce-eager --kv-cache-dtype fp8 --max-num-seqs 64"),
        {"preset": "llama-3.1-70b-serve", "run.kind": "serve", "run.max_model_len": "32768",
         "run.gpu_memory_utilization": "0.85", "run.enforce_eager": "true", "run.kv_cache": "fp8",
         "run.max_num_seqs": "64", "parallel.tensor": "4", "match.all": '[["vllm"], ["Llama-3.1-70B-Instruct"]]'},
    ),
    "vLLM as a module": (
        "python -m vllm.entrypoints.openai.api_server --model Qwen/Qwen2.5-7B-Instruct -tp 2 --dtype half -q awq",
        {"preset": "qwen-2.5-7b-serve", "run.kind": "serve", "run.precision": "fp16", "run.quantization": "int4",
         "parallel.tensor": "2", "match.all": '[["vllm.entrypoints.openai.api_server"], ["Qwen2.5-7B-Instruct"]]'},
    ),
    "SGLang": (
        ("python -m sglang.launch_server --model-path meta-llama/Llama-3.1-8B --tp 2 --mem-fraction-static 0.8"
        " --context-length 4096 --disable-cuda-graph"),
        {"preset": "llama-3.1-8b-serve", "run.kind": "serve", "run.engine": "sglang", "run.max_model_len": "4096",
         "run.mem_fraction_static": "0.8", "run.enforce_eager": "true", "parallel.tensor": "2",
         "match.all": '[["sglang.launch_server"], ["Llama-3.1-8B"]]'},
    ),
    "TGI": (
        ("text-generation-launcher --model-id meta-llama/Llama-3.1-8B-Instruct --num-shard 2 --quantize"
        " bitsandbytes-nf4 --max-total-tokens 8192 --max-batch-prefill-tokens 4096 --cuda-memory-fraction 0.8"
        " --kv-cache-dtype fp8_e4m3fn --cuda-graphs 0"),
        {"preset": "llama-3.1-8b-serve", "run.kind": "serve", "run.engine": "vllm", "run.max_model_len": "8192",
         "run.max_num_batched_tokens": "4096", "run.gpu_memory_utilization": "0.8", "run.quantization": "nf4",
         "run.kv_cache": "fp8", "run.enforce_eager": "true", "parallel.tensor": "2",
         "match.all": '[["text-generation-launcher"], ["Llama-3.1-8B-Instruct"]]'},
    ),
    "TGI's server, which holds the memory": (
        ("/opt/conda/bin/python3.11 /opt/bin/text-generation-server serve meta-llama/Llama-3.1-8B-Instruct main"
        " --sharded --dtype bfloat16 --uds-path /tmp/text-generation-server"),
        {"preset": "llama-3.1-8b-serve", "run.kind": "serve", "run.engine": "vllm", "run.precision": "bf16",
         "match.all": '[["text-generation-server"], ["Llama-3.1-8B-Instruct"]]'},
    ),
    "qlora.py": (
        ("python qlora.py --model_name_or_path meta-llama/Llama-3.1-8B --bits 4 --double_quant --bf16 --lora_r 64"
        " --lora_modules all --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --max_grad_norm 0.3"),
        {"preset": "llama-3.1-8b-qlora", "run.kind": "train", "run.lora.rank": "64", "run.quantization": "nf4-double",
         "run.batch_size": "1", "run.gradient_accumulation_steps": "16", "run.max_grad_norm": "0.3",
         "run.precision": "bf16-mixed", "match.all": '[["qlora.py"], ["Llama-3.1-8B"]]'},
    ),
    "deepspeed": (
        ("deepspeed --num_gpus=8 --num_nodes 2 train.py --model_name_or_path meta-llama/Llama-3.1-8B"
        " --per_device_train_batch_size 2 --bf16 --model_max_length 2048 --flash_attn fa2"),
        {"preset": "llama-3.1-8b-full", "run.kind": "train", "run.batch_size": "2", "run.sequence_length": "2048",
         "run.precision": "bf16-mixed", "run.attention": "flash", "parallel.data": "16",
         "match.all": '[["train.py"], ["Llama-3.1-8B"]]'},
    ),
    "llama.cpp": (
        "./llama-server -m models/Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 8192 -ngl 20 -np 4 -ub 256 -ctk q8_0",
        {"preset": "llama-3.1-8b-llama-server", "run.kind": "serve", "run.engine": "llama.cpp",
         "run.quantization": "q4_k_m", "run.max_model_len": "8192", "run.max_num_seqs": "4",
         "run.max_num_batched_tokens": "256", "run.gpu_layers": "20", "run.kv_cache": "int8", "run.kv_cache_v": "fp16",
         "match.all": '[["llama-server"], ["Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf"]]'},
    ),
    "torchtune": (
        ("tune run --nproc_per_node 2 lora_finetune_distributed --config llama3_1/8B_lora batch_size=4 dtype=bf16"
        " model.lora_rank=16 tokenizer.max_seq_len=2048 optimizer=torch.optim.AdamW"
        " enable_activation_checkpointing=False"),
        {"preset": "llama-3.1-8b-lora", "run.kind": "train", "run.batch_size": "4", "run.precision": "bf16",
         "run.lora.rank": "16", "run.sequence_length": "2048", "run.optimizer": "adamw", "parallel.data": "2",
         "match.all": '[["lora_finetune_distributed"], ["8B_lora"]]'},
    ),
    "axolotl": (
        ("axolotl train config.yml --micro-batch-size 2 --sequence-len 4096 --base-model N/Meta-Llama-3.1-8B"
        " --load-in-4bit true --lora-r 8"),
        {"preset": "llama-3.1-8b-qlora", "run.kind": "train", "run.batch_size": "2", "run.sequence_length": "4096",
         "run.quantization": "nf4", "run.lora.rank": "8", "match.all": '[["axolotl"], ["Meta-Llama-3.1-8B"]]'},
    ),
    "nanoGPT": (
        "python train.py config/train_gpt2.py --batch_size=12 --block_size=512 --dtype=float16 --grad_clip=0.5",
        {"preset": "gpt2-124m", "run.kind": "train", "run.batch_size": "12", "run.sequence_length": "512",
         "run.precision": "fp16-mixed", "run.max_grad_norm": "0.5", "match.all": '[["train.py"], ["gpt2"]]'},
    ),
    "Megatron": (
        ("torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --bf16"
        " --pipeline-model-parallel-size 2 --num-layers 32 --hidden-size 4096 --num-attention-heads 32"
        " --micro-batch-size 1 --seq-length 4096 --use-distributed-optimizer --sequence-parallel"
        " --recompute-granularity full --optimizer adam"),
        {"run.kind": "train", "run.batch_size": "1", "run.sequence_length": "4096", "run.precision": "bf16-master",
         "run.checkpointing": "full", "run.optimizer": "adamw", "model.num_hidden_layers": "32",
         "model.hidden_size": "4096", "model.num_attention_heads": "32", "parallel.tensor": "2",
         "parallel.pipeline": "2", "parallel.sequence_parallel": "true", "parallel.strategy": "zero",
         "parallel.zero_stage": "1", "match.all": '[["pretrain_gpt.py"]]'},
    ),
    "diffusers": (
        ("accelerate launch train_text_to_image_lora_sdxl.py --resolution=768 --train_batch_size=1 --rank=8"
        " --pretrained_model_name_or_path=stabilityai/stable-diffusion-xl-base-1.0 --mixed_precision=fp16"
        " --use_8bit_adam --gradient_checkpointing"),
        {"preset": "sdxl-lora", "model.sample_size": "96", "run.kind": "train", "run.batch_size": "1",
         "run.precision": "fp16-mixed", "run.lora.rank": "8", "run.optimizer": "adamw_8bit",
         "run.checkpointing": "full",
         "match.all": '[["train_text_to_image_lora_sdxl.py"], ["stable-diffusion-xl-base-1.0"]]'},
    ),
    "nothing to read": (
        "sleep 100",
        {"match.all": '[["sleep"]]'},
    ),
    "nothing at all": (
        "",
        {},
    ),
    "switches that are off": (
        ("python train.py --bf16 False --gradient_checkpointing false --load_in_4bit no --per_device_train_batch_size"
        " x"),
        {"run.kind": "train", "match.all": '[["train.py"]]'},
    ),
    "a model that nobody knows": (
        "python train.py --model_name_or_path someone/Llama-3.1-9B",
        {"run.kind": "train", "match.all": '[["train.py"], ["Llama-3.1-9B"]]'},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_line_says(name: str) -> None:
    command, said = COMMANDS[name]
    offers = draft_from_process(command, LIBRARY)
    assert {offer.key: offer.value for offer in offers} == said
    assert len(offers) == len(said)
    for offer in offers:
        assert offer.flag
        assert all(part in command for part in re.split(r"[ =]", offer.flag)), offer


@pytest.mark.parametrize("name", [name for name, (_, said) in COMMANDS.items() if "preset" in said])
def test_a_draft_from_what_was_taken(name: str) -> None:
    command, said = COMMANDS[name]
    draft = start_from(draft_from_process(command, LIBRARY), LIBRARY, "my-job")
    assert draft.problems == ()
    assert (draft.name, draft.path) == ("my-job", None)
    fields = fields_of(draft.form)
    assert fields["name"].value == "my-job"
    assert {key: fields[key].value for key in said if key != "preset"} == {
        key: value for key, value in said.items() if key != "preset"
    }
    assert draft.preset is not None
    assert draft.preset.match is not None
    gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
    assert matches(draft.preset.match, gpu, Process(pid=1, type="C", command=command))


def test_only_what_was_taken_is_in_the_draft() -> None:
    offers = draft_from_process(COMMANDS["vLLM"][0], LIBRARY)
    draft = start_from(tuple(offer for offer in offers if offer.key in {"preset", "run.max_num_seqs"}), LIBRARY, "a")
    known = LIBRARY.get("llama-3.1-70b-serve")
    changed = {line for line in draft.text.splitlines() if line not in Path(known.path).read_text().splitlines()}
    assert changed == {'name = "a"', "max_num_seqs = 64"}


def test_without_a_known_model_the_draft_says_what_is_missing() -> None:
    draft = start_from(draft_from_process(COMMANDS["Megatron"][0], LIBRARY), LIBRARY, "mine")
    assert [problem.sentence for problem in draft.problems] == [
        "model.vocab_size is missing; a transformer model needs it"
    ]
    draft.set_value("model.vocab_size", "50304")
    assert draft.is_current


def test_a_models_file_that_is_there_is_offered_before_a_preset(tmp_path: Path) -> None:
    folder = tmp_path / "gpt2"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_embd": 64, "n_layer": 2, "n_head": 4,'
        ' "vocab_size": 100, "n_positions": 32}'
    )
    offers = draft_from_process(f"python train.py --model_name_or_path {folder} --lr 1", LIBRARY)
    assert [(offer.key, offer.value) for offer in offers[:2]] == [
        ("model.config", str(folder)),
        ("preset", "gpt2-124m"),
    ]
    draft = start_from(offers, LIBRARY, "mine")
    assert draft.problems == ()
    assert fields_of(draft.form)["model.hidden_size"].value == "64"
    assert fields_of(draft.form)["run.kind"].value == "train"


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python -u /jobs/a/train.py --x", "train.py"),
        ("python -m torch.distributed.run --nproc_per_node 2 a/b.py", "b.py"),
        ("python -m pkg.train", "pkg.train"),
        ("/usr/bin/python3 /env/bin/vllm serve x", "vllm"),
        ("accelerate launch -m my.module", "my.module"),
        ("./llama-server -m x", "llama-server"),
        ("python", ""),
        ("'broken quote.py", "quote.py"),
    ],
)
def test_the_script_of_a_command(command: str, script: str) -> None:
    assert read_command_line(command).script == script


@pytest.mark.parametrize("name", COMMANDS)
def test_families(name: str) -> None:
    words = {"vLLM as a module": "vllm", "TRL with torchrun": "trainer", "llama.cpp": "llama.cpp"}
    words["TGI's server, which holds the memory"] = "tgi"
    expected = words.get(name, name.lower() if name.lower() in FLAGS else "trainer")
    assert family_of(read_command_line(COMMANDS[name][0])) == expected


FLAG_NAMES = sorted({flag for table in FLAGS.values() for flag in table})
VALUES = st.one_of(
    st.text(max_size=8), st.sampled_from(["8", "bf16", "True", "q_proj,k_proj", "1e99", "-1", "9" * 30, "nan"])
)
WORDS = st.one_of(
    st.sampled_from(
        ["python", "vllm", "serve", "tune run", "llama-server", "train.py", "-m", "x.gguf", "sglang", "'", "\\"]
    ),
    st.builds(lambda flag, value: f"--{flag}={value}", st.sampled_from(FLAG_NAMES), VALUES),
    st.builds(lambda flag, value: f"--{flag.replace('_', '-')} {value}", st.sampled_from(FLAG_NAMES), VALUES),
    st.text(max_size=6),
)


@examples(150)
@given(st.lists(WORDS, max_size=8).map(" ".join))
def test_any_command_line_gives_values_that_a_preset_may_have(command: str) -> None:
    for offer in draft_from_process(command, LIBRARY):
        assert printable(offer.flag) == offer.flag
        if offer.key in {"preset", "model.config"}:
            continue
        assert _is_allowed(offer), offer


def _is_allowed(offer: Offer) -> bool:
    table = offer.key.split(".")[0]
    for kind in ("train", "infer", "serve"):
        text = f'name = "x"\n[model]\nkind = "transformer"\n[run]\nkind = "{kind}"\n[match]\n[parallel]\n'
        field = fields_of(form_of(text)).get(offer.key)
        if field is None:
            continue
        quoted = field.kind in {"text", "choice"}
        value = "'" + offer.value + "'" if quoted and "'" not in offer.value else offer.value
        if quoted and "'" in offer.value:
            return True
        name = offer.key.removeprefix(f"{table}.")
        line = f"{name} = {value}"
        said = text.replace(f"[{table}]", f"[{table}]\n{line}") if name != "kind" else text
        if not any(problem.key == offer.key for problem in find_problems(said)):
            return True
    return offer.key == "model.sample_size"


def test_nothing_is_offered_for_tensorrt_llm() -> None:
    command = "/usr/bin/python3 /usr/local/bin/trtllm-serve serve meta-llama/Llama-3.1-70B-Instruct --tp_size 4"
    assert draft_from_process(command, LIBRARY) == ()
    assert derived_preset(command, None) is None

"""The presets that come with the program: all load, under unique names, and match what they should."""

import re
from math import prod
from pathlib import Path

import pytest

from tests.loaded_once import bundled_library, bundled_presets
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.observation.matcher import matches
from vramtui.core.observation.readings import Gpu, Process
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.estimators.methods import estimates_by

LIBRARY = bundled_library()
GPU = Gpu(index=0, uuid="GPU-0", name="NVIDIA H100")
BUNDLED = bundled_presets()
RUN_TO_BE_KNOWN = (TorchModel,)
MODELS = [found for found in BUNDLED if not isinstance(found.preset.model, RUN_TO_BE_KNOWN)]

FIRST_TEN = {
    "gpt2-124m",
    "gpt2-1.5b",
    "llama-3.1-8b-infer",
    "llama-3.1-8b-full",
    "llama-3.1-8b-lora",
    "llama-3.1-70b-infer",
    "qwen-2.5-7b",
    "gemma-2-27b-lora",
    "mistral-7b",
    "tiny-gpt",
}

# What the model cards, or the checkpoints' own tensors, say; a preset's key begins with the model's.
CARDS = {
    "bart-large": 406_291_456,
    "bert-base": 109_514_298,
    "bert-large": 335_143_938,
    "clip-vit-l14-text": 123_060_480,
    "clip-vit-l14-vision": 303_966_208,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v3": 671_026_419_200,
    "deepseek-v3.2": 671_877_944_064,
    "flan-t5-xl": 2_849_757_184,
    "flux-dev": 11_901_408_320,
    "flux-dev-pipeline": 16_870_599_139,
    "gemma-2-27b": 27_227_128_320,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-3-12b": 11_766_034_176,
    "gemma-3-1b": 999_885_952,
    "gemma-3-27b": 27_009_346_304,
    "gemma-3-4b": 3_880_263_168,
    "gemma-4-26b-a4b": 25_805_933_902,
    "gemma-4-31b": 31_273_086_572,
    "gemma-4-e4b": 7_941_100_874,
    "glm-4.5-air": 106_852_251_264,
    "gpt-j-6b": 6_050_882_784,
    "gpt-neox-20b": 20_554_567_680,
    "gpt-oss-120b": 116_829_156_672,
    "gpt-oss-20b": 20_914_757_184,
    "gpt2-1.5b": 1_557_611_200,
    "gpt2-124m": 124_439_808,
    "gpt2-355m": 354_823_168,
    "gpt2-774m": 774_030_080,
    "kimi-k2": 1_026_408_232_448,
    "llama-3.1-405b": 405_853_388_800,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.3-70b": 70_553_706_496,
    "llama-4-scout": 108_641_793_536,
    "lstm-language-model": 13_987_678,
    "minimax-m2": 228_689_764_864,
    "ministral-3-14b": 13_945_031_680,
    "ministral-3-3b": 3_849_090_048,
    "ministral-3-8b": 8_918_026_240,
    "mistral-7b": 7_248_023_552,
    "mistral-large-3": 673_553_217_792,
    "mistral-nemo-12b": 12_247_782_400,
    "mistral-small-24b": 23_572_403_200,
    "mistral-small-3.1-24b": 24_011_361_280,
    "mixtral-8x22b": 140_620_634_112,
    "mixtral-8x7b": 46_702_792_704,
    "olmo-3-32b": 32_233_522_176,
    "olmo-3-7b": 7_298_011_136,
    "phi-2": 2_779_683_840,
    "phi-3-mini": 3_821_079_552,
    "phi-4-14b": 14_659_507_200,
    "qwen-2.5-0.5b": 494_032_768,
    "qwen-2.5-14b": 14_770_033_664,
    "qwen-2.5-32b": 32_763_876_352,
    "qwen-2.5-72b": 72_706_203_648,
    "qwen-2.5-7b": 7_615_616_512,
    "qwen-2.5-vl-7b": 8_292_166_656,
    "qwen-3-0.6b": 596_049_920,
    "qwen-3-235b-a22b": 235_093_634_560,
    "qwen-3-30b-a3b": 30_532_122_624,
    "qwen-3-32b": 32_762_123_264,
    "qwen-3-8b": 8_190_735_360,
    "qwen-3-next-80b-a3b": 79_674_391_296,
    "qwen-3-vl-8b": 8_767_123_696,
    "qwen-3.5-27b": 27_356_728_560,
    "qwen-3.5-35b-a3b": 35_107_181_936,
    "qwen-image": 28_849_460_275,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
    "resnet-18": 11_689_512,
    "resnet-50": 25_557_032,
    "sd-1.5": 859_520_964,
    "sd-2.1": 865_910_724,
    "sd-3.5-large": 13_721_068_003,
    "sdxl": 2_567_463_684,
    "sdxl-pipeline": 3_468_837_867,
    "t5-base": 222_903_552,
    "t5-large": 737_668_096,
    "t5-small": 60_506_624,
    "transformer-base": 63_082_496,  # by hand: 12.6 M a stack of MLPs, 6.3 M an attention of six layers, 18.9 M words
    "tiny-gpt": 4_870_144,
    "vit-b16": 86_567_656,
    "vit-l16": 304_326_632,
    "wan-2.1-1.3b": 7_226_799_667,
    "wan-2.1-14b": 20_096_294_451,
    "wan-2.2-a14b": 34_384_786_035,
    "whisper-large-v3": 1_543_490_560,
    "whisper-small": 241_734_912,
}


def parameters(model: TransformerModel) -> int:
    """Counted tensor by tensor, as a second opinion on the estimator's own count."""
    if model.tensors:
        return sum(prod(group.shape) * group.count for group in model.tensors)
    hidden = model.hidden_size
    norm = hidden * (2 if model.norm == "layernorm" else 1)
    blocks = sum(
        attention_parameters(model) + mlp_parameters(model, layer) + model.norms_per_layer * norm
        for layer in range(model.num_hidden_layers)
    )
    positions = hidden * (model.max_position_embeddings or 0) * (model.position == "learned")
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    return blocks + norm + positions + embeddings + model.vocab_size * model.lm_head_bias


def attention_parameters(model: TransformerModel) -> int:
    hidden, heads = model.hidden_size, model.num_attention_heads
    if model.kv_lora_rank is not None:
        nope, rope, values = model.qk_nope_head_dim or 0, model.qk_rope_head_dim or 0, model.v_head_dim or 0
        rank, compressed = model.q_lora_rank, model.kv_lora_rank
        wide = heads * (nope + rope)
        queries = hidden * wide if rank is None else hidden * rank + rank + rank * wide
        keys = hidden * (compressed + rope) + compressed + compressed * heads * (nope + values)
        return queries + keys + heads * values * hidden
    queries, keys = heads * model.head_size, model.kv_heads * model.head_size
    biases = (queries + 2 * keys) * model.attention_bias + hidden * model.output_bias
    return 2 * hidden * queries + 2 * hidden * keys + biases + 2 * model.head_size * model.qk_norm


def mlp_parameters(model: TransformerModel, layer: int) -> int:
    hidden, inner = model.hidden_size, 2 if model.gated_mlp else 1
    if model.num_experts is None or layer < model.first_k_dense_replace:
        width = model.ffn_size
        return (inner + 1) * hidden * width + (inner * width + hidden) * model.mlp_bias
    widths = model.num_experts * model.expert_size + model.shared_size
    router = model.num_experts * (hidden + model.router_bias) + hidden * model.shared_expert_gate
    return (inner + 1) * hidden * widths + router


@for_each(MODELS)
def test_every_model_can_be_estimated(found: PresetFile) -> None:
    """Warnings are errors here, so none is given either; and the estimator's own count is the card's."""
    estimate = ANALYTIC.estimate(found.preset.workload, card("H100"))
    assert 0 < (estimate.allocated or 0) <= (estimate.reserved or 0) < estimate.process
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert parameter_count(model) == model.parameters


def test_there_is_one_of_each_kind_that_is_known_by_running_it() -> None:
    kinds = {type(found.preset.model): found for found in BUNDLED if isinstance(found.preset.model, RUN_TO_BE_KNOWN)}
    assert set(kinds) == set(RUN_TO_BE_KNOWN)
    for found in kinds.values():
        assert found.key.endswith("-traced")
        assert "vramtui dry-run" in Path(found.path).read_text(encoding="utf-8")
        with pytest.raises(UserError, match=r"is code, not a model: vramtui dry-run --gpu GPU .*tiny_mlp.py"):
            estimates_by(None, found.preset.workload, card("H100"))


def test_none_is_broken_and_no_name_stands_twice() -> None:
    assert LIBRARY.problems == ()
    assert {found.key for found in BUNDLED} >= FIRST_TEN


@for_each(BUNDLED)
def test_the_parameter_count_is_exact(found: PresetFile) -> None:
    model = found.preset.model
    if isinstance(model, TransformerModel):
        assert model.parameters == parameters(model)
    if not isinstance(model, RUN_TO_BE_KNOWN):
        key = max((key for key in CARDS if found.key == key or found.key.startswith(f"{key}-")), key=len)
        assert getattr(model, "parameters", None) == CARDS[key]


@for_each(BUNDLED)
def test_people_can_tell_what_it_is(found: PresetFile) -> None:
    assert found.preset.name
    assert found.preset.notes.endswith(".")
    assert re.fullmatch(r"[a-z0-9.-]+", found.key)


@for_each(
    [
        ("python train.py --model meta-llama/Llama-3.1-8B --lora --batch 4", ["llama-3.1-8b-lora"]),
        ("python train.py --model meta-llama/Meta-Llama-3.1-8B-Instruct", ["llama-3.1-8b-full"]),
        ("python generate.py --model meta-llama/Llama-3.1-70B", ["llama-3.1-70b-infer"]),
        ("python serve.py --model Qwen/Qwen2.5-7B-Instruct --max-batch 8", ["qwen-2.5-7b"]),
        ("python train_gpt2.py --size 124M", ["gpt2-124m"]),
        ("torchrun train_gpt2.py --size=1.5B", ["gpt2-1.5b"]),
        ("python finetune_lora.py google/gemma-2-27b", ["gemma-2-27b-lora"]),
        ("python chat.py mistralai/Mistral-7B-v0.3", ["mistral-7b"]),
        ("python main.py --arch resnet50 /data/imagenet", ["resnet-50-train"]),
        ("python main.py --arch resnet18 /data/imagenet", ["resnet-18-train"]),
        ("python train_tiny_gpt.py", ["tiny-gpt"]),
        ("vllm serve meta-llama/Llama-3.1-8B-Instruct --max-model-len 131072", ["llama-3.1-8b-serve"]),
        ("python -m vllm.entrypoints.openai.api_server --model meta-llama/Llama-3.1-8B", ["llama-3.1-8b-serve"]),
        ("vllm serve meta-llama/Llama-3.1-70B-Instruct --tensor-parallel-size 4", ["llama-3.1-70b-serve"]),
        ("torchrun --nproc-per-node 8 train.py --model meta-llama/Llama-3.1-8B --fsdp", ["llama-3.1-8b-fsdp"]),
        ("torchrun train.py --model meta-llama/Llama-3.1-70B --fsdp full_shard", ["llama-3.1-70b-fsdp"]),
        ("vllm serve Qwen/Qwen2.5-7B-Instruct", ["qwen-2.5-7b-serve"]),
        ("llama-server -m qwen2.5-7b-instruct-q4_k_m.gguf -ngl 99", ["qwen-2.5-7b-llama-server"]),
        ("llama-server -m Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf -c 8192 -ngl 99", ["llama-3.1-8b-llama-server"]),
        ("python sft.py --model meta-llama/Llama-3.1-8B --qlora", ["llama-3.1-8b-qlora"]),
        ("python train_qlora.py meta-llama/Llama-3.1-70B", ["llama-3.1-70b-qlora"]),
        ("python generate.py meta-llama/Llama-3.3-70B-Instruct", ["llama-3.3-70b-infer"]),
        ("python infer.py mistralai/Mixtral-8x7B-Instruct-v0.1", ["mixtral-8x7b-infer"]),
        ("python chat.py deepseek-ai/DeepSeek-V2-Lite-Chat", ["deepseek-v2-lite-infer"]),
        ("python chat.py deepseek-ai/DeepSeek-R1", ["deepseek-v3-infer"]),
        ("python generate.py Qwen/Qwen3-30B-A3B", ["qwen-3-30b-a3b-infer"]),
        ("python infer.py EleutherAI/gpt-j-6B", ["gpt-j-6b-infer"]),
        ("python train_gpt2.py --size 355M", ["gpt2-355m"]),
        ("python sft_lora.py google/gemma-3-4b-it", ["gemma-3-4b-lora"]),
        ("python chat.py google/gemma-3-12b-it", ["gemma-3-12b-infer"]),
        ("python finetune.py microsoft/phi-2", ["phi-2-full"]),
        ("python chat.py deepseek-ai/DeepSeek-V3.2", ["deepseek-v3.2-infer"]),
        ("python generate.py Qwen/Qwen3.5-27B", ["qwen-3.5-27b-infer"]),
        ("python chat.py google/gemma-4-31B-it", ["gemma-4-31b-infer"]),
        ("python chat.py allenai/Olmo-3-32B-Think", ["olmo-3-32b-infer"]),
        ("python chat.py mistralai/Ministral-3-8B-Instruct-2512", ["ministral-3-8b-infer"]),
        ("python generate.py --model Wan-AI/Wan2.2-T2V-A14B-Diffusers", ["wan-2.2-a14b-pipeline"]),
        ("python infer.py stabilityai/stable-diffusion-3.5-large", ["sd-3.5-large-pipeline"]),
        ("python generate.py Qwen/Qwen-Image", ["qwen-image-pipeline"]),
        ("python train.py", []),
        ("vim llama-3.1-8b.txt", []),
        ("python train_gpt2.py", []),
        ("", []),
    ]
)
def test_commands_find_their_preset_and_no_other(command: str, keys: list[str]) -> None:
    rules = {found.key: found.preset.match for found in BUNDLED if found.preset.match}
    process = Process(pid=1, type="C", command=command)
    assert [key for key, match in rules.items() if matches(match, GPU, process)] == keys

"""Which options of which programs say which key of a preset, and how their values are spelt there.

A family is a program or library with options of its own: its documentation is where each name comes from.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, get_args

from vramtui.core.schema.workload import Engine, Quantization

Spelling: TypeAlias = Callable[[str], str | None]

_NO = {"false", "0", "no", "off", "none", ""}
DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
           "float": "fp32", "fp32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "f16": "fp16",
           "f32": "fp32", "no": "fp32"}  # fmt: skip
OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw": "adamw", "adam": "adam",
    "torch.optim.adamw": "adamw", "torch.optim.adam": "adam", "torch.optim.sgd": "sgd", "sgd": "sgd",
    "adafactor": "adafactor", "adagrad": "adagrad", "rmsprop": "rmsprop", "muon": "muon",
    "adamw_bnb_8bit": "adamw_8bit", "adamw_8bit": "adamw_8bit", "bitsandbytes.optim.adamw8bit": "adamw_8bit",
    "paged_adamw": "paged_adamw_32bit", "paged_adamw_32bit": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "bitsandbytes.optim.pagedadamw8bit": "paged_adamw_8bit",
    "lion_32bit": "lion", "lion": "lion",
}  # fmt: skip
ATTENTIONS = {"flash_attention_2": "flash", "flash_attention_3": "flash", "flash": "flash", "sdpa": "flash",
               "fa2": "flash", "eager": "eager", "disabled": "eager", "fused": "cudnn", "unfused": "eager"}  # fmt: skip
CACHES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "f16": "fp16", "bf16": "bf16", "bfloat16": "bf16",
           "f32": "fp32", "q8_0": "int8", "q4_0": "int4", "int8": "int8", "int4": "int4"}  # fmt: skip
_QUANTIZATIONS = {"awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "fp8": "fp8",
                  "bitsandbytes": "nf4", "w8a8_int8": "int8", "w8a8_fp8": "fp8"}  # fmt: skip
# Text Generation Inference 3.3, launcher/src/main.rs: its `bitsandbytes` is LLM.int8(), fp4 takes what nf4 takes.
_TGI_QUANTIZATIONS = {"awq": "int4", "gptq": "int4", "marlin": "int4", "eetq": "int8", "bitsandbytes": "int8",
                      "bitsandbytes-nf4": "nf4", "bitsandbytes-fp4": "nf4", "fp8": "fp8"}  # fmt: skip


MOST_WHOLE = 1 << 24  # the least of the bounds of the keys that whole numbers are offered for (core/schema)


UNITS = {"k": 1 << 10, "m": 1 << 20}


def whole(value: str) -> str | None:
    """A whole number from 1 to what every key of a preset takes; `8k` and `8192` alike, as vLLM takes both; 1M is
    1,048,576.
    """
    text = value.lower().replace("_", "")
    if text[-1:] in UNITS and text[:-1].isdecimal() and len(text) <= len(str(MOST_WHOLE)):
        text = str(int(text[:-1]) * UNITS[text[-1]])
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_WHOLE)):
        return None
    return str(int(text)) if 0 < int(text) <= MOST_WHOLE else None


def number(value: str) -> str | None:
    """A number that is not negative."""
    try:
        read = float(value)
    except ValueError:
        return None
    return repr(read) if 0 <= read < 1e12 else None


def positive(value: str) -> str | None:
    """A number above zero; 0 switches off what it is the limit of."""
    read = number(value)
    return read if read is not None and float(read) > 0 else None


def share(value: str) -> str | None:
    """A number from 0 to below 1."""
    read = number(value)
    return read if read is not None and float(read) < 1 else None


def portion(value: str) -> str | None:
    """A number above 0 and up to 1."""
    read = positive(value)
    return read if read is not None and float(read) <= 1 else None


def switched(value: str) -> bool:
    """Whether a switch is on: `--bf16`, `--bf16 True`; what follows it may be the next word."""
    return value == "" or value.lower() not in _NO


def either(table: Mapping[str, str], ending: str = "") -> Spelling:
    """One of the words of `table`, with `ending` behind a half precision."""

    def spell(value: str) -> str | None:
        value_of = table.get(value.lower())
        return value_of + ending if value_of in {"bf16", "fp16"} and ending else value_of

    return spell


def when_on(spelt: str) -> Spelling:
    """`spelt` for a switch that is on."""
    return lambda value: spelt if switched(value) else None


ALL_LINEAR = '["all-linear"]'


# The linear layers of the usual decoders by their whole names, against which peft holds a regular expression
# (peft/tuners/tuners_utils.py, check_target_module_exists, 0.21: `re.fullmatch`), and the names before them.
_LINEAR = (*(f"self_attn.{letter}_proj" for letter in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")))
_STEMS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "layers")
_SOME_LAYERS = (0, 1, 12)
_REGEX = re.compile(r"[\\(|\[^$*]")
# What a stranger's expression may not have, so that trying it takes no time: repeats of a group, and many of anything.
_REPEATED_GROUP, _REPEATS = re.compile(r"\)\s*[*+{]"), re.compile(r"[*+{]")
_LONGEST_REGEX, _MOST_REPEATS = 400, 5


def _matched(expression: str) -> str | None:
    """The layers that a regular expression picks; None where it picks none, or is none that can be tried."""
    many = len(expression) > _LONGEST_REGEX or len(_REPEATS.findall(expression)) > _MOST_REPEATS
    if many or _REPEATED_GROUP.search(expression):
        return None
    try:
        wanted = re.compile(expression)
    except (re.error, OverflowError, RecursionError):
        return None
    names = [
        layer.rpartition(".")[2]
        for layer in _LINEAR
        if any(wanted.fullmatch(f"{stem}.{number}.{layer}") for stem in _STEMS for number in _SOME_LAYERS)
    ]
    return "[" + ", ".join(f'"{name}"' for name in names) + "]" if names else None


def modules(value: str) -> str | None:
    """Names of layers, separated by commas, as a list; `all` and `all-linear` are every linear layer. Of a path such
    as `self_attn.q_proj`, which peft holds against the end of each layer's own, the layer is the last word. A regular
    expression stands for the layers that it picks.
    """
    if _REGEX.search(value.strip("[]")):
        return _matched(value)
    names = [name.strip("[] '\"").rpartition(".")[2] for name in value.split(",")]
    if {"all", "all-linear", "all_linear"} & {*names}:
        return ALL_LINEAR
    known = [name for name in names if name.replace("_", "").isalnum()]
    return "[" + ", ".join(f'"{name}"' for name in known) + "]" if known else None


def llama_cpp_layers(value: str) -> str | None:
    """`-ngl`: more than any model has means all, which is what nothing said means too."""
    return value if value.isdecimal() and int(value) < 200 else None


_ADAPTERS: dict[str, tuple[str, Spelling]] = {
    **dict.fromkeys(("lora_r", "lora_rank", "model.lora_rank", "peft.r"), ("run.lora.rank", whole)),
    **dict.fromkeys(("lora_dropout", "model.lora_dropout"), ("run.lora.dropout", share)),
    **dict.fromkeys(("lora_target_modules", "lora_target"), ("run.lora.target_modules", modules)),
    "use_dora": ("run.lora.use_dora", when_on("true")),
    "autocast_adapter_dtype": ("run.lora.autocast_adapter_dtype", either({"true": "true", "false": "false"})),
    "load_in_4bit": ("run.quantization", when_on("nf4")),
    "load_in_8bit": ("run.quantization", when_on("int8")),
    # Of qlora.py and LLaMA-Factory, which both quantize the scales again where nothing is said.
    **dict.fromkeys(("bits", "quantization_bit"), ("run.quantization", {"4": "nf4-double", "8": "int8"}.get)),
}
SHARED: dict[str, tuple[str, Spelling]] = {
    **_ADAPTERS,
    **dict.fromkeys(
        ("per_device_train_batch_size", "micro_batch_size", "train_batch_size", "batch_size"), ("run.batch_size", whole)
    ),
    **dict.fromkeys(
        ("max_seq_length", "max_length", "sequence_len", "seq_length", "seq_len", "sequence_length", "max_seq_len",
         "tokenizer.max_seq_len", "model_max_length", "block_size", "cutoff_len"),
        ("run.sequence_length", whole),
    ),
    "gradient_accumulation_steps": ("run.gradient_accumulation_steps", whole),
    "max_grad_norm": ("run.max_grad_norm", positive),
    **dict.fromkeys(("optim", "optimizer", "optimizer._component_"), ("run.optimizer", either(OPTIMIZERS))),
    **dict.fromkeys(
        ("gradient_checkpointing", "enable_activation_checkpointing", "activation_checkpointing"),
        ("run.checkpointing", when_on("full")),
    ),
    **dict.fromkeys(("attn_implementation", "flash_attn"), ("run.attention", either(ATTENTIONS))),
    "torch_compile": ("run.compile", when_on("true")),
    "use_liger_kernel": ("run.use_liger_kernel", when_on("true")),
}  # fmt: skip

# What scripts of people's own call the two sizes, where no library's option says them.
OWN = {
    **dict.fromkeys(("batch", "bs", "b", "mini_batch_size"), "run.batch_size"),
    **dict.fromkeys(("seq", "block", "max_len", "ctx_len"), "run.sequence_length"),
}
FLAGS: dict[str, dict[str, tuple[str, Spelling]]] = {
    "trainer": {
        **SHARED,
        "tf32": ("run.precision", when_on("tf32")),
        "fp16": ("run.precision", when_on("fp16-mixed")),
        "bf16": ("run.precision", when_on("bf16-mixed")),
        "mixed_precision": ("run.precision", either(DTYPES, "-mixed")),
        **dict.fromkeys(("torch_dtype", "dtype"), ("run.precision", either(DTYPES))),
        "use_8bit_adam": ("run.optimizer", when_on("adamw_8bit")),
        "zero_stage": ("parallel.zero_stage", lambda value: value if value in {"1", "2", "3"} else None),
    },
    "torchtune": {
        **SHARED,
        "dtype": ("run.precision", either(DTYPES)),
        "clip_grad_norm": ("run.max_grad_norm", positive),
        "model.use_dora": ("run.lora.use_dora", when_on("true")),
        "model.lora_attn_modules": ("run.lora.target_modules", modules),
    },
    "diffusers": {
        **SHARED,
        "mixed_precision": ("run.precision", either(DTYPES, "-mixed")),
        "rank": ("run.lora.rank", whole),
        "use_8bit_adam": ("run.optimizer", when_on("adamw_8bit")),
    },
    "nanogpt": {
        "batch_size": ("run.batch_size", whole),
        "block_size": ("run.sequence_length", whole),
        "gradient_accumulation_steps": ("run.gradient_accumulation_steps", whole),
        "dtype": ("run.precision", either(DTYPES, "-mixed")),
        "grad_clip": ("run.max_grad_norm", positive),
        "n_layer": ("model.num_hidden_layers", whole),
        "n_head": ("model.num_attention_heads", whole),
        "n_embd": ("model.hidden_size", whole),
        "dropout": ("model.hidden_dropout", share),
    },
    "megatron": {
        "micro_batch_size": ("run.batch_size", whole),
        "seq_length": ("run.sequence_length", whole),
        "bf16": ("run.precision", when_on("bf16-master")),
        "fp16": ("run.precision", when_on("fp16-master")),
        "optimizer": ("run.optimizer", {"adam": "adamw", "sgd": "momentum"}.get),
        "clip_grad": ("run.max_grad_norm", positive),
        "recompute_granularity": (
            "run.checkpointing",
            lambda value: value if value in {"full", "selective"} else None,
        ),
        "recompute_activations": ("run.checkpointing", lambda _value: "selective"),
        "attention_backend": ("run.attention", either(ATTENTIONS)),
        "use_flash_attn": ("run.attention", lambda _value: "flash"),
        "num_layers": ("model.num_hidden_layers", whole),
        "hidden_size": ("model.hidden_size", whole),
        "num_attention_heads": ("model.num_attention_heads", whole),
        "num_query_groups": ("model.num_key_value_heads", whole),
        "ffn_hidden_size": ("model.intermediate_size", whole),
        "max_position_embeddings": ("model.max_position_embeddings", whole),
        "num_experts": ("model.num_experts", whole),
        "moe_router_topk": ("model.num_experts_per_tok", whole),
        "tensor_model_parallel_size": ("parallel.tensor", whole),
        "pipeline_model_parallel_size": ("parallel.pipeline", whole),
        "context_parallel_size": ("parallel.context", whole),
        "expert_model_parallel_size": ("parallel.expert", whole),
        "sequence_parallel": ("parallel.sequence_parallel", lambda _value: "true"),
        "use_distributed_optimizer": ("parallel.zero_stage", lambda _value: "1"),
    },
    "vllm": {
        "max_model_len": ("run.max_model_len", whole),
        "max_num_seqs": ("run.max_num_seqs", whole),
        "max_num_batched_tokens": ("run.max_num_batched_tokens", whole),
        "gpu_memory_utilization": ("run.gpu_memory_utilization", portion),
        "dtype": ("run.precision", either(DTYPES)),
        **dict.fromkeys(("quantization", "q"), ("run.quantization", either(_QUANTIZATIONS))),
        "kv_cache_dtype": ("run.kv_cache", either(CACHES)),
        "block_size": ("run.block_size", whole),
        "enforce_eager": ("run.enforce_eager", lambda _value: "true"),
        "cpu_offload_gb": ("run.cpu_offload_gb", number),
        **dict.fromkeys(("tensor_parallel_size", "tp"), ("parallel.tensor", whole)),
        **dict.fromkeys(("pipeline_parallel_size", "pp"), ("parallel.pipeline", whole)),
        **dict.fromkeys(("data_parallel_size", "dp"), ("parallel.data", whole)),
    },
    "sglang": {
        "context_length": ("run.max_model_len", whole),
        "max_running_requests": ("run.max_num_seqs", whole),
        "chunked_prefill_size": ("run.max_num_batched_tokens", whole),
        "mem_fraction_static": ("run.mem_fraction_static", portion),
        "dtype": ("run.precision", either(DTYPES)),
        "quantization": ("run.quantization", either(_QUANTIZATIONS)),
        "kv_cache_dtype": ("run.kv_cache", either(CACHES)),
        "page_size": ("run.block_size", whole),
        "disable_cuda_graph": ("run.enforce_eager", lambda _value: "true"),
        **dict.fromkeys(("tp", "tp_size", "tensor_parallel_size"), ("parallel.tensor", whole)),
        **dict.fromkeys(("pp", "pp_size", "pipeline_parallel_size"), ("parallel.pipeline", whole)),
        **dict.fromkeys(("dp", "dp_size", "data_parallel_size"), ("parallel.data", whole)),
    },
    "tensorrt-llm": {},  # not estimated
    "tgi": {
        "max_total_tokens": ("run.max_model_len", whole),
        "max_batch_size": ("run.max_num_seqs", whole),
        "max_batch_prefill_tokens": ("run.max_num_batched_tokens", whole),
        "cuda_memory_fraction": ("run.gpu_memory_utilization", portion),
        "dtype": ("run.precision", either(DTYPES)),
        "quantize": ("run.quantization", either(_TGI_QUANTIZATIONS)),
        "kv_cache_dtype": ("run.kv_cache", either({**CACHES, "fp8_e4m3fn": "fp8"})),
        "cuda_graphs": ("run.enforce_eager", {"0": "true"}.get),
        "num_shard": ("parallel.tensor", whole),
    },
    "llama.cpp": {
        **dict.fromkeys(("c", "ctx_size"), ("run.max_model_len", whole)),
        **dict.fromkeys(("np", "parallel"), ("run.max_num_seqs", whole)),
        **dict.fromkeys(("ub", "ubatch_size"), ("run.max_num_batched_tokens", whole)),
        **dict.fromkeys(("ngl", "gpu_layers", "n_gpu_layers"), ("run.gpu_layers", llama_cpp_layers)),
        **dict.fromkeys(("ctk", "cache_type_k"), ("run.kv_cache", either(CACHES))),
    },
}
# The families that are servers, and what a preset calls each.
SERVERS: dict[str, Engine] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tgi": "vllm",  # it takes a share of the card for weights and pages of keys and values, as vLLM does
    "llama.cpp": "llama.cpp",
}
MODEL_FLAGS = (
    "model_name_or_path", "pretrained_model_name_or_path", "model_name", "model_path", "base_model", "model_id",
    "model", "m", "hf_repo", "hf", "checkpointer.checkpoint_dir", "init_from", "config",
)  # fmt: skip
GGUF_QUANTIZATIONS = get_args(Quantization)


def spelled_option(name: str, value: str) -> tuple[str, str] | None:
    """The key that an option of many programs stands for and its value there; None where there is no such option."""
    if name in OWN:
        return OWN[name], value
    option = SHARED.get(name)
    spelt = option[1](value) if option is not None else None
    return (option[0], spelt) if option is not None and spelt is not None else None


def names_of(*keys: str) -> list[str]:
    """The names of options that take one of these keys' values, of scripts and of servers; of adapters there are none,
    whose values are spelt in ways of their own.
    """
    tables = (SHARED, *(FLAGS[server] for server in SERVERS))
    options = ((name, key) for table in tables for name, (key, _) in table.items() if name not in _ADAPTERS)
    return [name for name, key in (*options, *OWN.items()) if key in keys]


def is_checkpointing_off(name: str, value: str) -> bool:
    """Whether an option or a file's key says that no activations are made again."""
    if name == "disable_gradient_checkpointing":  # LLaMA-Factory's
        return switched(value)
    return SHARED.get(name, ("",))[0] == "run.checkpointing" and not switched(value)

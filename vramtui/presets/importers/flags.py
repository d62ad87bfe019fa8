"""Options and file keys of programs, the key of a preset that each sets, and how its values are spelt.

A family is a program or library with options or a file format of its own; the names are those of its documentation.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias, get_args

from vramtui.core.schema.workload import Engine, Quantization

Spelling: TypeAlias = Callable[[str], str | None]
Keys: TypeAlias = Mapping[str, tuple[tuple[str, Spelling], ...]]

_STAGES = {"1": "1", "2": "2", "3": "3"}
_NO = {"false", "0", "no", "off", "none", ""}
DTYPES = {"bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16", "fp16": "fp16", "float32": "fp32",
           "float": "fp32", "fp32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16", "f16": "fp16",
           "f32": "fp32", "no": "fp32"}  # fmt: skip
OPTIMIZERS = {
    "adamw_torch": "adamw", "adamw_torch_fused": "adamw", "adamw_hf": "adamw", "adamw": "adamw", "adam": "adam",
    "torch.optim.adamw": "adamw", "torch.optim.adam": "adam", "torch.optim.sgd": "sgd", "sgd": "sgd",
    "adafactor": "adafactor", "adagrad": "adagrad", "rmsprop": "rmsprop", "muon": "muon",
    **dict.fromkeys(("adamw_bnb_8bit", "adamw_8bit", "bitsandbytes.optim.adamw8bit"), "adamw_8bit"),
    # torchao's keep two moments of a byte for each number too, with a scale for each 256 (torchao/optim, 0.14).
    **dict.fromkeys(("adamw_torch_8bit", "ao_adamw_8bit", "torchao.optim.adamw8bit"), "adamw_8bit"),
    "adamw_anyprecision": "adamw", "adamw_apex_fused": "adamw", "lion_pytorch": "lion",
    "paged_adamw": "paged_adamw_32bit", "paged_adamw_32bit": "paged_adamw_32bit",
    "paged_adamw_8bit": "paged_adamw_8bit", "bitsandbytes.optim.pagedadamw8bit": "paged_adamw_8bit",
    "bitsandbytes.optim.pagedadamw": "paged_adamw_32bit",
    "lion_32bit": "lion", "lion": "lion",
}  # fmt: skip
ATTENTIONS = {"flash_attention_2": "flash", "flash_attention_3": "flash", "flash": "flash", "sdpa": "flash",
               "fa2": "flash", "eager": "eager", "disabled": "eager", "fused": "cudnn", "unfused": "eager"}  # fmt: skip
CACHES = {"fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "f16": "fp16", "bf16": "bf16", "bfloat16": "bf16",
           "f32": "fp32", "q8_0": "int8", "q4_0": "int4", "int8": "int8", "int4": "int4"}  # fmt: skip
_QUANTIZATIONS = {"awq": "int4", "awq_marlin": "int4", "gptq": "int4", "gptq_marlin": "int4", "fp8": "fp8",
                  "bitsandbytes": "nf4", "w8a8_int8": "int8", "w8a8_fp8": "fp8"}  # fmt: skip
# Text Generation Inference 3.3, launcher/src/main.rs: its `bitsandbytes` is LLM.int8(), fp4 is as large as nf4.
_TGI_QUANTIZATIONS = {"awq": "int4", "gptq": "int4", "marlin": "int4", "eetq": "int8", "bitsandbytes": "int8",
                      "bitsandbytes-nf4": "nf4", "bitsandbytes-fp4": "nf4", "fp8": "fp8"}  # fmt: skip
MOST_WHOLE = 1 << 24  # the least upper limit of the keys that take whole numbers (core/schema)
UNITS = {"k": 1 << 10, "m": 1 << 20}


def whole(value: str) -> str | None:
    """Read a whole number from 1 to MOST_WHOLE; `8k` is 8,192 as in vLLM, 1M is 1,048,576, and 32,768 has a comma."""
    text = re.sub(r"(?<=\d)[_,](?=\d{3}(?:\D|$))|_", "", value.lower())
    if text[-1:] in UNITS and text[:-1].isdecimal() and len(text) <= len(str(MOST_WHOLE)):
        text = str(int(text[:-1]) * UNITS[text[-1]])
    if not text.isascii() or not text.isdecimal() or len(text) > len(str(MOST_WHOLE)):
        return None
    return str(int(text)) if 0 < int(text) <= MOST_WHOLE else None


def _between(least: float, most: float, *, excluded: float | None = None) -> Spelling:
    """Spell a number of a range, without `excluded` (as a limit 0 means off)."""

    def spell(value: str) -> str | None:
        try:
            read = float(value)
        except ValueError:
            return None
        return repr(read) if least <= read <= most and read != excluded else None

    return spell


number, positive = _between(0, 1e12), _between(0, 1e12, excluded=0)
share, portion = _between(0, 1, excluded=1), _between(0, 1, excluded=0)


def switched(value: str) -> bool:
    """Return whether a switch is on: `--bf16`, `--bf16 True`, or followed by the next word."""
    return value == "" or value.lower() not in _NO


def either(table: Mapping[str, str], ending: str = "") -> Spelling:
    """Spell a word by `table` (in lower case), with `ending` after a half precision."""

    def spell(value: str) -> str | None:
        value_of = table.get(value.lower())
        return value_of + ending if value_of in {"bf16", "fp16"} and ending else value_of

    return spell


def when_on(spelt: str) -> Spelling:
    """Spell a switch that is on."""
    return lambda value: spelt if switched(value) else None


ALL_LINEAR = '["all-linear"]'
# The linear layers of the usual decoders by their whole names, which peft matches with a regular expression
# (peft/tuners/tuners_utils.py, check_target_module_exists, 0.21: `re.fullmatch`), and the names before them.
_LINEAR = (*(f"self_attn.{letter}_proj" for letter in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down")))
_STEMS = ("model.layers", "model.language_model.layers", "language_model.model.layers", "layers")
_SOME_LAYERS = (0, 1, 12)
_REGEX = re.compile(r"[\\(|\[^$*]")
# An expression may not repeat a group, nor repeat much, as matching could then take for ever.
_REPEATED_GROUP, _REPEATS = re.compile(r"\)\s*[*+{]"), re.compile(r"[*+{]")
_LONGEST_REGEX, _MOST_REPEATS = 400, 5


def _matched(expression: str) -> str | None:
    """List the layers that a regular expression matches; None if there are none, or if it is not safe to try."""
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
    """List names of layers, separated by commas; `all` and `all-linear` are every linear layer. The layer is the last
    word of a path like `self_attn.q_proj`, which peft compares with the end of each layer's own. A regular expression
    is the layers that it matches.
    """
    if _REGEX.search(value.strip("[]")):
        return _matched(value)
    names = [name.strip("[] '\"").rpartition(".")[2] for name in value.split(",")]
    if {"all", "all-linear", "all_linear"} & {*names}:
        return ALL_LINEAR
    known = [name for name in names if name.replace("_", "").isalnum()]
    return "[" + ", ".join(f'"{name}"' for name in known) + "]" if known else None


def llama_cpp_layers(value: str) -> str | None:
    """Read `-ngl`: more layers than any model has mean all, which is the default too."""
    return value if value.isdecimal() and int(value) < 200 else None


_ADAPTERS: dict[str, tuple[str, Spelling]] = {
    **dict.fromkeys(("lora_r", "lora_rank", "model.lora_rank", "peft.r"), ("run.lora.rank", whole)),
    **dict.fromkeys(("lora_dropout", "model.lora_dropout"), ("run.lora.dropout", share)),
    **dict.fromkeys(("lora_target_modules", "lora_target"), ("run.lora.target_modules", modules)),
    "use_dora": ("run.lora.use_dora", when_on("true")),
    "autocast_adapter_dtype": ("run.lora.autocast_adapter_dtype", either({"true": "true", "false": "false"})),
    "load_in_4bit": ("run.quantization", when_on("nf4")),
    "load_in_8bit": ("run.quantization", when_on("int8")),
    # qlora.py and LLaMA-Factory, which both quantize the scales again by default.
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
    **dict.fromkeys(("use_liger_kernel", "enable_liger_kernel"), ("run.use_liger_kernel", when_on("true"))),
}  # fmt: skip

# Names of the two sizes in people's own scripts, unless a library's option sets them.
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
        "zero_stage": ("parallel.zero_stage", _STAGES.get),
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
        "recompute_granularity": ("run.checkpointing", {"full": "full", "selective": "selective"}.get),
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
        **dict.fromkeys(("fa", "flash_attn"), ("run.attention", {"off": "eager", "0": "eager"}.get)),
        **dict.fromkeys(("ts", "tensor_split"), ("run.tensor_split", str)),
        **dict.fromkeys(("mm", "mmproj"), ("run.mmproj", lambda _value: "true")),
    },
}
# The families that are servers, and their engine in a preset.
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
# Options of launchers that count a job's processes.
LAUNCHED = ("nproc_per_node", "num_processes", "num_gpus")
# Options and keys of files that change no memory on the GPU, by the beginning of their names.
WEIGHTLESS = re.compile(
    r"(?:host|port|api_key|served_model_name|chat_template|tokenizer(?!\.max_seq_len)|trust_remote_code|log|report_to|wandb"
    r"|mlflow|seed|learning_rate|lr|warmup|weight_decay|adam_|max_steps|num_(?:train_)?epochs|epochs|num_epochs|save|output"
    r"|overwrite|dataset|data(?!_parallel)|preprocessing|template|push_to_hub|hub_|resume|do_(?:train|eval)|stage$|eval_s|eval_table"
    r"|evaluation_strategy|lora_alpha|loraplus|max_samples|plot_loss|ddp_timeout|val_size|master_|main_process|main_training"
    r"|machine_rank|rdzv|num_machines|debug|gpu_ids|tpu_|same_network|use_cpu|special_tokens|shuffle|train_on_inputs|group_by"
    r"|strict|download_dir|threads|t$|tool|reasoning|enable_auto_tool|metric_logger|profiler|device$|compute_env|sample_packing|eval_sample_packing|pad_to_sequence_len|packing|dataset|packed|distributed_type|loss_watchdog"
    r"|trackio|field_|hf_token|no_webui|webui|alias|jinja|temp|top_|n_predict|prompt|cache_dir|bnb_4bit_|downcast|optim_args"
    r"|model_type|is_\w+_derived|NCCL|CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER)|VLLM_(?:LOGGING|WORKER|USE_V1|HOST|ATTENTION))",
    re.IGNORECASE,
)
GGUF_QUANTIZATIONS = get_args(Quantization)


def spelled_option(name: str, value: str) -> tuple[str, str] | None:
    """Return the key and value that an option of many programs sets; None for any other option."""
    if name in OWN:
        return OWN[name], value
    option = SHARED.get(name)
    spelt = option[1](value) if option is not None else None
    return (option[0], spelt) if option is not None and spelt is not None else None


def names_of(*keys: str) -> list[str]:
    """The names of scripts' and servers' options that set one of these keys, without those of adapters, whose values
    are spelt differently.
    """
    tables = (SHARED, *(FLAGS[server] for server in SERVERS))
    options = ((name, key) for table in tables for name, (key, _) in table.items() if name not in _ADAPTERS)
    return [name for name, key in (*options, *OWN.items()) if key in keys]


def is_checkpointing_off(name: str, value: str) -> bool:
    """Return whether an option or a file's key switches activation checkpointing off."""
    if name == "disable_gradient_checkpointing":  # LLaMA-Factory's
        return switched(value)
    return SHARED.get(name, ("",))[0] == "run.checkpointing" and not switched(value)


TITLES = {
    "deepspeed": "DeepSpeed",
    "accelerate": "accelerate",
    "axolotl": "axolotl",
    "llamafactory": "LLaMA-Factory",
    "torchtune": "torchtune",
    "trainer": "Trainer",
}
MODEL_KEYS = (
    "model_name_or_path", "base_model", "pretrained_model_name_or_path", "checkpointer.checkpoint_dir", "model",
)  # fmt: skip
FILE_KEYS = ("deepspeed", "deepspeed_config.deepspeed_config_file")

_SHARING = {"full_shard": "3", "1": "3", "shard_grad_op": "2", "2": "2", "true": "3", "false": "2"}


def one_of(table: Mapping[str, str]) -> Spelling:
    """Spell a word by `table`, whatever its case."""
    return lambda value: table.get(value.lower())


def _flat(table: Mapping[str, tuple[str, Spelling]]) -> dict[str, tuple[tuple[str, Spelling], ...]]:
    return {name: (spelling,) for name, spelling in table.items()}


def _zero(name: str) -> dict[str, tuple[tuple[str, Spelling], ...]]:
    """A ZeRO stage; 0 shards nothing."""
    return {name: (("parallel.strategy", dict.fromkeys(_STAGES, "zero").get), ("parallel.zero_stage", _STAGES.get))}


_BATCH: tuple[tuple[str, Spelling], ...] = (("run.batch_size", whole),)
_STEPS: tuple[tuple[str, Spelling], ...] = (("run.gradient_accumulation_steps", whole),)
_NORM: tuple[tuple[str, Spelling], ...] = (("run.max_grad_norm", positive),)
_OFFLOAD: tuple[tuple[str, Spelling], ...] = (("parallel.cpu_offload", one_of({"cpu": "true"})),)
_PARAM_OFFLOAD: tuple[tuple[str, Spelling], ...] = (
    ("parallel.param_offload", one_of({"cpu": "true", "true": "true"})),
)
_CHECKPOINTING: tuple[tuple[str, Spelling], ...] = (("run.checkpointing", when_on("full")),)
_SHARED_BY_FSDP: tuple[tuple[str, Spelling], ...] = (
    ("parallel.strategy", one_of(dict.fromkeys(_SHARING, "fsdp"))),
    ("parallel.zero_stage", one_of(_SHARING)),
)
# Keys that change the memory and are not modelled, with their words; an empty set is any word.
NOT_MODELLED: dict[str, frozenset[str]] = {
    "lora_target_parameters": frozenset(),
    "deepspeed_config.zero3_init_flag": frozenset({"false"}),  # each GPU loads the whole model first
    **dict.fromkeys(("activation_offloading", "enable_activation_offloading"), frozenset({"true", "legacy", "disk"})),
    **dict.fromkeys(("finetuning_type", "peft_config.name"), frozenset({"oft", "freeze"})),
    **dict.fromkeys(("use_badam", "use_galore", "use_apollo", "use_llama_pro", "use_muon"), frozenset({"true"})),
    **dict.fromkeys(("use_kt", "use_onebitllms"), frozenset({"true"})),
    # Axolotl's and LLaMA-Factory's: pairs of answers, a reference model, a reward model.
    "rl": frozenset({"dpo", "ipo", "kto", "kto_pair", "orpo", "simpo", "grpo", "gdpo"}),
    "stage": frozenset({"rm", "ppo", "dpo", "kto"}),
}

KEYS: dict[str, Keys] = {
    "deepspeed": {
        "train_micro_batch_size_per_gpu": _BATCH,
        "gradient_accumulation_steps": _STEPS,
        "gradient_clipping": _NORM,
        "fp16.enabled": (("run.precision", when_on("fp16-master")),),
        "bf16.enabled": (("run.precision", when_on("bf16-master")),),
        "optimizer.type": (("run.optimizer", either(OPTIMIZERS)),),
        **_zero("zero_optimization.stage"),
        "zero_optimization.offload_optimizer.device": _OFFLOAD,
        "zero_optimization.offload_param.device": _PARAM_OFFLOAD,
    },
    "accelerate": {
        "num_processes": (("parallel.data", whole),),
        "mixed_precision": (("run.precision", either(DTYPES, "-mixed")),),
        "gradient_accumulation_steps": _STEPS,
        "deepspeed_config.gradient_accumulation_steps": _STEPS,
        "deepspeed_config.gradient_clipping": _NORM,
        **_zero("deepspeed_config.zero_stage"),
        "deepspeed_config.offload_optimizer_device": _OFFLOAD,
        "deepspeed_config.offload_param_device": _PARAM_OFFLOAD,
        "fsdp_config.fsdp_version": (("parallel.strategy", {"2": "fsdp"}.get),),
        "fsdp_config.fsdp_sharding_strategy": _SHARED_BY_FSDP,
        "fsdp_config.fsdp_reshard_after_forward": _SHARED_BY_FSDP,
        "fsdp_config.fsdp_activation_checkpointing": _CHECKPOINTING,
        "fsdp_config.fsdp_offload_params": _PARAM_OFFLOAD,
    },
    "axolotl": {
        **_flat(SHARED),
        "fp16": (("run.precision", when_on("fp16-mixed")),),
        # The model itself is loaded in it.
        "bf16": (("run.precision", when_on("bf16")),),
        "bfloat16": (("run.precision", when_on("bf16")),),
        # axolotl (002a637c), src/axolotl/loaders/model.py: bnb_4bit_use_double_quant is True with the adapter qlora.
        "adapter": (("run.quantization", one_of({"qlora": "nf4-double"})),),
        "lora_target_linear": (("run.lora.target_modules", when_on(ALL_LINEAR)),),
        "peft_use_dora": (("run.lora.use_dora", when_on("true")),),
        "flash_attention": (("run.attention", when_on("flash")),),
        "sdp_attention": (("run.attention", when_on("flash")),),
        "eager_attention": (("run.attention", when_on("eager")),),
        # As above: from_config is called without a type, so weights are in PyTorch's default one.
        **dict.fromkeys(("random_init", "random_init_weights"), (("run.precision", when_on("bf16-mixed")),)),
        "fsdp": (("parallel.strategy", when_on("fsdp")),),
        "fsdp_version": (("parallel.strategy", {"2": "fsdp"}.get),),
        **dict.fromkeys(("fsdp_config.fsdp_sharding_strategy", "fsdp_config.sharding_strategy"), _SHARED_BY_FSDP),
        "fsdp_config.reshard_after_forward": _SHARED_BY_FSDP,
        **dict.fromkeys(("fsdp_config.fsdp_offload_params", "fsdp_config.offload_params"), _PARAM_OFFLOAD),
        "plugins": (("run.cross_entropy", lambda value: "fused" if "CutCrossEntropyPlugin" in value else None),),
        "liger_rms_norm": (("run.use_liger_kernel", when_on("true")),),
        "liger_fused_linear_cross_entropy": (("run.cross_entropy", when_on("fused")),),
    },
    "llamafactory": {
        **_flat(SHARED),
        "fp16": (("run.precision", when_on("fp16-mixed")),),
        "bf16": (("run.precision", when_on("bf16-mixed")),),
        "pure_bf16": (("run.precision", when_on("bf16")),),
        "lora_target": (("run.lora.target_modules", modules),),
        # Its files of version 1.
        "peft_config.r": (("run.lora.rank", whole),),
        "peft_config.lora_dropout": (("run.lora.dropout", share),),
        "peft_config.target_modules": (("run.lora.target_modules", modules),),
        "dist_config.name": (
            ("parallel.strategy", one_of({"fsdp2": "fsdp"})),
            ("parallel.zero_stage", one_of({"fsdp2": "3"})),
        ),
        "quantization_bit": (("run.quantization", one_of({"4": "nf4", "8": "int8"})),),
        "flash_attn": (("run.attention", one_of({"fa2": "flash", "sdpa": "flash", "disabled": "eager"})),),
    },
    "torchtune": {
        **_flat(FLAGS["torchtune"]),
        "model._component_": (("run.quantization", lambda value: "nf4" if ".qlora_" in value else None),),
        "loss._component_": (
            ("run.cross_entropy", lambda value: "chunked" if re.search("Chunked|LinearCrossEntropy", value) else None),
        ),
        "optimizer_in_bwd": (("run.optimizer_in_backward", when_on("true")),),
        "compile": (("run.compile", when_on("true")),),
        "fsdp_cpu_offload": (*_PARAM_OFFLOAD, ("parallel.strategy", when_on("fsdp"))),
    },
    "trainer": {
        **_flat(FLAGS["trainer"]),
        "fsdp_config.reshard_after_forward": _SHARED_BY_FSDP,
        "fsdp_config.offload_params": _PARAM_OFFLOAD,
        "use_dora": (("run.lora.use_dora", when_on("true")),),
        "optim": (
            ("run.optimizer", either(OPTIMIZERS)),
            ("run.optimizer_implementation", either({"adamw_torch_fused": "fused"})),
        ),
    },
}


def kind_of_file(keys: Mapping[str, object]) -> str | None:
    """Return the kind of a file with these dotted keys; None if no key is known."""
    tops = {key.partition(".")[0] for key in keys}
    signs = (
        ("deepspeed", bool({"zero_optimization", "train_micro_batch_size_per_gpu"} & tops)),
        ("accelerate", bool({"compute_environment", "distributed_type"} & tops)),
        ("axolotl", "base_model" in tops),
        ("llamafactory", bool({"finetuning_type", "cutoff_len"} & tops)),
        ("torchtune", any(key.endswith("._component_") for key in keys)),
        ("trainer", bool(keys.keys() & KEYS["trainer"].keys())),
    )
    return next((kind for kind, seen in signs if seen), None)

"""Which keys of which programs' YAML and JSON files say which key of a preset, and how their values are spelt there.

A kind is a program with a file format of its own: its documentation is where each name comes from. Keys are dotted.
"""

from collections.abc import Mapping
from typing import TypeAlias

from vramtui.presets.importers.flags import (
    ALL_LINEAR,
    DTYPES,
    FLAGS,
    OPTIMIZERS,
    SHARED,
    Spelling,
    either,
    modules,
    positive,
    share,
    when_on,
    whole,
)

Keys: TypeAlias = Mapping[str, tuple[tuple[str, Spelling], ...]]

TITLES = {
    "deepspeed": "DeepSpeed",
    "accelerate": "accelerate",
    "axolotl": "axolotl",
    "llamafactory": "LLaMA-Factory",
    "torchtune": "torchtune",
    "trainer": "Trainer",
}
MODEL_KEYS = (
    "model_name_or_path",
    "base_model",
    "pretrained_model_name_or_path",
    "checkpointer.checkpoint_dir",
    "model",
)
FILE_KEYS = ("deepspeed", "deepspeed_config.deepspeed_config_file")

_STAGES = {"1": "1", "2": "2", "3": "3"}
_SHARING = {"full_shard": "3", "1": "3", "shard_grad_op": "2", "2": "2", "true": "3", "false": "2"}


def one_of(table: Mapping[str, str]) -> Spelling:
    """What `table` has for a word, whatever its case."""
    return lambda value: table.get(value.lower())


def _flat(table: Mapping[str, tuple[str, Spelling]]) -> dict[str, tuple[tuple[str, Spelling], ...]]:
    return {name: (spelling,) for name, spelling in table.items()}


def _zero(name: str) -> dict[str, tuple[tuple[str, Spelling], ...]]:
    """A ZeRO stage; 0 shares nothing."""
    zero = dict.fromkeys(_STAGES, "zero")
    return {name: (("parallel.strategy", one_of(zero)), ("parallel.zero_stage", one_of(_STAGES)))}


_BATCH: tuple[tuple[str, Spelling], ...] = (("run.batch_size", whole),)
_STEPS: tuple[tuple[str, Spelling], ...] = (("run.gradient_accumulation_steps", whole),)
_NORM: tuple[tuple[str, Spelling], ...] = (("run.max_grad_norm", positive),)
_OFFLOAD: tuple[tuple[str, Spelling], ...] = (("parallel.cpu_offload", one_of({"cpu": "true"})),)
_CHECKPOINTING: tuple[tuple[str, Spelling], ...] = (("run.checkpointing", when_on("full")),)
_SHARED_BY_FSDP: tuple[tuple[str, Spelling], ...] = (
    ("parallel.strategy", one_of(dict.fromkeys(_SHARING, "fsdp"))),
    ("parallel.zero_stage", one_of(_SHARING)),
)

_SHARED_BY_NAME: tuple[tuple[str, Spelling], ...] = (
    ("parallel.strategy", one_of({"fsdp2": "fsdp"})),
    ("parallel.zero_stage", one_of({"fsdp2": "3"})),
)

# What changes the memory and is not modelled, by the key that says so and its words; any where none are named.
NOT_MODELLED: dict[str, frozenset[str]] = {
    "lora_target_parameters": frozenset(),
    **dict.fromkeys(("finetuning_type", "peft_config.name"), frozenset({"oft", "freeze"})),
    **dict.fromkeys(("use_badam", "use_galore", "use_apollo", "use_llama_pro", "use_muon"), frozenset({"true"})),
    **dict.fromkeys(("use_kt", "use_onebitllms"), frozenset({"true"})),
    # Axolotl's and LLaMA-Factory's: pairs of answers, a reference model, a reward model beside the policy.
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
    },
    "accelerate": {
        "num_processes": (("parallel.data", whole),),
        "mixed_precision": (("run.precision", either(DTYPES, "-mixed")),),
        "gradient_accumulation_steps": _STEPS,
        "deepspeed_config.gradient_accumulation_steps": _STEPS,
        "deepspeed_config.gradient_clipping": _NORM,
        **_zero("deepspeed_config.zero_stage"),
        "deepspeed_config.offload_optimizer_device": _OFFLOAD,
        "fsdp_config.fsdp_sharding_strategy": _SHARED_BY_FSDP,
        "fsdp_config.fsdp_reshard_after_forward": _SHARED_BY_FSDP,
        "fsdp_config.fsdp_activation_checkpointing": _CHECKPOINTING,
    },
    "axolotl": {
        **_flat(SHARED),
        "fp16": (("run.precision", when_on("fp16-mixed")),),
        # The model itself is loaded in it.
        "bf16": (("run.precision", when_on("bf16")),),
        "bfloat16": (("run.precision", when_on("bf16")),),
        "adapter": (("run.quantization", one_of({"qlora": "nf4"})),),
        "lora_target_linear": (("run.lora.target_modules", when_on(ALL_LINEAR)),),
        "peft_use_dora": (("run.lora.use_dora", when_on("true")),),
        "flash_attention": (("run.attention", when_on("flash")),),
        "sdp_attention": (("run.attention", when_on("flash")),),
        "eager_attention": (("run.attention", when_on("eager")),),
        "fsdp_config.fsdp_sharding_strategy": _SHARED_BY_FSDP,
        "fsdp_config.reshard_after_forward": _SHARED_BY_FSDP,
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
        "dist_config.name": _SHARED_BY_NAME,
        "quantization_bit": (("run.quantization", one_of({"4": "nf4", "8": "int8"})),),
        "flash_attn": (("run.attention", one_of({"fa2": "flash", "sdpa": "flash", "disabled": "eager"})),),
        "enable_liger_kernel": (("run.use_liger_kernel", when_on("true")),),
    },
    "torchtune": {
        **_flat(FLAGS["torchtune"]),
        "model._component_": (("run.quantization", lambda value: "nf4" if ".qlora_" in value else None),),
        "loss._component_": (("run.cross_entropy", lambda value: "chunked" if "Chunked" in value else None),),
    },
    "trainer": {
        **_flat(FLAGS["trainer"]),
        "fsdp_config.reshard_after_forward": _SHARED_BY_FSDP,
        "use_dora": (("run.lora.use_dora", when_on("true")),),
        "optim": (
            ("run.optimizer", either(OPTIMIZERS)),
            ("run.optimizer_implementation", either({"adamw_torch_fused": "fused"})),
        ),
    },
}


def kind_of_file(keys: Mapping[str, object]) -> str | None:
    """Whose file has these dotted keys; None where no key is known."""
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

"""The recorded jobs that save memory: Liger's kernels, bitsandbytes' weights and optimizers, Adafactor.

`benchmarks/emulated_recorded.py` runs them: each row of `tests/golden/savers.json` is a job as plain JSON, a public
decoder cut to six blocks. Needs transformers, peft, liger-kernel and bitsandbytes in the interpreter of the CUDA build.
States that bitsandbytes keeps in managed memory are kept on the host, so that a stubbed driver need not have it; the
memory of PyTorch's allocator is the same.
"""

import contextlib
import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
import transformers
from torch.utils import checkpoint

Job = dict[str, Any]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
OUTLIERS, STEPS = 6.0, 2
# torchtitan keeps these if checkpointing is selective by operators, and every other product of a linear layer.
KEPT = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "max",
)
# Loaded once for all forks; peft and bitsandbytes initialize CUDA, which no fork may inherit.
LOADED = (
    "transformers.generation.utils", "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto", "transformers.integrations.sdpa_attention",
    "transformers.masking_utils", "torch._dynamo",
)  # fmt: skip


def load_libraries() -> None:
    """Import once for all forks what the jobs import."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)


def _model(job: Job) -> Any:  # noqa: ANN401 - many classes
    config = dict(job["config"])
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    made._attn_implementation = "eager" if job["run"].get("attention") == "eager" else "sdpa"  # noqa: SLF001 - the key that from_config sets
    return getattr(transformers, config["architectures"][0])(made)


def _quantized(job: Job) -> Any:  # noqa: ANN401 - many classes
    """A model whose linear layers are bitsandbytes': each is quantized as it comes to the card."""
    nn: Any = import_module("bitsandbytes").nn
    name = job["run"]["quantization"]
    four = {"quant_type": "nf4", "compress_statistics": name == "nf4-double"}

    def replaced(module: torch.nn.Linear) -> Any:  # noqa: ANN401 - bitsandbytes'
        sizes, bias, weight = (module.in_features, module.out_features), module.bias, module.weight.data
        if name == "int8":  # LLM.int8, with transformers' threshold
            new = nn.Linear8bitLt(*sizes, bias=bias is not None, has_fp16_weights=False, threshold=OUTLIERS)
            new.weight = nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
        else:
            new = nn.Linear4bit(*sizes, bias=bias is not None, compute_dtype=torch.bfloat16, **four)
            new.weight = nn.Params4bit(weight, requires_grad=False, **four)
        if bias is not None:
            new.bias = torch.nn.Parameter(bias.data)
        return new

    torch.set_default_dtype(torch.bfloat16)
    model = _model(job)
    torch.set_default_dtype(torch.float32)
    head = model.get_output_embeddings()
    for place, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and module is not head:
            parent, _, last = place.rpartition(".")
            setattr(model.get_submodule(parent), last, replaced(module))
    setattr(model, "is_loaded_in_8bit" if name == "int8" else "is_loaded_in_4bit", True)
    return model.to("cuda")


def _selectively(model: Any) -> None:  # noqa: ANN401 - many classes
    """Checkpoint each block, and keep what torchtitan's keeps (its distributed/activation_checkpoint.py)."""
    aten, policies = torch.ops.aten, checkpoint.CheckpointPolicy
    kept = {getattr(aten, name).default for name in KEPT}

    def contexts() -> Any:  # noqa: ANN401 - two context managers
        products = {True: 0, False: 0}

        def policy(context: Any, function: object, *_: object, **__: object) -> Any:  # noqa: ANN401 - torch's own
            if function is aten.mm.default:
                products[context.is_recompute] += 1
                return policies.MUST_SAVE if products[context.is_recompute] % 2 else policies.PREFER_RECOMPUTE
            return policies.MUST_SAVE if function in kept else policies.PREFER_RECOMPUTE

        return checkpoint.create_selective_checkpoint_contexts(policy)

    def around(own: Callable[..., Any]) -> Callable[..., Any]:
        options: dict[str, Any] = {"use_reentrant": False, "context_fn": contexts, "preserve_rng_state": False}
        return lambda *given, **named: checkpoint.checkpoint(own, *given, **options, **named)

    for layer in model.model.layers:
        layer.forward = around(layer.forward)


def _built(job: Job) -> Any:  # noqa: ANN401 - many classes
    run = job["run"]
    lora, full = run.get("lora"), run.get("checkpointing") == "full"
    kind, _, autocast = run["precision"].partition("-")
    if run.get("quantization"):
        model = _quantized(job)
    else:
        torch.set_default_dtype(torch.float32 if autocast else DTYPES[kind])
        with torch.device("cuda"):
            model = _model(job)
        torch.set_default_dtype(torch.float32)
    model.config.use_cache = False
    if run.get("use_liger_kernel") or run.get("cross_entropy") == "fused":
        apply = getattr(import_module("liger_kernel.transformers"), f"apply_liger_kernel_to_{model.config.model_type}")
        others = dict.fromkeys(("rope", "rms_norm", "swiglu"), bool(run.get("use_liger_kernel")))
        apply(model=model, fused_linear_cross_entropy=True, cross_entropy=False, **others)
    if run.get("checkpointing") == "selective-ops":
        _selectively(model)
    again = {"use_reentrant": False}
    if lora and lora.get("prepare_for_kbit_training"):
        prepare = import_module("peft").prepare_model_for_kbit_training
        model = prepare(model, use_gradient_checkpointing=full, gradient_checkpointing_kwargs=again)
    elif full:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=again)
        model.enable_input_require_grads()
    if not lora:
        return model
    peft = import_module("peft")
    settings = {"target_modules": lora["target_modules"], "lora_dropout": lora["dropout"], "task_type": "CAUSAL_LM"}
    config = peft.LoraConfig(r=lora["rank"], **settings)
    return peft.get_peft_model(model, config, autocast_adapter_dtype=lora.get("autocast_adapter_dtype", True))


def _stepping(name: str, trained: list[Any]) -> Any:  # noqa: ANN401 - optimizers of two libraries
    if name in {"adafactor", "sgd"}:
        return torch.optim.Adafactor(trained) if name == "adafactor" else torch.optim.SGD(trained, 0.1)
    if not name.endswith("bit"):
        return torch.optim.AdamW(trained)
    functional: Any = import_module("bitsandbytes.functional")

    def on_host(*shape: int, dtype: torch.dtype = torch.float32, device: object = None) -> torch.Tensor:  # noqa: ARG001 - as it is called
        made = torch.zeros(*shape, dtype=dtype)
        made.is_paged, made.page_deviceid = True, 0  # type: ignore[attr-defined]  # what bitsandbytes puts there
        return made

    functional.get_paged, functional.prefetch_tensor = on_host, lambda *_, **__: None
    kinds = {"adamw_8bit": "AdamW8bit", "paged_adamw_8bit": "PagedAdamW8bit", "paged_adamw_32bit": "PagedAdamW32bit"}
    return getattr(import_module("bitsandbytes").optim, kinds[name])(trained)


def run(job: Job) -> None:
    """Train two steps; the peak starts after the model is built."""
    # transformers reads from values whether sequences are packed, and a stubbed driver has no values.
    masking: Any = import_module("transformers.masking_utils")
    masking.find_packed_sequence_indices = lambda position_ids: None  # noqa: ARG005 - as it is called
    for name in ("normal_", "uniform_", "kaiming_uniform_"):  # a stubbed driver reads no weights
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    transformers.PreTrainedModel._init_weights = lambda *_: None  # noqa: SLF001 - as above
    model = _built(job)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _stepping(job["run"]["optimizer"], trained)
    kind, _, autocast = job["run"]["precision"].partition("-")
    cast = torch.autocast("cuda", DTYPES[kind]) if autocast else contextlib.nullcontext()
    shape = (job["run"]["batch_size"], job["run"]["sequence_length"])
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(STEPS):
        ids = torch.randint(0, model.config.vocab_size, shape, device="cuda")
        labels = torch.randint(0, 2, shape, device="cuda")
        with cast:
            loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        del loss  # as Trainer hands on a detached one: LLM.int8's inputs live as long as the graph
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

"""Run the jobs of stated_matrix.py under a CUDA build of PyTorch and write down their peaks.

    python benchmarks/stated_run.py [--no-kernels] JOBS.json ANSWERS.json

`--no-kernels` has Triton build none for compiled jobs, whose launches do nothing on a stubbed driver.

Each runs in a fork of one process that has loaded torch and transformers. Needs transformers, peft, bitsandbytes,
torchvision and diffusers beside the CUDA build, with a card or a stubbed driver.
"""

import contextlib
import gc
import json
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
import transformers

from benchmarks.differential_run import in_a_fork
from benchmarks.stated_nets import denoiser_batch

Job = dict[str, Any]
DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
STEPS = 2
TEXT = 77
# Loaded once for all forks; peft, diffusers and bitsandbytes initialize CUDA, which no fork may inherit.
LOADED = (
    "transformers.generation.utils", "transformers.models.llama.modeling_llama",
    "transformers.models.auto.modeling_auto",
    "transformers.integrations.sdpa_attention", "transformers.masking_utils", "torchvision",
    "torch._dynamo", "torch.distributed.fsdp",
)  # fmt: skip


def never_packed() -> None:
    """Say that no sequences are packed, which transformers reads from values; a stubbed driver has none."""
    from transformers import masking_utils  # noqa: PLC0415 - only here

    masking_utils.find_packed_sequence_indices = lambda position_ids: None  # noqa: ARG005 - as it is called


def built(job: Job, dtype: torch.dtype) -> Any:  # noqa: ANN401 - many classes
    """The job's model on the card, as if it had come there whole: what making it took for a moment is forgotten."""
    torch.set_default_dtype(dtype)
    try:
        with torch.device("cuda"):
            model = _model(job)
    finally:
        torch.set_default_dtype(torch.float32)
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return model


def _model(job: Job) -> Any:  # noqa: ANN401 - many classes
    if job["kind"] in {"conv net", "layer list"}:
        with torch.device("cpu"):  # RegNet works its widths out with tensors, and a stubbed driver reads zeros
            return getattr(import_module("torchvision.models"), job["family"])().to("cuda")
    if job["kind"] == "unet":
        return import_module("diffusers").UNet2DConditionModel(**job["config"])
    config = dict(job["config"])
    if job["kind"] == "diffusion transformer":
        model = getattr(import_module("diffusers"), config.pop("_class_name"))(**config)
        return model.to(torch.get_default_dtype())  # as from_pretrained does; SD3's table of positions is made in fp32
    made = transformers.AutoConfig.for_model(config.pop("model_type"), **config)
    made._attn_implementation = "eager" if job["run"].get("attention") == "eager" else "sdpa"  # noqa: SLF001 - the key that from_config sets
    return getattr(transformers, config["architectures"][0])(made)


def batch_of(job: Job, model: Any, dtype: torch.dtype) -> dict[str, Any]:  # noqa: ANN401 - many classes
    """What one step sees."""
    run, config = job["run"], getattr(model, "config", model)
    size, training = run["batch_size"], run["kind"] == "train"
    if job["kind"] == "unet":
        side = config.sample_size
        return {
            "sample": torch.randn(size, 4, side, side, device="cuda", dtype=dtype),
            "timestep": torch.randint(0, 1000, (size,), device="cuda"),
            "encoder_hidden_states": torch.randn(size, TEXT, config.cross_attention_dim, device="cuda", dtype=dtype),
        }
    if job["kind"] == "diffusion transformer":
        return denoiser_batch(config, size, dtype, torch)
    if job["kind"] in {"conv net", "layer list"}:
        return {"x": torch.randn(size, 3, 224, 224, device="cuda", dtype=dtype)}
    if "image_size" in job["config"]:
        side = config.image_size
        batch = {"pixel_values": torch.randn(size, 3, side, side, device="cuda", dtype=dtype)}
        return batch | ({"labels": torch.zeros(size, dtype=torch.long, device="cuda")} if training else {})
    ids = torch.randint(0, config.vocab_size, (size, run["sequence_length"]), device="cuda")
    if not training:
        return {"input_ids": ids}
    wide: tuple[int, ...] = (size, run.get("target_length") or run["sequence_length"])
    if job["config"]["architectures"][0].endswith("SequenceClassification"):
        wide = (size,)
    return {"input_ids": ids, "labels": torch.randint(0, 2, wide, device="cuda")}


def loss_of(job: Job, model: Any, batch: dict[str, Any]) -> torch.Tensor:  # noqa: ANN401 - many classes
    """Forward to the loss."""
    if job["kind"] in {"unet", "diffusion transformer"}:
        noise = torch.randn_like(batch["sample" if job["kind"] == "unet" else "hidden_states"])
        return torch.nn.functional.mse_loss(model(**batch).sample.float(), noise.float())
    if job["kind"] in {"conv net", "layer list"}:
        target = torch.zeros(len(batch["x"]), dtype=torch.long, device="cuda")
        return torch.nn.functional.cross_entropy(model(batch["x"]), target)
    loss: torch.Tensor = model(**batch).loss
    return loss


def adapted(job: Job, model: Any) -> Any:  # noqa: ANN401 - many classes
    """With its adapters; nothing is cast to fp32, as `prepare_model_for_kbit_training` would."""
    peft = import_module("peft")
    lora = job["run"]["lora"]
    names = lora["target_modules"]
    config = peft.LoraConfig(r=lora["rank"], target_modules=names, lora_dropout=lora["dropout"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config, autocast_adapter_dtype=lora.get("autocast_adapter_dtype", True))


def quantized(job: Job) -> Any:  # noqa: ANN401 - many classes
    """A model whose linear layers bitsandbytes keeps in four bits; each is quantised as it comes to the card."""
    bitsandbytes = import_module("bitsandbytes")
    from torch import nn  # noqa: PLC0415 - the other jobs need none

    torch.set_default_dtype(torch.bfloat16)
    model = _model(job)
    torch.set_default_dtype(torch.float32)
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if isinstance(module, nn.Linear) and module is not head:
            new = bitsandbytes.nn.Linear4bit(
                module.in_features,
                module.out_features,
                bias=module.bias is not None,
                compute_dtype=torch.bfloat16,
                compress_statistics=job["run"]["quantization"] == "nf4-double",
                quant_type="nf4",
            )
            new.weight = bitsandbytes.nn.Params4bit(
                module.weight.data,
                requires_grad=False,
                quant_type="nf4",
                compress_statistics=job["run"]["quantization"] == "nf4-double",
            )
            if module.bias is not None:
                new.bias = nn.Parameter(module.bias.data)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new)
    model.is_loaded_in_4bit = True
    return model.to("cuda")


def sharded(job: Job, model: Any) -> Any:  # noqa: ANN401 - many classes
    """The rank's share, with communication that goes nowhere."""
    from torch import distributed  # noqa: PLC0415 - the other jobs need none
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415 - as above

    parallel = job["parallel"]
    distributed.init_process_group("fake", rank=0, world_size=parallel["data"], store=FakeStore())
    if parallel["strategy"] == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0], init_sync=False)
        model.register_comm_hook(None, _summed_by_nobody)
        return model
    from torch.distributed.fsdp import fully_shard  # noqa: PLC0415 - as above

    blocks = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) > 1)
    for block in blocks:
        fully_shard(block)
    return fully_shard(model)


def _summed_by_nobody(
    _state: object,
    bucket: torch.distributed.GradBucket,  # type: ignore[name-defined]  # torch has it without saying so
) -> torch.futures.Future[torch.Tensor]:
    """A bucket as it was: the fake group's own answer is no tensor, which DDP's reducer does not take."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


def stepping(name: str, trained: list[Any]) -> Any:  # noqa: ANN401 - optimizers of two libraries
    """The optimizer called so."""
    if name == "momentum":
        return torch.optim.SGD(trained, 0.1, momentum=0.9)
    if name == "adamw":
        return torch.optim.AdamW(trained)
    return import_module("bitsandbytes").optim.AdamW8bit(trained)  # the paged ones need managed memory of a real driver


def _checkpointed(job: Job, model: Any) -> None:  # noqa: ANN401 - many classes
    if job["kind"] == "diffusion transformer":
        model.enable_gradient_checkpointing()
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})


def train(job: Job) -> None:
    """Two steps."""
    run = job["run"]
    kind, _, autocast = run["precision"].partition("-")
    # Weights beside adapters are loaded in the half type, also under autocast.
    dtype = torch.float32 if autocast and not run.get("lora") else DTYPES[kind]
    model = quantized(job) if run.get("quantization") else built(job, dtype)
    if run.get("checkpointing") == "full":
        _checkpointed(job, model)
    config = getattr(model, "config", None)
    if config is not None and job["kind"] not in {"unet", "diffusion transformer"}:
        config.use_cache = False
    if run.get("lora"):
        if run.get("checkpointing") == "full":
            model.enable_input_require_grads()
        model = adapted(job, model)
    model.train()
    if job.get("parallel"):
        model = sharded(job, model)
    if run.get("compile"):
        model = torch.compile(model)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = stepping(run["optimizer"], trained)
    cast = torch.autocast("cuda", DTYPES[kind]) if autocast else contextlib.nullcontext()
    for _ in range(STEPS):
        for _ in range(run.get("gradient_accumulation_steps", 1)):
            inner = model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model
            batch = batch_of(job, inner, dtype)
            with cast:
                loss = loss_of(job, model, batch)
            loss.backward()
        if run.get("max_grad_norm"):
            torch.nn.utils.clip_grad_norm_(trained, run["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def infer(job: Job) -> None:
    """Generation, or one pass."""
    dtype = DTYPES[job["run"]["precision"]]
    model = built(job, dtype).eval()
    batch, new = batch_of(job, model, dtype), job["run"].get("new_tokens")
    with torch.no_grad():
        if new:
            ends = iter([True] * new + [False])  # whether it goes on is a value that is read, too
            model._has_unfinished_sequences = lambda *_, **__: next(ends)  # noqa: SLF001 - as above
            model.generate(**batch, max_new_tokens=new, min_new_tokens=new, do_sample=False)
        else:
            model(**batch)


def run(job: Job) -> None:
    """The whole job."""
    never_packed()
    (train if job["run"]["kind"] == "train" else infer)(job)


class _NoKernel:
    """In place of what Triton would have built."""

    n_spills = 0

    def run(self, *arguments: object, **named: object) -> None:
        """Launch nothing."""

    def precompile(self, *arguments: object, **named: object) -> None:
        """Nothing to build."""


def build_no_kernels() -> None:
    """Let Inductor write its code and take it without Triton's kernels."""
    compiling = import_module("torch._inductor.async_compile").AsyncCompile
    compiling.triton = lambda *_, **__: _NoKernel()
    compiling.wakeup = compiling.warm_pool = classmethod(lambda _: None)
    for module, settings in (
        ("torch._inductor.config", {"compile_threads": 1, "fx_graph_cache": False}),
        ("torch._functorch.config", {"enable_autograd_cache": False}),
    ):
        for name, value in settings.items():
            setattr(import_module(module), name, value)


def load_libraries() -> None:
    """Import once for all forks what the jobs import."""
    for name in LOADED:
        with contextlib.suppress(ImportError):
            import_module(name)


def main(*arguments: str) -> None:
    """Run what is asked for."""
    if "--no-kernels" in arguments:
        build_no_kernels()
    source, target = (argument for argument in arguments if not argument.startswith("--"))
    load_libraries()
    jobs = json.loads(Path(source).read_text(encoding="utf-8"))
    answers: dict[str, Any] = {}
    if Path(target).exists():
        answers = json.loads(Path(target).read_text(encoding="utf-8"))
    for job in jobs:
        if job["name"] in answers:
            continue
        text = f"from benchmarks.stated_run import run\nrun({job!r})"
        answers[job["name"]] = in_a_fork(job["device"], text, cuda=True)
        print(int(time.process_time()), job["name"], answers[job["name"]], flush=True)
        Path(target).write_text(json.dumps(answers, indent=0), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])

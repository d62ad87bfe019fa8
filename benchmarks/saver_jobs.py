"""Jobs that save memory, on a CUDA build of PyTorch: Liger's kernels, bitsandbytes' weights and optimizers, Adafactor.

    python benchmarks/saver_jobs.py ANSWERS.json          # runs them; each in a fork, as benchmarks/stated_run.py
    python benchmarks/saver_jobs.py --keep ANSWERS.json   # writes those with an answer into tests/golden/savers.json
    python benchmarks/saver_jobs.py                       # the estimates beside what is in that file

A job is plain JSON as in stated_jobs.py. Needs liger-kernel and bitsandbytes beside what stated_run.py needs. States
that bitsandbytes keeps in managed memory are kept on the host, so that a stubbed driver need not have it: what
PyTorch's allocator holds is the same.
"""

import contextlib
import gc
import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.recorded.stated_jobs import DECODERS, Job, shortened

FAMILIES = ("smollm2-135m", "tinyllama-1.1b", "qwen2.5-0.5b")
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
SHAPES: tuple[dict[str, Any], ...] = (
    {"precision": "bf16", "batch_size": 4, "sequence_length": 1024},
    {"precision": "bf16-mixed", "batch_size": 2, "sequence_length": 512},
    {"precision": "fp32", "batch_size": 3, "sequence_length": 384},
)
OUTLIERS, TRAINED_STEPS = 6.0, 2
# What torchtitan keeps where checkpointing is selective by operators, every other product of a linear layer apart.
KEPT = (
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_cudnn_attention",
    "max",
)


def jobs() -> list[Job]:
    """All of them."""
    kinds = (_liger, _adapters, _optimizers, _recomputed)
    return [job for family in FAMILIES for kind in kinds for job in kind(family)]


def _job(name: str, family: str, run: dict[str, Any]) -> Job:
    model_type, architecture, config = DECODERS[family]
    base = {"kind": "train", "precision": "bf16", "optimizer": "adamw", "attention": "flash"}
    return {
        "name": f"{name}: {family}",
        "kind": "savers",
        "family": family,
        "config": {"model_type": model_type, "architectures": [architecture], **shortened(config)},
        "device": "H200",
        "run": base | {"batch_size": 2, "sequence_length": 512} | run,
    }


def _liger(family: str) -> Iterator[Job]:
    for shape in SHAPES:
        yield _job(f"liger loss {shape['precision']}", family, shape | {"cross_entropy": "fused"})
        yield _job(f"liger {shape['precision']}", family, shape | {"use_liger_kernel": True, "optimizer": "sgd"})


def _adapters(family: str) -> Iterator[Job]:
    plain = {"rank": 16, "target_modules": LINEARS, "dropout": 0.05}
    raised = plain | {"prepare_for_kbit_training": True}
    for quantization in ("nf4", "nf4-double", "int8"):
        for again in ("none", "full"):
            run = {"lora": raised, "quantization": quantization, "checkpointing": again}
            yield _job(f"kbit {quantization} {again}", family, run)
    yield _job("int8", family, {"lora": plain, "quantization": "int8"})
    run = {"lora": raised, "quantization": "nf4", "checkpointing": "full", "precision": "bf16-mixed"}
    yield _job("kbit mixed", family, run)
    double = {"lora": plain, "quantization": "nf4-double"}
    yield _job("qlora paged 32", family, double | {"optimizer": "paged_adamw_32bit"})
    single = {"lora": plain, "quantization": "nf4", "checkpointing": "full"}
    yield _job("qlora paged 8", family, single | {"optimizer": "paged_adamw_8bit"})


def _optimizers(family: str) -> Iterator[Job]:
    for name in ("adafactor", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit"):
        for shape in SHAPES:
            yield _job(f"{name} {shape['precision']}", family, shape | {"optimizer": name})


def _recomputed(family: str) -> Iterator[Job]:
    for shape in SHAPES:
        run = shape | {"checkpointing": "selective-ops", "optimizer": "sgd", "use_liger_kernel": True}
        yield _job(f"selective {shape['precision']}", family, run)
        run = shape | {"checkpointing": "selective-ops", "optimizer": "sgd", "sequence_length": 2048}
        yield _job(f"selective long {shape['precision']}", family, run)


def _with_liger(model: Any, *, whole: bool) -> None:  # noqa: ANN401 - many classes
    liger = import_module("liger_kernel.transformers")
    apply = getattr(liger, f"apply_liger_kernel_to_{model.config.model_type}")
    others = dict.fromkeys(("rope", "rms_norm", "swiglu"), whole)
    apply(model=model, fused_linear_cross_entropy=True, cross_entropy=False, **others)


def _in_eight_bits(job: Job) -> Any:  # noqa: ANN401 - many classes
    """A model whose linear layers are LLM.int8's, with the threshold that transformers gives them."""
    import torch  # noqa: PLC0415 - only where jobs run

    from benchmarks import stated_run  # noqa: PLC0415 - as above

    bitsandbytes = import_module("bitsandbytes")
    torch.set_default_dtype(torch.bfloat16)
    model = stated_run._model(job)  # noqa: SLF001 - one bench in two files
    torch.set_default_dtype(torch.float32)
    head = model.get_output_embeddings()
    for name, module in list(model.named_modules()):
        if isinstance(module, torch.nn.Linear) and module is not head:
            sizes, bias = (module.in_features, module.out_features), module.bias
            new = bitsandbytes.nn.Linear8bitLt(
                *sizes, bias=bias is not None, has_fp16_weights=False, threshold=OUTLIERS
            )
            weight = module.weight.data
            new.weight = bitsandbytes.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False)
            if bias is not None:
                new.bias = torch.nn.Parameter(bias.data)
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, new)
    model.is_loaded_in_8bit = True
    return model.to("cuda")


def _selectively(model: Any) -> None:  # noqa: ANN401 - many classes
    """A checkpoint around each block that keeps what torchtitan's keeps (its distributed/activation_checkpoint.py)."""
    import torch  # noqa: PLC0415 - only where jobs run
    from torch.utils import checkpoint  # noqa: PLC0415 - as above

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

    def around(own: Any) -> Any:  # noqa: ANN401 - a module's forward
        options: dict[str, Any] = {"use_reentrant": False, "context_fn": contexts, "preserve_rng_state": False}
        return lambda *given, **named: checkpoint.checkpoint(own, *given, **options, **named)

    for layer in model.model.layers:
        layer.forward = around(layer.forward)


def _built(job: Job) -> Any:  # noqa: ANN401 - many classes
    import torch  # noqa: PLC0415 - only where jobs run

    from benchmarks import stated_run  # noqa: PLC0415 - as above

    run = job["run"]
    lora, full = run.get("lora"), run.get("checkpointing") == "full"
    kind, _, autocast = run["precision"].partition("-")
    if run.get("quantization") == "int8":
        model = _in_eight_bits(job)
    elif run.get("quantization"):
        model = stated_run.quantized(job)
    else:
        model = stated_run.built(job, torch.float32 if autocast else stated_run.DTYPES[kind])
    model.config.use_cache = False
    if run.get("use_liger_kernel") or run.get("cross_entropy") == "fused":
        _with_liger(model, whole=bool(run.get("use_liger_kernel")))
    if run.get("checkpointing") == "selective-ops":
        _selectively(model)
    again = {"use_reentrant": False}
    if lora and lora.get("prepare_for_kbit_training"):
        prepare = import_module("peft").prepare_model_for_kbit_training
        model = prepare(model, use_gradient_checkpointing=full, gradient_checkpointing_kwargs=again)
    elif full:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=again)
        model.enable_input_require_grads()
    return stated_run.adapted(job, model) if lora else model


def _stepping(name: str, trained: list[Any]) -> Any:  # noqa: ANN401 - optimizers of two libraries
    import torch  # noqa: PLC0415 - only where jobs run

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
    """The whole job; what building it took for a moment is forgotten."""
    import torch  # noqa: PLC0415 - only where jobs run

    from benchmarks import stated_run  # noqa: PLC0415 - as above

    stated_run.never_packed()
    for name in ("normal_", "uniform_", "kaiming_uniform_"):  # a stubbed driver reads no weights
        setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)
    transformers = import_module("transformers")
    transformers.PreTrainedModel._init_weights = lambda *_: None  # noqa: SLF001 - as above
    model = _built(job)
    model.train()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = _stepping(job["run"]["optimizer"], trained)
    kind, _, autocast = job["run"]["precision"].partition("-")
    cast = torch.autocast("cuda", stated_run.DTYPES[kind]) if autocast else contextlib.nullcontext()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(TRAINED_STEPS):
        batch = stated_run.batch_of(job, model, stated_run.DTYPES[kind])
        with cast:
            loss = stated_run.loss_of(job, model, batch)
        loss.backward()
        del loss  # as Trainer hands on a detached one: LLM.int8's inputs stand as long as the graph does
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def answer(target: Path) -> None:
    """Run every job that has no answer in the file yet."""
    from benchmarks.differential_run import in_a_fork  # noqa: PLC0415 - only where jobs run
    from benchmarks.stated_run import load_libraries  # noqa: PLC0415 - as above

    load_libraries()
    answers = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    for job in jobs():
        if not isinstance(answers.get(job["name"]), list):
            text = f"from benchmarks.saver_jobs import run\nrun({job!r})"
            answers[job["name"]] = in_a_fork(job["device"], text, cuda=True)
            print(job["name"], answers[job["name"]], flush=True)
            target.write_text(json.dumps(answers, indent=0), encoding="utf-8")


def keep(answers: Path) -> None:
    """Write the jobs with an answer into the golden file."""
    from tests.recorded.savers import GOLDEN  # noqa: PLC0415 - the CUDA build has no vramtui beside it

    found = json.loads(answers.read_text(encoding="utf-8"))
    rows = [
        job | {"allocated": peaks[0], "reserved": peaks[1]}
        for job in jobs()
        if isinstance(peaks := found.get(job["name"]), list)
    ]
    GOLDEN.write_text("[\n" + ",\n".join(map(json.dumps, rows)) + "\n]\n", encoding="utf-8")
    print(f"{len(rows)} jobs in {GOLDEN.name}")


def main(arguments: list[str]) -> None:
    """Print or write what is asked for."""
    if arguments[:1] == ["--keep"]:
        keep(Path(arguments[1]))
    elif arguments:
        answer(Path(arguments[0]))
    else:
        from tests.recorded.savers import compared  # noqa: PLC0415 - the CUDA build has no vramtui beside it

        for name, allocated, reserved in compared():
            print(f"{name:<40}allocated {allocated:+.2%}, reserved {reserved:+.2%}")


if __name__ == "__main__":
    main(sys.argv[1:])

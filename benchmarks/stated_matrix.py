"""Every job that stated errors are measured on, from the models of `stated_jobs.py`."""

from collections.abc import Iterator
from itertools import count
from typing import Any

from benchmarks.stated_more import more_jobs
from benchmarks.stated_nets import net_jobs
from tests.recorded.compiled_jobs import compiled_jobs
from tests.recorded.stated_jobs import (
    ASKED,
    DECODERS,
    DEVICES,
    ENCODER_DECODERS,
    ENCODERS,
    LORA_TARGETS,
    RESNETS,
    TRAININGS,
    UNETS,
    Job,
    shortened,
)

ADAPTED: tuple[dict[str, Any], ...] = (
    {"precision": "bf16", "batch_size": 4, "sequence_length": 512, "checkpointing": "full"},
    {"precision": "bf16-mixed", "batch_size": 2, "sequence_length": 512},
    {"precision": "bf16", "batch_size": 1, "sequence_length": 1024},
)
QUANTIZED = (
    {"quantization": "nf4", "batch_size": 2, "sequence_length": 512, "checkpointing": "full"},
    {"quantization": "nf4-double", "batch_size": 1, "sequence_length": 512},
)
SMALL_STATES: dict[str, Any] = {
    "kind": "train",
    "precision": "bf16",
    "optimizer": "adamw_8bit",
    "attention": "flash",
    "batch_size": 2,
    "sequence_length": 512,
}
SHARDED: tuple[dict[str, Any], ...] = (
    {"data": 8, "strategy": "fsdp", "zero_stage": 3},
    {"data": 4, "strategy": "ddp"},
)
# Of these each size is trained whole; of larger ones only adapters are, so that a bench takes minutes.
LARGEST_TRAINED = 2560


def jobs() -> list[Job]:
    """All of them; a name is never given twice."""
    return [job | {"name": f"{job['kind']}: {job['family']} {number}"} for number, job in zip(count(), _all())]


def _all() -> Iterator[Job]:
    yield from _decoders()
    for kind, table in (("encoder", ENCODERS), ("encoder-decoder", ENCODER_DECODERS)):
        for at, (family, model) in enumerate(table.items()):
            base = _base(kind, family, model, at)
            images = "image_size" in model[2]
            for run in (TRAININGS[at % 4], TRAININGS[(at + 1) % 4], ASKED[at % 2]):
                yield base | {"run": _fitting(run, kind, images=images)}
    for at, family in enumerate(RESNETS):
        for precision, batch in (("fp32", 16), ("bf16-mixed", 32)):
            run = {"kind": "train", "precision": precision, "optimizer": "momentum", "batch_size": batch}
            yield {"kind": "conv net", "family": family, "device": DEVICES[at % 4], "run": run}
    yield from _others()


def _others() -> Iterator[Job]:
    for at, (family, config) in enumerate(UNETS.items()):
        for precision in ("bf16", "bf16-mixed"):
            run = {"kind": "train", "precision": precision, "optimizer": "adamw", "batch_size": 2}
            yield {"kind": "unet", "family": family, "config": config, "device": DEVICES[at % 2], "run": run}
        run = {"kind": "infer", "precision": "bf16", "batch_size": 2}
        yield {"kind": "unet", "family": family, "config": config, "device": DEVICES[at % 2], "run": run}
    yield from compiled_jobs()
    for family in ("smollm2-135m", "pythia-410m", "opt-125m", "qwen2.5-0.5b"):
        yield _base("decoder train", family, DECODERS[family], 0) | {"run": SMALL_STATES}
    yield from net_jobs()
    yield from more_jobs()


def _decoders() -> Iterator[Job]:
    for at, (family, model) in enumerate(DECODERS.items()):
        hidden = model[2].get("hidden_size") or model[2]["n_embd"]
        if hidden < LARGEST_TRAINED:
            for run in (TRAININGS[at % 4], TRAININGS[(at + 1 + at // 4) % 4]):
                yield _base("decoder train", family, model, at) | {"run": {"kind": "train"} | run}
        yield _base("decoder infer", family, model, at) | {"run": {"kind": "infer"} | ASKED[at % 2]}
        targets = LORA_TARGETS.get(model[0])
        if targets is None:
            continue
        lora = {"rank": (8, 16, 64)[at % 3], "target_modules": targets, "dropout": (0.0, 0.05)[at % 2]}
        adapted = {"kind": "train", "optimizer": "adamw", "attention": "flash", "lora": lora}
        yield _base("lora", family, model, at) | {"run": adapted | ADAPTED[at % 3]}
        narrow = {"precision": "bf16", **QUANTIZED[at % 2]}
        yield _base("qlora", family, model, at) | {"device": "H200", "run": adapted | narrow}
        if hidden < LARGEST_TRAINED:
            run = {"kind": "train"} | TRAININGS[(0, 3)[at % 2]] | {"gradient_accumulation_steps": 1}
            run.pop("max_grad_norm", None)
            parallel = SHARDED[at % 2]
            yield _base("multi-gpu", family, model, at) | {"device": "H200", "run": run, "parallel": parallel}


def _base(kind: str, family: str, model: tuple[str, str, dict[str, Any]], at: int) -> Job:
    model_type, architecture, config = model
    whole = {"model_type": model_type, "architectures": [architecture], **shortened(config)}
    return {"kind": kind, "family": family, "config": whole, "device": DEVICES[at % 4]}


def _fitting(run: dict[str, Any], kind: str, *, images: bool) -> dict[str, Any]:
    """A run's sizes for an encoder or an encoder-decoder."""
    asked = "new_tokens" in run
    run = {"kind": "infer" if asked else "train", **run}
    if kind == "encoder":
        run.pop("new_tokens", None)
        run["sequence_length"] = min(run["sequence_length"], 512)
        run["batch_size"] *= 4
    elif not asked:
        run["target_length"] = run["sequence_length"] // 4
    if images:
        del run["sequence_length"]
    return run

"""What vLLM 0.19 wrote at its start on H100s (31 public logs, `tests/golden/serving`), each beside its estimate."""

import csv
from collections.abc import Iterator
from pathlib import Path

import msgspec

from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, Precision, Quantization, ServeRun
from vramtui.estimators.analytic.serving.vllm import Server

LOGS = Path(__file__).parents[1] / "golden" / "serving"
PRECISIONS: dict[str, Precision] = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}
# What the names of formats stand for. How a kernel pads experts in mxfp4 is not in the estimate.
QUANTIZATIONS: tuple[tuple[str, Quantization], ...] = (
    ("mxfp4", "mxfp4"), ("w8a8", "int8"), ("w4a16", "int4"), ("fp8", "fp8"),
)  # fmt: skip
# What also sees holds a tower and pictures that the estimate does not count.
SEEING = ("gemma-3", "Llama-4", "Kimi-VL", "Mistral-Small-3.1")
PARTS = ("weights", "activation", "non_torch", "graphs", "kv_tokens")


class Row(msgspec.Struct, frozen=True):
    """One log: the model, on how many cards, and (estimate, truth) of each part; bytes, but for the tokens."""

    name: str
    counted: bool
    parts: dict[str, tuple[int, int]]


def rows() -> Iterator[Row]:
    models = msgspec.toml.decode((LOGS / "vllm_models.toml").read_bytes(), type=dict[str, TransformerModel])
    with (LOGS / "vllm_h100.csv").open(encoding="utf-8") as file:
        for log in csv.DictReader(line for line in file if not line.startswith("#")):
            yield _row(log, models)


def _row(log: dict[str, str], models: dict[str, TransformerModel]) -> Row:
    name, tensor, pipeline = log["model"], int(log["tp"]), int(log["pp"])
    same = {
        "RedHatAI/Qwen2.5-7B": "Qwen/Qwen2.5-7B-Instruct",
        "RedHatAI/Meta-Llama-3.1-8B": "meta-llama/Llama-3.1-8B-Instruct",
    }
    model = next((models[of] for start, of in same.items() if name.startswith(start)), None) or models[name]
    form = next((kind for word, kind in QUANTIZATIONS if word in (name + log["quantization"]).lower()), None)
    run = ServeRun(
        gpu_memory_utilization=float(log["utilization"]), max_model_len=int(log["context"]),
        precision=PRECISIONS[log["dtype"]], quantization=form, kv_cache="fp8" if log["kv_dtype"] == "fp8" else None,
        graphs_in_share=False, engine_version="0.19.0",
    )  # fmt: skip
    device = msgspec.structs.replace(card("H100"), total_memory=int(float(log["total_gib"]) * GIB))
    server = Server(model, run, device, Parallel(tensor=tensor, pipeline=pipeline))
    first = server.workers[0]
    sizes = {part: fact.bytes for part, fact in first.parts.items()}
    guesses = {
        "weights": sizes["weights"] + sizes["weight tails"] + sizes["expert padding"] + sizes["rotary table"],
        "activation": sizes["profiled batch"] + sizes["workspaces"],
        "non_torch": first.kernels + first.links,
        "graphs": sizes["cuda graphs"],
    }
    parts = {part: (guess, int(float(log[f"{part}_gib"]) * GIB)) for part, guess in guesses.items()}
    parts["kv_tokens"] = (server.room, int(log["kv_tokens"]))
    counted = not any(word in name for word in SEEING) and log["quantization"] != "mxfp4"
    return Row(f"{name} tp{tensor} pp{pipeline} {log['dtype'][6:]}", counted, parts)


def errors(part: str, found: list[Row]) -> list[float]:
    return [guess / truth - 1 for guess, truth in (row.parts[part] for row in found)]

"""Servers: which engine answers for a `serve` run."""

from collections.abc import Callable

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import Model, TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun

HERE = __name__.rpartition(".")[0]
ENGINES: dict[str, Callable[..., Estimate]] = {
    "vllm": late(f"{HERE}.vllm:estimate_vllm"),
    "sglang": late(f"{HERE}.sglang:estimate_sglang"),
    "llama.cpp": late(f"{HERE}.llama_cpp:estimate_llama_cpp"),
}


def estimate_serving(model: Model, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate for a server that holds a model."""
    if not isinstance(model, TransformerModel):
        kind = type(model).__struct_config__.tag
        raise UserError(f"run.kind = 'serve' is for decoders (model.kind = 'transformer'), not for {kind!r}")
    return ENGINES[run.engine](model, run, device, parallel)

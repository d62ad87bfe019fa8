"""Servers: which engine answers for a `serve` run."""

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import Model, TransformerModel
from vramtui.core.schema.parallel import Parallel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.serving.llama_cpp import estimate_llama_cpp
from vramtui.estimators.analytic.serving.sglang import estimate_sglang
from vramtui.estimators.analytic.serving.tensorrt_llm import estimate_tensorrt_llm
from vramtui.estimators.analytic.serving.vllm import estimate_vllm

ENGINES = {
    "vllm": estimate_vllm,
    "sglang": estimate_sglang,
    "tensorrt-llm": estimate_tensorrt_llm,
    "llama.cpp": estimate_llama_cpp,
}


def estimate_serving(model: Model, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate for a server that holds a model.

    Raises:
        UserError: the workload contradicts itself, or does not fit what the server may take.
    """
    if not isinstance(model, TransformerModel):
        kind = type(model).__struct_config__.tag
        raise UserError(f"run.kind = 'serve' is for decoders (model.kind = 'transformer'), not for {kind!r}")
    return ENGINES[run.engine](model, run, device, parallel)

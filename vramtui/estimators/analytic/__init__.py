"""Each part of a job's memory from its shapes: operators followed one by one, microseconds, no torch."""

import sys
from collections.abc import Callable
from functools import lru_cache

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device, check_card, emulation_note
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import (
    DiffusionTransformerModel,
    EncoderDecoderModel,
    PipelineModel,
    TransformerModel,
    UNetModel,
)
from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun, Workload
from vramtui.estimators.analytic.assemble import estimate_forward, with_module_loading
from vramtui.estimators.analytic.models.registry import check_parameters, parameter_count, program_of, runs_as_encoder
from vramtui.estimators.analytic.sizes import runtime
from vramtui.estimators.analytic.sizes.partition import ALONE, check_parallel
from vramtui.estimators.analytic.sizes.runtime import UNFOLLOWED, has_allocator_settings, release_note
from vramtui.estimators.analytic.stated_errors import with_stated_error
from vramtui.estimators.torch_facts.convolutions import is_without_device
from vramtui.models.specs.decoder import decoder_spec, resolve_target_modules

__all__ = ["ANALYTIC", "Analytic", "forget_estimates", "parameter_count", "with_target_modules"]

# Each of these needs modules that the others do not.
Ask = Callable[..., Estimate]
estimate_inference: Ask = late(f"{__name__}.generation:estimate_inference")
estimate_generation: Ask = late(f"{__name__}.generation:estimate_generation")
estimate_sharded: Ask = late(f"{__name__}.parallel:estimate_sharded")
estimate_pipeline: Ask = late(f"{__name__}.pipelines:estimate_pipeline")
estimate_pipeline_training: Ask = late(f"{__name__}.pipelines:estimate_pipeline_training")
_Vllm, _Sglang = late(f"{__name__}.serving.vllm:Server"), late(f"{__name__}.serving.sglang:SglangServer")
_Trainer = late(f"{__name__}.training:Trainer")
ENGINES: dict[str, Ask] = {
    "vllm": lambda *asked: _Vllm(*asked).estimate(),
    "sglang": lambda *asked: _Sglang(*asked).estimate(),
    "llama.cpp": late(f"{__name__}.serving.llama_cpp:estimate_llama_cpp"),
    "ollama": late(f"{__name__}.serving.llama_cpp:estimate_llama_cpp"),
}


LINEAR = "fp8", "int8", "nf4", "nf4-double"  # types of frozen weights; bitsandbytes packs no convolutions
PACKED: dict[type, tuple[str, ...]] = {DiffusionTransformerModel: LINEAR, UNetModel: ("fp8",)}
# Estimates of some ten kilobytes each: a search and what simulates ask for the same one after another.
KEPT = 16


class Analytic:
    """The estimator the screen, the planner and the command line use by default."""

    name = "analytic"

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        """Predict only from the shapes.

        Raises:
            UserError: the workload is contradictory, or of a kind that is not modelled here.
            CannotStartError: the card cannot run it.
        """
        return _answer(workload, device, (*runtime.ASSUMED, is_without_device()))


@lru_cache(maxsize=KEPT)
def _answer(workload: Workload, device: Device, _assumed: tuple[int, int, bool]) -> Estimate:
    """Kept for the release of PyTorch that is assumed if a job names none, and for the workspaces of convolutions."""
    check_card(workload, device)
    workload = with_target_modules(workload)
    estimate = _estimate(workload, device)
    estimate = with_module_loading(estimate, workload.run, device)
    if isinstance(workload.run, TrainRun) and workload.run.compile:
        estimate = msgspec.structs.replace(estimate, assumptions=(COMPILED, *estimate.assumptions))
    estimate = _with_basis(workload.model, estimate) if isinstance(workload.model, TransformerModel) else estimate
    settings = UNFOLLOWED if has_allocator_settings(workload.run) else ""
    notes = (emulation_note(workload, device), *estimate.assumptions, settings, release_note(workload.run))
    estimate = msgspec.structs.replace(estimate, assumptions=tuple(filter(None, notes)))
    return with_stated_error(estimate, workload, device)


def forget_estimates() -> None:
    """Let go of the answers that are kept, and of what was simulated."""
    _answer.cache_clear()
    simulated = sys.modules.get(f"{__name__}.simulated")
    if simulated is not None:
        simulated.PEAKS.clear()


def with_target_modules(workload: Workload) -> Workload:
    """The workload with `target_modules` resolved to the names of the model's layers."""
    model, run = workload.model, workload.run
    if not isinstance(run, TrainRun) or run.lora is None or not isinstance(model, TransformerModel):
        return workload
    named = msgspec.structs.replace(run, lora=resolve_target_modules(decoder_spec(model), run.lora))
    return msgspec.structs.replace(workload, run=named)


COMPILED = (
    "run.compile: the model and its loss in one graph, elementwise operators fused and made again as Inductor and its "
    "partitioner do with their defaults; pieces that dynamo leaves to Python hold more"
)


# The parameters of 147 families of transformers 5.23, read without their family's rules, are off by 0.03 % in the
# median, by 3.4 % or less in four of five and by 30 % or less in nine of ten (their default configs).
GENERIC_ERROR = 0.3


def _with_basis(model: TransformerModel, estimate: Estimate) -> Estimate:
    """Say what of the model was read exactly, and how far the total may be off."""
    if model.basis == "shapes":
        return estimate
    error: float | None
    if model.basis == "family":
        nearest = "encoder" if decoder_spec(model).is_encoder else "decoder"
        note = f"each tensor of the checkpoint is counted; what comes and goes is that of the nearest {nearest}"
        error = estimate.error
    elif decoder_spec(model).is_encoder and not model.caches:
        note = "generic: every tensor is counted, and what comes and goes is a guess: an encoder's of one width"
        error = GENERIC_ERROR
    else:
        note = (
            "generic: its sizes were read from the keys that most configs share, not by its own family's rules; a "
            "tower or a second model that no rule describes is not counted, nor part of the stated error"
        )
        error = GENERIC_ERROR
    return msgspec.structs.replace(estimate, assumptions=(note, *estimate.assumptions), error=error)


def _estimate(workload: Workload, device: Device) -> Estimate:
    model, run, parallel = workload.model, workload.run, workload.parallel or ALONE
    check_parameters(model)
    # Say what is not modelled rather than leave it out of the sum.
    experts = isinstance(model, TransformerModel) and (
        model.num_experts or any("experts_" in group.name for group in model.tensors)
    )
    if run.quantization == "mxfp4" and isinstance(model, TransformerModel) and not experts:
        raise UserError("run.quantization = 'mxfp4' is for experts only, and this model has none")
    asked: dict[str, object] = {}
    packed: tuple[str, ...] = PACKED.get(type(getattr(model, "denoiser", model)), ())
    if isinstance(run, TrainRun) and not isinstance(model, TransformerModel):
        asked |= {
            "run.lora": run.lora and not isinstance(model, (UNetModel, DiffusionTransformerModel, PipelineModel)),
            "run.lora.use_dora": run.lora and run.lora.use_dora,
            "run.quantization": run.quantization and not (run.lora and run.quantization in packed),
            "run.frozen_layers": run.frozen_layers,
            "run.lora.prepare_for_kbit_training": run.lora and run.lora.prepare_for_kbit_training,
            "run.cross_entropy": run.cross_entropy != "full",
            "run.use_liger_kernel": run.use_liger_kernel,
            f"run.checkpointing = {run.checkpointing!r}": run.checkpointing.startswith("selective"),
        }
    if isinstance(run, InferRun) and not isinstance(model, TransformerModel):
        asked |= {
            "run.quantization": run.quantization and not isinstance(model, PipelineModel),
            "run.draft": run.draft,
            f"run.kv_cache = {run.kv_cache!r}": run.kv_cache in {"fp8", "int8", "int4"},
            "run.cache_implementation": run.cache_implementation != "dynamic",
        }
    if not isinstance(run, ServeRun) and not isinstance(model, PipelineModel):
        asked[f"run.offload = {run.offload!r}"] = run.offload not in {None, "none"}
    if isinstance(run, InferRun) and not isinstance(model, PipelineModel):
        asked |= {f"run.{name}": getattr(run, name) for name in ("vae_tiling", "vae_slicing", "encoder_quantization")}
    given = [key for key, value in asked.items() if value]
    if given:
        raise UserError(f"the analytic estimator does not model {given[0]} for this kind of model and run")
    if isinstance(run, ServeRun):
        if not isinstance(model, TransformerModel):
            kind = type(model).__struct_config__.tag
            raise UserError(f"run.kind = 'serve' is for decoders (model.kind = 'transformer'), not for {kind!r}")
        return ENGINES[run.engine](model, run, device, parallel)
    if isinstance(model, PipelineModel):
        check_parallel(model, parallel)
        if isinstance(run, InferRun):
            return estimate_pipeline(model, run, device)
        return estimate_pipeline_training(model, run, device, parallel)
    if isinstance(run, TrainRun) and workload.parallel is not None:
        return estimate_sharded(model, run, device, parallel)
    if isinstance(run, TrainRun):
        trained: Estimate = _Trainer(program_of(model, run, device), run, device).estimate()
        return trained
    if isinstance(model, TransformerModel) and not (parallel.ranks == 1 and runs_as_encoder(model, run)):
        return estimate_inference(model, run, device, parallel)
    check_parallel(model, parallel)
    if isinstance(model, EncoderDecoderModel):
        return estimate_generation(model, run, device)
    return estimate_forward(program_of(model, run, device), run, device)


ANALYTIC = Analytic()

"""Which workloads can be built and traced; no torch here, so that the answer costs nothing."""

from vramtui.core.base.errors import UserError
from vramtui.core.schema.decoder_models import HuggingFaceModel, Model, TorchModel, TransformerModel
from vramtui.core.schema.layer_models import (
    ConvNetModel,
    DropPath,
    Join,
    Layer,
    Mark,
    ModelOutput,
    PatchMerging,
    Permute,
    Regions,
    Repeat,
    Scale,
    SequentialModel,
    Take,
    Upsample,
    WindowAttention,
)
from vramtui.core.schema.workload import InferRun, Run, ServeRun, TrainRun, Workload
from vramtui.estimators.traced.workloads.configs import config_of

PRECISIONS = ("fp32", "tf32", "bf16-mixed", "fp16-mixed", "bf16", "fp16")
OPTIMIZERS = ("sgd", "momentum", "adam", "adamw", "amsgrad", "rmsprop", "adagrad")
BRANCHED = (DropPath, Join, Mark, ModelOutput, PatchMerging, Permute, Regions, Scale, Take, Upsample, WindowAttention)
INSTEAD = "use vramtui trace FILE.py"


def check(workload: Workload) -> None:
    """Refuse what would be traced as something else than it is.

    Raises:
        UserError: a sentence with the key that stands in the way.
    """
    model, run = workload.model, workload.run
    if isinstance(model, TorchModel):
        return
    if workload.parallel is not None and workload.parallel != type(workload.parallel)():
        raise UserError(f"parallel is about several ranks, and a trace follows one process on one card; {INSTEAD}")
    if isinstance(run, ServeRun):
        raise UserError(f"run.kind = 'serve' is an engine of its own, which a trace does not run; {INSTEAD}")
    _check_model(model)
    for key, stands in _in_the_way(model, run).items():
        if stands:
            raise UserError(f"{key} is not traced from a preset; {INSTEAD}")


def _check_layers(layers: tuple[Layer | Repeat, ...]) -> None:
    for layer in layers:
        if isinstance(layer, Repeat):
            _check_layers(layer.layers)
        elif isinstance(layer, BRANCHED):
            kind = type(layer).__struct_config__.tag
            raise UserError(f"model.layers: {kind!r} is not traced from a preset; {INSTEAD}")


def _check_model(model: Model) -> None:
    if isinstance(model, SequentialModel):
        _check_layers(model.layers)
    if isinstance(model, (SequentialModel, ConvNetModel, HuggingFaceModel)):
        return
    if not isinstance(model, TransformerModel):
        kind = type(model).__struct_config__.tag
        raise UserError(f"model.kind = {kind!r} is not traced from a preset; {INSTEAD}")
    if model.implementation == "huggingface":
        config_of(model)
        return
    plain = {
        "model.position": model.position == "learned",
        "model.norm": model.norm == "layernorm" and model.norms_per_layer == 2,
        "model.gated_mlp": not model.gated_mlp,
        "model.fused_qkv": model.fused_qkv,
        "model.num_key_value_heads": model.kv_heads == model.num_attention_heads,
        "model.num_experts": model.num_experts is None,
        "model.sliding_window": model.sliding_window is None,
        "model.parallel_residual": not model.parallel_residual,
        "model.qk_norm": not model.qk_norm,
        "model.hidden_act": model.hidden_act == "gelu",
    }
    other = [key for key, same in plain.items() if not same]
    if other:
        raise UserError(
            f"{other[0]} is not that of the one plain implementation the tracer builds (a GPT-2 as in nanoGPT); "
            f"set model.implementation to 'huggingface', or {INSTEAD}"
        )


def _in_the_way(model: Model, run: Run) -> dict[str, object]:
    """Settings by key, and whether they ask for what is not built here."""
    layers = isinstance(model, (SequentialModel, ConvNetModel))
    asked: dict[str, object] = {f"run.precision = {run.precision!r}": run.precision not in PRECISIONS}
    asked["run.quantization"] = run.quantization
    if isinstance(run, TrainRun):
        asked |= {
            f"run.optimizer = {run.optimizer!r}": run.optimizer not in OPTIMIZERS,
            f"run.checkpointing = {run.checkpointing!r}": run.checkpointing.startswith("selective"),
            f"run.cross_entropy = {run.cross_entropy!r}": run.cross_entropy != "full",
            "run.use_liger_kernel": run.use_liger_kernel,
            "run.frozen_layers": run.frozen_layers,
            "run.lora": run.lora,
        }
    if isinstance(run, InferRun):
        plain = isinstance(model, TransformerModel) and model.implementation == "plain"
        asked |= {
            "run.draft": run.draft,
            "run.kv_cache": run.kv_cache not in {None, run.precision},
            "run.new_tokens": run.new_tokens and (layers or plain),
        }
    return asked

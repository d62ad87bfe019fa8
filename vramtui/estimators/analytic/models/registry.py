"""Which program belongs to which kind of model, and how many parameters each has."""

from collections.abc import Callable
from functools import lru_cache

from vramtui.core.base.errors import UserError
from vramtui.core.base.late import late
from vramtui.core.estimate.devices import Device
from vramtui.core.schema import models as kinds
from vramtui.core.schema.workload import InferRun, TrainRun
from vramtui.estimators.analytic.tape.tape import Program
from vramtui.models.specs.decoder import decoder_spec, model_spec

HERE = __name__.rpartition(".")[0]
_Encoder, _UNet = late(f"{HERE}.encoder:Encoder"), late(f"{HERE}.unet:UNet")
PROGRAMS: dict[type, Callable[..., Program]] = {
    kinds.SequentialModel: late(f"{HERE}.layer_list:layer_list_program"),
    kinds.ConvNetModel: late(f"{HERE}.layer_list:resnet_program"),
    kinds.EncoderModel: lambda *asked: _Encoder(*asked).program(),
    kinds.EncoderDecoderModel: late(f"{HERE}.encoder_decoder:encoder_decoder_program"),
    kinds.UNetModel: lambda *asked: _UNet(*asked).program(),
    kinds.DiffusionTransformerModel: late(f"{HERE}.diffusion_transformers:dit_program"),
}
_decoder = late(f"{HERE}.decoder:decoder_training")
_listed_encoder = late(f"{HERE}.encoder:listed_encoder_program")


def program_of(model: kinds.Model, run: TrainRun | InferRun, device: Device) -> Program:
    """The tensors and passes of `model` under `run`; a decoder that generates has its own, in `inference`."""
    write = PROGRAMS.get(type(model))
    if isinstance(model, kinds.TransformerModel) and runs_as_encoder(model, run):
        write = _listed_encoder
    elif isinstance(model, kinds.TransformerModel) and isinstance(run, TrainRun):
        write = _decoder
    if write is None:
        raise UserError(_unknown(model))
    return write(model, run, device)


def runs_as_encoder(model: kinds.TransformerModel, run: TrainRun | InferRun) -> bool:
    """Return whether a run is followed as an encoder's: it asks for nothing that only decoders have."""
    if not decoder_spec(model).is_encoder or run.quantization is not None:
        return False
    if isinstance(run, InferRun):
        return run.draft is None and not run.new_tokens
    asked = run.lora, run.frozen_layers, run.use_liger_kernel, run.cross_entropy != "full"
    return not any(asked) and not run.checkpointing.startswith("selective")


@lru_cache(maxsize=64)
def parameter_count(model: kinds.Model) -> int:
    """Parameters of the model, tied weights counted once, as model cards count them."""
    spec = model_spec(model)
    if spec is None:
        raise UserError(_unknown(model))
    return spec.parameters()


def _unknown(model: kinds.Model) -> str:
    kind = type(model).__struct_config__.tag
    if isinstance(model, kinds.TorchModel):
        return f"the analytic estimator has no shapes for a model of kind {kind!r}: `vramtui dry-run` runs its code"
    return f"the analytic estimator does not know models of kind {kind!r}; try --method rules"


def check_parameters(model: kinds.Model) -> None:
    given = getattr(model, "parameters", None)
    counted = parameter_count(model) if given is not None else None
    if given != counted:
        raise UserError(
            f"model.parameters = {given:,} but the shapes give {counted:,}; one of the sizes is not the card's"
        )

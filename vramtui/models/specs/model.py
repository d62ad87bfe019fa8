"""Modules of a preset's `[model]` table of any kind; of a diffusion pipeline all of its parts."""

from collections.abc import Callable

import msgspec

from vramtui.core.base.late import late
from vramtui.core.schema.models import (
    ConvNetModel,
    DiffusionTransformerModel,
    EncoderDecoderModel,
    EncoderModel,
    Model,
    PipelineModel,
    Place,
    SequentialModel,
    TensorGroup,
    TransformerModel,
    UNetModel,
)
from vramtui.models.spec import ModelSpec
from vramtui.models.specs.decoder import decoder_spec

HERE = __name__.rpartition(".")[0]
# Of one model one of these is needed.
SPECS: dict[type, Callable[..., ModelSpec]] = {
    TransformerModel: decoder_spec,
    EncoderModel: late(f"{HERE}.encoder:encoder_spec"),
    EncoderDecoderModel: late(f"{HERE}.encoder_decoder:encoder_decoder_spec"),
    UNetModel: late(f"{HERE}.unet:unet_spec"),
    DiffusionTransformerModel: late(f"{HERE}.diffusion_transformer:diffusion_transformer_spec"),
    SequentialModel: late(f"{HERE}.layer_list:layer_list_spec"),
    ConvNetModel: late(f"{HERE}.layer_list:residual_net_spec"),
}


def model_spec(model: Model) -> ModelSpec | None:
    """Modules of a model; None if only a dry run knows them."""
    if isinstance(model, PipelineModel):
        return pipeline_spec(model)
    expand = SPECS.get(type(model))
    return None if expand is None else expand(model)


def pipeline_spec(model: PipelineModel) -> ModelSpec:
    """All parts of a pipeline: the modules of what runs at each step, and every tensor one by one."""
    spec = SPECS[type(model.denoiser)](model.denoiser)
    parts = [group for encoder in model.encoders for group in encoder.tensors]
    inner = []
    for tensor in spec.tensors():
        place: Place = "layers" if tensor.layer else "outside"
        count = tensor.count * model.denoisers
        inner.append(TensorGroup(name=tensor.module, shape=tensor.shape, count=count, place=place))
    return msgspec.structs.replace(spec, listed=(*parts, *inner, *model.vae.tensors))

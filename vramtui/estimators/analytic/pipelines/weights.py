"""The weights of a pipeline's parts, tensor by tensor, and what of them is on the card at once."""

from collections.abc import Iterable

import msgspec

from vramtui.core.schema.encoder_models import PipelineEncoder, PipelineVae
from vramtui.core.schema.stored_tensors import TensorGroup
from vramtui.core.schema.workload import Precision
from vramtui.estimators.analytic.sizes.precision import BlockBytes, block_bytes
from vramtui.models.spec import Parameter

FP32 = 32


class PartWeights(msgspec.Struct, frozen=True, kw_only=True):
    """One part's weights.

    Attributes:
        name: of its folder.
        numbers: in all of them.
        blocks: what they take together.
        largest: bytes of the largest tensor, which is on the card alone where layers come one by one.
    """

    name: str
    numbers: int
    blocks: BlockBytes
    largest: int


def encoder_tensors(encoder: PipelineEncoder, precision: Precision) -> tuple[Parameter, ...]:
    """The tensors of an encoder; in a pipeline of fp16 some stay in fp32."""
    raised = encoder.fp32_in_fp16 if precision.startswith("fp16") else ()
    return tuple(_parameter(encoder.name, group, FP32 if group.name in raised else None) for group in encoder.tensors)


def vae_tensors(vae: PipelineVae) -> tuple[Parameter, ...]:
    """Every tensor of the VAE, in fp32 where it is kept so."""
    return tuple(_parameter("vae", group, FP32 if vae.fp32 else None) for group in vae.tensors)


def part_weights(name: str, tensors: Iterable[Parameter], itemsize: int) -> PartWeights:
    """What `tensors` come to at `itemsize` bytes a number."""
    parameters = tuple(tensors)
    sizes = [t.numel * itemsize if t.bits is None else t.numel * t.bits // 8 for t in parameters]
    return PartWeights(
        name=name,
        numbers=sum(t.numel * t.count for t in parameters),
        blocks=block_bytes(parameters, itemsize),
        largest=max(sizes, default=0),
    )


def _parameter(part: str, group: TensorGroup, bits: int | None) -> Parameter:
    return Parameter(f"{part}.{group.name}", group.shape, group.count, False, bits or group.bits)

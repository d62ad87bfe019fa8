"""A served model's weights: in their own types, and what a quantisation leaves alone."""

import msgspec

from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.serving.parts import ServingPart
from vramtui.estimators.analytic.sizes.parameters import Parameter
from vramtui.estimators.analytic.sizes.partition import Share, share_tensors
from vramtui.estimators.analytic.sizes.precision import Recipe
from vramtui.estimators.analytic.sizes.quantization import quantized, quantizes, words_for
from vramtui.estimators.analytic.sizes.tensor_bytes import BlockBytes, held


class ServedWeights(msgspec.Struct, frozen=True):
    """Bytes of one rank's tensors, and how they are kept in words."""

    held: BlockBytes
    words: str


def weights_of(share: Share, run: ServeRun, recipe: Recipe) -> ServedWeights:
    """The weights that one rank loads."""
    tensors = share_tensors(share)
    count = sum(tensor.numel * tensor.count for tensor in tensors)
    if run.quantization is None:
        return ServedWeights(held(tensors, recipe.frozen), f"{count:,} parameters x {recipe.frozen} B")
    packed = quantized(tensors, recipe.frozen, run.quantization, share.model.num_hidden_layers)
    words = f"{count:,} parameters, {run.quantization}: {words_for(run.quantization)}"
    left = sorted({tensor.module for tensor in tensors if _stays(tensor, run)})
    return ServedWeights(packed, f"{words}; {', '.join(left)} stay as they are" if left else words)


def weight_pieces(weights: ServedWeights) -> list[ServingPart]:
    """The weights as parts: the tensors, and what their segments hold beyond them."""
    return [
        ServingPart(
            name="weights",
            line="weights",
            bytes=weights.held.bytes,
            formula=weights.words,
            source="the model's shapes",
            count=weights.held.count,
        ),
        ServingPart(
            name="weight tails",
            line="weights",
            bytes=weights.held.tails,
            formula="what tensors of 10 MiB and more hold beyond their size",
            source="PyTorch, c10/cuda/CUDACachingAllocator.cpp",
        ),
    ]


def _stays(tensor: Parameter, run: ServeRun) -> bool:
    return run.quantization is not None and not quantizes(tensor, run.quantization)

"""A served model's weights: in their own types, and what a quantisation leaves alone."""

from collections.abc import Iterable

import msgspec

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.serving.parts import ServingPart
from vramtui.estimators.analytic.sizes.parameters import Parameter
from vramtui.estimators.analytic.sizes.partition import Share, share_tensors
from vramtui.estimators.analytic.sizes.precision import Recipe
from vramtui.estimators.analytic.sizes.quantization import EVERYTHING, quantized, quantizes, words_for
from vramtui.estimators.analytic.sizes.tensor_bytes import BlockBytes, held

# vLLM keeps these as one tensor each: QKVParallelLinear and MergedColumnParallelLinear
# (vllm/model_executor/layers/linear.py, 0.19).
MERGED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)


class ServedWeights(msgspec.Struct, frozen=True):
    """Bytes of one rank's tensors, and how they are kept in words."""

    held: BlockBytes
    words: str


def weights_of(share: Share, run: ServeRun, recipe: Recipe) -> ServedWeights:
    """The weights that one rank loads."""
    tensors = share_tensors(share) if run.quantization in EVERYTHING else merged(share_tensors(share), share.model)
    count = sum(tensor.numel * tensor.count for tensor in tensors)
    if run.quantization is None:
        return ServedWeights(held(tensors, recipe.frozen), f"{count:,} parameters x {recipe.frozen} B")
    packed = quantized(tensors, recipe.frozen, run.quantization, share.model.num_hidden_layers)
    words = f"{count:,} parameters, {run.quantization}: {words_for(run.quantization)}"
    left = sorted({tensor.module for tensor in tensors if _stays(tensor, run)})
    return ServedWeights(packed, f"{words}; {', '.join(left)} stay as they are" if left else words)


def merged(tensors: Iterable[Parameter], model: TransformerModel) -> tuple[Parameter, ...]:
    """`tensors` with those laid together that vLLM keeps as one: their rows add up."""
    found: dict[tuple[object, ...], Parameter] = {}
    for tensor in tensors:
        module = MERGED.get(tensor.module, tensor.module)
        if module == tensor.module or not tensor.layer or (module == "gate_up_proj" and not model.gated_mlp):
            found[(len(found),)] = tensor
            continue
        key = (module, tensor.shape[1:], tensor.count)
        rows = tensor.shape[0] + (found[key].shape[0] if key in found else 0)
        found[key] = msgspec.structs.replace(tensor, module=module, shape=(rows, *tensor.shape[1:]))
    return tuple(found.values())


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

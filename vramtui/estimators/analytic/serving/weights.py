"""A served model's weights: in their own types, and what a quantisation leaves alone."""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.sizes.partition import Share, share_tensors
from vramtui.estimators.analytic.sizes.precision import BlockBytes, Recipe, block_bytes
from vramtui.estimators.analytic.sizes.quantization import EVERYTHING, quantized, quantizes, words_for
from vramtui.models.spec import Parameter

# vLLM keeps these as one tensor each: QKVParallelLinear and MergedColumnParallelLinear
# (vllm/model_executor/layers/linear.py, 0.19).
MERGED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)


OFFLOADED = "vLLM, vllm/model_executor/offloader/uva.py, _maybe_offload_to_cpu (0.19)"


class ServedWeights(msgspec.Struct, frozen=True):
    """Bytes of one rank's tensors on the card, and how they are kept in words.

    Attributes:
        offloaded: bytes of tensors in host memory.
    """

    blocks: BlockBytes
    words: str
    offloaded: int = 0


def weights_of(share: Share, run: ServeRun, recipe: Recipe) -> ServedWeights:
    """The weights that one rank loads."""
    tensors = share_tensors(share) if run.quantization in EVERYTHING else merged(share_tensors(share), share.model)
    count = sum(tensor.numel * tensor.count for tensor in tensors)
    layers = share.model.num_hidden_layers

    def bytes_of(some: Iterable[Parameter]) -> BlockBytes:
        if run.quantization is None:
            return block_bytes(some, recipe.frozen)
        return quantized(some, recipe.frozen, run.quantization, layers)

    words = f"{count:,} parameters x {recipe.frozen} B"
    if run.quantization is not None:
        left = sorted({tensor.module for tensor in tensors if _stays(tensor, run)})
        words = f"{count:,} parameters, {run.quantization}: {words_for(run.quantization)}"
        words += f"; {', '.join(left)} stay as they are" if left else ""
    whole = bytes_of(tensors)
    if not run.cpu_offload_gb:
        return ServedWeights(whole, words)
    on_card = bytes_of(on_card_beside(tensors, round(run.cpu_offload_gb * GIB), bytes_of))
    offloaded = whole.bytes - on_card.bytes
    return ServedWeights(on_card, f"{words}; {format_bytes(offloaded)} of them in host memory", offloaded)


def on_card_beside(
    tensors: Sequence[Parameter], most: int, bytes_of: Callable[[Iterable[Parameter]], BlockBytes]
) -> tuple[Parameter, ...]:
    """What stays on the card when blocks' tensors go to host memory, one after the other and block by block, until
    `most` bytes are there; the last one may go beyond it.

    Source: `OFFLOADED`.
    """
    sizes = [bytes_of([msgspec.structs.replace(one, count=1)]).bytes if one.layer else 0 for one in tensors]
    gone = [0] * len(tensors)
    offloaded = 0
    for block in range(max((one.count for one in tensors if one.layer), default=0)):
        for place, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
            if offloaded >= most:
                break
            if tensor.layer and block < tensor.count:
                gone[place] += 1
                offloaded += size
    left = (msgspec.structs.replace(one, count=one.count - away) for one, away in zip(tensors, gone, strict=True))
    return tuple(one for one in left if one.count)


def merged(tensors: Iterable[Parameter], model: TransformerModel) -> tuple[Parameter, ...]:
    """`tensors` with those laid together that vLLM keeps as one: their rows add up."""
    parameters: dict[tuple[object, ...], Parameter] = {}
    for tensor in tensors:
        module = MERGED.get(tensor.module, tensor.module)
        if module == tensor.module or not tensor.layer or (module == "gate_up_proj" and not model.gated_mlp):
            parameters[(len(parameters),)] = tensor
            continue
        key = (module, tensor.shape[1:], tensor.count)
        rows = tensor.shape[0] + (parameters[key].shape[0] if key in parameters else 0)
        parameters[key] = msgspec.structs.replace(tensor, module=module, shape=(rows, *tensor.shape[1:]))
    return tuple(parameters.values())


def weight_parts(weights: ServedWeights) -> dict[str, Fact]:
    """The weights as parts: the tensors, and what their segments hold beyond them."""
    return {
        "weights": Fact(
            "weights",
            weights.words,
            "the model's shapes" + (f"; {OFFLOADED}" if weights.offloaded else ""),
            bytes=weights.blocks.bytes,
            count=weights.blocks.count,
        ),
        "weight tails": Fact(
            "weights",
            "what tensors of 10 MiB and more hold beyond their size",
            "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
            bytes=weights.blocks.tails,
        ),
    }


def _stays(tensor: Parameter, run: ServeRun) -> bool:
    return run.quantization is not None and not quantizes(tensor, run.quantization)

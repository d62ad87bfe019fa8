"""A server's pieces: the model's weights in their own types, and from all pieces an Estimate."""

import re
from collections.abc import Collection, Iterable

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, format_bytes
from vramtui.core.estimate.devices import CannotStartError, Device
from vramtui.core.estimate.estimate import CATEGORIES, Category, Estimate, Line, Moment, Phase, ledger_from_parts
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.assemble import ALWAYS, LASTING, Fact, context_part
from vramtui.estimators.analytic.sizes import precision as precisions
from vramtui.estimators.analytic.sizes.partition import Share, nccl_bytes, nccl_part, share_tensors
from vramtui.estimators.torch_facts.allocator_sizes import SEGMENT_ROUNDING
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.models.spec import Parameter

UNIFIED = ("GB10", "Jetson")  # names of GPUs whose memory is the host's begin so
CACHED = Fact(
    "cached", "what the allocator or the server holds beyond these parts", "the caching allocator keeps freed blocks"
)


class TooLargeError(CannotStartError):
    """A server that does not start on the GPU as it is set.

    Args:
        message: why not.
        needed: the least bytes of the process with which it would.
        longest: the longest `max_model_len` with which it starts; None if it starts with none.
    """

    def __init__(self, message: str, needed: int, longest: int | None = None) -> None:
        super().__init__(message)
        self.needed, self.longest = needed, longest


def context_length(model: TransformerModel, run: ServeRun) -> int:
    length = run.max_model_len or model.max_position_embeddings
    if length is None:
        raise UserError("run.max_model_len is missing, and the model gives no max_position_embeddings to take instead")
    if model.position == "learned" and length > (model.max_position_embeddings or 0):
        raise UserError(
            f"run.max_model_len = {length} is longer than model.max_position_embeddings = "
            f"{model.max_position_embeddings}, and learned positions cannot be stretched"
        )
    return length


# vLLM keeps these as one tensor each: QKVParallelLinear and MergedColumnParallelLinear
# (vllm/model_executor/layers/linear.py, 0.19).
MERGED = {"q_proj": "qkv_proj", "k_proj": "qkv_proj", "v_proj": "qkv_proj"} | dict.fromkeys(
    ("gate_proj", "up_proj"), "gate_up_proj"
)
OF_MLP = ("experts_", "shared_", "gate_", "up_", "down_", "router")
OFFLOADED = "vLLM, vllm/model_executor/offloader/uva.py, _maybe_offload_to_cpu (0.19)"


class ServedWeights(msgspec.Struct, frozen=True):
    """One rank's bytes on the card, each tensor's and how many there are, all layers', words, bytes in host memory."""

    blocks: precisions.BlockBytes
    each: tuple[tuple[int, int], ...]
    layers: int
    words: str
    offloaded: int = 0


def weights_of(share: Share, run: ServeRun, recipe: precisions.Recipe) -> ServedWeights:
    """The weights that one rank loads; merged tensors are one each. With `cpu_offload_gb` blocks' tensors go to host
    memory one after the other and block by block, until that many bytes are there (`OFFLOADED`).
    """
    model, packed = share.model, run.quantization
    tensors = share_tensors(share)
    if run.unquantized:
        outer = 2 if "outer" in run.unquantized else 0
        stored: list[Parameter] = []
        for one in tensors:
            in_mlp = one.module.startswith("experts_" if run.unquantized == "all but experts" else OF_MLP)
            plain = 0 if not one.layer else min(outer, one.count) if in_mlp else one.count
            as_is = msgspec.structs.replace(one, count=plain, bits=one.bits or 8 * recipe.frozen)
            stored += [part for part in (as_is, msgspec.structs.replace(one, count=one.count - plain)) if part.count]
        tensors = tuple(stored)
    if packed not in precisions.EVERYTHING:
        parameters: dict[tuple[object, ...], Parameter] = {}
        for tensor in tensors:
            module = MERGED.get(tensor.module, tensor.module)
            if module == tensor.module or not tensor.layer or (module == "gate_up_proj" and not model.gated_mlp):
                parameters[(len(parameters),)] = tensor
                continue
            key = (module, tensor.shape[1:], tensor.count)
            rows = tensor.shape[0] + (parameters[key].shape[0] if key in parameters else 0)
            parameters[key] = msgspec.structs.replace(tensor, module=module, shape=(rows, *tensor.shape[1:]))
        tensors = tuple(parameters.values())

    def bytes_of(some: Iterable[Parameter]) -> precisions.BlockBytes:
        if packed is None:
            return precisions.block_bytes(some, recipe.frozen)
        return precisions.quantized(some, recipe.frozen, packed, model.num_hidden_layers)

    count = sum(tensor.numel * tensor.count for tensor in tensors)
    words = f"{count:,} parameters x {recipe.frozen} B"
    if packed is not None:
        left = sorted({tensor.module for tensor in tensors if not precisions.quantizes(tensor, packed)})
        words = f"{count:,} parameters, {packed}: {precisions.words_for(packed)}"
        words += f"; {', '.join(left)} stay as they are" if left else ""
    whole = bytes_of(tensors)
    sizes = [bytes_of([msgspec.structs.replace(one, count=1)]).bytes for one in tensors]
    each = tuple((size, one.count) for one, size in zip(tensors, sizes, strict=True))
    layers = sum(
        size * one.count for one, size in zip(tensors, sizes, strict=True) if one.layer and "." not in one.module
    )
    if not run.cpu_offload_gb:
        return ServedWeights(whole, each, layers, words)
    most = round(run.cpu_offload_gb * GIB)
    gone, away = [0] * len(tensors), 0
    for block in range(max((one.count for one in tensors if one.layer), default=0)):
        for place, (tensor, size) in enumerate(zip(tensors, sizes, strict=True)):
            if away < most and tensor.layer and block < tensor.count:
                gone[place] += 1
                away += size
    on_rank = (msgspec.structs.replace(one, count=one.count - many) for one, many in zip(tensors, gone, strict=True))
    on_card = bytes_of([one for one in on_rank if one.count])
    offloaded = whole.bytes - on_card.bytes
    return ServedWeights(on_card, each, layers, f"{words}; {format_bytes(offloaded)} of them in host memory", offloaded)


def weight_parts(weights: ServedWeights, rotary: int = 0) -> dict[str, Fact]:
    """The parts of weights, and sines and cosines of every position, one table for all layers."""
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
        "rotary table": Fact(
            "weights", "sines and cosines of each position", "the engine's layers", bytes=rotary, count=1
        ),
    }


def engine_release(run: ServeRun, engine: str, example: str) -> tuple[int, ...]:
    release = tuple(map(int, re.findall(r"\d+", run.engine_version or "")[:3]))
    if run.engine_version and not any(release):
        raise UserError(
            f"run.engine_version: {run.engine_version!r} is not a release of {engine}; write it as {example}"
        )
    return release


def refuse_settings_of_others(run: ServeRun, engine: str) -> None:
    names = ("gpu_layers", "tensor_split", "cpu_moe", "no_kv_offload", "mmproj", "attention", "kv_cache_v")
    for name in names:
        if getattr(run, name) != getattr(ServeRun(), name):
            raise UserError(f"run.{name} is llama.cpp's, and not {engine}'s (run.engine)")
    if run.kv_cache not in {None, "fp32", "bf16", "fp16", "fp8"}:
        raise UserError(f"run.kv_cache = {run.kv_cache!r}: {engine} keeps its cache in 16 bits or in fp8")


def served(
    facts: dict[str, Fact],
    device: Device,
    assumptions: tuple[str, ...],
    *,
    reserved: int = 0,
    ranks: int = 1,
    links: int = 0,
) -> Estimate:
    """The estimate: every piece at once is the peak, `reserved` at least; `links` are bytes of ranks besides NCCL's."""
    leaves: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
    for fact in facts.values():
        leaves[fact.line] += fact.bytes  # type: ignore[index] # of a server's facts none is outside the allocator
    allocated = sum(leaves.values())
    reserved = max(reserved, -(-allocated // SEGMENT_ROUNDING) * SEGMENT_ROUNDING)
    context, nccl = cuda_context_bytes(device.capability), nccl_bytes(ranks, device.capability) + links
    ledger = ledger_from_parts(leaves, reserved=reserved, context=context, other=nccl)
    parts = [fact.part(name, fact.bytes) for name, fact in facts.items() if fact.bytes]
    parts += [CACHED.part("cached", reserved - allocated), context_part(device, ALWAYS)]
    if nccl:
        parts.append(nccl_part(ranks, device.capability, links))
    timeline: list[Moment] = []
    phases: tuple[tuple[Phase, Collection[Line]], ...] = (("build", {"weights"}), ("serve", LASTING))
    for phase, lines in phases:
        there = {str(line): size for line, size in leaves.items() if size and line in lines}
        size = sum(there.values())
        peak = size if phase == "build" else allocated
        moment = Moment(phase=phase, step=0, allocated=size, peak_allocated=peak, categories=there)
        timeline.append(msgspec.structs.replace(moment, reserved=reserved, peak_reserved=reserved))
    return Estimate(
        method="analytic",
        parts=tuple(parts),
        ledger=ledger,
        peak_phase="serve",
        timeline=tuple(timeline),
        assumptions=assumptions,
    )

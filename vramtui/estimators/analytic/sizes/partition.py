"""One rank's part of a decoder (of every matrix, its layers, its experts), and NCCL's memory between ranks."""

import msgspec
from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import MIB
from vramtui.core.estimate.estimate import Part
from vramtui.core.schema.models import Model, TransformerModel
from vramtui.core.schema.workload import Parallel
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import check_shapes, decoder_spec

ALONE = Parallel()


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """One rank's part of a decoder: the heads, widths and words of this rank, its place in the pipeline, and its layers
    from `first` to before `stop`; `experts` ranks share each layer's experts.
    """

    model: TransformerModel
    rank: int
    stages: int
    first: int
    stop: int
    experts: int = 1

    @property
    def begins(self) -> bool:
        return self.rank == 0

    @property
    def ends(self) -> bool:
        return self.rank == self.stages - 1

    @property
    def layers(self) -> int:
        return self.stop - self.first


def check_parallel(model: Model, parallel: Parallel) -> None:
    if not isinstance(model, TransformerModel):
        kind = type(model).__struct_config__.tag
        for name in ("tensor", "pipeline", "context", "expert"):
            if (ranks := getattr(parallel, name)) > 1:
                raise UserError(f"parallel.{name} = {ranks}: models of kind {kind!r} are not split so")
        return
    if problem := indivisible(model, parallel.tensor):
        raise UserError(problem)
    if (experts := parallel.expert) > 1:
        if model.num_experts is None:
            raise UserError(f"parallel.expert = {experts}: the model has no experts (model.num_experts)")
        for of, count in (("model.num_experts", model.num_experts), ("parallel.data", parallel.data)):
            if count % experts:
                whose = ", whose ranks share the experts" if of == "parallel.data" else ""
                raise UserError(f"parallel.expert = {experts} does not divide {of} = {count}{whose}")
    virtual = parallel.virtual_pipeline
    stages = parallel.pipeline * virtual
    if stages > model.num_hidden_layers:
        name = "parallel.pipeline" + (" x parallel.virtual_pipeline" if virtual > 1 else "")
        raise UserError(f"{name} = {stages} is more than model.num_hidden_layers = {model.num_hidden_layers}")
    if virtual > 1 and parallel.pipeline == 1:
        raise UserError(f"parallel.virtual_pipeline = {virtual} needs parallel.pipeline above 1")
    if parallel.sequence_parallel and parallel.tensor == 1:
        raise UserError("parallel.sequence_parallel splits over the tensor ranks and needs parallel.tensor above 1")


def indivisible(model: TransformerModel, ranks: int) -> str:
    """Why so many tensor-parallel ranks cannot share the model; empty where they can."""
    widths = {
        "num_attention_heads": model.num_attention_heads,
        "intermediate_size": model.ffn_size,
        "moe_intermediate_size": model.expert_size if model.num_experts else 0,
        "shared_expert_intermediate_size": model.shared_size,
    }
    for name, width in widths.items():
        if width % ranks:
            return f"parallel.tensor = {ranks} does not divide model.{name} = {width}"
    if model.kv_lora_rank is None and model.kv_heads % ranks and ranks % model.kv_heads:
        return f"parallel.tensor = {ranks} and model.num_key_value_heads = {model.kv_heads}: neither divides the other"
    return ""


def _local_model(model: TransformerModel, ranks: int) -> TransformerModel:
    """`model` as each of `ranks` tensor-parallel ranks has it (Shoeybi et al. 2019, arXiv 1909.08053).

    Fewer key and value heads than ranks are held several times; the words are split as well, rounded up. Of listed
    matrices a rank has its rows, rounded up; vectors and latent caches are whole on every rank.
    """
    check_shapes(model)
    if ranks == 1:
        return model
    caches, holders = model.caches, min(ranks, model.kv_heads)  # ranks with keys and values of their own
    if model.kv_lora_rank is None:
        parts = {"per_token": holders, "state": ranks, "state_fp32": ranks}
        each = ({name: -(-getattr(cache, name) // among) for name, among in parts.items()} for cache in caches)
        caches = tuple(replace(cache, **own) for cache, own in zip(caches, each, strict=True))
    return replace(
        model,
        num_attention_heads=model.num_attention_heads // ranks,
        num_key_value_heads=max(1, model.kv_heads // ranks),
        head_dim=model.head_size,
        intermediate_size=model.ffn_size // ranks,
        moe_intermediate_size=model.expert_size // ranks if model.num_experts else None,
        shared_expert_intermediate_size=model.shared_size // ranks or None,
        vocab_size=-(-model.vocab_size // ranks),
        parameters=None,
        tensors=tuple(
            replace(group, shape=(-(-group.shape[0] // among), *group.shape[1:])) if len(group.shape) > 1 else group
            for group in model.tensors
            for among in [holders if group.name in {"k_proj", "v_proj"} else ranks]
        ),
        caches=caches,
    )


def telling_shares(model: TransformerModel, parallel: Parallel, changes: tuple[int, ...] = ()) -> tuple[Share, ...]:
    """The shares among which the fullest is: the first, the last, and those where another kind of layer begins.

    `changes` are layers from which on layers differ. Between these ranks the others hold as much or less, since they
    keep fewer micro-batches. A remainder of the layers goes to the first ranks.
    """
    check_parallel(model, parallel)
    local, stages = _local_model(model, parallel.tensor), parallel.pipeline
    each, more = divmod(model.num_hidden_layers, stages)
    chosen = {0, stages - 1}
    for layer in (model.first_k_dense_replace if model.num_experts else 0, *changes):
        rank = layer // (each + 1) if layer < more * (each + 1) else (layer - more) // each
        chosen |= {min(rank, stages - 1), min(rank + 1, stages - 1)} if layer else set()
    return tuple(
        Share(
            model=local,
            rank=rank,
            stages=stages,
            first=rank * each + min(rank, more),
            stop=(rank + 1) * each + min(rank + 1, more),
            experts=parallel.expert,
        )
        for rank in sorted(chosen)
    )


def share_tensors(share: Share) -> tuple[Parameter, ...]:
    """The parameter tensors of one rank. The last holds a copy of an embedding that is the output layer as well."""
    model, spec = share.model, decoder_spec(share.model)
    tensors = [divided(tensor, share.experts) for tensor in spec.block_tensors(share.first, share.stop)]
    if share.begins:
        tensors = [*spec.tensors_before(), *tensors]
    if share.ends:
        tensors += spec.tensors_after()
        if model.tie_word_embeddings and not share.begins:
            tensors.append(Parameter("lm_head", (model.vocab_size, model.hidden_size)))
    return tuple(tensors)


def divided(tensor: Parameter, experts: int) -> Parameter:
    """The tensor with this rank's experts, where it is one of experts."""
    if experts == 1 or not tensor.module.startswith("experts_"):
        return tensor
    return replace(tensor, shape=(tensor.shape[0] // experts, *tensor.shape[1:]))


def place_of(share: Share) -> str:
    if share.stages == 1:
        return "every rank alike"
    here = f"pipeline rank {share.rank} of {share.stages} (layers {share.first}–{share.stop - 1}"
    return here + (", embeddings" if share.begins else "") + (", output layer" if share.ends else "") + ")"


def part_of(share: Share) -> TransformerModel:
    """The share as a decoder of its own: its layers, and an output layer that is not tied to an absent embedding."""
    model = share.model
    if share.stages == 1:
        return model
    return replace(
        model,
        num_hidden_layers=share.layers,
        first_k_dense_replace=min(max(model.first_k_dense_replace - share.first, 0), share.layers),
        tie_word_embeddings=False,
        parameters=None,
    )


# NVML's figure after the first collective less the figure before: 1.0 GiB on H100s (vLLM 0.19 with 2 and 4 tensor
# ranks, before the model is loaded), 1.45 GiB on an A100 (torch.distributed, before and after a barrier, which also
# loads kernels). Communicators after the first share its buffers' sizes but open fewer channels.
COMMUNICATORS, SPREAD = 1024 * MIB, 500 * MIB
MEASURED_ON = {(8, 0), (9, 0), (10, 0)}  # GPUs with NVSwitch; on the last it is taken as on the second
# Of it, where each communicator is counted by itself, on H100s: one of a single rank takes 494 MiB besides its streams
# (tests/golden/card/context_steps.json), and vLLM 0.19's logs say 0.48 GiB where experts have one of their own. With
# pipeline stages, which have one among two ranks, they say 0.92 GiB for it, its streams and NCCL's kernels.
FIRST_COMMUNICATOR, FURTHER_COMMUNICATOR = 780 * MIB, 490 * MIB
# Elsewhere vLLM says 0.20 to 0.39 GiB for all that lies outside torch, from before the communicators to after the first
# pass: 2 V100 (vllm#11251), 16 RTX 3090 (#14447), 2 RTX 4090 (#13061), 2 RTX 5090 (#14452).
ELSEWHERE, SPREAD_ELSEWHERE = 128 * MIB, 100 * MIB


def nccl_bytes(ranks: int, capability: tuple[int, int]) -> int:
    return 0 if ranks == 1 else COMMUNICATORS if capability in MEASURED_ON else ELSEWHERE


def nccl_spread(capability: tuple[int, int]) -> int:
    """How far NCCL was seen to differ from that, in bytes."""
    return SPREAD if capability in MEASURED_ON else SPREAD_ELSEWHERE


def communicator_bytes(capability: tuple[int, int]) -> tuple[int, int]:
    """Bytes of a process's first communicator of several ranks and of each further one: elsewhere in proportion."""
    whole = nccl_bytes(2, capability)
    return FIRST_COMMUNICATOR * whole // COMMUNICATORS, FURTHER_COMMUNICATOR * whole // COMMUNICATORS


def nccl_part(ranks: int, capability: tuple[int, int], more: int = 0) -> Part:
    size = nccl_bytes(ranks, capability) + more
    return Part(
        name="nccl",
        line="other",
        bytes=size,
        at_peak=size,
        formula=f"communicators among {ranks:,} ranks, give or take {nccl_spread(capability) // MIB} MiB"
        + (f", and {more // MIB:,} MiB that the first pass sets up" if more else ""),
        source="NVML before and after the first collective on H100 and A100; elsewhere vLLM's non_torch_memory",
        lifetime="from the first collective to the end",
    )

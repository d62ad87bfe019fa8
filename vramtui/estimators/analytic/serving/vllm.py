"""vLLM: a share of the card, of which weights, a profiled batch and CUDA graphs leave the rest to keys and values."""

from typing import NamedTuple

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.serving.parts import ServingPart, TooLargeError, context_length, served
from vramtui.estimators.analytic.serving.vllm_cache import Pages, pages_of
from vramtui.estimators.analytic.serving.vllm_graphs import SOURCE as GRAPH_SOURCE
from vramtui.estimators.analytic.serving.vllm_graphs import graph_bytes, graphs_captured
from vramtui.estimators.analytic.serving.vllm_profiling import Profiled, ProfiledPass, profiled_batch, tuning_buffer
from vramtui.estimators.analytic.serving.weights import ServedWeights, weight_parts, weights_of
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes
from vramtui.estimators.analytic.sizes.partition import Share, place_of, telling_shares
from vramtui.estimators.analytic.sizes.precision import cache_bits, inference_recipe
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.models.specs.decoder import cache_source, shape_words

# Of the context, what the first pass loads counts against the share; what stood there before it does not: 0.25 GiB on
# H100s, and 0.07 where the ranks have met before the first look, which loads most of it (vLLM 0.19); as shares of the
# 740 MiB that `cards.py` has for them.
LOADED_BY_PASS, LOADED_LATER = 0.346, 0.095
WORKER = "vLLM, vllm/v1/worker/gpu_worker.py, determine_available_memory"
LARGE_CARD = 70 * GIB
# What the first pass of tensor ranks takes outside torch beyond that: 2.06-2.21 GiB on H100s with 2 and 4 ranks
# against 0.07 of pipeline stages (vLLM 0.19). Fitted: buffers of custom and FlashInfer all-reduce are in it, but do not
# account for it.
TENSOR_LINKS = 2040 * MIB
# Sequences at once where nothing is said (vllm/engine/arg_utils.py, get_batch_defaults).
SEQUENCES, SEQUENCES_LARGE = 256, 1024


class VllmWorker(NamedTuple):
    """One rank's pieces, in bytes."""

    share: Share
    weights: ServedWeights
    profiled: Profiled
    rotary: int
    graphs: int
    graphs_in_share: bool
    workspace: int
    kernels: int
    links: int
    pages: Pages

    @property
    def fixed(self) -> int:
        """Everything but keys and values."""
        blocks = self.weights.blocks
        outside = self.kernels + self.links
        graphs = self.graphs if self.graphs_in_share else 0
        return blocks.bytes + blocks.tails + self.rotary + self.profiled.bytes + graphs + self.workspace + outside


class Server:
    """One vLLM server: its share of the card, and the rank with the least room, which decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        _check(run)
        self.run, self.device, self.parallel = run, device, parallel
        self.ranks = parallel.ranks // parallel.data
        self.length = context_length(model, run)
        self.budget = int(device.total_memory * run.gpu_memory_utilization)
        links = TENSOR_LINKS if parallel.tensor > 1 else 0
        shares = telling_shares(model, parallel)
        self.workers = [_worker(share, run, device, links, model.vocab_size) for share in shares]
        self.worker = min(self.workers, key=self._room)
        self.blocks = self._room(self.worker)
        self.sequences = sequences_at_once(run, device)

    def _room(self, worker: VllmWorker) -> int:
        """Pages that fit beside everything else."""
        return (self.budget - worker.fixed) // worker.pages.page

    def estimate(self) -> Estimate:
        """What the process holds on the fullest card."""
        self._refuse_small()
        worker = self.worker
        reserved = self.budget - worker.kernels - worker.links + (0 if worker.graphs_in_share else worker.graphs)
        parts, notes = self._parts(), self._notes()
        return served(parts, self.device, notes, reserved=reserved, ranks=self.ranks, links=worker.links)

    def _refuse_small(self) -> None:
        worker, pages, run = self.worker, self.worker.pages, self.run
        if self.blocks >= pages.per_sequence:
            return
        outside = cuda_context_bytes(self.device.capability) - worker.kernels + nccl_bytes(self.ranks)
        needed = worker.fixed + pages.per_sequence * pages.page + outside
        share = (
            f"run.gpu_memory_utilization = {run.gpu_memory_utilization:g} of {self.device.name} is "
            f"{format_bytes(self.budget)}"
        )
        where = f" on {place_of(worker.share)}" if self.parallel.ranks > 1 else ""
        if self.blocks <= 0:
            raise TooLargeError(
                f"{share}, but weights, the profiled batch and CUDA graphs take {format_bytes(worker.fixed)}{where}, "
                "which leaves nothing for keys and values; take more cards "
                "(parallel.tensor), fewer bits (run.quantization) or a larger card",
                needed,
            )
        raise TooLargeError(
            f"{share}, which leaves {format_bytes(self.blocks * pages.page)} for keys and values, but one sequence of "
            f"run.max_model_len = {self.length:,} needs {format_bytes(pages.per_sequence * pages.page)}; the longest "
            f"that fits is {pages.longest(self.blocks):,}",
            needed,
        )

    def _parts(self) -> list[ServingPart]:
        worker = self.worker
        return [
            *weight_parts(worker.weights),
            ServingPart(
                name="rotary table",
                line="weights",
                bytes=worker.rotary,
                formula=f"sines and cosines of {worker.share.model.max_position_embeddings or 0:,} positions",
                source="vLLM, vllm/model_executor/layers/rotary_embedding",
                count=1,
            ),
            self._pool(),
            ServingPart(
                name="profiled batch",
                line="activations",
                bytes=worker.profiled.bytes,
                formula=worker.profiled.formula,
                source="the model's shapes; " + WORKER,
                lifetime="within a pass; set aside for good",
                transient=True,
            ),
            ServingPart(
                name="cuda graphs",
                line="workspaces",
                bytes=worker.graphs,
                formula=f"{graphs_captured(self.sequences)} graphs over {worker.share.layers} layers"
                + ("" if worker.graphs_in_share else ", on top of the share"),
                source=GRAPH_SOURCE,
            ),
            ServingPart(
                name="workspaces",
                line="workspaces",
                bytes=worker.workspace,
                formula=f"{worker.workspace:,} B: one thread multiplies matrices",
                source=WORKSPACE_SOURCE,
                count=1,
            ),
        ]

    def _pool(self) -> ServingPart:
        model, pages, run = self.worker.share.model, self.worker.pages, self.run
        return ServingPart(
            name="kv cache",
            line="kv_cache",
            bytes=self.blocks * pages.page,
            formula=f"the rest: {pages.tokens(self.blocks):,} tokens in {self.blocks:,} pages of {run.block_size}, "
            f"{pages.page:,} B each; {pages.layers} layers x {shape_words(model)} in {run.kv_cache or run.precision}",
            source=cache_source(model) + "; pages: Kwon et al. 2023 (arXiv 2309.06180)",
            count=self.worker.share.layers,
        )

    def _notes(self) -> tuple[str, ...]:
        run, pages, parallel = self.run, self.worker.pages, self.parallel
        whole, share = format_bytes(self.device.total_memory), format_bytes(self.budget)
        taken = (
            f"gpu_memory_utilization takes {run.gpu_memory_utilization:g} of all {whole} of the card, {share}, "
            "whatever else runs there; the CUDA context from before the first pass lies on top"
        )
        at_once = self.blocks / pages.per_sequence
        room = (
            f"room for {pages.tokens(self.blocks):,} tokens of keys and values: {at_once:.2f} sequences of "
            f"{self.length:,} tokens at once, of at most {self.sequences} that run together"
        )
        notes = [taken, room]
        if parallel.ranks > 1:
            notes.append(f"bytes of one card of {parallel.ranks}; the tightest: {place_of(self.worker.share)}")
        if parallel.data > 1:
            notes.append(f"{parallel.data} replicas, each with a pool of its own")
        return tuple(notes)


def estimate_vllm(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate of the rank with the least room for keys and values, which decides for all.

    Raises:
        UserError: the workload contradicts itself.
        TooLargeError: weights, or one sequence of the longest length, do not fit the share.
    """
    return Server(model, run, device, parallel).estimate()


def _check(run: ServeRun) -> None:
    if run.gpu_layers is not None:
        raise UserError("run.gpu_layers is llama.cpp's; vLLM holds every layer on the card (run.engine)")
    if run.kv_cache in {"int8", "int4"}:
        raise UserError(f"run.kv_cache = {run.kv_cache!r}: vLLM keeps its cache in 16 bits or in fp8")


def _worker(share: Share, run: ServeRun, device: Device, links: int, vocabulary: int) -> VllmWorker:
    recipe, length = inference_recipe(run.precision), context_length(share.model, run)
    sequences = sequences_at_once(run, device)
    batch = ProfiledPass(
        tokens=batched_tokens(run, device),
        sequences=sequences,
        itemsize=recipe.compute,
        vocabulary=vocabulary,
        multiprocessors=card_limits(device).multiprocessors,
        tuned=0 if run.enforce_eager else tuning_buffer(device.capability),
        keeps_workspace=run.quantization != "mxfp4",
    )
    loaded = LOADED_LATER if share.stages > 1 or links else LOADED_BY_PASS
    return VllmWorker(
        share=share,
        weights=weights_of(share, run, recipe),
        profiled=profiled_batch(share, batch),
        rotary=rotary_bytes(share.model, recipe.compute),
        graphs=0 if run.enforce_eager else graph_bytes(share, sequences, recipe.compute, device.capability),
        graphs_in_share=run.graphs_in_share,
        workspace=workspace_bytes(device.capability),
        kernels=int(cuda_context_bytes(device.capability) * loaded),
        links=links,
        pages=pages_of(share, cache_bits(run.kv_cache, run.precision), run.block_size, length, batch.tokens),
    )


def rotary_bytes(model: TransformerModel, itemsize: int) -> int:
    """Sines and cosines of every position, one table for all layers."""
    if model.position != "rope" or model.max_position_embeddings is None:
        return 0
    return rounded(model.max_position_embeddings * (model.qk_rope_head_dim or model.head_size) * itemsize)


def batched_tokens(run: ServeRun, device: Device) -> int:
    """Tokens in one pass: vLLM's own default goes by the card, 8192 from 70 GiB on but for the A100, else 2048."""
    if run.max_num_batched_tokens is not None:
        return run.max_num_batched_tokens
    return 8192 if _is_large(device) else 2048


def sequences_at_once(run: ServeRun, device: Device) -> int:
    """Sequences that run together: vLLM's own default goes by the card as the tokens of a pass do."""
    return run.max_num_seqs or (SEQUENCES_LARGE if _is_large(device) else SEQUENCES)


def _is_large(device: Device) -> bool:
    return device.total_memory >= LARGE_CARD and device.capability != (8, 0)

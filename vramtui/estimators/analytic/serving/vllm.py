"""vLLM: a share of the GPU; weights, a profiled batch and CUDA graphs leave the rest of it to keys and values."""

from typing import NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, KIB, MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import largest, search_largest
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving.parts import (
    ServedWeights,
    TooLargeError,
    context_length,
    refuse_settings_of_others,
    served,
    weight_parts,
    weights_of,
)
from vramtui.estimators.analytic.serving.vllm_profiling import L2_CACHE, Profiled, ProfiledPass, profiled_batch
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes
from vramtui.estimators.analytic.sizes.partition import Share, place_of, share_tensors, telling_shares
from vramtui.estimators.analytic.sizes.precision import cache_bits, inference_recipe
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.models.specs.decoder import cache_source, decoder_spec, shape_words


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool is cut: pages of so many bytes for `block` tokens over the layers of one group.

    Attributes:
        layers: layers that have a cache.
        groups: (tokens after which a group's pages are used again, or None; how many groups of that kind).
        length: of one sequence, which holds `per_sequence` pages.
        ahead: tokens that one pass may write before older ones are let go.
    """

    page: int
    block: int
    layers: int
    groups: tuple[tuple[int | None, int], ...]
    length: int
    ahead: int

    @property
    def per_sequence(self) -> int:
        return self._pages(self.length)

    def tokens(self, blocks: int) -> int:
        """Tokens that the pool holds, as vLLM reports them."""
        return blocks // sum(count for _, count in self.groups) * self.block

    def longest(self, blocks: int) -> int:
        """The longest sequence for which `blocks` pages are enough."""
        return largest(self._pages, search_largest(blocks, self.length, most=max(self.length - 1, 1)))

    def _pages(self, length: int) -> int:
        """Pages of a sequence; a sliding group keeps its window, what one pass writes, and one page half used."""
        total = 0
        for window, count in self.groups:
            tokens = length if window is None else min(length, window - 1 + self.ahead)
            pages = -(-tokens // self.block)
            total += count * (pages if window is None else min(pages + 1, -(-length // self.block)))
        return total


def pages_of(share: Share, bits: float, block: int, length: int, ahead: int) -> Pages:
    """Pages for the layers of `share`. If some slide, groups are as large as the smaller kind, the last one padded."""
    kinds = tuple(kind for kind in decoder_spec(share.model).caches(share.first, share.stop) if kind.per_token)
    if not kinds:
        raise UserError(
            "run.kind = 'serve': a model whose layers keep only states has no pages; take run.kind = 'infer'"
        )
    size = min(kind.layers for kind in kinds)
    numbers = max(kind.per_token for kind in kinds)
    return Pages(
        page=int(size * block * numbers * bits / 8),
        block=block,
        layers=sum(kind.layers for kind in kinds),
        groups=tuple((kind.window, -(-kind.layers // size)) for kind in kinds),
        length=length,
        ahead=ahead,
    )


# FlashAttention 3 splits keys and values among so many blocks under full graphs, and a graph holds the fp32 parts of
# the largest batch (vllm/config/attention.py, flash_attn_max_num_splits_for_cuda_graph; v1/attention/backends/
# flash_attn.py). Only Hopper has FlashAttention 3, and that for numbers of 16 bits.
MOST_SPLITS = 32
FLASH_ATTENTION_3, HALF = (9, 0), 2
MOST_CAPTURED = 512
# What the driver keeps of the kernels of one layer in one graph, and what the first capture takes. Fitted, for no
# source says it: the first to Llama 3.1 8B on 1, 2 and 4 pipeline stages (0.91, 0.65, 0.51 GiB on H100s, vLLM 0.19),
# the second to the same runs. Experts launch more kernels, and shared ones have a stream of their own: fitted to
# Mixtral 8x7B and Qwen 3 30B-A3B, and to Qwen 1.5 MoE and DeepSeek V2 Lite.
DENSE_LAYER, ROUTED_LAYER, SHARED_LAYER = 171 * KIB, 220 * KIB, 420 * KIB
FIRST_CAPTURE = 125 * MIB
# GPUs other than Hopper take less: fitted to an A6000 and two pairs of RTX 3090 under vLLM 0.21 (0.27, 0.13, 0.17 GiB).
ELSEWHERE, FIRST_ELSEWHERE = 0.7, 64 * MIB
GRAPH_SOURCE = "attention's buffers: vLLM 0.19, v1/attention/backends/flash_attn.py; the rest fitted to logs of H100s"
SOURCE_ELSEWHERE = "fitted to three logs of vLLM 0.21 on an A6000 and RTX 3090s; take half to twice of it"


def graphs_captured(sequences: int, *, whole: bool = False) -> int:
    """Graphs: of whole passes for batches of up to `sequences`, and in pieces for up to twice as many, as V1 has them.

    Sizes are 1, 2, 4, by eights to 256, and by sixteens beyond (vllm/config/vllm.py, _set_cudagraph_sizes).
    """
    largest = min(2 * sequences, MOST_CAPTURED)
    sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
    return sum((size <= largest and not whole) + (size <= min(sequences, largest)) for size in sizes)


def graph_bytes(share: Share, sequences: int, itemsize: int, capability: tuple[int, int], captured: int) -> int:
    """Bytes of all `captured` graphs of one rank, which computes in numbers of `itemsize` bytes."""
    model = share.model
    layer = DENSE_LAYER if model.num_experts is None else SHARED_LAYER if model.shared_size else ROUTED_LAYER
    if capability != FLASH_ATTENTION_3:
        return int(share.layers * layer * captured * ELSEWHERE) + FIRST_ELSEWHERE
    splits = 0
    if itemsize == HALF and model.kv_lora_rank is None:
        # The fp32 parts of split attention's answers and their sums, of the largest batch that is captured whole.
        splits = MOST_SPLITS * min(sequences, MOST_CAPTURED) * model.num_attention_heads * (model.head_size + 1) * 4
    return share.layers * layer * captured + FIRST_CAPTURE + splits


class VllmRelease(NamedTuple):
    """How vLLM from one release on looks for the room that is left.

    Attributes:
        graphs_in_share: CUDA graphs are taken out of the share.
        from_start: the context counts against the share with what stood there before the model.
        keeps_workspace: experts' buffers are kept from the first pass on, and ranks have met before the first look, so
            that NCCL's buffers do not count against the share.
        is_v0: it profiled one pass of the longest sequence, or of a chunk beyond 32,768 tokens.
    """

    since: tuple[int, int]
    graphs_in_share: bool = False
    from_start: bool = False
    keeps_workspace: bool = False
    is_v0: bool = False


# v1/worker/gpu_worker.py and worker/worker.py of each: 0.7 looks before the ranks meet (pull request 11809), 0.9 asks
# `memory_profiling` (#19312), 0.12 looks after they met and keeps v1/worker/workspace.py, and 0.21 profiles graphs.
RELEASES = (
    VllmRelease((0, 21), graphs_in_share=True, keeps_workspace=True),
    VllmRelease((0, 12), keeps_workspace=True),
    VllmRelease((0, 9)),
    VllmRelease((0, 8), from_start=True),
    VllmRelease((0, 7), is_v0=True),
    VllmRelease((0, 0), from_start=True, is_v0=True),
)
# V0 captures decoding passes only. Tokens of its chunks, made of longer sequences from Ampere on
# (vllm/config.py, SchedulerConfig).
LONG, CHUNK, AMPERE = 32768, 2048, (8, 0)


# Of the context, what the first pass loads counts against the share; what stood there before it does not: 0.25 GiB on
# H100s, and 0.07 where the ranks have met before the first look, which loads most of it (vLLM 0.19); as shares of the
# 740 MiB that `cards.py` has for them.
LOADED_BY_PASS, LOADED_LATER = 0.346, 0.095
PADDED_SOURCE = "vLLM, vllm/model_executor/layers/quantization/mxfp4.py"
WORKER = "vLLM, vllm/v1/worker/gpu_worker.py, determine_available_memory"
LARGE_CARD = 70 * GIB
# What the first pass of tensor ranks takes outside torch beyond that. On H100s with 2 and 4 ranks 2.06 to 2.21 GiB,
# against 0.07 of pipeline stages (31 start-up logs of vLLM 0.19; fitted to them); 0.11 has no more there than elsewhere
# (llm-d#787). Elsewhere `non_torch_memory` is 0.20 on 16 3090s (vllm#14447), 0.25 on two 4090s (#13061) and 0.33 GiB on
# two 5090s (#14452), with 0.05 of it the context.
TENSOR_LINKS_HOPPER, TENSOR_LINKS = 2040 * MIB, 205 * MIB
HOPPER = (9, 0)
# Sequences at once and tokens of a pass where nothing is said, and on GPUs from 70 GiB on that are no A100
# (vllm/engine/arg_utils.py, get_batch_defaults).
SEQUENCES, SEQUENCES_LARGE = 256, 1024
TOKENS, TOKENS_LARGE = 2048, 8192


def padded_experts(share: Share, capability: tuple[int, int], release: VllmRelease) -> int:
    """Bytes that MXFP4 experts take beyond their own size, as the kernels want them padded.

    vllm/model_executor/layers/quantization/mxfp4.py: Marlin pads the experts' width to 128 and the stream's to 256
    (65.97 GiB of gpt-oss-120b, vllm#23278), FlashInfer on Blackwell both to 256. Triton on Hopper swizzles values along
    the products' inner dimension in steps of 256 (64.38 GiB, vllm#33155), which vLLM takes there from 0.11 on.
    """
    model = share.model
    inner, outer, extra = model.expert_size, model.hidden_size, 0.0
    triton = capability == HOPPER and release.since >= (0, 12)
    for tensor in share_tensors(share):
        if not tensor.module.startswith("experts_") or len(tensor.shape) < len(("expert", "rows", "columns")):
            continue
        if triton:
            width = inner if tensor.module == "experts_down_proj" else outer
            extra += tensor.numel * tensor.count / 2 * (_up(width, 256) / width - 1)
        else:
            wide = _up(inner, 256 if capability[0] == 10 else 128) * _up(outer, 256)
            extra += tensor.numel * tensor.count * 4.25 / 8 * (wide / (inner * outer) - 1)
    return int(extra)


def _up(number: int, step: int) -> int:
    return -(-number // step) * step


class VllmWorker(NamedTuple):
    share: Share
    weights: ServedWeights
    padding: int
    rotary: int
    profiled: Profiled
    workspace: int
    graphs: int
    graphs_in_share: bool
    kernels: int
    links: int
    met: int
    pages: Pages

    @property
    def fixed(self) -> int:
        blocks, graphs = self.weights.blocks, self.graphs if self.graphs_in_share else 0
        loaded = blocks.bytes + blocks.tails + self.padding + self.rotary
        return loaded + self.profiled.bytes + self.workspace + graphs + self.kernels + self.links + self.met


class Server:
    """One vLLM server; the rank with the least room decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        refuse_settings_of_others(run, "vLLM")
        self.run, self.device, self.parallel = run, device, parallel
        version = release_of((run.engine_version or "").removeprefix("v"))
        if run.engine_version and version == (0, 0):
            raise UserError(f"run.engine_version: {run.engine_version!r} is not a release of vLLM; write it as 0.19")
        self.release = next(one for one in RELEASES if one.since <= version) if run.engine_version else RELEASES[0]
        self.ranks = parallel.ranks // parallel.data
        self.length = context_length(model, run)
        self.budget = int(device.total_memory * run.gpu_memory_utilization)
        self.large = device.total_memory >= LARGE_CARD and device.capability != (8, 0)
        self.vocabulary = model.vocab_size
        self.tokens, self.sequences = self._batch()
        self.captured = graphs_captured(self.sequences, whole=self.release.is_v0)
        self.workers = [self._worker(share) for share in telling_shares(model, parallel)]
        self.worker = min(self.workers, key=self._room)
        self.blocks = self._room(self.worker)

    def _batch(self) -> tuple[int, int]:
        """Tokens of a pass and sequences that run together; a pass takes no more than so many whole sequences."""
        run, large = self.run, self.large and not self.release.is_v0
        sequences = run.max_num_seqs or (SEQUENCES_LARGE if large else SEQUENCES)
        tokens = run.max_num_batched_tokens or (TOKENS_LARGE if large else TOKENS)
        if self.release.is_v0 and not run.max_num_batched_tokens:
            chunked = self.length > LONG and self.device.capability >= AMPERE
            tokens = CHUNK if chunked else max(self.length, TOKENS)
        if not run.max_num_batched_tokens:
            tokens = min(tokens, sequences * self.length)
        return tokens, sequences

    def _worker(self, share: Share) -> VllmWorker:
        run, device, release = self.run, self.device, self.release
        recipe, model, capability = inference_recipe(run.precision), share.model, device.capability
        rotary = 0  # sines and cosines of every position, one table for all layers
        if model.position == "rope" and model.max_position_embeddings is not None:
            width = model.qk_rope_head_dim or model.head_size
            rotary = rounded(model.max_position_embeddings * width * recipe.compute)
        batch = ProfiledPass(
            tokens=self.tokens,
            sequences=self.sequences,
            itemsize=recipe.compute,
            vocabulary=self.vocabulary,
            multiprocessors=card_limits(device).multiprocessors,
            tuned=0 if run.enforce_eager or release.is_v0 else L2_CACHE.get(capability, min(L2_CACHE.values())) * MIB,
            keeps_workspace=run.quantization != "mxfp4" and release.keeps_workspace,
            old_experts=not release.keeps_workspace,
            sorts=release.is_v0,
        )
        links = met = 0
        if self.parallel.tensor > 1:
            links = TENSOR_LINKS_HOPPER if capability == HOPPER and release.keeps_workspace else TENSOR_LINKS
        if not release.keeps_workspace:
            met = nccl_bytes(self.ranks, capability)
        loaded = 1 if release.from_start else LOADED_LATER if share.stages > 1 or links else LOADED_BY_PASS
        graphs = graph_bytes(share, self.sequences, recipe.compute, capability, self.captured)
        return VllmWorker(
            share=share,
            weights=weights_of(share, run, recipe),
            padding=padded_experts(share, capability, release) if run.quantization == "mxfp4" else 0,
            profiled=profiled_batch(share, batch),
            rotary=rotary,
            graphs=0 if run.enforce_eager else graphs,
            graphs_in_share=release.graphs_in_share if run.graphs_in_share is None else run.graphs_in_share,
            workspace=workspace_bytes(capability),
            kernels=int(cuda_context_bytes(capability) * loaded),
            links=links,
            met=met,
            pages=pages_of(share, cache_bits(run.kv_cache, run.precision), run.block_size, self.length, self.tokens),
        )

    def _room(self, worker: VllmWorker) -> int:
        return (self.budget - worker.fixed) // worker.pages.page

    def estimate(self) -> Estimate:
        worker = self.worker
        if self.blocks < worker.pages.per_sequence:
            raise self._too_small()
        reserved = self.budget - worker.kernels - worker.links - worker.met
        parts, notes = self._parts(), self._notes()
        if self.release.is_v0:
            # Captured where the profiled batch was, which sorts more sequences than the pool has room for.
            more = max(worker.graphs - worker.profiled.bytes, 0)
            parts["cuda graphs"] = msgspec.structs.replace(parts["cuda graphs"], bytes=more)
            reserved += more
        elif not worker.graphs_in_share:
            reserved += worker.graphs
        return served(parts, self.device, notes, reserved=reserved, ranks=self.ranks, links=worker.links)

    def _too_small(self) -> TooLargeError:
        worker, pages, run = self.worker, self.worker.pages, self.run
        nccl = nccl_bytes(self.ranks, self.device.capability)
        outside = cuda_context_bytes(self.device.capability) - worker.kernels + nccl
        needed = worker.fixed + pages.per_sequence * pages.page + outside
        share = (
            f"run.gpu_memory_utilization = {run.gpu_memory_utilization:g} of {self.device.name} is "
            f"{format_bytes(self.budget)}"
        )
        if self.blocks <= 0:
            where = f" on {place_of(worker.share)}" if self.parallel.ranks > 1 else ""
            return TooLargeError(
                f"{share}, but weights, the profiled batch and CUDA graphs take {format_bytes(worker.fixed)}{where}, "
                "which leaves nothing for keys and values; take more cards "
                "(parallel.tensor), fewer bits (run.quantization) or a larger card",
                needed,
            )
        longest = pages.longest(self.blocks)
        return TooLargeError(
            f"{share}, which leaves {format_bytes(self.blocks * pages.page)} for keys and values, but one sequence of "
            f"run.max_model_len = {self.length:,} needs {format_bytes(pages.per_sequence * pages.page)}; the longest "
            f"that fits is {longest:,}",
            needed,
            longest or None,
        )

    def _parts(self) -> dict[str, Fact]:
        worker, run, pages, model = self.worker, self.run, self.worker.pages, self.worker.share.model
        return {
            **weight_parts(worker.weights),
            "expert padding": Fact(
                "weights", "MXFP4 experts as the kernels want them", PADDED_SOURCE, bytes=worker.padding
            ),
            "rotary table": Fact(
                "weights",
                f"sines and cosines of {model.max_position_embeddings or 0:,} positions",
                "vLLM, vllm/model_executor/layers/rotary_embedding",
                bytes=worker.rotary,
                count=1,
            ),
            "kv cache": Fact(
                "kv_cache",
                f"the rest: {pages.tokens(self.blocks):,} tokens in {self.blocks:,} pages of {run.block_size}, "
                f"{pages.page:,} B each; {pages.layers} layers x {shape_words(model)} in "
                f"{run.kv_cache or run.precision}",
                cache_source(model) + "; pages: Kwon et al. 2023 (arXiv 2309.06180)",
                bytes=self.blocks * pages.page,
                count=worker.share.layers,
            ),
            "profiled batch": Fact(
                "activations",
                worker.profiled.formula,
                "the model's shapes; " + WORKER,
                "within a pass; set aside for good",
                bytes=worker.profiled.bytes,
            ),
            "cuda graphs": Fact(
                "workspaces",
                f"{self.captured} graphs over {worker.share.layers} layers"
                + ("" if worker.graphs_in_share else ", on top of the share"),
                GRAPH_SOURCE if self.device.capability == FLASH_ATTENTION_3 else SOURCE_ELSEWHERE,
                bytes=worker.graphs,
            ),
            "workspaces": Fact(
                "workspaces",
                f"{worker.workspace:,} B: one thread multiplies matrices",
                WORKSPACE_SOURCE,
                bytes=worker.workspace,
                count=1,
            ),
        }

    def _notes(self) -> tuple[str, ...]:
        run, worker, pages, parallel = self.run, self.worker, self.worker.pages, self.parallel
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
        if run.engine_version is None:
            newest = ".".join(map(str, RELEASES[0].since))
            notes.append(f"as vLLM {newest} and later; run.engine_version names another (0.6.3, from its log)")
        if worker.padding:
            notes.append("experts are counted as the kernels pad them, not as the file holds them")
        if parallel.ranks > 1:
            notes.append(f"bytes of one card of {parallel.ranks}; the tightest: {place_of(worker.share)}")
        if parallel.data > 1:
            notes.append(f"{parallel.data} replicas, each with a pool of its own")
        return tuple(notes)


def estimate_vllm(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    return Server(model, run, device, parallel).estimate()

"""vLLM: a share of the GPU; weights, a profiled batch and CUDA graphs leave the rest of it to keys and values.

The profiled pass is counted part by part by the code of vLLM 0.19 that allocates it.
"""

from bisect import bisect
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
    TooLargeError,
    context_length,
    refuse_settings_of_others,
    served,
    weight_parts,
    weights_of,
)
from vramtui.estimators.analytic.sizes.partition import Share, nccl_bytes, place_of, share_tensors, telling_shares
from vramtui.estimators.analytic.sizes.precision import GROUP, cache_bits, inference_recipe
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.estimators.torch_facts.releases import release_of
from vramtui.models.spec import MlaModule
from vramtui.models.specs.decoder import attention_of, cache_source, decoder_spec, shape_words

# fp32 copies of the logits at once (v1/sample/sampler.py, v1/sample/ops/topk_topp_sampler.py): the logits that are
# sampled from, their probabilities, and the exponential noise that these are divided by. The logits as computed live
# on next to them (v1/worker/gpu_model_runner.py, _dummy_sampler_run).
# V0 sorted them all: logits in fp32 as given and in the end, sorted with 64-bit places and those of the way back, two
# sums and two masks (model_executor/layers/sampler.py, _apply_top_k_top_p, 0.6.4): with 16-bit logits 40 bytes.
FP32_COPIES = 3
SORTED_BYTES = 38
# Tensors of the residual stream alive at once while the MLP works: what attention gave, the residual that came in (the
# caller of a compiled piece holds both), and the residual that goes on.
STREAMS = 3
# Residual and hidden states that a pipeline stage receives or hands on, kept for good
# (v1/worker/gpu_model_runner.py, intermediate_tensors).
HANDED_ON = 2
# Inductor times its kernels the first time that they run, and clears the L2 cache with a buffer of its size between
# runs (torch/_inductor/runtime/benchmarking.py, InductorBenchmarker). MiB of L2 by capability, NVIDIA's whitepapers;
# of cards not listed the smallest.
L2_CACHE = {(8, 0): 40, (8, 6): 6, (8, 9): 72, (9, 0): 50, (10, 0): 126, (12, 0): 96}


class ProfiledPass(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled pass: its tokens, and the sequences that are sampled for.

    Attributes:
        vocabulary: words of the whole model, whose logits every tensor rank gathers.
        tuned: bytes that Inductor holds while it times kernels; 0 in eager mode.
        keeps_workspace: experts work in buffers that are kept.
        old_experts: experts work in buffers of their call (fused_moe.py, intermediate_cache1 to 3, before 0.12).
        sorts: the sampler sorts all logits, as V0's does.
        images: the profiled pass encodes images first, as V1's does; `tensor` ranks share the tower.
        length: of the longest sequence.
    """

    tokens: int
    sequences: int
    itemsize: int
    vocabulary: int
    multiprocessors: int
    tuned: int = 0
    keeps_workspace: bool = True
    old_experts: bool = False
    sorts: bool = False
    images: bool = False
    tensor: int = 1
    length: int = 0


class Profiled(msgspec.Struct, frozen=True):
    bytes: int
    formula: str


# Qwen 2 and 2.5 VL profile a video of up to 14 frames, two of them to a grid of tokens, in a sequence's length
# (vllm/model_executor/models/qwen2_vl.py, get_num_frames_with_most_features); others an image.
VIDEO_GRIDS, PIXELS_OF_QWEN_2 = 7, 12_845_056


def encoded_images(model: TransformerModel, run: ProfiledPass) -> tuple[int, Profiled]:
    """Embeddings that the tower leaves and a buffer for those of a pass; its pass over images of the largest size, as
    many as the encoder's budget takes (v1/worker/gpu_model_runner.py, profile_run): pixels, the stream and its norm;
    queries, keys, values, the first two turned, and the answer, or an MLP's widths (models/qwen3_vl.py).
    """
    tower, rule = model.tower, model.image_tokens
    if tower is None or rule is None or not run.images:
        return 0, Profiled(0, "")
    each = rule.fixed or max((rule.most or (rule.longest or 0) ** 2) // (rule.cell or 1) ** 2, 1)
    if rule.most == PIXELS_OF_QWEN_2:
        each *= min(max(run.length // each, 1), VIDEO_GRIDS)
    items = min(max(run.tokens // each, 1), run.sequences)
    patches, h = tower.positions(each * items), tower.hidden_size
    mlp = (3 if tower.gated_mlp else 2) * tower.intermediate_size
    widest = max((8 if tower.rotary else 4) * h, mlp) // run.tensor
    return rounded((each * items + run.tokens) * model.hidden_size * run.itemsize), Profiled(
        rounded(patches * (tower.pixels + 2 * h + widest) * run.itemsize),
        f"{items} x {each:,} tokens of images: {patches:,} patches x {run.itemsize} B x ({tower.pixels} pixels + "
        f"2 x {h} stream + {widest})",
    )


def profiled_batch(share: Share, run: ProfiledPass) -> Profiled:
    """The fullest moment of one pass and of sampling after it (v1/worker/gpu_model_runner.py, profile_run)."""
    model, wide = share.model, rounded(run.tokens * share.model.hidden_size * run.itemsize)
    twice, stream = 2 if model.gated_mlp else 1, f"{STREAMS} x {model.hidden_size} stream"
    embeddings, images = encoded_images(model, run) if share.begins else (0, Profiled(0, ""))
    resident = embeddings + (HANDED_ON * wide if share.stages > 1 else 0)
    if model.num_experts is not None and share.stop > model.first_k_dense_replace and run.keeps_workspace:
        # The two buffers in which experts work, kept from the first pass on and shared by all layers:
        # vllm/model_executor/layers/fused_moe/fused_moe.py, TritonExperts.workspace_shapes, and v1/worker/workspace.py.
        # In mxfp4 each call makes its own (gpt_oss_triton_kernels_moe.py, triton_kernel_moe_forward).
        rows, inner = run.tokens * (model.num_experts_per_tok or 1), model.expert_size
        halves = max(inner, model.hidden_size), max(twice * inner, model.hidden_size)
        resident += sum(rounded(rows * width * run.itemsize) for width in halves)
    # Numbers for each token besides the residual stream while a layer attends, and while its MLP works, or the shared
    # expert and the routed ones' workspace.
    module = attention_of(model)
    heads = module.heads
    if isinstance(module, MlaModule):
        attending = heads * (2 * module.key_dim + module.plain_dim + 2 * module.value_dim)
        attention = f"{stream} + {heads} heads x {attending // heads} unpacked from the latent"
    else:
        queries, keys = heads * module.head_dim, 2 * module.kv_heads * module.head_dim
        attending = 2 * queries + keys
        attention = f"{stream} + {queries + keys} queries, keys, values + {queries} answers"
    dense = model.num_experts is None or share.first < model.first_k_dense_replace
    size, what = (model.ffn_size, "MLP") if dense else (model.shared_size, "shared expert")
    mlp, words = (twice + 1) * size, f"{stream} + {twice + 1} x {size} {what}"
    if run.old_experts and model.num_experts is not None:
        chosen = model.num_experts_per_tok or 1
        mlp = max(mlp, chosen * (3 * model.expert_size + model.hidden_size))
        words = f"{stream} + {chosen} experts x (3 x {model.expert_size} + {model.hidden_size})"
    moments = [
        Profiled(
            resident + STREAMS * wide + rounded(run.tokens * numbers * run.itemsize) + run.tuned,
            f"{run.tokens:,} tokens x {run.itemsize} B x ({words})",
        )
        for numbers, words in ((attending, attention), (mlp, words))
    ]
    moments.append(Profiled(embeddings + images.bytes, images.formula))
    if share.ends:
        # Sampling for as many sequences as run together, while the hidden states of all tokens are held. The top-k
        # kernel keeps a row of logits for each multiprocessor (v1/sample/ops/topk_topp_triton.py, _BUFFER_CACHE); the
        # last hidden states are held twice, as they came and as the random ones that stand in for them. fp32 logits are
        # not copied.
        rows, vocabulary = min(run.sequences, run.tokens), run.vocabulary
        copies = (run.itemsize if run.itemsize != 4 else 0) + (SORTED_BYTES if run.sorts else FP32_COPIES * 4)
        held_twice = 2 * rounded(rows * model.hidden_size * run.itemsize)
        scratch = rounded(rows * vocabulary * copies) + rounded(min(run.multiprocessors, rows) * vocabulary * 4)
        words = f"sampling for {rows:,} sequences: {vocabulary:,} logits x {copies} B, and {run.tokens:,} tokens x "
        words += f"{model.hidden_size} x {run.itemsize} B"
        moments.append(Profiled(resident + wide + held_twice + scratch, words))
    fullest = max(moments, key=lambda moment: moment.bytes)
    if not resident:
        return fullest
    return Profiled(fullest.bytes, f"{fullest.formula}; {resident:,} B that experts, images or the next stage keep")


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool is cut: pages of so many bytes for `block` tokens over the layers of one group.

    Attributes:
        layers: layers that have a cache.
        groups: (tokens after which a group's pages are used again, or None; how many groups of that kind).
        states: groups whose layers keep a state, a page of each for a sequence.
        length: of one sequence, which holds `per_sequence` pages.
        ahead: tokens that one pass may write before older ones are let go.
    """

    page: int
    block: int
    layers: int
    groups: tuple[tuple[int | None, int], ...]
    states: int
    length: int
    ahead: int

    @property
    def per_sequence(self) -> int:
        return self._pages(self.length)

    def longest(self, blocks: int) -> int:
        """The longest sequence for which `blocks` pages are enough."""
        return largest(self._pages, search_largest(blocks, self.length, most=max(self.length - 1, 1)))

    def _pages(self, length: int) -> int:
        """Pages of a sequence; a sliding group keeps its window, what one pass writes, and one page half used."""
        total = self.states
        for window, count in self.groups:
            tokens = length if window is None else min(length, window - 1 + self.ahead)
            pages = -(-tokens // self.block)
            total += count * (pages if window is None else min(pages + 1, -(-length // self.block)))
        return total


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


class VllmRelease(NamedTuple):
    """How vLLM from one release on looks for the room that is left.

    Attributes:
        graphs_in_share: CUDA graphs are taken out of the share.
        from_start: the context counts against the share with what stood there before the model.
        keeps_workspace: experts' buffers are kept, and NCCL's, there before the first look, are not in the share.
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
# Formats that a checkpoint may leave modules out of, and GPUs whose memory is the host's.
CHECKPOINTS = {"fp8", "int4", "int8", "nvfp4"}
UNIFIED = {"GB10"}
# The smallest groups of 4-bit weights with a scale (llm-compressor's W4A16 has 128, others' files down to 32),
# and tensors of a stream's width that a layer with states may hold beyond attention (fla/ops, chunk: in fp32).
SMALLEST_GROUP, STATES_STREAMS = 32, 8
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
    """One rank: its parts (that of the cache without its size), and bytes outside torch that count against the share:
    of kernels, of `links` between ranks, and of NCCL where ranks `met` after the first look.
    """

    share: Share
    parts: dict[str, Fact]
    graphs_in_share: bool
    kernels: int
    links: int
    met: int
    pages: Pages

    @property
    def fixed(self) -> int:
        inside = sum(fact.bytes for name, fact in self.parts.items() if name != "cuda graphs" or self.graphs_in_share)
        return inside + self.kernels + self.links + self.met


class Server:
    """One vLLM server; the rank with the least room decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        refuse_settings_of_others(run, "vLLM")
        self.model, self.run, self.device, self.parallel = model, run, device, parallel
        version = release_of((run.engine_version or "").removeprefix("v"))
        if run.engine_version and version == (0, 0):
            raise UserError(f"run.engine_version: {run.engine_version!r} is not a release of vLLM; write it as 0.19")
        self.release = next(one for one in RELEASES if one.since <= version) if run.engine_version else RELEASES[0]
        self.ranks = parallel.ranks // parallel.data
        self.length = context_length(model, run)
        self.budget = int(device.total_memory * run.gpu_memory_utilization)
        # NVML does not tell vLLM the memory of a GB10 (platforms/cuda.py, 0.20; vllm-project/vllm#57378).
        large = device.total_memory >= LARGE_CARD and device.capability != (8, 0) and device.name not in UNIFIED
        large = large and not self.release.is_v0
        self.sequences = run.max_num_seqs or (SEQUENCES_LARGE if large else SEQUENCES)
        self.tokens = run.max_num_batched_tokens or (TOKENS_LARGE if large else TOKENS)
        if not run.max_num_batched_tokens:
            if self.release.is_v0:
                chunked = self.length > LONG and device.capability >= AMPERE
                self.tokens = CHUNK if chunked else max(self.length, TOKENS)
            self.tokens = min(self.tokens, self.sequences * self.length)  # no more than so many whole sequences
        # Whole passes of up to `sequences`, and pieces of twice as many in V1 (config/vllm.py, _set_cudagraph_sizes).
        sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
        self.captured = bisect(sizes, self.sequences) + bisect(sizes, 2 * self.sequences) * (not self.release.is_v0)
        self.workers = [self._worker(share) for share in telling_shares(model, parallel)]
        rooms = [(self.budget - worker.fixed) // worker.pages.page for worker in self.workers]
        self.blocks = min(rooms)
        self.worker = self.workers[rooms.index(self.blocks)]
        # As vLLM reports it: tokens of the sequences at once, before 0.21 of one group (v1/core/kv_cache_utils.py).
        pages, self.room = self.worker.pages, self.blocks * self.length // self.worker.pages.per_sequence
        if self.release.since < (0, 21):
            self.room = self.blocks // (pages.states + sum(count for _, count in pages.groups)) * pages.block

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
            vocabulary=self.model.vocab_size,
            multiprocessors=card_limits(device).multiprocessors,
            tuned=0 if run.enforce_eager or release.is_v0 else L2_CACHE.get(capability, min(L2_CACHE.values())) * MIB,
            keeps_workspace=run.quantization != "mxfp4" and release.keeps_workspace,
            old_experts=not release.keeps_workspace,
            sorts=release.is_v0,
            images=not release.is_v0,
            tensor=self.parallel.tensor,
            length=self.length,
        )
        links = TENSOR_LINKS_HOPPER if capability == HOPPER and release.keeps_workspace else TENSOR_LINKS
        links *= self.parallel.tensor > 1
        met = 0 if release.keeps_workspace else nccl_bytes(self.ranks, capability)
        met_before = release.keeps_workspace and (share.stages > 1 or links)
        loaded = 1 if release.from_start else LOADED_LATER if met_before else LOADED_BY_PASS
        layer = DENSE_LAYER if model.num_experts is None else SHARED_LAYER if model.shared_size else ROUTED_LAYER
        graphs = int(share.layers * layer * self.captured * ELSEWHERE) + FIRST_ELSEWHERE
        if capability == FLASH_ATTENTION_3:
            graphs = share.layers * layer * self.captured + FIRST_CAPTURE
            if recipe.compute == HALF and model.kv_lora_rank is None:
                # The fp32 parts of split attention's answers and their sums, of the largest batch captured whole.
                each = min(self.sequences, MOST_CAPTURED) * model.num_attention_heads * (model.head_size + 1)
                graphs += 4 * MOST_SPLITS * each
        in_share = release.graphs_in_share if run.graphs_in_share is None else run.graphs_in_share
        every = decoder_spec(model).caches(share.first, share.stop)
        kinds = tuple(kind for kind in every if kind.per_token)
        if not kinds:
            raise UserError(
                "run.kind = 'serve': a model whose layers keep only states has no pages; take run.kind = 'infer'"
            )
        # Groups are as large as the smallest kind of layers, the last one padded; a page has room for a state, three of
        # its convolution's four columns (layers/mamba/mamba_utils.py, vLLM 0.20).
        states, bits = [kind for kind in every if not kind.per_token], cache_bits(run.kv_cache, run.precision)
        size, numbers = min(kind.layers for kind in every), max(kind.per_token for kind in kinds)
        state = max((kind.state * 3 // 4 * 2 + kind.state_fp32 * 4 for kind in states), default=0)
        block = max(run.block_size, -(-int(state * 8 / numbers / bits) // 16) * 16)
        pages = Pages(
            page=int(size * block * numbers * bits / 8),
            block=block,
            layers=sum(kind.layers for kind in kinds),
            groups=tuple((kind.window, -(-kind.layers // size)) for kind in kinds),
            states=sum(-(-kind.layers // size) for kind in states),
            length=self.length,
            ahead=self.tokens,
        )
        profiled, workspace = profiled_batch(share, batch), workspace_bytes(capability)
        parts = {
            **weight_parts(weights_of(share, run, recipe)),
            "expert padding": Fact(
                "weights",
                "MXFP4 experts as the kernels want them",
                PADDED_SOURCE,
                bytes=padded_experts(share, capability, release) if run.quantization == "mxfp4" else 0,
            ),
            "rotary table": Fact(
                "weights",
                f"sines and cosines of {model.max_position_embeddings or 0:,} positions",
                "vLLM, vllm/model_executor/layers/rotary_embedding",
                bytes=rotary,
                count=1,
            ),
            "kv cache": Fact(
                "kv_cache",
                f"{pages.page:,} B each; {pages.layers} layers x {shape_words(model)} in "
                f"{run.kv_cache or run.precision}",
                cache_source(model) + "; pages: Kwon et al. 2023 (arXiv 2309.06180)",
                count=share.layers,
            ),
            "profiled batch": Fact(
                "activations",
                profiled.formula,
                "the model's shapes; " + WORKER,
                "within a pass; set aside for good",
                bytes=profiled.bytes,
            ),
            "cuda graphs": Fact(
                "workspaces",
                f"{self.captured} graphs over {share.layers} layers" + ("" if in_share else ", on top of the share"),
                GRAPH_SOURCE if capability == FLASH_ATTENTION_3 else SOURCE_ELSEWHERE,
                bytes=0 if run.enforce_eager else graphs,
            ),
            "workspaces": Fact(
                "workspaces",
                f"{workspace:,} B: one thread multiplies matrices",
                WORKSPACE_SOURCE,
                bytes=workspace,
                count=1,
            ),
        }
        kernels = int(cuda_context_bytes(capability) * loaded)
        return VllmWorker(share, parts, in_share, kernels, links, met, pages)

    def estimate(self) -> Estimate:
        worker, pages, parts = self.worker, self.worker.pages, dict(self.worker.parts)
        if self.blocks < pages.per_sequence:
            longest, capability = None, self.device.capability
            outside = cuda_context_bytes(capability) - worker.kernels + nccl_bytes(self.ranks, capability)
            if self.blocks <= 0:
                where = f" on {place_of(worker.share)}" if self.parallel.ranks > 1 else ""
                why = (
                    f"but weights, profiled batch and graphs take {format_bytes(worker.fixed)}{where}, which leaves "
                    "nothing for keys and values; take more cards (parallel.tensor) or fewer bits (run.quantization)"
                )
            else:
                longest = pages.longest(self.blocks)
                why = (
                    f"which leaves {format_bytes(self.blocks * pages.page)} for keys and values, but one sequence of "
                    f"run.max_model_len = {self.length:,} needs {format_bytes(pages.per_sequence * pages.page)}; the "
                    f"longest that fits is {longest:,}"
                )
            raise TooLargeError(
                f"run.gpu_memory_utilization = {self.run.gpu_memory_utilization:g} of {self.device.name} is "
                f"{format_bytes(self.budget)}, {why}",
                worker.fixed + pages.per_sequence * pages.page + outside,
                longest or None,
            )
        cache, graphs = parts["kv cache"], parts["cuda graphs"].bytes
        words = f"the rest: {self.room:,} tokens in {self.blocks:,} pages of {pages.block}, "
        size = self.blocks * pages.page
        parts["kv cache"] = msgspec.structs.replace(cache, formula=words + cache.formula, bytes=size)
        reserved = self.budget - worker.kernels - worker.links - worker.met
        if self.release.is_v0:
            # Captured where the profiled batch was, which sorts more sequences than the pool has room for.
            graphs = max(graphs - parts["profiled batch"].bytes, 0)
            parts["cuda graphs"] = msgspec.structs.replace(parts["cuda graphs"], bytes=graphs)
        reserved += graphs if self.release.is_v0 or not worker.graphs_in_share else 0
        return served(parts, self.device, self._notes(), reserved=reserved, ranks=self.ranks, links=worker.links)

    def _notes(self) -> tuple[str, ...]:
        run, worker, pages, parallel = self.run, self.worker, self.worker.pages, self.parallel
        whole, share = format_bytes(self.device.total_memory), format_bytes(self.budget)
        taken = (
            f"gpu_memory_utilization takes {run.gpu_memory_utilization:g} of all {whole} of the card, {share}, "
            "whatever else runs there; the CUDA context from before the first pass lies on top"
        )
        at_once = self.blocks / pages.per_sequence
        room = (
            f"room for {self.room:,} tokens of keys and values: {at_once:.2f} sequences of "
            f"{self.length:,} tokens at once, of at most {self.sequences} that run together"
        )
        notes = [taken, room]
        if run.engine_version is None:
            newest = ".".join(map(str, RELEASES[0].since))
            notes.append(f"as vLLM {newest} and later; run.engine_version names another (0.6.3, from its log)")
        if worker.parts["expert padding"].bytes:
            notes.append("experts are counted as the kernels pad them, not as the file holds them")
        # How much more the weights may take, and how much less the cache, by what is not known.
        part, size = worker.share, worker.parts["weights"].bytes
        cached, more, less, why = self.blocks * pages.page, 0, 0, []
        if run.quantization in CHECKPOINTS and run.unquantized is None and run.stored is None:
            plain = msgspec.structs.replace(run, unquantized="attention")
            more = less = weights_of(part, plain, inference_recipe(run.precision)).blocks.bytes - size
            why = ["as the checkpoint's config.json leaves attention in 16 bits or not (run.unquantized)"]
            if run.quantization == "int4":
                scales = size * (16 / SMALLEST_GROUP - 20 / GROUP) / 4
                more, less = more + int(scales), less + int(scales)
                why.append(f"and has groups of {SMALLEST_GROUP} or {GROUP}")
        kinds = decoder_spec(part.model).caches(part.first, part.stop)
        if any(kind.state or kind.state_fp32 for kind in kinds):
            less += STATES_STREAMS * self.tokens * part.model.hidden_size * inference_recipe(run.precision).compute
            why.append("a pass through layers with states is counted as through attention of the same sizes")
        unified = self.device.name in UNIFIED or self.device.name.startswith("Jetson")
        counts_nccl = self.release.since == (0, 0) and self.parallel.tensor > 1
        for holds, reason in (
            (unified, "the host's page cache counts against the share while files are read"),
            (run.kv_connector, "the buffers of the connector (--kv-transfer-config) are not known"),
            (counts_nccl, "vLLM before 0.7 counts all that is taken on the GPU since it started, NCCL's too"),
        ):
            if holds:
                less = cached
                why.append(reason)
        if less:
            weights = f"weights {format_bytes(size)} to {format_bytes(size + more)}, " if more else ""
            cache = f"kv cache {format_bytes(max(cached - less, 0))} to {format_bytes(cached)}"
            notes.append(f"{weights}{cache}: {'; '.join(why)}")
        if parallel.ranks > 1:
            notes.append(f"bytes of one card of {parallel.ranks}; the tightest: {place_of(worker.share)}")
        if parallel.data > 1:
            notes.append(f"{parallel.data} replicas, each with a pool of its own")
        return tuple(notes)


def estimate_vllm(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    return Server(model, run, device, parallel).estimate()

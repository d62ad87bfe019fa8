"""vLLM: a share of the GPU; weights, a profiled batch and CUDA graphs leave the rest of it to keys and values.

The profiled pass is counted part by part by the code of vLLM 0.19 that allocates it.
"""

from bisect import bisect
from operator import itemgetter
from typing import Literal, NamedTuple

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
    UNIFIED,
    TooLargeError,
    context_length,
    engine_release,
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
from vramtui.models.spec import MlaModule
from vramtui.models.specs.decoder import attention_of, cache_source, decoder_spec, shape_words

# fp32 copies of the logits at once (v1/sample/sampler.py, v1/sample/ops/topk_topp_sampler.py): the logits that are
# sampled from, their probabilities, and the exponential noise that these are divided by. The logits as computed live
# on next to them (v1/worker/gpu_model_runner.py, _dummy_sampler_run).
# V1 sorted them before its top-k kernel (pull request 33538, 0.17): logits in fp32, sorted with 64-bit places, and as
# much again while it sorts (v1/sample/ops/topk_topp_sampler.py, 0.12). V0 too: logits in fp32 as given and in the end,
# sorted with 64-bit places and those of the way back, two sums and two masks (model_executor/layers/sampler.py,
# _apply_top_k_top_p, 0.6.4). Bytes for each logit besides those computed.
SAMPLED, SORTED, SORTED_V0 = 3 * 4, 4 + 2 * 12, 38
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
# Qwen 2 and 2.5 VL profile a video of up to 14 frames, two of them to a grid of tokens, in a sequence's length
# (vllm/model_executor/models/qwen2_vl.py, get_num_frames_with_most_features), Gemma 4 one of 32 frames of 70 tokens and
# 8 of text each (gemma4_mm.py; 2,496 tokens in logs of 0.19 to 0.23); others an image.
VIDEO_GRIDS, PIXELS_OF_QWEN_2 = 7, 12_845_056
FRAMES, OF_FRAME, TEXT_OF_FRAME, OF_GEMMA_4 = 32, 70, 8, 280
# Widths of the stream while a tower with rotary positions attends: queries, keys, values, the first two turned, and
# the answer; fitted from 0.20 on to 2.17 GiB of peak activation (Qwen 3.5 4B on an L4, 0.29). Its positions, which
# live on (models/qwen3_vl.py, forward: pos_embeds), and the stream are on each tensor rank.
# dots.ocr turns queries and keys in copies of fp32 (models/dots_ocr.py, 0.12): four of both, both as they came, and each
# of queries, keys and values twice.
ATTENDING, ATTENDING_LATER = 7, 12
ATTENDING_DOTS, PIXELS_OF_DOTS = 4 * 2 * 2 + 2 + 2 * 3, 11_289_600


class VllmRelease(NamedTuple):
    """How vLLM from one release on looks for the room that is left.

    Attributes:
        share: of the card, if the command states none.
        graphs_in_share: CUDA graphs are taken out of the share.
        from_start: the context counts against the share with what stood there before the model.
        keeps_workspace: experts' buffers are kept, and NCCL's, there before the first look, are not in the share;
            before that they were of their call (fused_moe.py, intermediate_cache1 to 3).
        sampled: bytes of the sampler for each logit.
        is_v0: it profiled one pass of the longest sequence, or of a chunk beyond 32,768 tokens.
        is_piecewise: V1 captures pieces of up to 512 tokens, and no whole passes (config/compilation.py, 0.10, 0.11).
        counts_groups: it reports the tokens of one group of layers, not those of the sequences at once.
    """

    since: tuple[int, ...]
    share: float = 0.9
    graphs_in_share: bool = False
    from_start: bool = False
    keeps_workspace: bool = False
    sampled: int = SAMPLED
    is_v0: bool = False
    is_piecewise: bool = False
    counts_groups: bool = True


# v1/worker/gpu_worker.py and worker/worker.py of each: 0.7 looks before the ranks meet (pull request 11809), 0.9 asks
# `memory_profiling` (#19312), 0.12 looks after they met and keeps v1/worker/workspace.py, and 0.20 profiles graphs
# and takes a larger share (#38284). Start-up logs of 0.20.0 and 0.20.2 count tokens in two ways.
RELEASES = (
    VllmRelease((0, 20, 2), share=0.92, graphs_in_share=True, keeps_workspace=True, counts_groups=False),
    VllmRelease((0, 20), share=0.92, graphs_in_share=True, keeps_workspace=True),
    VllmRelease((0, 17), keeps_workspace=True),
    VllmRelease((0, 12), keeps_workspace=True, sampled=SORTED),
    VllmRelease((0, 11), sampled=SORTED),
    VllmRelease((0, 9), sampled=SORTED, is_piecewise=True),
    VllmRelease((0, 8), from_start=True, sampled=SORTED, is_piecewise=True),
    VllmRelease((0, 7), sampled=SORTED_V0, is_v0=True),
    VllmRelease((0, 0), from_start=True, sampled=SORTED_V0, is_v0=True),
)
# The newest with V0, which 0.11 has no more.
V0, REMOVED_V0 = next(one for one in RELEASES if one.is_v0), (0, 11)
# V1 of 0.7, which VLLM_USE_V1=1 selects, profiles the logits and not the sampler, for 1,024 sequences on every GPU
# (v1/worker/gpu_model_runner.py, profile_run; engine/arg_utils.py, __post_init__, 0.7.3).
V1_OF_7 = VllmRelease(V0.since, from_start=True, sampled=0, is_piecewise=True)


class ProfiledPass(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled pass: its tokens, and the sequences that are sampled for.

    Attributes:
        vocabulary: words of the whole model, whose logits every tensor rank gathers.
        tuned: bytes that Inductor holds while it times kernels; 0 in eager mode.
        mxfp4: experts make their buffers in each call.
        length: of the longest sequence, as images are encoded first, whose tower `tensor` ranks share; 0 without.
    """

    tokens: int
    sequences: int
    itemsize: int
    vocabulary: int
    multiprocessors: int
    release: VllmRelease = RELEASES[0]
    tuned: int = 0
    mxfp4: bool = False
    tensor: int = 1
    length: int = 0


def encoded_images(model: TransformerModel, run: ProfiledPass) -> tuple[int, int, str]:
    """Embeddings that the tower leaves and a buffer for those of a pass; its pass over images of the largest size, as
    many as the encoder's budget takes (vllm/multimodal/encoder_budget.py): pixels, the stream and its norm, and what
    attends or an MLP's widths (models/qwen3_vl.py).
    """
    tower, rule = model.tower, model.image_tokens
    if tower is None or rule is None or not run.length:
        return 0, 0, ""
    each = rule.fixed or max((rule.most or (rule.longest or 0) ** 2) // (rule.cell or 1) ** 2, 1)
    of_tower = each
    if rule.most == PIXELS_OF_QWEN_2:
        each *= min(max(run.length // each, 1), VIDEO_GRIDS)
        of_tower = each
    elif rule.fixed == OF_GEMMA_4:
        each, of_tower = FRAMES * (OF_FRAME + TEXT_OF_FRAME), FRAMES * OF_FRAME
    items = max(min(run.tokens // each, run.sequences * max(run.length // each, 1)), 1)
    patches, h = tower.positions(of_tower * items), tower.hidden_size
    mlp = (3 if tower.gated_mlp else 2) * tower.intermediate_size
    attending = (ATTENDING_LATER if run.release.graphs_in_share else ATTENDING) if tower.rotary else 4
    attending = ATTENDING_DOTS if rule.most == PIXELS_OF_DOTS and not run.release.graphs_in_share else attending
    widest, stream = max(attending * h, mlp) // run.tensor, 3 if tower.rotary else 2
    words = f"{items} x {each:,} tokens of images: {patches:,} patches x {run.itemsize} B x ({tower.pixels} pixels + "
    words += f"{stream} x {h} stream + {widest})"
    return (
        rounded((each * items + run.tokens) * model.hidden_size * run.itemsize),
        rounded(patches * (tower.pixels + stream * h + widest) * run.itemsize),
        words,
    )


def profiled_batch(share: Share, run: ProfiledPass) -> tuple[int, str]:
    """Bytes of the fullest moment of one pass and of sampling after it, and a formula (v1/worker/gpu_model_runner.py,
    profile_run).
    """
    model, wide = share.model, rounded(run.tokens * share.model.hidden_size * run.itemsize)
    twice, stream = 2 if model.gated_mlp else 1, f"{STREAMS} x {model.hidden_size} stream"
    embeddings, encoding, images = encoded_images(model, run) if share.begins else (0, 0, "")
    resident = embeddings + (HANDED_ON * wide if share.stages > 1 else 0)
    keeps = run.release.keeps_workspace
    if model.num_experts is not None and share.stop > model.first_k_dense_replace and keeps and not run.mxfp4:
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
    if model.num_experts is not None and not keeps:
        chosen = model.num_experts_per_tok or 1
        mlp = max(mlp, chosen * (3 * model.expert_size + model.hidden_size))
        words = f"{stream} + {chosen} experts x (3 x {model.expert_size} + {model.hidden_size})"
    passing = resident + STREAMS * wide + rounded(run.tokens * max(attending, mlp) * run.itemsize) + run.tuned
    words = f"{run.tokens:,} tokens x {run.itemsize} B x ({attention if attending >= mlp else words})"
    moments = [(passing, words), (embeddings + encoding, images)]
    if share.ends:
        # Sampling for as many sequences as run together, while the hidden states of all tokens are held. The top-k
        # kernel keeps a row of logits for each multiprocessor (v1/sample/ops/topk_topp_triton.py, _BUFFER_CACHE); the
        # last hidden states are held twice, as they came and as the random ones that stand in for them. fp32 logits are
        # not copied.
        rows, vocabulary = min(run.sequences, run.tokens), run.vocabulary
        copies = (run.itemsize if run.itemsize != 4 else 0) + run.release.sampled
        held_twice = 2 * rounded(rows * model.hidden_size * run.itemsize)
        scratch = rounded(rows * vocabulary * copies) + rounded(min(run.multiprocessors, rows) * vocabulary * 4)
        words = f"sampling for {rows:,} sequences: {vocabulary:,} logits x {copies} B, and {run.tokens:,} tokens x "
        words += f"{model.hidden_size} x {run.itemsize} B"
        moments.append((resident + wide + held_twice + scratch, words))
    size, formula = max(moments, key=itemgetter(0))
    return size, formula + (f"; {resident:,} B that experts, images or the next stage keep" if resident else "")


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool is cut: pages of so many bytes for `block` tokens over the layers of one group.

    Attributes:
        layers: layers that have a cache.
        groups: (tokens after which a group's pages are used again, or None; tokens in a page; how many groups).
        states: pages of a sequence in groups whose layers keep a state.
        length: of one sequence, which holds `per_sequence` pages.
        ahead: tokens that one pass may write before older ones are let go.
    """

    page: int
    block: int
    layers: int
    groups: tuple[tuple[int | None, int, int], ...]
    states: int
    length: int
    ahead: int

    @property
    def per_sequence(self) -> int:
        return self.of(self.length)

    def of(self, length: int) -> int:
        """Pages of a sequence; a sliding group keeps its window, what one pass writes, and one page half used."""
        total = self.states
        for window, block, count in self.groups:
            tokens = length if window is None else min(length, window - 1 + self.ahead)
            pages = -(-tokens // block)
            total += count * (pages if window is None else min(pages + 1, -(-length // block)))
        return total


# FlashAttention 3 splits keys and values among so many blocks under full graphs, and a graph holds the fp32 parts of
# the largest batch (vllm/config/attention.py, flash_attn_max_num_splits_for_cuda_graph; v1/attention/backends/
# flash_attn.py). Only Hopper has FlashAttention 3, and that for numbers of 16 bits.
MOST_SPLITS = 32
FLASH_ATTENTION_3, HALF = (9, 0), 2
MOST_CAPTURED = 512
PIECES = 3 + MOST_CAPTURED // 8  # 1, 2, 4 and multiples of 8 (config.py, _set_cudagraph_sizes, 0.9)
# What the driver keeps of the kernels of one layer in one graph, and what the first capture takes. Fitted, for no
# source says it: the first to Llama 3.1 8B on 1, 2 and 4 pipeline stages (0.91, 0.65, 0.51 GiB on H100s, vLLM 0.19),
# the second to the same runs. Experts launch more kernels, and shared ones have a stream of their own: fitted to
# Mixtral 8x7B and Qwen 3 30B-A3B, and to Qwen 1.5 MoE and DeepSeek V2 Lite.
DENSE_LAYER, ROUTED_LAYER, SHARED_LAYER = 171 * KIB, 220 * KIB, 420 * KIB
FIRST_CAPTURE = 125 * MIB
# GPUs other than Hopper take less: fitted to an A6000 and two pairs of RTX 3090 under vLLM 0.21 (0.27, 0.13, 0.17 GiB).
ELSEWHERE, FIRST_ELSEWHERE = 0.7, 64 * MIB
# Of RTX Blackwells an fp8 cache is FlashInfer's (logs of 0.20), whose workspace is taken while graphs are profiled
# (vllm/envs.py, VLLM_FLASHINFER_WORKSPACE_BUFFER_SIZE).
FLASHINFER, FLASHINFER_WORKSPACE = (12, 0), 394 * MIB
GRAPH_SOURCE = "attention's buffers: vLLM 0.19, v1/attention/backends/flash_attn.py; the rest fitted to logs of H100s"
SOURCE_ELSEWHERE = "fitted to three logs of vLLM 0.21 on an A6000 and RTX 3090s; take half to twice of it"


# V0 captures decoding passes only. Tokens of its chunks, made of longer sequences from Ampere on
# (vllm/config.py, SchedulerConfig).
LONG, CHUNK, AMPERE = 32768, 2048, (8, 0)


# Of the context, what the first pass loads counts against the share; what stood there before it does not: 0.25 GiB on
# H100s, and 0.07 where the ranks have met before the first look, which loads most of it (vLLM 0.19); as shares of the
# 740 MiB that `cards.py` has for them.
LOADED_BY_PASS, LOADED_LATER = 0.346, 0.095
# Pages of a sequence in each group whose layers keep a state, if prefixes are cached as they are by default now
# (v1/kv_cache_interface.py, MambaSpec.max_memory_usage_bytes, mode `align`, 0.17; logs of 0.27 and 0.29).
STATE_PAGES = 2
# What a checkpoint may leave out of each format (Unsloth's dynamic files: nf4-double).
CHECKPOINTS: dict[str, Literal["attention", "attention and outer layers"]] = {
    "fp8": "attention", "int4": "attention", "int8": "attention", "nvfp4": "attention",
    "nf4-double": "attention and outer layers",
}  # fmt: skip
# The smallest groups of 4-bit weights with a scale (llm-compressor's W4A16 has 128, others' files down to 32),
# and tensors of a stream's width that a layer with states may hold beyond attention (fla/ops, chunk: in fp32).
SMALLEST_GROUP, STATES_STREAMS = 32, 8
# Marlin pads the width of MXFP4 experts to 128 and the stream's to 256 (65.97 GiB of gpt-oss-120b, vllm#23278),
# FlashInfer on Blackwell both to 256. Triton on Hopper swizzles values along the products' inner dimension in steps of
# 256 (64.38 GiB, vllm#33155), which vLLM takes there from 0.11 on.
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
        if run.text_only:
            model = msgspec.structs.replace(
                model, tower=None, tensors=tuple(group for group in model.tensors if group.place != "tower")
            )
        self.model, self.run, self.device, self.parallel = model, run, device, parallel
        version = engine_release(run, "vLLM", "0.19")
        self.release = next(one for one in RELEASES if one.since <= (version or (1,)))
        if run.is_v1 is not None and V0.since <= (version or (1,)) < REMOVED_V0 and run.is_v1 == self.release.is_v0:
            self.release = V1_OF_7 if run.is_v1 else V0
        self.ranks = parallel.ranks // parallel.data
        self.length = context_length(model, run)
        self.share = run.gpu_memory_utilization or self.release.share
        self.budget = int(device.total_memory * self.share)
        # NVML does not tell vLLM the memory of a GB10 (platforms/cuda.py, 0.20; vllm-project/vllm#57378).
        large = device.total_memory >= LARGE_CARD and device.capability != (8, 0) and device.name != "GB10"
        large = large and not self.release.is_v0
        self.sequences = run.max_num_seqs or (
            SEQUENCES_LARGE if large or self.release is V1_OF_7 else SEQUENCES
        )
        self.tokens = run.max_num_batched_tokens or (TOKENS_LARGE if large else TOKENS)
        if not run.max_num_batched_tokens:
            if self.release.is_v0:
                chunked = self.length > LONG and device.capability >= AMPERE
                self.tokens = CHUNK if chunked else max(self.length, TOKENS)
            self.tokens = min(self.tokens, self.sequences * self.length)  # no more than so many whole sequences
        # Whole passes of up to `sequences`, and pieces of twice as many in V1 (config/vllm.py, _set_cudagraph_sizes).
        sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
        self.captured = bisect(sizes, self.sequences) + bisect(sizes, 2 * self.sequences) * (not self.release.is_v0)
        if self.release.is_piecewise:
            self.captured = PIECES
        self.workers = [self._worker(share) for share in telling_shares(model, parallel)]
        rooms = [(self.budget - worker.fixed) // worker.pages.page for worker in self.workers]
        self.blocks = min(rooms)
        self.worker = self.workers[rooms.index(self.blocks)]
        # As vLLM reports it: tokens of the sequences at once, before 0.21 of one group (v1/core/kv_cache_utils.py).
        pages, self.room = self.worker.pages, self.blocks * self.length // self.worker.pages.per_sequence
        if self.release.counts_groups:
            self.room = self.blocks // (pages.states + sum(count for *_, count in pages.groups)) * pages.block

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
            release=release,
            mxfp4=run.quantization == "mxfp4",
            tensor=self.parallel.tensor,
            length=0 if release.is_v0 else self.length,
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
            if recipe.compute == HALF and model.kv_lora_rank is None and not release.is_piecewise:
                # The fp32 parts of split attention's answers and their sums, of the largest batch captured whole.
                each = min(self.sequences, MOST_CAPTURED) * model.num_attention_heads * (model.head_size + 1)
                graphs += 4 * MOST_SPLITS * each
        in_share = release.graphs_in_share if run.graphs_in_share is None else run.graphs_in_share
        every = decoder_spec(model).caches(share.first, share.stop)
        kinds = tuple(kind for kind in every if kind.per_token)
        if in_share and run.kv_cache == "fp8" and capability == FLASHINFER and len({k.per_token for k in kinds}) == 1:
            graphs += FLASHINFER_WORKSPACE
        if not kinds:
            raise UserError(
                "run.kind = 'serve': a model whose layers keep only states has no pages; take run.kind = 'infer'"
            )
        # Groups are as large as the smallest kind of layers, the last one padded; a page has room for a state, three of
        # its convolution's four columns (layers/mamba/mamba_utils.py, vLLM 0.20), and more tokens of layers with fewer
        # numbers (v1/core/kv_cache_utils.py, unify_kv_cache_spec_page_size).
        states, bits = [kind for kind in every if not kind.per_token], cache_bits(run.kv_cache, run.precision)
        size, numbers = min(kind.layers for kind in every), max(kind.per_token for kind in kinds)
        state = max((kind.state * 3 // 4 * 2 + kind.state_fp32 * 4 for kind in states), default=0)
        block = max(run.block_size, -(-int(state * 8 / numbers / bits) // 16) * 16)
        pages = Pages(
            page=int(size * block * numbers * bits / 8),
            block=block,
            layers=sum(kind.layers for kind in kinds),
            groups=tuple((kind.window, block * (numbers // kind.per_token), -(-kind.layers // size)) for kind in kinds),
            states=sum(-(-kind.layers // size) for kind in states) * (1 if release.counts_groups else STATE_PAGES),
            length=self.length,
            ahead=self.tokens,
        )
        inner, outer, padded = model.expert_size, model.hidden_size, 0.0
        for one in share_tensors(share) if run.quantization == "mxfp4" else ():
            if one.module.startswith("experts_") and len(one.shape) == len(("expert", "rows", "columns")):
                width = inner if one.module == "experts_down_proj" else outer
                more = one.numel * one.count / 2 * (-width % 256) / width
                if capability != HOPPER or release.since < (0, 12):
                    wide = (inner + -inner % (256 if capability[0] == 10 else 128)) * (outer + -outer % 256)
                    more = one.numel * one.count * 4.25 / 8 * (wide / (inner * outer) - 1)
                padded += more
        (profiled, words), workspace = profiled_batch(share, batch), workspace_bytes(capability)
        parts = {
            **weight_parts(weights_of(share, run, recipe), rotary),
            "expert padding": Fact(
                "weights",
                "MXFP4 experts as the kernels want them",
                PADDED_SOURCE,
                bytes=int(padded),
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
                words,
                "the model's shapes; " + WORKER,
                "within a pass; set aside for good",
                bytes=profiled,
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
                longest = largest(pages.of, search_largest(self.blocks, self.length, most=max(self.length - 1, 1)))
                why = (
                    f"which leaves {format_bytes(self.blocks * pages.page)} for keys and values, but one sequence of "
                    f"run.max_model_len = {self.length:,} needs {format_bytes(pages.per_sequence * pages.page)}; the "
                    f"longest that fits is {longest:,}"
                )
            raise TooLargeError(
                f"run.gpu_memory_utilization = {self.share:g} of {self.device.name} is "
                f"{format_bytes(self.budget)}, {why}",
                worker.fixed + pages.per_sequence * pages.page + outside,
                longest or None,
            )
        cache, graphs = parts["kv cache"], parts["cuda graphs"].bytes
        words = f"the rest: {self.room:,} tokens in {self.blocks:,} pages of {pages.block}, "
        cached = self.blocks * pages.page
        parts["kv cache"] = msgspec.structs.replace(cache, formula=words + cache.formula, bytes=cached)
        reserved = self.budget - worker.kernels - worker.links - worker.met
        if self.release.is_v0:
            # Captured where the profiled batch was, which sorts more sequences than the pool has room for.
            graphs = max(graphs - parts["profiled batch"].bytes, 0)
            parts["cuda graphs"] = msgspec.structs.replace(parts["cuda graphs"], bytes=graphs)
        reserved += graphs if self.release.is_v0 or not worker.graphs_in_share else 0
        run, parallel, release = self.run, self.parallel, self.release
        words = (
            f"gpu_memory_utilization takes {self.share:g} of all {format_bytes(self.device.total_memory)} of the card, "
        )
        words += (
            f"{format_bytes(self.budget)}, whatever else runs there; the CUDA context from before the first pass lies "
        )
        room = f"room for {self.room:,} tokens of keys and values: {self.blocks / pages.per_sequence:.2f} sequences of "
        room += f"{self.length:,} tokens at once, of at most {self.sequences} that run together"
        notes = [words + "on top", room]
        if run.engine_version is None:
            newest = ".".join(map(str, RELEASES[0].since))
            notes.append(f"as vLLM {newest} and later; run.engine_version names another (0.6.3, from its log)")
        if parts["expert padding"].bytes:
            notes.append("experts are counted as the kernels pad them, not as the file holds them")
        # How much more the weights may take, and how much less the cache, by what is not known.
        part, size, recipe = worker.share, parts["weights"].bytes, inference_recipe(run.precision)
        more, less, reasons = 0, 0, list[str]()
        if (left := CHECKPOINTS.get(run.quantization or "")) and run.unquantized is None and run.stored is None:
            plain = msgspec.structs.replace(run, unquantized=left)
            more = weights_of(part, plain, recipe).blocks.bytes - size
            reasons.append(f"as the checkpoint's config.json leaves {left} in 16 bits or not (run.unquantized)")
            if run.quantization == "int4":
                more += int(size * (16 / SMALLEST_GROUP - 20 / GROUP) / 4)
                reasons.append(f"and has groups of {SMALLEST_GROUP} or {GROUP}")
            less = more
        kinds = decoder_spec(part.model).caches(part.first, part.stop)
        if any(kind.state or kind.state_fp32 for kind in kinds):
            less += STATES_STREAMS * self.tokens * part.model.hidden_size * recipe.compute
            reasons.append("a pass through layers with states is counted as through attention of the same sizes")
        unified = self.device.name.startswith(UNIFIED)
        for holds, reason in (
            (unified, "the host's page cache counts against the share while files are read"),
            (run.kv_connector, "the buffers of the connector (--kv-transfer-config) are not known"),
            (
                release.from_start and release.is_v0 and parallel.tensor > 1,
                "vLLM before 0.7 counts all that is taken on the GPU since it started, NCCL's too",
            ),
            (release.from_start and not release.is_v0, "vLLM 0.8 counts what other processes hold on the GPU"),
        ):
            if holds:
                less = cached
                reasons.append(reason)
        if less:
            weights = f"weights {format_bytes(size)} to {format_bytes(size + more)}, " if more else ""
            at_least = format_bytes(max(cached - less, 0))
            notes.append(f"{weights}kv cache {at_least} to {format_bytes(cached)}: {'; '.join(reasons)}")
        if parallel.ranks > 1:
            notes.append(f"bytes of one card of {parallel.ranks}; the tightest: {place_of(worker.share)}")
        if parallel.data > 1:
            notes.append(f"{parallel.data} replicas, each with a pool of its own")
        return served(parts, self.device, tuple(notes), reserved=reserved, ranks=self.ranks, links=worker.links)


def estimate_vllm(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    return Server(model, run, device, parallel).estimate()

"""vLLM: a share of the GPU; weights, a profiled batch and CUDA graphs leave the rest of it to keys and values.

The profiled pass is counted part by part by the code of vLLM 0.19 that allocates it.
"""

from bisect import bisect
from collections.abc import Iterable
from operator import itemgetter
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from vramtui.core.base import toml
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, KIB, MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.fits import largest, search_largest
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving import parts as serving
from vramtui.estimators.analytic.sizes.partition import Share, nccl_bytes, place_of, share_tensors, telling_shares
from vramtui.estimators.analytic.sizes.precision import GROUP, cache_bits, inference_recipe
from vramtui.estimators.torch_facts.allocator_sizes import LARGE_EXACT, LARGE_SEGMENT, SMALL_LIMIT, rounded
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import workspace_bytes
from vramtui.models.spec import MlaModule
from vramtui.models.specs.decoder import attention_of, cache_source, decoder_spec, shape_words

# Inductor times its kernels the first time that they run, and clears the L2 cache with a buffer of its size between
# runs (torch/_inductor/runtime/benchmarking.py, InductorBenchmarker). MiB of L2 by capability, NVIDIA's whitepapers;
# of cards not listed the smallest.
L2_CACHE = {(8, 0): 40, (8, 6): 6, (8, 9): 72, (9, 0): 50, (10, 0): 126, (12, 0): 96}


class VllmRelease(msgspec.Struct, frozen=True, kw_only=True):
    """How vLLM from one release on looks for the room that is left; `releases.toml` explains each."""

    since: tuple[int, ...]
    share: float = 0.9
    from_start: bool = False
    keeps_workspace: bool = False
    graphs_in_share: bool = False
    sampled: int = 0
    by_flashinfer: int = 0
    is_v0: bool = False
    is_v2: bool = False
    tunes_embedding: bool = False
    pins: bool = False
    state_pages: int = 1
    is_piecewise: bool = False
    pads_videos: bool = False
    holds_reduced: bool = False
    torch_only: bool = False
    counts_groups: bool = False


_TABLES = toml.loads(Path(__file__).with_name("releases.toml").read_text(encoding="utf-8"))
RELEASES = tuple(msgspec.convert(row, VllmRelease) for row in _TABLES["vllm"])
V1_OF_7 = msgspec.convert(_TABLES["v1_of_7"], VllmRelease)
FITTED = msgspec.convert(_TABLES["fitted"], dict[str, float])
FIRST = msgspec.convert(_TABLES["first"], dict[str, tuple[int, ...]])
SIZES = msgspec.convert(_TABLES["sizes"], dict[str, int])
FIRST_RUNNER = next(one for one in RELEASES if not one.is_v2)  # that models with states or experts stay in


class ProfiledPass(msgspec.Struct, frozen=True, kw_only=True):
    """One profiled pass: its tokens, and the sequences that are sampled for.

    Attributes:
        vocabulary: words of the whole model, whose logits every tensor rank gathers.
        tuned: bytes that Inductor holds while it times kernels; 0 in eager mode.
        mxfp4: experts make their buffers in each call.
        tuned_table: bytes of the embedding that Inductor tunes on a copy of, in a start that compiles; 0 in eager mode.
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
    tuned_table: int = 0
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
    if rule.most == SIZES["pixels_of_qwen_2"]:
        each *= min(max(run.length // each, 1), SIZES["grids"])
        of_tower = each
    elif rule.fixed == SIZES["gemma_4"]:
        each, of_tower = SIZES["video"], SIZES["of_frames"]
    elif rule.most == SIZES["pixels_of_qwen_3"] and run.release.pads_videos:
        each, of_tower = SIZES["padded_video"], SIZES["of_qwen_3"]
    items = max(min(run.tokens // each, run.sequences * max(run.length // each, 1)), 1)
    patches, h = tower.positions(of_tower * items), tower.hidden_size
    mlp = (3 if tower.gated_mlp else 2) * tower.intermediate_size
    attending = 4
    if tower.rotary:
        older = int(FITTED["attending"]) if rule.most != SIZES["pixels_of_dots"] else SIZES["attending_dots"]
        attending = int(FITTED["attending_later"]) if run.release.since >= FIRST["later_towers"] else older
    widest, stream = max(attending * h, mlp) // run.tensor, 3 if tower.rotary else 2
    words = f"{items} x {each:,} tokens of images: {patches:,} patches x {run.itemsize} B x ({tower.pixels} pixels + "
    words += f"{stream} x {h} stream + {widest})"
    return (
        rounded((each * items + run.tokens) * model.hidden_size * run.itemsize),
        rounded(patches * (tower.pixels + stream * h + widest) * run.itemsize),
        words,
    )


def room_left(blocks: Iterable[tuple[int, int]]) -> int:
    """Bytes of the largest free block in segments of 20 MiB that hold these (bytes, how many), each in the best fit."""
    rooms: list[int] = []
    for size, count in blocks:
        for _ in range(count if SMALL_LIMIT < size < LARGE_EXACT else 0):
            room = min((one for one in rooms if one >= size), default=LARGE_SEGMENT)
            rooms = [one for one in rooms if one != room] + [room] * (rooms.count(room) - 1) + [room - size]
    return max(rooms, default=0)


def profiled_batch(share: Share, run: ProfiledPass) -> tuple[int, str]:
    """Bytes of the fullest moment of one pass and of sampling after it, and a formula (v1/worker/gpu_model_runner.py,
    profile_run).
    """
    model, wide = share.model, rounded(run.tokens * share.model.hidden_size * run.itemsize)
    twice, stream = 2 if model.gated_mlp else 1, f"{SIZES['streams']} x {model.hidden_size} stream"
    embeddings, encoding, images = encoded_images(model, run) if share.begins else (0, 0, "")
    # How often each word came in each sequence, and which are in its prompt: there before the pass.
    is_counted = run.release.is_v2 and share.ends and run.release.since >= FIRST["consumed"]
    counted = (run.vocabulary, -(-run.vocabulary // 32)) if is_counted else ()
    words_seen = sum(rounded(run.sequences * size * 4) for size in counted)
    resident = embeddings + words_seen + (SIZES["handed_on"] * wide if share.stages > 1 else 0)
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
    passing = resident + SIZES["streams"] * wide + rounded(run.tokens * max(attending, mlp) * run.itemsize) + run.tuned
    words = f"{run.tokens:,} tokens x {run.itemsize} B x ({attention if attending >= mlp else words})"
    moments = [(passing, words), (embeddings + encoding, images)]
    if run.tuned_table:
        words = f"Inductor tunes on a copy of the embedding of {run.tuned_table:,} B"
        moments.append((words_seen + run.tuned_table + 2 * wide, words))
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
    return size, formula + (f"; {resident:,} B of counts of words, experts, images or a stage" if resident else "")


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool is cut: pages of so many bytes for `block` tokens over the layers of one group.

    Attributes:
        groups: (tokens after which a group's pages are used again, or None; tokens in a page; how many groups).
        states: pages of a sequence in groups whose layers keep a state.
        length: of one sequence, which holds `per_sequence` pages.
        ahead: tokens that one pass may write before older ones are let go.
    """

    page: int
    block: int
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
FLASHINFER = {(8, 0), (8, 6), (8, 9), (12, 0)}
GRAPH_SOURCE = "attention's buffers: vLLM 0.19, v1/attention/backends/flash_attn.py; the rest fitted to logs of H100s"
SOURCE_ELSEWHERE = "fitted to three logs of vLLM 0.21 on an A6000 and RTX 3090s; take half to twice of it"
AMPERE = (8, 0)
# What a checkpoint may leave out of each format (Unsloth's dynamic files: nf4-double).
CHECKPOINTS: dict[str, Literal["attention", "attention and outer layers"]] = {
    **dict.fromkeys(("fp8", "int4", "int8", "nvfp4"), "attention"), "nf4-double": "attention and outer layers",
}  # fmt: skip
# Marlin pads the width of MXFP4 experts to 128 and the stream's to 256 (65.97 GiB of gpt-oss-120b, vllm#23278),
# FlashInfer on Blackwell both to 256. Triton on Hopper swizzles values along the products' inner dimension in steps of
# 256 (64.38 GiB, vllm#33155), which vLLM takes there from 0.11 on.
PADDED_SOURCE = "vLLM, vllm/model_executor/layers/quantization/mxfp4.py"
WORKER = "vLLM, vllm/v1/worker/gpu_worker.py, determine_available_memory"
LARGE_CARD = 70 * GIB
HOPPER = (9, 0)
# Sequences at once and tokens of a pass where nothing is said, and on GPUs from 70 GiB on that are no A100
# (vllm/engine/arg_utils.py, get_batch_defaults).
SEQUENCES, SEQUENCES_LARGE = 256, 1024
TOKENS, TOKENS_LARGE = 2048, 8192


class VllmWorker(NamedTuple):
    """One rank: its parts (that of the cache without its size), and bytes outside torch that count against the share:
    of kernels, of `links` between ranks, of NCCL where ranks `met` after the first look, and `pinned` in the cache;
    `warm` of all are not taken in a start that finds its code compiled, or where FlashInfer samples.
    """

    share: Share
    parts: dict[str, Fact]
    graphs_in_share: bool
    kernels: int
    links: int
    met: int
    pages: Pages
    pinned: int
    warm: int

    @property
    def fixed(self) -> int:
        inside = sum(fact.bytes for name, fact in self.parts.items() if name != "cuda graphs" or self.graphs_in_share)
        return inside + self.kernels + self.links + self.met + self.pinned


def release_of(run: ServeRun) -> tuple[tuple[int, ...], VllmRelease]:
    """The run's version of vLLM, else the newest one, and how it looks for the room that is left."""
    version = serving.engine_release(run, "vLLM", "0.19") or RELEASES[0].since
    return version, next(one for one in RELEASES if one.since <= version)


class Server:
    """One vLLM server; the rank with the least room decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        serving.refuse_settings_of_others(run, "vLLM")
        is_gemma_4 = model.image_tokens is not None and model.image_tokens.fixed == SIZES["gemma_4"]
        if run.text_only:
            tensors = tuple(group for group in model.tensors if group.place != "tower")
            model = msgspec.structs.replace(model, tower=None, tensors=tensors)
        elif run.quantization == "fp8" or (run.quantization and is_gemma_4):
            widths = ((group, 16 if group.place == "tower" else group.bits) for group in model.tensors)
            tensors = tuple(msgspec.structs.replace(group, bits=bits) for group, bits in widths)
            model = msgspec.structs.replace(model, tensors=tensors)
        self.model, self.run, self.device, self.parallel = model, run, device, parallel
        version, self.release = release_of(run)
        self.has_states = any(kind.state or kind.state_fp32 for kind in decoder_spec(model).caches())
        if run.is_v1 is not None and V1_OF_7.since <= version < FIRST["without_v0"] and run.is_v1 == self.release.is_v0:
            self.release = V1_OF_7 if run.is_v1 else next(one for one in RELEASES if one.is_v0)
        elif self.release.is_v2 and version < FIRST["v2_for_all"] and (model.num_experts or self.has_states):
            self.release = msgspec.structs.replace(FIRST_RUNNER, state_pages=self.release.state_pages)
        unpacks = run.quantization == "nf4-double" and self.release.since >= FIRST["single_scales"]
        self.loaded = msgspec.structs.replace(run, quantization="nf4") if unpacks else run
        if run.prefix_caching is not None and not self.release.counts_groups:
            self.release = msgspec.structs.replace(self.release, state_pages=1 + run.prefix_caching)
        self.ranks = parallel.ranks // parallel.data
        self.length = serving.context_length(model, run)
        self.share = run.gpu_memory_utilization or self.release.share
        self.budget = int(device.total_memory * self.share)
        # NVML does not tell vLLM the memory of a GB10 (platforms/cuda.py, 0.20; vllm-project/vllm#57378).
        large = device.total_memory >= LARGE_CARD and device.capability != (8, 0) and device.name != "GB10"
        large = large and not self.release.is_v0
        self.sequences = run.max_num_seqs or (SEQUENCES_LARGE if large or self.release is V1_OF_7 else SEQUENCES)
        self.tokens = run.max_num_batched_tokens or (TOKENS_LARGE if large else TOKENS)
        if not run.max_num_batched_tokens:
            if self.release.is_v0:
                chunked = self.length > SIZES["long"] and device.capability >= AMPERE
                self.tokens = SIZES["chunk"] if chunked else max(self.length, TOKENS)
            hears = any(group.name.startswith("audio.") for group in model.tensors)
            if version >= FIRST["widened"] and model.tower and is_gemma_4 and not hears:
                self.tokens = max(self.tokens, SIZES["video"])
            self.tokens = min(self.tokens, self.sequences * self.length)  # no more than so many whole sequences
        at_once = parallel.pipeline + 1 if self.release.is_v2 else max(parallel.pipeline, 2)
        self.ahead = self.tokens * (at_once if version >= FIRST["in_flight"] else 1)
        # Whole passes of up to `sequences`, and pieces of twice as many in V1 (config/vllm.py, _set_cudagraph_sizes).
        sizes = [1, 2, 4, *range(8, 257, 8), *range(272, MOST_CAPTURED + 1, 16)]
        is_gpt_oss = run.quantization == "mxfp4" and version >= FIRST["pieces_of_gpt_oss"]
        pieces = SIZES["pieces_of_gpt_oss"] if is_gpt_oss else bisect(sizes, 2 * self.sequences)
        whole = bisect(sizes, self.sequences) + pieces * (not self.release.is_v0)
        self.captured = PIECES if self.release.is_piecewise else whole
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
            most = model.image_tokens.most if model.image_tokens else None
            if most in {SIZES["pixels_of_qwen_2"], SIZES["pixels_of_qwen_3"]} and not self.has_states:
                width *= SIZES["m_rope"]
            rotary = rounded(model.max_position_embeddings * width * recipe.compute)
        is_tuned = not run.enforce_eager and release.tunes_embedding and share.begins and model.tower is None
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
            tuned_table=model.vocab_size * model.hidden_size * recipe.compute * is_tuned,
            length=0 if release.is_v0 else self.length,
        )
        links = int(FITTED["links_hopper" if capability == HOPPER and release.keeps_workspace else "links"] * KIB)
        links *= self.parallel.tensor > 1
        met = 0 if release.keeps_workspace else nccl_bytes(self.ranks, capability)
        met_before = release.keeps_workspace and (share.stages > 1 or links)
        loaded = 1 if release.from_start else FITTED["loaded_later" if met_before else "loaded_by_pass"]
        if release.torch_only:
            loaded = met = links = 0
        kind = "dense" if model.num_experts is None else "shared" if model.shared_size else "routed"
        layer = FITTED[f"{kind}_layer"] * KIB
        graphs = int(share.layers * layer * self.captured * FITTED["elsewhere"] + FITTED["first_elsewhere"] * KIB)
        if capability == FLASH_ATTENTION_3:
            graphs = int(share.layers * layer * self.captured + FITTED["first_capture"] * KIB)
            if recipe.compute == HALF and model.kv_lora_rank is None and not release.is_piecewise:
                # The fp32 parts of split attention's answers and their sums, of the largest batch captured whole.
                each = min(self.sequences, MOST_CAPTURED) * model.num_attention_heads * (model.head_size + 1)
                graphs += 4 * MOST_SPLITS * each
        in_share = release.graphs_in_share if run.graphs_in_share is None else run.graphs_in_share
        every, drafts = decoder_spec(model).caches(share.first, share.stop), (run.drafts or 0) * share.ends
        if drafts:  # by a layer that attends to all tokens, after a product of two widths (models/qwen3_5_mtp.py, 0.27)
            own = max(every, key=lambda kind: (kind.per_token > 0, kind.window is None))
            every = tuple(msgspec.structs.replace(one, layers=one.layers + (one is own)) for one in every)
        kinds = tuple(kind for kind in every if kind.per_token)
        is_flashinfer = run.kv_cache == "fp8" and capability in FLASHINFER and len({k.per_token for k in kinds}) == 1
        graphs += int(FITTED["flashinfer"] * KIB) * (in_share and is_flashinfer and not drafts)
        if not kinds:
            raise UserError("run.kind = 'serve': a model of states only has no pages; take run.kind = 'infer'")
        # Groups are as large as the smallest kind of layers, the last one padded; a page has room for a state, three of
        # its convolution's four columns and one for a draft (layers/mamba/mamba_utils.py, 0.20), and more tokens of
        # layers with fewer numbers (v1/core/kv_cache_utils.py, unify_kv_cache_spec_page_size). Drafts have states too.
        states, bits = [kind for kind in every if not kind.per_token], cache_bits(run.kv_cache, run.precision)
        size, numbers = min(kind.layers for kind in every), max(kind.per_token for kind in kinds)
        state = max((kind.state * (3 + drafts) // 4 * 2 + kind.state_fp32 * 4 for kind in states), default=0)
        block = max(run.block_size, -(-int(state * 8 / numbers / bits) // 16) * 16)
        pages = Pages(
            page=int(size * block * numbers * bits / 8),
            block=block,
            groups=tuple((kind.window, block * (numbers // kind.per_token), -(-kind.layers // size)) for kind in kinds),
            states=sum(-(-kind.layers // size) for kind in states) * (release.state_pages + drafts),
            length=self.length,
            ahead=self.ahead,
        )
        inner, outer, padded = model.expert_size, model.hidden_size, 0.0
        for one in share_tensors(share) if run.quantization == "mxfp4" else ():
            if one.module.startswith("experts_") and len(one.shape) == len(("expert", "rows", "columns")):
                width = inner if one.module == "experts_down_proj" else outer
                more = one.numel * one.count / 2 * (-width % 256) / width
                if capability != HOPPER or not release.keeps_workspace:
                    wide = (inner + -inner % (256 if capability[0] == 10 else 128)) * (outer + -outer % 256)
                    more = one.numel * one.count * 4.25 / 8 * (wide / (inner * outer) - 1)
                padded += more
        kernels = int(cuda_context_bytes(capability) * loaded)
        (profiled, words), workspace = profiled_batch(share, batch), workspace_bytes(capability)
        weights = serving.weights_of(share, self.loaded, recipe)
        drawn = {"quantization": None} if run.quantization == "nvfp4" else {}  # modelopt leaves it in 16 bits
        layer = serving.weights_of(share, msgspec.structs.replace(self.loaded, **drawn), recipe).layers // share.layers
        draft = bool(drafts) * (layer + 2 * model.hidden_size**2 * recipe.frozen // self.parallel.tensor)
        masks = [(self.sequences * -(-self.model.vocab_size // 32) * 4, 2 * release.is_v2)]
        fits = room_left([*weights.each, (rotary, 1), *masks]) >= workspace
        pinned = 0 if fits or not release.pins else batch.tuned_table
        if release.holds_reduced and self.parallel.tensor > 1:
            # Each layer sums twice. If all of it does not fit, the allocator waits for the ranks and reuses some.
            pinned = (2 * share.layers + share.begins) * rounded(self.tokens * model.hidden_size * recipe.compute)
            taken = pinned + weights.blocks.bytes + profiled + kernels + links + met
            pinned *= taken <= device.total_memory
        quicker = msgspec.structs.replace(release, sampled=release.by_flashinfer or release.sampled)
        warm = profiled - profiled_batch(share, msgspec.structs.replace(batch, tuned_table=0, release=quicker))[0]
        parts = {
            **serving.weight_parts(weights, rotary),
            "expert padding": Fact(
                "weights", "MXFP4 experts as the kernels want them", PADDED_SOURCE, bytes=int(padded)
            ),
            "draft layer": Fact(
                "weights", "one layer more, and a product of 2 x h x h", "vLLM, models/qwen3_5_mtp.py", bytes=draft
            ),
            "kv cache": Fact(
                "kv_cache",
                f"{pages.page:,} B each; {sum(kind.layers for kind in kinds)} layers x {shape_words(model)} in "
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
        return VllmWorker(share, parts, in_share, kernels, links, met, pages, pinned, warm + pinned)

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
            raise serving.TooLargeError(
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
        taken = (
            f"gpu_memory_utilization takes {self.share:g} of all {format_bytes(self.device.total_memory)} of the card, "
            f"{format_bytes(self.budget)}, whatever else runs there; the context from before the first pass is on top"
        )
        room = (
            f"room for {self.room:,} tokens of keys and values: {self.blocks / pages.per_sequence:.2f} sequences of "
            f"{self.length:,} tokens at once, of at most {self.sequences} that run together"
        )
        notes = [taken, room]
        if run.engine_version is None:
            newest = ".".join(map(str, RELEASES[0].since))
            notes.append(f"as vLLM {newest} and later; run.engine_version names another (0.6.3, from its log)")
        if parts["expert padding"].bytes:
            notes.append("experts are counted as the kernels pad them, not as the file holds them")
        # How much more the weights may take, and how much less the cache, by what is not known.
        part, size, recipe = worker.share, parts["weights"].bytes, inference_recipe(run.precision)
        more, less, reasons = 0, 0, list[str]()
        if (left := CHECKPOINTS.get(run.quantization or "")) and run.unquantized is None and run.stored is None:
            plain = msgspec.structs.replace(self.loaded, unquantized=left)
            more = serving.weights_of(part, plain, recipe).blocks.bytes - size
            reasons.append(f"as the checkpoint's config.json leaves {left} in 16 bits or not (run.unquantized)")
            if run.quantization == "int4":
                more += int(size * (16 / SIZES["smallest_group"] - 20 / GROUP) / 4)
                reasons.append(f"and has groups of {SIZES['smallest_group']} or {GROUP}")
            less = more
        if self.has_states:
            less += SIZES["states_streams"] * self.tokens * part.model.hidden_size * recipe.compute
            reasons.append("a pass through layers with states is counted as through attention of the same sizes")
        for holds, reason in (
            (self.device.name.startswith(serving.UNIFIED), "the host's page cache counts while files are read"),
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
        if worker.warm and release.by_flashinfer:
            reasons.append("FlashInfer samples without a sort, where it is installed as in vLLM's images")
        elif worker.warm:
            reasons.append("a start that finds its code compiled tunes on no copy of the embedding")
        if less or worker.warm:
            weights = f"weights {format_bytes(size)} to {format_bytes(size + more)}, " if more else ""
            least, most = (format_bytes(max(end, 0)) for end in (cached - less, cached + worker.warm))
            notes.append(f"{weights}kv cache {least} to {most}: {'; '.join(reasons)}")
        if parallel.ranks > 1:
            notes.append(f"bytes of one card of {parallel.ranks}; the tightest: {place_of(worker.share)}")
        if parallel.data > 1:
            notes.append(f"{parallel.data} replicas, each with a pool of its own")
        return serving.served(parts, self.device, tuple(notes), reserved=reserved, ranks=self.ranks, links=worker.links)

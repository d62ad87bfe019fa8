"""SGLang: weights and a pool of keys and values in a fraction of the GPU, the rest for activations and graphs.

Sources: SGLang, python/sglang/srt/server_args.py, _handle_gpu_memory_settings (after pull request 15927), for the
fraction, since 0.5.3 (pull request 10975); srt/model_executor/model_runner_kv_cache_mixin.py (at 001ccef) for the pool;
srt/mem_cache/memory_pool.py.
"""

from typing import NamedTuple

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving import parts as serving
from vramtui.estimators.analytic.serving.vllm import FIRST_RUNNER, ProfiledPass, profiled_batch
from vramtui.estimators.analytic.sizes.partition import Share, nccl_bytes, place_of, telling_shares
from vramtui.estimators.analytic.sizes.precision import cache_bits, inference_recipe
from vramtui.estimators.torch_facts.cards import card_limits, cuda_context_bytes
from vramtui.models.specs.decoder import cache_source, decoder_spec

# Tokens that sliding layers have room for, of those that others have, and states of whole sequences besides keys and
# values: SGLang's own defaults (server_args.py, swa_full_tokens_ratio and mamba_full_memory_ratio).
SLIDING_TOKENS, STATES = 0.8, 0.9

# Defaults on GPUs with less than so many GiB: tokens of a chunk, and the largest batch of a graph, and that from four
# tensor ranks on.
CARDS = (
    (20, 2048, 8, 8), (35, 2048, 24, 80), (60, 4096, 32, 160), (90, 8192, 256, 512), (160, 8192, 256, 512),
    (float("inf"), 16384, 512, 512),
)  # fmt: skip
MANY = 4
# Before 0.5.3, from 0.4.7 on (pull request 7054): GiB set aside on GPUs with less than so many GiB, and more for each
# rank; before that the fraction by tensor ranks, from so many on (server_args.py, __post_init__).
ASIDE = ((35, 2.8, 0.1), (90, 9.5, 0.5), (160, 12, 0.5), (float("inf"), 32, 0))
FRACTIONS = ((16, 0.79), (8, 0.81), (4, 0.85), (2, 0.87), (1, 0.88))
# MiB set aside: for what lasts, for each token of a chunk, for each sequence of the largest graph, for eight ranks; and
# the least on cards of more than 60 GiB.
LASTING, TOKEN, SEQUENCE, EIGHT_RANKS, LEAST, LARGE = 512, 1.5, 2, 1024, 10 * 1024, 60 * GIB
SMALLEST_CHUNK = 2048
# With a tower for images about as large as ViT-L; a larger one lowers it to 0.76 (adjust_mem_fraction_for_vlm).
WITH_TOWER = 0.95
FEWEST, MOST, PER_CONTEXT = 2048, 4096, 512
MORE_POSITIONS = 4  # positions of a sequence beyond its context in the table of requests
# What the host holds of a GB10's memory before the model is loaded (112.9 and 113.9 GiB were free in two logs).
HOST = 8 * GIB


class SglangSettings(NamedTuple):
    chunk: int
    graphs: int
    fraction: float


class PooledRank(NamedTuple):
    """A rank's share, weights and profiled chunk, and its pool, which is cut by tokens: all its bytes with the states
    of whole sequences, bytes of a token over all layers, and the tokens that have room; 0 or less if none has.
    """

    share: Share
    weights: serving.ServedWeights
    rotary: int
    profiled: tuple[int, str]
    pool: int
    token: int
    tokens: int
    notes: tuple[str, ...]


def settings_of(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> SglangSettings:
    """The run's own, or what SGLang takes on such a card."""
    release = serving.engine_release(run, "SGLang", "0.5.3") or (1,)
    _, usual, few, many = next(row for row in CARDS if device.total_memory < row[0] * GIB)
    chunk, graphs = run.max_num_batched_tokens or usual, many if parallel.tensor >= MANY else few
    if run.mem_fraction_static is not None:
        return SglangSettings(chunk, graphs, run.mem_fraction_static)
    ranks, whole = parallel.tensor * parallel.pipeline, device.total_memory / MIB
    aside = LASTING + TOKEN * max(chunk, SMALLEST_CHUNK) + SEQUENCE * graphs + ranks / 8 * EIGHT_RANKS
    if device.total_memory > LARGE:
        aside = max(aside, LEAST)
    if release < (0, 5, 3):
        aside = next(1024 * (base + each * ranks) for most, base, each in ASIDE if device.total_memory < most * GIB)
    fraction = round((whole - aside) / whole, 3)
    if release < (0, 4, 7):
        fraction = next(share for least, share in FRACTIONS if parallel.tensor >= least)
    sees = any(group.place == "tower" for group in model.tensors)
    return SglangSettings(chunk, graphs, fraction * (WITH_TOWER if sees else 1))


class SglangServer:
    """One SGLang server; the rank with the least room decides for all."""

    def __init__(self, model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> None:
        serving.refuse_settings_of_others(run, "SGLang")
        if run.cpu_offload_gb is not None:
            raise UserError("run.cpu_offload_gb is vLLM's; SGLang's own way to host memory is not modelled")
        self.run, self.device, self.parallel = run, device, parallel
        self.ranks = parallel.ranks // parallel.data
        self.length = serving.context_length(model, run)
        self.settings = settings_of(model, run, device, parallel)
        before = cuda_context_bytes(device.capability) + nccl_bytes(self.ranks, device.capability)
        self.free = device.total_memory - before - HOST * (device.name == "GB10")
        recipe, ranks = inference_recipe(run.precision), []
        batch = ProfiledPass(
            tokens=self.settings.chunk,
            sequences=self.settings.graphs,
            itemsize=recipe.compute,
            vocabulary=model.vocab_size,
            multiprocessors=card_limits(device).multiprocessors,
            release=FIRST_RUNNER,
        )
        bits = cache_bits(run.kv_cache, run.precision)
        for share in telling_shares(model, parallel):
            weights = serving.weights_of(share, run, recipe)
            # Sines and cosines of every position in fp32 (srt/layers/rotary_embedding.py), which SGLang reports with
            # the weights; runs of its own code have as many tokens without them (serving/test_pool.py).
            width = model.qk_rope_head_dim or model.head_size
            rotary = 4 * width * (model.max_position_embeddings or 0) * (model.position == "rope")
            room = int(self.free * self.settings.fraction) - weights.blocks.bytes - weights.blocks.tails
            kinds = decoder_spec(share.model).caches(share.first, share.stop)
            # Layers that share another's keys and values have a pool of their own all the same (Gemma 4 E4B, 0.5.23).
            shared = share.layers / sum(kind.layers for kind in kinds)
            straight, sliding = (
                int(sum(k.layers * k.per_token for k in kinds if (k.window is None) is whole) * shared * bits / 8)
                for whole in (True, False)
            )
            state = int(sum(kind.layers * (kind.state * bits / 8 + 4 * kind.state_fp32) for kind in kinds))
            each, inside, notes = straight + sliding, room, []
            if not each:
                raise UserError("run.kind = 'serve': a model of states only has no pool; take run.kind = 'infer'")
            if state:
                states = self.run.max_mamba_cache_size or max(0, room - int(room / (1 + STATES))) // state
                inside = room - states * state
                notes.append(f"states of whole sequences: {states:,} of {state:,} B each in the pool")
            # Of Gemma 2 and 3 all layers keep all tokens (arg_groups/model_overrides/gemma2_gemma3.py, 0.5.6, 0.5.23),
            # of Gemma 4, whose layers differ in width, they do not.
            differ = len({kind.per_token for kind in kinds}) > 1
            if straight and sliding and (differ or share.model.norm != "gemma_rmsnorm"):
                each = straight + int(SLIDING_TOKENS * sliding)
                notes.append(f"layers that slide have room for {SLIDING_TOKENS:g} of the tokens of the others")
            profiled = profiled_batch(share, batch)
            ranks.append(PooledRank(share, weights, rotary, profiled, max(0, room), each, inside // each, tuple(notes)))
        self.rank = min(ranks, key=lambda rank: rank.tokens)
        most = min(max(self.rank.tokens * PER_CONTEXT // self.length, FEWEST), MOST)
        self.requests = run.max_num_seqs or most  # at once (init_memory)

    def estimate(self) -> Estimate:
        rank, settings = self.rank, self.settings
        if rank.tokens <= 0:
            needed = rank.weights.blocks.bytes + rank.weights.blocks.tails + rank.token
            raise serving.TooLargeError(
                f"run.mem_fraction_static = {settings.fraction:.3g} of {format_bytes(self.free)} that "
                f"{self.device.name} has free before the model is loaded leaves nothing for keys and values besides "
                f"{format_bytes(needed)} of weights; take more cards (parallel.tensor), fewer bits (run.quantization) "
                "or a larger card",
                int(needed / settings.fraction) + self.device.total_memory - self.free,
            )
        table = 4 * (self.requests + 1) * (self.length + MORE_POSITIONS)
        parts = {
            **serving.weight_parts(rank.weights, rank.rotary),
            "kv cache": Fact(
                "kv_cache",
                f"{settings.fraction:.3g} of {format_bytes(self.free)} that are free before the model is "
                f"loaded, less the weights: {rank.tokens:,} tokens x {rank.token:,} B",
                "SGLang, srt/model_executor/model_runner_kv_cache_mixin.py; " + cache_source(rank.share.model),
                bytes=rank.pool,
                count=2 * rank.share.layers,
            ),
            "table of requests": Fact(
                "workspaces",
                f"{self.requests + 1:,} requests x {self.length + MORE_POSITIONS:,} positions x 4 B",
                "SGLang, srt/mem_cache/memory_pool.py, ReqToTokenPool",
                bytes=table,
                count=1,
            ),
            "activations of a chunk": Fact(
                "activations",
                rank.profiled[1],
                "the model's shapes, as vLLM's layers of the same shapes hold them",
                "within a pass",
                bytes=rank.profiled[0],
            ),
        }
        if not self.run.enforce_eager:
            parts["cuda graphs"] = Fact(
                "workspaces",
                f"{SEQUENCE} MiB x {settings.graphs} sequences of the largest graph: what SGLang sets "
                "aside for them; only a run shows what they take",
                "SGLang, python/sglang/srt/server_args.py, _handle_gpu_memory_settings",
                bytes=SEQUENCE * MIB * settings.graphs,
            )
        outside = int(self.free * (1 - settings.fraction))
        own = self.run.mem_fraction_static is not None
        taken = (
            f"mem_fraction_static{'' if own else ', as SGLang sets it'}: {settings.fraction:.3g}; "
            f"{format_bytes(outside)} are left for chunks of {settings.chunk:,} tokens, graphs of up to "
            f"{settings.graphs} sequences and the table of requests"
        )
        room = (
            f"room for {rank.tokens:,} tokens of keys and values: {rank.tokens / self.length:.2f} sequences "
            f"of {self.length:,} tokens at once, of at most {self.requests:,} requests"
        )
        notes = [taken, room, *rank.notes]
        if self.device.name.startswith(serving.UNIFIED):
            notes.append(f"kv cache 0 B to {format_bytes(rank.pool)}: what the host holds of the memory is not free")
        if any(group.place == "tower" for group in rank.share.model.tensors) and not own:
            notes.append("with a tower for images SGLang takes less, by its size: 0.95 of it here, 0.76 at the least")
        notes.append("activations are those of vLLM's layers of the same shapes, which was never measured here")
        if (ranks := self.parallel.ranks) > 1:
            notes.append(f"bytes of one card of {ranks}; the tightest: {place_of(rank.share)}")
        return serving.served(parts, self.device, tuple(notes), ranks=self.ranks)

"""llama.cpp: the layers on the card, a cache for the whole context, and the compute buffer of one micro-batch."""

import re
import sys
from bisect import bisect
from collections.abc import Sequence
from math import prod

from msgspec.structs import replace

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, MIB, format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import LayerCache, TransformerModel
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving.parts import context_length, served
from vramtui.estimators.analytic.sizes import precision as precisions
from vramtui.estimators.torch_facts.cards import cuda_context_bytes
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import cache_source, decoder_spec, shape_words

MICRO_BATCH = 512
# Builds from which the output layer is the first to go to the GPU (pull request 18148, December 2025; before, the last)
# and the buffer has logits of sampled tokens only (23861, June 2026); days apart by build numbers of reports.
OUTPUT_FIRST, FEWER_LOGITS = 7500, 9450
# The context if none is given: the model's own; from pull request 10136 (November 2024) 4,096; from 16653 (December
# 2025) the model's own, cut until this much of each GPU is left (common/fit.cpp and common/common.h, 08033df02).
FIXED, FITTED, LEAST_CONTEXT, LEFT_FREE = 4020, 7410, 4096, GIB
# The projector's own buffers: 1,136 MiB in all of Qwen's of 0.46 billion numbers, as llama-server says (ollama#17482).
PROJECTOR_BUFFER = 256 * MIB
CACHE_STEP = 256
# Ollama's context by the memory of all its GPUs since 0.15.5 (server/routes.go, 0.33.2); before, the last of them.
OLLAMA_CONTEXTS, OLLAMA_TIERS = ((47 * GIB, 262_144), (23 * GIB, 32_768), (0, 4_096)), (0, 15, 5)
CHECKPOINTS = 24  # states that Ollama keeps of each sequence besides its own (kvcache/recurrent.go, 0.20)
SEQUENCES = 4  # which share one cache if llama-server is not given a number (tools/server/server.cpp, 0c1e57098)
SOURCE = "llama.cpp 0c1e57098, src/llama-context.cpp; the buffers that its CUDA build reports on an emulated H100"


class Offloaded:
    """The part of a model on one GPU of several, or on all: the last `layers` blocks and the output layer (`-ngl`).

    Layers go to GPUs in their order, by `-ts` or alike (llama-model.cpp, load_tensors).
    """

    def __init__(self, model: TransformerModel, run: ServeRun, gpu: int | None = None, gpus: int = 1) -> None:
        self.model, self.run = model, run
        every = model.num_hidden_layers
        self.build = build_of(run)
        asked = every + 1 if run.gpu_layers is None else min(run.gpu_layers, every + 1)
        first_output = self.build >= OUTPUT_FIRST and run.engine != "ollama"
        self.output = asked > (0 if first_output else every)
        self.layers = max(0, min(asked - first_output, every))
        self.is_whole, start = self.layers == every, every - self.layers  # no block is in host memory
        self.first, self.stop = start, every
        if gpu is not None:
            shares = shares_of(run) or (1.0,) * gpus
            ends = [sum(shares[: one + 1]) / sum(shares) for one in range(len(shares))]
            places = [bisect(ends, number / max(asked, 1)) for number in range(self.layers + self.output)]
            own = [number for number, place in enumerate(places) if min(place, gpus - 1) == gpu]
            self.output = self.output and self.layers in own
            blocks = [number for number in own if number < self.layers]
            self.first = start + (blocks[0] if blocks else self.layers)
            self.layers, self.stop = len(blocks), self.first + len(blocks)
        # Blocks of these whose experts are in host memory.
        self.without_experts = max(0, min(self.stop, run.cpu_moe or 0) - self.first) if model.num_experts else 0
        self.recipe = precisions.inference_recipe(run.precision)
        self.batch = run.max_num_batched_tokens or MICRO_BATCH
        # The compute buffer before June 2026: logits of each token of a micro-batch.
        self.all_logits = 4 * self.batch * (model.hidden_size + model.vocab_size) * self.output
        types = run.kv_cache, run.kv_cache_v or run.kv_cache  # of keys and values, which are as many
        self.bits = sum(precisions.cache_bits(one, run.precision) for one in types) / 2
        self.sequences = run.max_num_seqs or SEQUENCES
        # Each of them has its own part of the context where their number is given.
        self.parts = run.max_num_seqs or 1
        self.context = _in_steps(-(-context_length(model, run) // self.parts))

    def weights(self) -> int:
        """Bytes of the tensors on the card; the embedding of words stays in host memory."""
        stored, tensors = self.run.stored, self._tensors()
        others = [one for one in tensors if not one.module.startswith("experts_")]
        if stored is not None:
            share = stored.blocks * self.layers // self.model.num_hidden_layers
            blocks = precisions.numel_of(one for one in tensors if one.layer)
            experts = share * (precisions.numel_of(tensors) - precisions.numel_of(others)) // max(blocks, 1)
            # An output layer that is the embedding is one more copy of it.
            last = stored.output + (stored.embedding if self.model.tie_word_embeddings else 0)
            size = share + (last if self.output else 0)
        else:
            size = self._bytes(tensors)
            experts = size - self._bytes(others) if self.without_experts else 0
        return size - experts * self.without_experts // max(self.layers, 1)

    def _bytes(self, tensors: Sequence[Parameter]) -> int:
        size, kind = (
            self.recipe.frozen,
            self.run.quantization or ("mxfp4" if precisions.in_mxfp4_files(tensors) else None),
        )
        if kind is None:
            return precisions.block_bytes(tensors, size).bytes
        return precisions.quantized(tensors, size, kind, self.model.num_hidden_layers).bytes

    def _tensors(self) -> tuple[Parameter, ...]:
        spec = decoder_spec(self.model)
        tensors = list(spec.block_tensors(self.first, self.stop))
        if self.output:
            tensors += spec.tensors_after()
            if self.model.tie_word_embeddings:
                tensors += spec.tensors_before()[:1]
        return tuple(tensors)

    def cache(self) -> tuple[int, str]:
        """Bytes of these layers' cache for the whole context, and the arithmetic."""
        if self.run.no_kv_offload:
            return 0, "the cache is in host memory"
        kinds = self._kinds(self.first, self.stop)
        states = sum(kind.layers * precisions.state_bytes(kind, 2) for kind in kinds)
        copies = self.sequences * (1 + CHECKPOINTS * (self.run.engine == "ollama"))
        size = (precisions.cache_bytes(kinds, self.context, self.bits) - states) * self.parts + states * copies
        each = f"{shape_words(self.model)} x {self.bits / 8:g} B"
        terms = [f"{kind.layers} layers x {self._cells(kind):,} tokens x {each}" for kind in kinds if kind.per_token]
        terms += [f"{copies} states of {states:,} B"] if states else []
        return size, " + ".join(terms) or "no layer is on the card"

    def _cells(self, kind: LayerCache) -> int:
        """How many tokens a layer keeps of all sequences."""
        return self.parts * kind.cached(self.context)

    def _kinds(self, first: int, stop: int | None = None) -> tuple[LayerCache, ...]:
        """The caches from a layer on: a sliding layer keeps a window for each sequence in it and one micro-batch."""
        each = self.sequences // self.parts
        return tuple(
            kind if kind.window is None else replace(kind, window=_in_steps(kind.window * each + self.batch))
            for kind in decoder_spec(self.model).caches(first, stop)
        )

    def compute(self) -> tuple[int, str]:
        """The compute buffer and its arithmetic: the most that stands at once, in fp32, and the masks in fp16.

        Where a layer or its cache stays in host memory, the card works on a prompt all the same: with a copy of its
        weights, a matrix at a time, or of its cache. That is give or take a quarter, as ggml places copies among the
        rest (ggml-alloc.c), and so is that of experts; without both it is llama.cpp's own but for 0.6 MiB.
        """
        model, batch = self.model, self.batch
        heads = 0 if model.fused_qkv else model.num_attention_heads * model.head_size
        stream = f"2 x {model.hidden_size:,} stream + {heads:,} heads"
        # How wide a layer's MLP is with all that stands next to it.
        widths = 3 if model.gated_mlp else 1
        wide, words = widths * model.ffn_size, f"{widths} x {model.ffn_size:,}"
        if model.num_experts:
            chosen = model.num_experts_per_tok or 0
            inner, outer = chosen * model.expert_size, chosen * model.hidden_size
            wide = max(3 * inner, inner + 2 * outer) + 3 * model.shared_size
            words = f"{chosen} experts x " + (
                f"3 x {model.expert_size:,}"
                if inner > outer
                else f"({model.expert_size:,} + 2 x {model.hidden_size:,})"
            )
        size = 4 * batch * (wide + 2 * model.hidden_size + heads)
        formula = f"{batch} tokens x 4 B x ({words} MLP + {stream})"
        at_once = []
        if self.output and self.build >= FEWER_LOGITS:
            rows = min(self.sequences, batch)
            logits = 4 * (rows * model.vocab_size + 3 * batch * model.hidden_size)
            words = f"{rows} x {model.vocab_size:,} logits + {batch} tokens x 3 x {model.hidden_size:,} stream"
            at_once.append((logits, f"4 B x ({words})"))
        if self.run.attention == "eager":
            # The scores of all heads and the mask, in fp32.
            cells = max((self._cells(kind) for kind in self._kinds(0) if kind.per_token), default=0)
            # A fused product and what it is made of lie below the scores (pythia 2.8B, b4300; seen in this log only).
            fused = (model.num_attention_heads + 2 * model.kv_heads) * model.head_size
            below = model.hidden_size + fused if model.fused_qkv else heads
            scores = 4 * batch * ((model.num_attention_heads + 1) * cells + 2 * model.hidden_size + below)
            at_once.append(
                (scores, f"{batch} tokens x 4 B x ({model.num_attention_heads} scores + mask of {cells:,} + {stream})")
            )
        if not self.is_whole and not self.run.no_kv_offload:
            cache = max((self._cells(kind) * kind.per_token for kind in self._kinds(0)), default=0)
            copied = int(cache * self.bits / 8)
            attention = copied + 4 * batch * (2 * model.hidden_size + heads)
            at_once.append(
                (attention, f"{batch} tokens x 4 B x ({stream}) + a copy of a layer's cache of {copied:,} B")
            )
        if not self.is_whole or self.without_experts:
            # A layer's largest matrix as its weights are kept in the mean: of an MLP, or of all its experts.
            runs = (replace(self.run, gpu_layers=count, cpu_moe=None) for count in (None, 1))
            whole, last = (Offloaded(model, run) for run in runs)
            width = model.num_experts * model.expert_size if model.num_experts else model.ffn_size
            numbers = max(precisions.numel_of(whole._tensors()) - precisions.numel_of(last._tensors()), 1)  # noqa: SLF001 - of this class
            matrix = width * model.hidden_size * (whole.weights() - last.weights()) // numbers
            size, formula = size + matrix, f"{formula} + a copy of a matrix of {matrix:,} B"
            if (mix := self.run.quantization) in precisions.MIXES and self.run.stored is None:
                # The larger copy of `down` does not fit where that of `gate` was, so its results do (ggml-alloc.c).
                start, inner = ("experts_", chosen * model.expert_size) if model.num_experts else ("", model.ffn_size)
                names = {f"{start}{name}_proj" for name in ("gate", "up", "gate_up", "down")}
                mlp = [one for one in whole._tensors() if one.module in names]  # noqa: SLF001 - of this class
                sizes = {
                    width * model.hidden_size * each // one.numel
                    for one, blocks in precisions.blocks_of(mlp, 2, mix, model.num_hidden_layers)
                    for each, _ in blocks
                }
                if (copies := sum({min(sizes), max(sizes)})) > max(sizes):
                    down = copies + 4 * batch * (2 * inner + 3 * model.shared_size + 2 * model.hidden_size)
                    at_once.append(
                        (down, f"{batch} tokens x its MLP and stream + copies of two matrices of {copies:,} B")
                    )
        size, formula = max([(size, formula), *at_once])
        masks = sum({kind.cached(self.context) for kind in self._kinds(0) if kind.per_token})
        size, formula = size + 2 * batch * masks, f"{formula} + {batch} tokens x masks of {masks:,} tokens x 2 B"
        before = self.all_logits if self.build < FEWER_LOGITS else 0
        words = f"{batch} tokens x 4 B x ({model.vocab_size:,} logits + {model.hidden_size:,} stream)"
        return (size, formula) if size > before else (before, words)


def _in_steps(tokens: int) -> int:
    return -(-tokens // CACHE_STEP) * CACHE_STEP


def build_of(run: ServeRun) -> int:
    """Return the number of llama.cpp's build, b5466; the newest if none is named, as by Ollama's releases."""
    build = (run.engine_version or "").removeprefix("b")
    if not build or run.engine == "ollama":
        return sys.maxsize
    if not build.isdecimal():
        raise UserError(f"run.engine_version: {build!r} is not a build of llama.cpp; write it as b9842")
    return int(build)


def on_each(model: TransformerModel, run: ServeRun, gpus: int, context: int | None) -> list[Offloaded]:
    run = replace(run, max_model_len=context)
    return [Offloaded(model, run, gpu, gpus) for gpu in range(gpus)] if gpus > 1 else [Offloaded(model, run)]


def _own_context(model: TransformerModel, run: ServeRun, device: Device, gpus: int) -> tuple[int | None, str]:
    """Return the context that llama.cpp takes if none is given, and whose it is; None for the model's longest."""
    build, sequences, own = build_of(run), run.max_num_seqs or 1, model.max_position_embeddings
    if FIXED <= build < FITTED:
        return LEAST_CONTEXT, " (this build's default)"
    if build < FIXED or own is None:
        return None, " (the model's longest)"
    longest, least, step = own * sequences, min(own, LEAST_CONTEXT) * sequences, CACHE_STEP * sequences
    room = gpus * (device.total_memory - cuda_context_bytes(device.capability) - LEFT_FREE)
    if gpus > 1:  # a GPU takes whole layers, or whole tensors of experts
        layer = Offloaded(model, run).weights() // model.num_hidden_layers
        room -= (gpus + 1) * layer // (6 if model.num_experts else 2)
    most, fewest = (
        sum(one.weights() + one.cache()[0] + one.compute()[0] for one in on_each(model, run, gpus, context))
        for context in (longest, least)
    )
    earlier = "" if run.engine_version else "; builds before December 2025 take 4,096"
    if most <= room or most <= fewest:
        return longest, f" (the model's longest{earlier})"
    context = least + max(0, (longest - least) * (room - fewest) // (most - fewest))
    words = f" (the model's {own:,}, cut to leave {format_bytes(LEFT_FREE, 0)} of each GPU free{earlier})"
    return max(least, context // step * step), words


def shares_of(run: ServeRun) -> tuple[float, ...]:
    """The shares of `-ts`, one a GPU; empty if none are given."""
    return tuple(float(share) for share in (run.tensor_split or "").replace("/", ",").split(",") if share)


def estimate_llama_cpp(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    gpus = parallel.pipeline
    if parallel.ranks > gpus:
        raise UserError(
            "parallel.tensor and parallel.data are not llama.cpp's way to share a model: parallel.pipeline splits its "
            "layers over GPUs; or describe one card of it with run.gpu_layers"
        )
    if run.cpu_offload_gb is not None:
        raise UserError("run.cpu_offload_gb is vLLM's; run.gpu_layers says how many blocks llama.cpp has on the card")
    if run.tensor_split and (len(shares_of(run)) != gpus or not sum(shares_of(run))):
        raise UserError(f"run.tensor_split = {run.tensor_split!r} is not one share for each of {gpus} GPUs (--gpus)")
    whose = ""
    if run.engine == "ollama":
        whose = "" if run.max_model_len else f" (Ollama's for {format_bytes(device.total_memory * gpus)} of GPU memory)"
        version = tuple(int(number) for number in re.findall(r"\d+", run.engine_version or ""))
        tiers = OLLAMA_CONTEXTS if not version or version >= OLLAMA_TIERS else OLLAMA_CONTEXTS[-1:]
        longest = next(context for least, context in tiers if device.total_memory * gpus >= least or not least)
        requests = run.max_num_seqs or 1
        context = min(longest, model.max_position_embeddings or longest) * requests
        run = replace(run, max_model_len=run.max_model_len or context, max_num_seqs=requests)
    elif run.max_model_len is None:
        own, whose = _own_context(model, run, device, gpus)
        run = replace(run, max_model_len=own)
    each = on_each(model, run, gpus, run.max_model_len)
    rows = [(one.weights(), one.cache(), one.compute()) for one in each]
    # The projector goes to the first GPU; the fullest GPU is the answer.
    tower = 0
    if run.mmproj:
        groups = [group for group in model.tensors if group.place == "tower"]
        if not groups:
            raise UserError("run.mmproj: the model has no tower, or its tensors are not known")
        tower = 2 * sum(prod(group.shape) * group.count for group in groups) + PROJECTOR_BUFFER
    sums = [size + cache[0] + compute[0] for size, cache, compute in rows]
    sums[0] += tower
    fullest = sums.index(max(sums))
    there, (weights, (cache, cache_words), (compute, compute_words)) = each[fullest], rows[fullest]
    words = f"{there.layers} of {model.num_hidden_layers} layers" + (" and the output layer" if there.output else "")
    if run.stored is not None:
        words += ", as the file holds them"
    else:
        stored = f"{run.quantization}: {precisions.words_for(run.quantization)}" if run.quantization else run.precision
        words += f" in {stored}; norms in fp32"
    source = "llama.cpp, src/llama-quant.cpp; ggml/src/ggml-common.h" if run.quantization else "the model's shapes"
    parts = {
        "weights": Fact("weights", words, source, bytes=weights),
        "kv cache": Fact("kv_cache", cache_words, cache_source(model), bytes=cache),
        "compute buffer": Fact("temporaries", compute_words, SOURCE, bytes=compute),
    }
    if tower and not fullest:
        words = f"the tower in 16 bits, and {format_bytes(PROJECTOR_BUFFER, 0)} that it works in"
        parts["projector"] = Fact("weights", words, "llama.cpp, tools/mtmd", bytes=tower)
    shared = "of one sequence" if run.max_num_seqs == 1 else f"a part for each of {there.sequences} sequences"
    shared = "shared by all sequences" if run.max_num_seqs is None else shared
    token = format_bytes(precisions.bytes_per_token(model, there.bits))
    fused = "flash attention is on, as llama-server has it where the card can; the scores are never materialised"
    notes = [
        f"a context of {there.parts * there.context:,} tokens{whose}, {shared}: {token} a token over all layers",
        fused if run.attention == "flash" else "flash attention is off (-fa off)",
    ]
    if gpus > 1:
        notes += [
            f"CUDA{gpu}: model {size / MIB:,.2f}, KV {cached[0] / MIB:,.2f}, compute {works[0] / MIB:,.2f} MiB"
            for gpu, (size, cached, works) in enumerate(rows)
        ]
        notes.append(f"bytes of one card of {gpus}: CUDA{fullest}, the fullest")
        if not run.tensor_split and there.layers:
            least, most = (format_bytes(cache * (there.layers + one) // there.layers) for one in (-1, 1))
            notes[-1] += f"; kv cache {least} to {most}: without -ts layers are shared by free memory, give or take one"
    if there.all_logits > compute:
        size = format_bytes(there.all_logits)
        notes.append(f"llama.cpp before June 2026 takes {size} as compute buffer, logits of each token in it")
    states = any(kind.state or kind.state_fp32 for kind in decoder_spec(model).caches())
    if model.num_experts or states or not (there.is_whole and (there.output or gpus > 1)):
        notes.append("the compute buffer is give or take a quarter: llama.cpp places copies and experts among the rest")
    all_there = replace(run, gpu_layers=None, cpu_moe=None, no_kv_offload=False)
    every, on_gpus = Offloaded(model, all_there), Offloaded(model, run)
    if not on_gpus.is_whole or not on_gpus.output or on_gpus.without_experts or run.no_kv_offload:
        host = every.weights() + every.cache()[0] - on_gpus.weights() - on_gpus.cache()[0]
        notes.append(
            f"{on_gpus.layers} of {model.num_hidden_layers} layers are on the card"
            + ("" if on_gpus.output else ", the output layer is not")
            + (f", the experts of {on_gpus.without_experts} are not" if on_gpus.without_experts else "")
            + f"; {format_bytes(host)} of blocks, output layer and cache are in host memory"
        )
    if run.stored is None and run.quantization is None:
        notes.append("the embedding of words stays in host memory")
    return served(parts, device, tuple(notes))

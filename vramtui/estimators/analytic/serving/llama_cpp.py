"""llama.cpp: the layers on the card, a cache for the whole context, and the compute buffer of one micro-batch."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.stored_tensors import LayerCache
from vramtui.core.schema.workload import Parallel, ServeRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.serving.parts import context_length, served
from vramtui.estimators.analytic.sizes.precision import (
    block_bytes,
    bytes_per_token,
    cache_bits,
    cache_bytes,
    inference_recipe,
    state_bytes,
)
from vramtui.estimators.analytic.sizes.quantization import quantized, words_for
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import cache_source, decoder_spec, shape_words

MICRO_BATCH = 512
CACHE_STEP = 256
SEQUENCES = 4  # which share one cache where llama-server is not told how many (tools/server/server.cpp, 0c1e57098)
SOURCE = "llama.cpp 0c1e57098, src/llama-context.cpp; the buffers that its CUDA build reports on an emulated H100"


class Offloaded:
    """The part of a model on the GPU: the output layer, which is the first to go there, and the last `layers` blocks.

    Of `-ngl` the output layer is one, since December 2025 the first (pull request 18148; before, the last).
    """

    def __init__(self, model: TransformerModel, run: ServeRun) -> None:
        self.model, self.run = model, run
        every = model.num_hidden_layers
        self.layers = every if run.gpu_layers is None else max(0, min(run.gpu_layers - 1, every))
        self.output = run.gpu_layers is None or run.gpu_layers > 0
        self.first = every - self.layers
        self.recipe = inference_recipe(run.precision)
        self.batch = run.max_num_batched_tokens or MICRO_BATCH
        self.bits = cache_bits(run.kv_cache, run.precision)
        self.sequences = run.max_num_seqs or SEQUENCES
        # Each of them has its own part of the context where their number is given.
        self.parts = run.max_num_seqs or 1
        self.context = _in_steps(-(-context_length(model, run) // self.parts))

    @property
    def is_whole(self) -> bool:
        return self.output and self.layers == self.model.num_hidden_layers

    def weights(self) -> int:
        """Bytes of the tensors on the card; the embedding of words stays in host memory."""
        stored = self.run.stored
        if stored is not None:
            share = stored.blocks * self.layers // self.model.num_hidden_layers
            # An output layer that is the embedding is one more copy of it.
            last = stored.output + (stored.embedding if self.model.tie_word_embeddings else 0)
            return share + (last if self.output else 0)
        tensors = self._tensors()
        if self.run.quantization is None:
            return block_bytes(tensors, self.recipe.frozen).bytes
        return quantized(tensors, self.recipe.frozen, self.run.quantization, self.model.num_hidden_layers).bytes

    def numbers(self) -> int:
        return sum(tensor.numel * tensor.count for tensor in self._tensors())

    def _tensors(self) -> tuple[Parameter, ...]:
        spec = decoder_spec(self.model)
        tensors = list(spec.block_tensors(self.first, spec.layers))
        if self.output:
            tensors += spec.tensors_after()
            if self.model.tie_word_embeddings:
                tensors += spec.tensors_before()[:1]
        return tuple(tensors)

    def cache(self) -> tuple[int, str]:
        """Bytes of the offloaded layers' cache for the whole context, and the arithmetic."""
        kinds = self._kinds(self.first)
        states = sum(kind.layers * state_bytes(kind, 2) for kind in kinds)
        size = (cache_bytes(kinds, self.context, self.bits) - states) * self.parts + states * self.sequences
        each = f"{shape_words(self.model)} x {self.bits / 8:g} B"
        terms = [f"{kind.layers} layers x {self._cells(kind):,} tokens x {each}" for kind in kinds]
        return size, " + ".join(terms) or "no layer is on the card"

    def _cells(self, kind: LayerCache) -> int:
        """How many tokens a layer keeps of all sequences."""
        return self.parts * kind.cached(self.context)

    def _kinds(self, first: int) -> tuple[LayerCache, ...]:
        """The caches from a layer on: a sliding layer keeps a window for each sequence in it and one micro-batch."""
        each = self.sequences // self.parts
        return tuple(
            kind
            if kind.window is None
            else LayerCache(
                layers=kind.layers, per_token=kind.per_token, window=_in_steps(kind.window * each + self.batch)
            )
            for kind in decoder_spec(self.model).caches(first)
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
        if self.output:
            rows = min(self.sequences, batch)
            logits = 4 * (rows * model.vocab_size + 3 * batch * model.hidden_size)
            words = f"{rows} x {model.vocab_size:,} logits + {batch} tokens x 3 x {model.hidden_size:,} stream"
            at_once.append((logits, f"4 B x ({words})"))
        if not self.is_whole:
            cache = max((self._cells(kind) * kind.per_token for kind in self._kinds(0)), default=0)
            copied = int(cache * self.bits / 8)
            attention = copied + 4 * batch * (2 * model.hidden_size + heads)
            at_once.append(
                (attention, f"{batch} tokens x 4 B x ({stream}) + a copy of a layer's cache of {copied:,} B")
            )
            # A layer's largest matrix as its weights are kept in the mean: of an MLP, or of all its experts.
            whole, last = (Offloaded(model, msgspec.structs.replace(self.run, gpu_layers=n)) for n in (None, 1))
            width = model.num_experts * model.expert_size if model.num_experts else model.ffn_size
            numbers = max(whole.numbers() - last.numbers(), 1)
            matrix = width * model.hidden_size * (whole.weights() - last.weights()) // numbers
            size, formula = size + matrix, f"{formula} + a copy of a matrix of {matrix:,} B"
        size, formula = max([(size, formula), *at_once])
        masks = sum({kind.cached(self.context) for kind in self._kinds(0) if kind.per_token})
        return size + 2 * batch * masks, f"{formula} + {batch} tokens x masks of {masks:,} tokens x 2 B"


def _in_steps(tokens: int) -> int:
    return -(-tokens // CACHE_STEP) * CACHE_STEP


def estimate_llama_cpp(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    if parallel.ranks > 1:
        raise UserError(
            "[parallel] is not llama.cpp's way to share a model; describe one card of it with run.gpu_layers"
        )
    if run.cpu_offload_gb is not None:
        raise UserError("run.cpu_offload_gb is vLLM's; run.gpu_layers says how many blocks llama.cpp has on the card")
    there = Offloaded(model, run)
    cache, cache_words = there.cache()
    compute, compute_words = there.compute()
    words = f"{there.layers} of {model.num_hidden_layers} layers" + (" and the output layer" if there.output else "")
    if run.stored is not None:
        words += ", as the file holds them"
    else:
        stored = f"{run.quantization}: {words_for(run.quantization)}" if run.quantization else run.precision
        words += f" in {stored}; norms in fp32"
    source = "llama.cpp, src/llama-quant.cpp; ggml/src/ggml-common.h" if run.quantization else "the model's shapes"
    parts = {
        "weights": Fact("weights", words, source, bytes=there.weights()),
        "kv cache": Fact("kv_cache", cache_words, cache_source(model), bytes=cache),
        "compute buffer": Fact("temporaries", compute_words, SOURCE, bytes=compute),
    }
    shared = (
        "shared by all sequences" if run.max_num_seqs is None else f"a part for each of {there.sequences} sequences"
    )
    if run.max_num_seqs == 1:
        shared = "of one sequence"
    each = format_bytes(bytes_per_token(model, there.bits))
    notes = [
        f"a context of {there.parts * there.context:,} tokens, {shared}: {each} a token over all layers",
        "flash attention is on, as llama-server has it where the card can; the scores are never materialised",
    ]
    # The buffer before pull request 23861 of June 2026 has logits of each token of a micro-batch.
    before = 4 * there.batch * (model.hidden_size + model.vocab_size) if there.output else 0
    if before > compute:
        notes.append(
            f"llama.cpp before June 2026 takes {format_bytes(before)} as compute buffer, logits of each token in it"
        )
    if model.num_experts or not there.is_whole:
        notes.append(
            "the compute buffer is give or take a quarter, as llama.cpp places copies and experts among the rest"
        )
    if not there.is_whole:
        every = Offloaded(model, msgspec.structs.replace(run, gpu_layers=None))
        host = every.weights() - there.weights() + every.cache()[0] - cache
        notes.append(
            f"{there.layers} of {model.num_hidden_layers} layers are on the card"
            + ("" if there.output else ", the output layer is not")
            + f"; {format_bytes(host)} of blocks, output layer and cache are in host memory"
        )
    if run.stored is None and run.quantization is None:
        notes.append("the embedding of words stays in host memory")
    return served(parts, device, tuple(notes))

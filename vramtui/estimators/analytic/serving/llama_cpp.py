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
)
from vramtui.estimators.analytic.sizes.quantization import quantized, words_for
from vramtui.models.spec import Parameter
from vramtui.models.specs.decoder import cache_source, decoder_spec, shape_words

MICRO_BATCH = 512
CACHE_STEP = 256
SOURCE = "llama.cpp, src/llama-context.cpp and src/llama-graph.cpp; its own reports of buffers"


class Offloaded:
    """What of a model lies on the card: the last `layers` blocks, and the output layer once all blocks do."""

    def __init__(self, model: TransformerModel, run: ServeRun) -> None:
        self.model, self.run = model, run
        every = model.num_hidden_layers
        self.layers = every if run.gpu_layers is None else min(run.gpu_layers, every)
        # -ngl counts the output layer as one more block.
        self.output = run.gpu_layers is None or run.gpu_layers > every
        self.first = every - self.layers
        self.recipe = inference_recipe(run.precision)
        self.batch = run.max_num_batched_tokens or MICRO_BATCH
        self.bits = cache_bits(run.kv_cache, run.precision)
        self.context = -(-context_length(model, run) // CACHE_STEP) * CACHE_STEP

    def weights(self) -> int:
        """Bytes of the tensors on the card; the embedding of words stays in host memory."""
        stored = self.run.stored
        if stored is not None:
            share = stored.blocks * self.layers // self.model.num_hidden_layers
            return share + (stored.output if self.output else 0)
        tensors = self._tensors()
        if self.run.quantization is None:
            return block_bytes(tensors, self.recipe.frozen).bytes
        return quantized(tensors, self.recipe.frozen, self.run.quantization, self.model.num_hidden_layers).bytes

    def _tensors(self) -> tuple[Parameter, ...]:
        spec = decoder_spec(self.model)
        tensors = list(spec.block_tensors(self.first, spec.layers))
        if self.output:
            tensors += spec.tensors_after()
            if self.model.tie_word_embeddings:
                tensors += spec.tensors_before()[:1]
        return tuple(tensors)

    def in_host_memory(self) -> int:
        """Bytes of the blocks, output layer and cache that are not on the card."""
        whole = Offloaded(self.model, msgspec.structs.replace(self.run, gpu_layers=None))
        return whole.weights() - self.weights() + whole.cache()[0] - self.cache()[0]

    def weight_words(self) -> str:
        """How the weights are kept."""
        model, run = self.model, self.run
        what = f"{self.layers} of {model.num_hidden_layers} layers" + (" and the output layer" if self.output else "")
        if run.stored is not None:
            return f"{what}, as the file holds them"
        stored = f"{run.quantization}: {words_for(run.quantization)}" if run.quantization else run.precision
        return f"{what} in {stored}; norms in fp32"

    def cache(self) -> tuple[int, str]:
        """Bytes of the offloaded layers' cache for the whole context, and the arithmetic."""
        kinds = tuple(self._window(kind) for kind in decoder_spec(self.model).caches(self.first))
        size = cache_bytes(kinds, self.context, self.bits)
        each = f"{shape_words(self.model)} x {self.bits / 8:g} B"
        terms = [f"{kind.layers} layers x {kind.cached(self.context):,} tokens x {each}" for kind in kinds]
        return size, " + ".join(terms) or "no layer is on the card"

    def _window(self, kind: LayerCache) -> LayerCache:
        """A sliding layer keeps its window and one micro-batch, in steps of 256."""
        if kind.window is None:
            return kind
        return LayerCache(
            layers=kind.layers,
            per_token=kind.per_token,
            window=-(-(kind.window + self.batch) // CACHE_STEP) * CACHE_STEP,
        )

    def compute(self) -> tuple[int, str]:
        """The compute buffer in fp32: logits beside the stream, or a layer's MLP and the mask."""
        if not self.layers:
            return 0, "nothing is worked out on the card"
        model, batch = self.model, self.batch
        stream = 4 * batch * model.hidden_size
        wide = max(model.ffn_size if not model.num_experts else 0, self._expert_width())
        inside = 2 * stream + 2 * 4 * batch * wide + 6 * batch * self.context
        logits = stream + 4 * batch * model.vocab_size if self.output else 0
        if logits >= inside:
            return logits, f"{batch} tokens x 4 B x ({model.vocab_size:,} logits + {model.hidden_size} stream)"
        mask = f"a mask of {self.context:,} tokens x 6 B"
        return inside, f"{batch} tokens x (4 B x (2 x {model.hidden_size} stream + 2 x {wide} MLP) + {mask})"

    def _expert_width(self) -> int:
        model = self.model
        return (model.num_experts_per_tok or 0) * model.expert_size + model.shared_size if model.num_experts else 0


def estimate_llama_cpp(model: TransformerModel, run: ServeRun, device: Device, parallel: Parallel) -> Estimate:
    """The estimate for llama-server on one card.

    Raises:
        UserError: the workload contradicts itself.
    """
    if parallel.ranks > 1:
        raise UserError(
            "[parallel] is not llama.cpp's way to share a model; describe one card of it with run.gpu_layers"
        )
    if run.cpu_offload_gb is not None:
        raise UserError("run.cpu_offload_gb is vLLM's; run.gpu_layers says how many blocks llama.cpp has on the card")
    there = Offloaded(model, run)
    cache, cache_words = there.cache()
    compute, compute_words = there.compute()
    parts = {
        "weights": Fact(
            line="weights",
            bytes=there.weights(),
            formula=there.weight_words(),
            source="llama.cpp, src/llama-quant.cpp; ggml/src/ggml-common.h"
            if run.quantization
            else "the model's shapes",
        ),
        "kv cache": Fact(line="kv_cache", bytes=cache, formula=cache_words, source=cache_source(model)),
        "compute buffer": Fact(
            line="temporaries",
            bytes=compute,
            formula=compute_words,
            source=SOURCE,
        ),
    }
    return served(parts, device, _notes(there))


def _notes(there: Offloaded) -> tuple[str, ...]:
    run, model = there.run, there.model
    each = bytes_per_token(model, there.bits)
    notes = [
        f"a context of {there.context:,} tokens, shared by all sequences: {format_bytes(each)} a token over all layers",
        "flash attention is on, as llama-server has it where the card can; the scores are never materialised",
    ]
    if there.layers < model.num_hidden_layers or not there.output:
        notes.append(
            f"{there.layers} of {model.num_hidden_layers} layers are on the card"
            + ("" if there.output else ", the output layer is not")
            + f"; {format_bytes(there.in_host_memory())} of blocks, output layer and cache are in host memory"
        )
    if run.stored is None and run.quantization is None:
        notes.append("the embedding of words stays in host memory")
    return tuple(notes)

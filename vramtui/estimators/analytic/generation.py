"""Generation with a KV cache: the prefill, then one token after another; for an encoder-decoder the source once."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import EncoderDecoderModel, LayerCache, TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel
from vramtui.estimators.analytic import assemble as assembly
from vramtui.estimators.analytic.models import decoder as decoders
from vramtui.estimators.analytic.models.encoder_decoder import BlockSide, EncoderDecoder
from vramtui.estimators.analytic.ops.attention import kernel_note, kernel_of, masks
from vramtui.estimators.analytic.ops.decoder_builder import Cache, Setting
from vramtui.estimators.analytic.parallel import received
from vramtui.estimators.analytic.sizes import precision as precisions
from vramtui.estimators.analytic.sizes.partition import (
    ALONE,
    Share,
    nccl_bytes,
    nccl_part,
    part_of,
    place_of,
    share_tensors,
    telling_shares,
)
from vramtui.estimators.analytic.sizes.runtime import torch_of, workspace_for
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import card_limits
from vramtui.models.specs.decoder import attention_of, cache_source, decoder_spec, shape_words

# The newest tokens of a quantised cache, which stay as they are until there are so many (transformers, QuantizedLayer).
RESIDUAL = 128


class GenerationCache(msgspec.Struct, frozen=True, kw_only=True):
    """A cache for `batch` sequences of `length` tokens in the end.

    Attributes:
        itemsize: bytes of a number, and of the newest where the others are quantised.
        bits: of a quantised number.
        fixed: whether the whole length is allocated at once.
        new: tokens after the prompt.
    """

    batch: int
    length: int
    itemsize: int
    bits: float | None = None
    fixed: bool = False
    new: int = 0

    def before(self, past: int, window: int | None) -> Cache:
        """The cache of one layer with `past` tokens behind it."""
        if self.fixed:
            whole = self.length if window is None else min(self.length, window)
            return Cache(past=past, itemsize=self.itemsize, fixed=whole)
        seen = past if window is None else min(past, window - 1)
        return Cache(past=seen, itemsize=self.itemsize, bits=self.bits)

    def layer(self, model: TransformerModel, kind: LayerCache, length: int) -> int:
        """Bytes that one layer of `kind` keeps of `length` tokens: keys and values, or MLA's latent and rotary part."""
        tokens, total = kind.cached(self.length if self.fixed else length), 0
        pair = (kind.per_token - kind.per_token // 2, kind.per_token // 2)
        for numbers in pair if model.caches else attention_of(model).cache_parts():
            numel = self.batch * numbers * tokens
            if self.bits is None:
                total += rounded(numel * self.itemsize)
                continue
            newest = self.batch * numbers * min(self.new, RESIDUAL - 1, tokens)
            total += rounded(-(-int((numel - newest) * self.bits) // 8)) + rounded(newest * self.itemsize)
        return total + rounded(self.batch * kind.state * self.itemsize) + rounded(self.batch * kind.state_fp32 * 4)

    def formula(self, model: TransformerModel, kinds: tuple[LayerCache, ...], prompt: int) -> str:
        """The arithmetic of the largest size: at the end, or right after the prompt if layers slide."""
        itemsize = f"{self.itemsize if self.bits is None else self.bits / 8:g} B"
        after_prompt = (
            not self.fixed
            and not model.caches
            and sum(kind.layers * kind.per_token * (prompt - kind.cached(self.length)) for kind in kinds) > 0
        )
        terms = [
            f"{kind.layers} layers x {self.batch} x {prompt if after_prompt else kind.cached(self.length):,} tokens x "
            f"{shape_words(model, kind)} x {itemsize}"
            for kind in kinds
            if kind.per_token
        ]
        terms += [
            f"{kind.layers} layers x {self.batch} x {precisions.state_bytes(kind, self.itemsize):,} B of state"
            for kind in kinds
            if kind.state or kind.state_fp32
        ]
        end = ", after the prompt: sliding layers drop older tokens with the next one" if after_prompt else ""
        return " + ".join(terms) + (", allocated for the whole length at once" if self.fixed else end)

    @property
    def growth(self) -> str:
        if self.bits is not None:
            return "one layer's keys or values unpacked, and once more with the new ones"
        return "one layer's keys or values again: torch.cat makes the longer ones before the old ones go"


def generation_cache(run: InferRun, compute: int, length: int, kinds: tuple[LayerCache, ...]) -> GenerationCache:
    """The cache that `run` asks for: `compute` bytes of a number, `length` tokens of a sequence in the end.

    Raises:
        UserError: a cache allocated at once cannot be quantised, nor can layers with a window or a state.
    """
    fixed = run.cache_implementation == "static"
    kind = run.kv_cache
    packed = kind is not None and kind not in precisions.DTYPE_BYTES
    if fixed and packed:
        raise UserError(f"run.kv_cache = {kind!r} is a cache that grows; leave run.cache_implementation = 'dynamic'")
    if packed and not can_be_quantized(kinds):
        raise UserError(
            f"run.kv_cache = {kind!r}: transformers quantises caches of full attention only, and this model has layers "
            "with a window or a state"
        )
    return GenerationCache(
        batch=run.batch_size,
        length=length,
        itemsize=compute if kind is None or packed else precisions.DTYPE_BYTES[kind],
        bits=precisions.CACHE_BITS[kind] if kind is not None and packed else None,
        fixed=fixed,
        new=max(run.new_tokens - 1, 0),
    )


def can_be_quantized(kinds: tuple[LayerCache, ...]) -> bool:
    """Return whether `QuantizedCache` takes such layers: full attention only (transformers 5.23, cache_utils.py)."""
    return not any(one.window is not None or one.state or one.state_fp32 for one in kinds)


NOTES = ("the prompt is processed at once; logits are computed for its last token only, as generate() does",)
SLID = "after the prompt a sliding layer still holds all of it; the first new token cuts it to the window"
HELD = "held through the pass"
DRAFT, DRAFT_CACHE = "draft weights", "draft kv cache"


class Generation:
    """One call of generate(): the prompt at once, then one token after another with a cache that keeps up."""

    def __init__(self, share: Share, run: InferRun, device: Device, draft: "Generation | None" = None) -> None:
        self.share, self.run, self.device, self.draft = share, run, device, draft
        self.model = part_of(share)
        self.sequence = decoders.sequence_of(share.model, run)
        self.recipe = precisions.recipe(run.precision, lora=None)
        self.kernel = kernel_of(self.model, run, run.precision, device.capability)
        self.length = self.sequence + max(run.new_tokens - 1, 0)
        self.cache: GenerationCache = generation_cache(
            run, self.recipe.compute, self.length, self._kinds(0, self.model.num_hidden_layers)
        )
        self.tokens = run.batch_size * self.sequence
        self.tower: tapes.TowerPass | None = None
        buffers = decoders.buffers_of(share.model, self.recipe, eager=run.attention == "eager")
        self.prompt = self.stages(self.sequence, 0)
        self.program = tapes.Program(
            frozen=share_tensors(share),
            trained=(),
            recipe=self.recipe,
            quantization=run.quantization,
            layers=share.model.num_hidden_layers,
            stages=self.prompt,
            buffers=buffers[0],
            buffers_formula=buffers[1],
            inputs=rounded(8 * self.tokens),
            inputs_formula=f"token ids, {run.batch_size} x {self.sequence:,} x 8 B",
        )
        self.weights = self.program.weights
        self.workspace = workspace_for(run, device)

    def estimate(self, ranks: int = 1) -> Estimate:
        """Follow the prefill and the last token, for which the cache is longest."""
        moments = assembly.MomentLog()
        towers = {name: fact.bytes for name, fact in assembly.tower_facts(self.program).items()}
        built = {"weights": self.weights.bytes - sum(towers.values()), **towers}
        built |= {"weight tails": self.weights.tails, "buffers": self.program.buffers}
        if self.draft is not None:
            built[DRAFT] = self.draft.weights.bytes + self.draft.weights.tails
        moments.note("build", 0, built)
        fed = built | {"inputs": self.program.inputs}
        if self.tower is not None:
            fed[tapes.PIXELS] = self.tower.pixels
            moments.note(
                "prefill", 0, fed | {tapes.TOWER: self.tower.fullest, "workspaces": self.workspace.bytes}, end=False
            )
            fed[tapes.FEATURES] = self.tower.features
        if self.draft is not None:
            fed[DRAFT_CACHE] = self.draft.cache_bytes(self.length)
        working = fed | {"workspaces": self.workspace.persistent}

        def cached(sizes: tapes.BytesByGroup) -> tapes.BytesByGroup:
            """Return the run with the cache's bytes by the model's own list of caches, if it has one."""
            return {**sizes, tapes.KV_CACHE: self.cache_bytes(self.sequence)} if self.share.model.caches else sizes

        prefill, within = tapes.prefilled(self.prompt, self.workspace), {HELD: self.held_bytes(self.sequence, 0)}
        moments.note("prefill", 0, tapes.summed(fed, cached(prefill.early), within), end=False)
        moments.note("prefill", 0, tapes.summed(working, cached(prefill.late), within), end=False)
        moments.note("prefill", 0, tapes.summed(working, cached(prefill.end)))
        stages = list(self.prompt)
        if self.run.new_tokens > 1:
            cache = {tapes.KV_CACHE: self.cache_bytes(self.length)}
            last = self.stages(1, self.length - 1)
            stages += last
            working = {name: size for name, size in working.items() if name not in {tapes.PIXELS, tapes.FEATURES}}
            within = {HELD: self.held_bytes(1, self.length - 1)}
            moments.note(
                "decode", 0, tapes.summed(working, cache, tapes.prefilled(last, self.workspace).late, within), end=False
            )
            moments.note("decode", 0, tapes.summed(working, cache))
        facts = self._facts(stages)
        if ranks == 1:
            return assembly.assemble(moments, facts, self.device, self._notes())
        estimate = assembly.assemble(
            moments, facts, self.device, self._notes(), other=nccl_bytes(ranks, self.device.capability)
        )
        return msgspec.structs.replace(estimate, parts=(*estimate.parts, nccl_part(ranks, self.device.capability)))

    def stages(self, sequence: int, past: int) -> list[tapes.TapeStage]:
        """Embeddings, stretches of equal blocks, output layer; what of them is on this rank."""
        setting = Setting(
            recipe=self.recipe,
            card=card_limits(self.device),
            release=torch_of(self.run),
            batch=self.run.batch_size,
            sequence=sequence,
            eager=self.run.attention == "eager",
            kernel=self.kernel,
            packed=self.run.quantization,
            cache=self.cache.before(past, None),
        )
        if not past and self.share.begins and decoders.runs_tower(self.share.model, self.run):
            self.tower = decoders.tower_pass(self.share.model, self.run, setting)
        writer = decoders.Decoder(self.model, setting)
        numel = setting.tokens * self.model.hidden_size
        stages = [tapes.TapeStage(writer.embeddings() if self.share.begins else received(numel, self.recipe.stream))]
        for first, count in decoders.stretches(self.model, set()):
            start = self.share.first + first
            for kind in reversed(decoder_spec(self.share.model).caches_by_kind(start, start + count)):
                windowed = msgspec.structs.replace(setting, cache=self.cache.before(past, kind.window))
                if kind.window is not None and masks(self.model, self.run.attention, sequence, sequence + past):
                    windowed = decoders.masked_setting(self.model, self.run, windowed, self.device)
                tape = decoders.Decoder(self.model, windowed).block(first, tracked=False)
                stages.append(tapes.TapeStage(tape, kind.layers))
        return [*stages, tapes.TapeStage(writer.answer())] if self.share.ends else stages

    def held_bytes(self, sequence: int, past: int) -> int:
        """Bytes that transformers' forward() keeps in its variables: embeddings, positions, a mask.

        generate() numbers the positions of every sequence by itself, and marks the tokens that are padding.
        """
        model, itemsize = self.share.model, self.recipe.stream
        if model.implementation == "plain":
            return 0
        rows = self.run.batch_size * sequence
        tables = 2 * rounded(rows * attention_of(model).rotary_dim * itemsize) if model.position == "rope" else 0
        stream = rounded(self.run.batch_size * sequence * model.hidden_size * itemsize)
        if model.position == "learned":
            tables = rounded(rows * model.hidden_size * itemsize)
            # GPT-2's block still has its attention's output in a variable while the MLP runs.
            tables += stream if model.fused_qkv and self.run.attention != "eager" else 0
        ids = rounded(8 * rows) + rounded(8 * self.run.batch_size * (sequence + past))
        # A mask is written out in the compute type for eager attention, as booleans if layers slide: one for all
        # sequences, as nothing is padding.
        keys, window, mask = sequence + past, model.sliding_window, 0
        if self.run.attention == "eager":
            mask = rounded(rows * keys * self.recipe.compute)
        elif window is not None and keys >= window:
            mask = rounded(sequence * keys)
        return stream + tables + ids + mask

    def _kinds(self, first: int, stop: int) -> tuple[LayerCache, ...]:
        """Layers that slide before those that do not, which hold more."""
        return tuple(reversed(decoder_spec(self.share.model).caches(first, stop)))

    def cache_bytes(self, length: int) -> int:
        """Keys and values of `length` tokens in every layer, each in a tensor of its own."""
        kinds = self._kinds(self.share.first, self.share.stop)
        return sum(kind.layers * self.cache.layer(self.share.model, kind, length) for kind in kinds)

    def _facts(self, stages: list[tapes.TapeStage]) -> dict[str, assembly.Fact]:
        model = self.share.model
        kinds = self._kinds(self.share.first, self.share.stop)
        cache = assembly.Fact(
            "kv_cache",
            self.cache.formula(model, kinds, self.sequence),
            cache_source(model),
            "one generation",
            count=2 * self.share.layers,
        )
        growth = assembly.Fact(
            "temporaries", self.cache.growth, "transformers, cache_utils.py", "within each new token"
        )
        cache_held = assembly.Fact(
            "activations",
            f"embeddings of {self.tokens:,} tokens, sines and cosines (or embeddings) of as many "
            "positions, their numbers, what is padding; a mask where the kernel has none of its own",
            "transformers, modeling_llama.py, LlamaModel.forward: its variables",
            "a whole pass",
        )
        named = {tapes.KV_CACHE: cache, tapes.GROWTH: growth, HELD: cache_held} | assembly.tower_pass_facts(self.tower)
        transient = assembly.passing_facts(self.program, stages, self.workspace, f"{self.tokens:,} tokens") | named
        towers = assembly.tower_facts(self.program)
        facts = assembly.model_facts(self.program, self.weights, sum(fact.bytes for fact in towers.values()))
        facts = {"weights": facts.pop("weights"), **towers, **facts, **named}
        if self.draft is not None:
            own = self.draft._facts(self.draft.prompt)  # noqa: SLF001 - of its own kind
            source = "Leviathan et al. 2022 (arXiv 2211.17192)"
            facts[DRAFT] = msgspec.structs.replace(own["weights"], source=source)
            facts[DRAFT_CACHE] = msgspec.structs.replace(own[tapes.KV_CACHE], source=source)
        return facts | transient

    def _notes(self) -> tuple[str, ...]:
        notes = [*NOTES, *kernel_note(self.model, self.run.attention, self.kernel)]
        notes += decoders.window_note(self.model, self.run.attention, self.sequence)
        sliding = self.share.model.sliding_window is not None and self.sequence > (self.share.model.sliding_window or 0)
        if sliding and not self.cache.fixed:
            notes.append(SLID)
        if self.run.quantization is not None:
            left = sorted({t.module for t in self.program.frozen if not precisions.quantizes(t, self.run.quantization)})
            notes.append(f"not in {self.run.quantization}: {', '.join(left)}")
        if self.draft is not None:
            notes.append("the draft model answers before the model does, and its cache stays")
        return tuple(notes)


def estimate_inference(model: TransformerModel, run: InferRun, device: Device, parallel: Parallel = ALONE) -> Estimate:
    """The estimate for `generate()`; of several ranks that of the one that holds most."""
    if parallel.zero_stage or parallel.strategy == "fsdp" or parallel.context > 1:
        raise UserError(
            "parallel.zero_stage, strategy and context share what is trained; split a model that only "
            "answers by parallel.tensor or parallel.pipeline"
        )
    draft = None
    if run.draft is not None:
        if not isinstance(run.draft, TransformerModel):
            raise UserError("run.draft has to be a decoder (kind = 'transformer'): it proposes tokens")
        alone = msgspec.structs.replace(run, draft=None, quantization=None)
        (share,) = telling_shares(run.draft, ALONE)
        draft = Generation(share, alone, device)
    ranks = parallel.ranks // parallel.data
    rows = [(share, Generation(share, run, device, draft).estimate(ranks)) for share in telling_shares(model, parallel)]
    worst, estimate = max(rows, key=lambda pair: pair[1].process)
    if parallel.ranks == 1:
        return estimate
    others = ", ".join(f"{format_bytes(one.process)} on rank {share.rank}" for share, one in rows if share != worst)
    where = f"bytes of one card of {parallel.ranks}; worst rank: {place_of(worst)}"
    note = where + (f"; the others {others}" if others else "")
    return msgspec.structs.replace(estimate, assumptions=(note, *estimate.assumptions), error=None)


STARTS = "the decoder starts from one token for each sample, without beams"


def estimate_generation(model: EncoderDecoderModel, run: InferRun, device: Device) -> Estimate:
    """The estimate of one call of generate(): encoder, the first token, and the last, for which the decoder's cache is
    longest.
    """
    writer = EncoderDecoder(model, run, device)
    itemsize = precisions.DTYPE_BYTES[run.kv_cache] if run.kv_cache else writer.net.recipe.compute
    writer.encoder()
    first = len(writer.net.stages)
    writer.decoder(BlockSide(tokens=1, source=writer.source, cache=Cache(itemsize=itemsize)))
    program = writer.program(0)
    stages, weights = program.stages, precisions.block_bytes(program.frozen, program.recipe.frozen)
    workspace = workspace_for(run, device)
    moments = assembly.MomentLog()
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    moments.note("build", 0, built)
    fed = built | {"inputs": program.inputs}
    working = fed | {"workspaces": workspace.persistent}
    encoded = tapes.prefilled(stages[:first], workspace)
    moments.note("prefill", 0, tapes.summed(fed, encoded.early), end=False)
    moments.note("prefill", 0, tapes.summed(working, encoded.late), end=False)
    after = tapes.summed(working, encoded.end)
    begun = tapes.prefilled(stages[first:], workspace)
    moments.note("prefill", 0, tapes.summed(after, begun.late), end=False)
    moments.note("prefill", 0, tapes.summed(after, begun.end))
    layers, each = model.decoder_layers, model.d_kv or model.d_model // model.num_attention_heads
    if run.new_tokens > 1:
        # Keys and values of every decoder layer, of the target so far and of the source, each in its own tensor.
        wide = run.batch_size * model.num_attention_heads * each * itemsize
        cached = 2 * layers * (rounded(wide * run.new_tokens) + rounded(wide * writer.source))
        last = EncoderDecoder(model, run, device)
        before = Cache(past=run.new_tokens - 1, itemsize=itemsize)
        last.decoder(BlockSide(tokens=1, source=last.source, cache=before))
        after = tapes.summed(after, {tapes.KV_CACHE: cached})
        moments.note("decode", 0, tapes.summed(after, tapes.prefilled(last.net.stages, workspace).late), end=False)
        moments.note("decode", 0, after)
    facts = {
        **assembly.model_facts(program, weights),
        **assembly.passing_facts(program, stages, workspace, f"{run.batch_size} samples"),
        tapes.KV_CACHE: assembly.Fact(
            "kv_cache",
            f"2 x {layers} layers x {run.batch_size} x ({max(run.new_tokens, 1):,} of the target + "
            f"{writer.source:,} of the source) x {model.num_attention_heads} heads x {each} x {itemsize} B",
            "transformers, cache_utils.py, EncoderDecoderCache",
            "one generation",
            count=4 * layers,
        ),
        tapes.GROWTH: assembly.Fact(
            "temporaries",
            "one layer's keys or values again: torch.cat makes the longer ones before the old ones go",
            "transformers, cache_utils.py, DynamicLayer.update",
            "within each new token",
        ),
    }
    return assembly.assemble(moments, facts, device, (*program.notes, STARTS))

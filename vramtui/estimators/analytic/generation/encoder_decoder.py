"""An encoder-decoder that answers: the source once, and then one token of the target after another."""

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.encoder_models import EncoderDecoderModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.assemble import Fact, MomentLog, assemble
from vramtui.estimators.analytic.models.encoder_decoder import EncoderDecoder
from vramtui.estimators.analytic.models.encoder_decoder_blocks import BlockSide
from vramtui.estimators.analytic.ops.decoder_builder import Cache
from vramtui.estimators.analytic.sizes.precision import DTYPE_BYTES, block_bytes
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.program import prefilled
from vramtui.estimators.analytic.tape.replay import GROWTH, KV_CACHE, BytesByGroup, summed
from vramtui.estimators.analytic.training.parts import model_facts, passing_facts
from vramtui.estimators.torch_facts.allocator_sizes import rounded

STARTS = "the decoder starts from one token for each sample, without beams"


class Transcription:
    """One call of generate(): encoder, the first token, and the last, for which the decoder's cache is longest."""

    def __init__(self, model: EncoderDecoderModel, run: InferRun, device: Device) -> None:
        self.model, self.run, self.device = model, run, device
        self.writer = EncoderDecoder(model, run, device)
        self.itemsize = DTYPE_BYTES[run.kv_cache] if run.kv_cache else self.writer.net.recipe.compute
        self.writer.encoder()
        self.first = len(self.writer.net.stages)
        self.writer.decoder(BlockSide(tokens=1, source=self.writer.source, cache=Cache(itemsize=self.itemsize)))
        self.program = self.writer.program(0)

    def estimate(self) -> Estimate:
        """Follow the three passes."""
        recipe, stages = self.program.recipe, self.program.stages
        weights, workspace = block_bytes(self.program.frozen, recipe.frozen), workspace_for(self.run, self.device)
        moments = MomentLog()
        built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": self.program.buffers}
        moments.note("build", 0, built)
        fed = built | {"inputs": self.program.inputs}
        working = fed | {"workspaces": workspace.persistent}
        encoded = prefilled(stages[: self.first], workspace)
        moments.note("prefill", 0, summed(fed, encoded.early), end=False)
        moments.note("prefill", 0, summed(working, encoded.late), end=False)
        after = summed(working, encoded.end)
        begun = prefilled(stages[self.first :], workspace)
        moments.note("prefill", 0, summed(after, begun.late), end=False)
        moments.note("prefill", 0, summed(after, begun.end))
        if self.run.new_tokens > 1:
            cached = summed(after, {KV_CACHE: self._cache(self.run.new_tokens)})
            moments.note("decode", 0, summed(cached, self._last()), end=False)
            moments.note("decode", 0, cached)
        facts = {
            **model_facts(self.program, weights),
            **passing_facts(self.program, stages, workspace, f"{self.run.batch_size} samples"),
            **self._cache_facts(),
        }
        return assemble(moments, facts, self.device, (*self.program.notes, STARTS))

    def _last(self) -> BytesByGroup:
        """The fullest moment of the last token's pass, the cache apart."""
        writer = EncoderDecoder(self.model, self.run, self.device)
        past = self.run.new_tokens - 1
        writer.decoder(BlockSide(tokens=1, source=writer.source, cache=Cache(past=past, itemsize=self.itemsize)))
        return prefilled(writer.net.stages, workspace_for(self.run, self.device)).late

    def _each(self) -> int:
        return self.model.d_kv or self.model.d_model // self.model.num_attention_heads

    def _cache(self, length: int) -> int:
        """Keys and values of every decoder layer, of the target so far and of the source, each in its own tensor."""
        wide = self.run.batch_size * self.model.num_attention_heads * self._each() * self.itemsize
        return 2 * self.model.decoder_layers * (rounded(wide * length) + rounded(wide * self.writer.source))

    def _cache_facts(self) -> dict[str, Fact]:
        model, run = self.model, self.run
        return {
            KV_CACHE: Fact(
                "kv_cache",
                f"2 x {model.decoder_layers} layers x {run.batch_size} x ({max(run.new_tokens, 1):,} of the "
                f"target + {self.writer.source:,} of the source) x {model.num_attention_heads} heads x {self._each()} "
                f"x {self.itemsize} B",
                "transformers, cache_utils.py, EncoderDecoderCache",
                "one generation",
                count=4 * model.decoder_layers,
            ),
            GROWTH: Fact(
                "temporaries",
                "one layer's keys or values again: torch.cat makes the longer ones before the old ones go",
                "transformers, cache_utils.py, DynamicLayer.update",
                "within each new token",
            ),
        }


def estimate_generation(model: EncoderDecoderModel, run: InferRun, device: Device) -> Estimate:
    """The estimate for `generate()` of an encoder-decoder."""
    return Transcription(model, run, device).estimate()

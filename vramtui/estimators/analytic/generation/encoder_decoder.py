"""An encoder-decoder that answers: the source once, and then one token of the target after another."""

from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import EncoderDecoderModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.assemble import Fact, MomentLog, assemble, model_facts, passing_facts
from vramtui.estimators.analytic.models.encoder_decoder import BlockSide, EncoderDecoder
from vramtui.estimators.analytic.ops.decoder_builder import Cache
from vramtui.estimators.analytic.sizes.precision import DTYPE_BYTES, block_bytes
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape.program import prefilled
from vramtui.estimators.analytic.tape.replay import GROWTH, KV_CACHE, summed
from vramtui.estimators.torch_facts.allocator_sizes import rounded

STARTS = "the decoder starts from one token for each sample, without beams"


def estimate_generation(model: EncoderDecoderModel, run: InferRun, device: Device) -> Estimate:
    """The estimate of one call of generate(): encoder, the first token, and the last, for which the decoder's cache is
    longest.
    """
    writer = EncoderDecoder(model, run, device)
    itemsize = DTYPE_BYTES[run.kv_cache] if run.kv_cache else writer.net.recipe.compute
    writer.encoder()
    first = len(writer.net.stages)
    writer.decoder(BlockSide(tokens=1, source=writer.source, cache=Cache(itemsize=itemsize)))
    program = writer.program(0)
    stages, weights = program.stages, block_bytes(program.frozen, program.recipe.frozen)
    workspace = workspace_for(run, device)
    moments = MomentLog()
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    moments.note("build", 0, built)
    fed = built | {"inputs": program.inputs}
    working = fed | {"workspaces": workspace.persistent}
    encoded = prefilled(stages[:first], workspace)
    moments.note("prefill", 0, summed(fed, encoded.early), end=False)
    moments.note("prefill", 0, summed(working, encoded.late), end=False)
    after = summed(working, encoded.end)
    begun = prefilled(stages[first:], workspace)
    moments.note("prefill", 0, summed(after, begun.late), end=False)
    moments.note("prefill", 0, summed(after, begun.end))
    layers, each = model.decoder_layers, model.d_kv or model.d_model // model.num_attention_heads
    if run.new_tokens > 1:
        # Keys and values of every decoder layer, of the target so far and of the source, each in its own tensor.
        wide = run.batch_size * model.num_attention_heads * each * itemsize
        cached = 2 * layers * (rounded(wide * run.new_tokens) + rounded(wide * writer.source))
        last = EncoderDecoder(model, run, device)
        before = Cache(past=run.new_tokens - 1, itemsize=itemsize)
        last.decoder(BlockSide(tokens=1, source=last.source, cache=before))
        after = summed(after, {KV_CACHE: cached})
        moments.note("decode", 0, summed(after, prefilled(last.net.stages, workspace).late), end=False)
        moments.note("decode", 0, after)
    facts = {
        **model_facts(program, weights),
        **passing_facts(program, stages, workspace, f"{run.batch_size} samples"),
        KV_CACHE: Fact(
            "kv_cache",
            f"2 x {layers} layers x {run.batch_size} x ({max(run.new_tokens, 1):,} of the target + "
            f"{writer.source:,} of the source) x {model.num_attention_heads} heads x {each} x {itemsize} B",
            "transformers, cache_utils.py, EncoderDecoderCache",
            "one generation",
            count=4 * layers,
        ),
        GROWTH: Fact(
            "temporaries",
            "one layer's keys or values again: torch.cat makes the longer ones before the old ones go",
            "transformers, cache_utils.py, DynamicLayer.update",
            "within each new token",
        ),
    }
    return assemble(moments, facts, device, (*program.notes, STARTS))

"""Generation: weights, the KV cache, and the fullest moment of the prefill and of a token after it."""

from vramtui.core.devices import Device
from vramtui.core.estimate import Estimate
from vramtui.core.models import TransformerModel
from vramtui.core.workload import InferRun
from vramtui.estimators.analytic.assembly import Fact, Moments, assemble
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.decoder import Decoder
from vramtui.estimators.analytic.decoding import buffers_of
from vramtui.estimators.analytic.job import sequence_of
from vramtui.estimators.analytic.meter import Held as Bytes
from vramtui.estimators.analytic.passes import prefilled
from vramtui.estimators.analytic.precision import DTYPE_BYTES, recipe
from vramtui.estimators.analytic.products import CASTS
from vramtui.estimators.analytic.program import Program
from vramtui.estimators.analytic.replay import SCRATCH, Stage
from vramtui.estimators.analytic.states import held
from vramtui.estimators.analytic.tensors import model_tensors
from vramtui.estimators.analytic.training_parts import model_facts
from vramtui.estimators.analytic.workspaces import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.analytic.workspaces import workspace_bytes
from vramtui.estimators.analytic.writer import GROWTH, KV_CACHE, Cache, Setting

NOTES = ("the prompt is processed at once; logits are computed for its last token only, as generate() does",)


class Generation:
    """One call of generate(): the prompt at once, then one token after another with a growing cache."""

    def __init__(self, model: TransformerModel, run: InferRun, device: Device) -> None:
        self.model, self.run, self.device = model, run, device
        self.sequence = sequence_of(model, run)
        self.recipe = recipe(run.precision, lora=False)
        self.width = DTYPE_BYTES[run.kv_cache] if run.kv_cache else self.recipe.compute
        self.tokens = run.batch_size * self.sequence
        tensors = model_tensors(model)
        buffers = buffers_of(model, self.recipe, eager=run.attention == "eager")
        self.program = Program(
            frozen=tensors,
            trained=(),
            recipe=self.recipe,
            stages=self._stages(self.sequence, 0),
            buffers=buffers[0],
            buffers_formula=buffers[1],
            inputs=rounded(8 * self.tokens),
            inputs_formula=f"token ids, {run.batch_size} x {self.sequence:,} x 8 B",
        )
        self.weights = held(tensors, self.recipe.frozen)
        self.workspace = workspace_bytes(device.capability)

    def estimate(self) -> Estimate:
        """Follow the prefill and the last token, for which the cache is longest."""
        moments = Moments()
        built = {"weights": self.weights.bytes, "weight tails": self.weights.tails, "buffers": self.program.buffers}
        moments.note("build", 0, built)
        fed = built | {"inputs": self.program.inputs}
        working = fed | {"workspaces": self.workspace}
        prefill = prefilled(self.program.stages)
        moments.note("prefill", 0, _sum(fed, prefill.early), end=False)
        moments.note("prefill", 0, _sum(working, prefill.late), end=False)
        moments.note("prefill", 0, _sum(working, prefill.end))
        if self.run.new_tokens > 1:
            length = self.sequence + self.run.new_tokens - 1
            cache = {KV_CACHE: self._cache(length)}
            decode = prefilled(self._stages(1, length - 1))
            moments.note("decode", 0, _sum(working, cache, decode.late), end=False)
            moments.note("decode", 0, _sum(working, cache))
        return assemble(moments, self._facts(), self.device, NOTES)

    def _stages(self, sequence: int, past: int) -> list[Stage]:
        setting = Setting(
            recipe=self.recipe,
            capability=self.device.capability,
            batch=self.run.batch_size,
            sequence=sequence,
            eager=self.run.attention == "eager",
            cache=Cache(past=past, width=self.width),
        )
        writer = Decoder(self.model, setting)
        blocks = Stage(writer.block(tracked=False), self.model.num_hidden_layers)
        return [Stage(writer.embeddings()), blocks, Stage(writer.answer())]

    def _cache(self, length: int) -> int:
        """Keys and values of every layer, each in a tensor of its own."""
        width = self.model.kv_heads * self.model.head_size
        return 2 * self.model.num_hidden_layers * rounded(self.run.batch_size * width * length * self.width)

    def _facts(self) -> dict[str, Fact]:
        model, run = self.model, self.run
        length = self.sequence + max(run.new_tokens - 1, 0)
        passing = _passing_facts(self.program, self.workspace, f"{self.tokens:,} tokens")
        return {
            **model_facts(self.program, self.weights),
            KV_CACHE: Fact(
                line="kv_cache",
                bytes=0,
                formula=f"2 x {model.num_hidden_layers} layers x {run.batch_size} x {length:,} tokens x "
                f"{model.kv_heads} heads x {model.head_size} x {self.width} B",
                source="Shazeer 2019 (arXiv 1911.02150); Ainslie et al. 2023 (arXiv 2305.13245)",
                lifetime="one generation",
                count=2 * model.num_hidden_layers,
            ),
            GROWTH: Fact(
                line="temporaries",
                bytes=0,
                formula="one layer's keys or values again: torch.cat makes the longer ones before the old ones go",
                source="transformers, cache_utils.py, DynamicLayer.update",
                lifetime="within each new token",
            ),
            **passing,
        }


def estimate_forward(program: Program, run: InferRun, device: Device) -> Estimate:
    """The estimate for one forward pass of a model that generates nothing."""
    weights = held(program.frozen, program.recipe.frozen)
    workspace = workspace_bytes(device.capability)
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    fed = built | {"inputs": program.inputs}
    working = fed | {"workspaces": workspace}
    done = prefilled(program.stages)
    moments = Moments()
    moments.note("build", 0, built)
    moments.note("input", 0, fed)
    moments.note("forward", 0, _sum(fed, done.early), end=False)
    moments.note("forward", 0, _sum(working, done.late), end=False)
    moments.note("forward", 0, _sum(working, done.end))
    facts = model_facts(program, weights) | _passing_facts(program, workspace, f"a batch of {run.batch_size}")
    return assemble(moments, facts, device, program.notes)


def _passing_facts(program: Program, workspace: int, what: str) -> dict[str, Fact]:
    """What comes and goes in a forward pass of which nothing is kept."""
    code, passing = "the model's code", "within one pass"
    groups = dict.fromkeys(s.group for stage in program.stages for node in stage.tape.nodes for s in node.makes)
    return {
        **{
            group: Fact(
                line="activations",
                bytes=0,
                formula=f"tensors on their way over {what}, at their fullest; none is kept",
                source=code,
                lifetime=passing,
            )
            for group in groups
        },
        SCRATCH: Fact(line="temporaries", bytes=0, formula="operators' own", source=code, lifetime=passing),
        CASTS: Fact(line="temporaries", bytes=0, formula="autocast's copies", source=code, lifetime=passing),
        "inputs": Fact(
            line="inputs", bytes=program.inputs, formula=program.inputs_formula, source="the batch", lifetime=passing
        ),
        "workspaces": Fact(
            line="workspaces",
            bytes=workspace,
            formula=f"{workspace:,} B: one thread multiplies matrices",
            source=WORKSPACE_SOURCE,
            lifetime="from the first matrix product to the end",
            count=1,
        ),
    }


def estimate_inference(model: TransformerModel, run: InferRun, device: Device) -> Estimate:
    """The estimate for `generate()`.

    Raises:
        UserError: the workload contradicts itself.
    """
    return Generation(model, run, device).estimate()


def _sum(*parts: Bytes) -> Bytes:
    total: Bytes = {}
    for part in parts:
        for name, size in part.items():
            total[name] = total.get(name, 0) + size
    return total

"""What a rule is, the sheet it fills, and what it reads out of an ordinary workload."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, TypeVar

from vramtui.core.estimate.estimate import BESIDE_TOTAL, Estimate, Moment, Part, Phase
from vramtui.core.estimate.ledger import CATEGORIES, Category, Ledger, Line
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.rule_inputs import RuleInputs
from vramtui.core.schema.workload import InferRun, TrainRun, Workload

T = TypeVar("T", bound=RuleInputs)

OWN_TOTAL = "The total is the rule's own: lines it has no word on are unknown here, not nothing."
ALWAYS = "as long as the job runs"


@dataclass(frozen=True)
class Rule(Generic[T]):
    """One published rule.

    Attributes:
        id: the name after `rules:`.
        title: what it is, in a few words.
        source: where it was published.
        takes: the type of its inputs.
        compute: from inputs to an estimate; pure.
        adapt: the rule's inputs out of an ordinary workload; None where it does not fit one.
        errata: where the published text is wrong: what it says, what is so, and by how much.
    """

    id: str
    title: str
    source: str
    takes: type[T]
    compute: Callable[[T], "RuleSheet"]
    adapt: Callable[[Workload], T | None] | None = None
    errata: tuple[str, ...] = ()

    def inputs(self, workload: Workload) -> T | None:
        """What the rule would be given for `workload`: the preset's own table first, then the model's shapes."""
        if isinstance(workload.rule, self.takes):
            return workload.rule
        return self.adapt(workload) if self.adapt else None

    def estimate(self, inputs: T) -> Estimate:
        """The rule's answer."""
        sheet = self.compute(inputs)
        sheet.assumptions += [f"Erratum: {erratum}" for erratum in self.errata]
        return sheet.estimate(f"rules:{self.id}")


class RuleSheet:
    """Collects the parts of one rule's answer, all from `source`."""

    def __init__(self, source: str, phase: Phase, *assumptions: str) -> None:
        self.source = source
        self.phase: Phase = phase
        self.step: int | None = None
        self.parts: list[Part] = []
        self.counted: set[Line] = set()
        self.timeline: list[Moment] = []
        self.assumptions = [OWN_TOTAL, *assumptions]

    def add(
        self,
        name: str,
        line: Line,
        size: int,
        formula: str,
        *,
        at_peak: int | None = None,
        lifetime: str = ALWAYS,
        blocks: int = 0,
    ) -> None:
        """A part of the total: `size` bytes, of which `at_peak` count in it (all, unless told)."""
        alive = size if at_peak is None else at_peak
        self.counted.add(line)
        self.parts.append(
            Part(
                name=name,
                line=line,
                bytes=size,
                at_peak=alive,
                formula=formula,
                source=self.source,
                lifetime=lifetime,
                count=blocks,
            )
        )

    def mention(self, name: str, line: Line, size: int, formula: str) -> None:
        """A figure the rule also publishes, which is no part of this total."""
        self.parts.append(
            Part(
                name=name,
                line=line,
                bytes=size,
                at_peak=0,
                formula=formula,
                source=self.source,
                lifetime=BESIDE_TOTAL,
            )
        )

    def at_peak(self, line: Line) -> int | None:
        """Bytes on one line of the ledger; None when the rule has no part there."""
        return sum(part.at_peak for part in self.parts if part.line == line) if line in self.counted else None

    def estimate(self, method: str) -> Estimate:
        """The estimate whose ledger is the sum of the parts, line by line."""
        leaves: dict[Category, int | None] = {category: self.at_peak(category) for category in CATEGORIES}
        known = [size for size in leaves.values() if size is not None]
        allocated = sum(known) if known else None
        cached = self.at_peak("cached")
        return Estimate(
            method=method,
            parts=tuple(self.parts),
            ledger=Ledger(
                **leaves,
                allocated=allocated,
                cached=cached,
                reserved=None if cached is None else (allocated or 0) + cached,
                context=self.at_peak("context"),
                other=self.at_peak("other"),
                process=sum(part.at_peak for part in self.parts),
            ),
            peak_phase=self.phase,
            peak_step=self.step,
            timeline=tuple(self.timeline),
            assumptions=tuple(self.assumptions),
        )


def share(whole: int, ratio: float) -> int:
    """`whole` times `ratio` as it is written in decimal, rounded to an integer."""
    return round(whole * Fraction(repr(ratio)))


def ceil_share(whole: int, ranks: int) -> int:
    """What the fullest of `ranks` holds of `whole` bytes."""
    return -(-whole // ranks)


def gb(size: int) -> str:
    """Decimal gigabytes, as publications mostly mean by GB."""
    return f"{size / 10**9:,.2f} GB"


def gib(size: int) -> str:
    """Binary gigabytes, to three places."""
    return f"{size / 2**30:,.3f} GiB"


def transformer(workload: Workload) -> TransformerModel | None:
    """The decoder-only transformer of a workload; None when the model is something else."""
    model = workload.model
    return model if isinstance(model, TransformerModel) else None


def training(workload: Workload) -> tuple[TransformerModel, TrainRun, int] | None:
    """Model, run and sequence length of a transformer's training; None when it is something else."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, TrainRun) or run.sequence_length is None:
        return None
    return model, run, run.sequence_length


def full_training(workload: Workload) -> tuple[TransformerModel, TrainRun, int] | None:
    """Model, run and sequence length of a whole model's training; None for LoRA, which these rules do not know."""
    shapes = training(workload)
    return shapes if shapes is not None and shapes[1].lora is None else None


def inference(workload: Workload) -> tuple[TransformerModel, InferRun, int] | None:
    """Model, run and prompt length of a transformer's generation; None when it is something else."""
    model, run = transformer(workload), workload.run
    if model is None or not isinstance(run, InferRun) or run.sequence_length is None:
        return None
    return model, run, run.sequence_length


def parameter_count(model: TransformerModel) -> int:
    """The card's count when it is given, else the shapes': attention, MLP, norms and embeddings."""
    if model.parameters is not None:
        return model.parameters
    hidden, ffn = model.hidden_size, model.ffn_size
    query, key = model.num_attention_heads * model.head_size, model.kv_heads * model.head_size
    attention = hidden * query * 2 + hidden * key * 2
    attention += (query + 2 * key) * model.attention_bias + hidden * model.output_bias
    mlp = (3 if model.gated_mlp else 2) * hidden * ffn
    mlp += model.mlp_bias * (ffn * (2 if model.gated_mlp else 1) + hidden)
    norm = 2 * hidden if model.norm == "layernorm" else hidden
    layer = attention + mlp + model.norms_per_layer * norm + 2 * model.head_size * model.qk_norm
    embeddings = model.vocab_size * hidden * (1 if model.tie_word_embeddings else 2)
    if model.position == "learned":
        embeddings += (model.max_position_embeddings or 0) * hidden
    return model.num_hidden_layers * layer + norm + embeddings


def largest_tensor(model: TransformerModel) -> int:
    """Parameters of the largest single layer: the embedding, or one matrix of the MLP."""
    return max(model.vocab_size, model.ffn_size) * model.hidden_size

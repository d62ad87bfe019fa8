"""Published rules of thumb for decoder-only transformers, each reproduced as published: `RULES` by id.

`vramtui estimate NAME --method rules:ID` answers by one of them, and `--set` changes what it reads.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil, isqrt

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import BESIDE_TOTAL, CATEGORIES, Category, Estimate, Ledger, Line, Part, Phase
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel, TrainRun, Workload

OWN_TOTAL = "The total is the rule's own: lines that the rule does not mention are unknown, not zero."


@dataclass(frozen=True)
class Inputs:
    """The inputs of the rules, as a workload has them.

    Attributes:
        parameters: the model card's count, else the count of the shapes.
        length: tokens of each sequence, or of the prompt.
        new_tokens: tokens generated after the prompt.
        lora: only adapters are trained.
    """

    model: TransformerModel
    run: TrainRun | InferRun
    parallel: Parallel
    parameters: int
    length: int
    new_tokens: int
    trains: bool
    lora: bool

    @property
    def whole_training(self) -> bool:
        return self.trains and not self.lora

    @property
    def tokens(self) -> int:
        return self.run.batch_size * self.length


class Sheet:
    def __init__(self, phase: Phase, *assumptions: str) -> None:
        self.phase = phase
        self.assumptions = assumptions
        self.parts: list[tuple[str, Line, int, str, bool]] = []

    def add(self, name: str, line: Line, size: int, formula: str, *, counts: bool = True) -> None:
        """Add a part of `size` bytes, or a figure of the rule that is not part of the total."""
        self.parts.append((name, line, size, formula, counts))

    def mention(self, name: str, line: Line, size: int, formula: str) -> None:
        """Add a figure that is not part of the total."""
        self.add(name, line, size, formula, counts=False)


RULES: dict[str, "Rule"] = {}


@dataclass
class Rule:
    """One published rule; it decorates the function that fills its sheet.

    Attributes:
        source: where it was published.
        fits: tell whether the rule covers a workload.
        needs_length: the rule counts tokens.
        errata: what the published text has wrong, and by how much.
    """

    key: str
    source: str
    fits: Callable[[Inputs], bool]
    needs_length: bool = True
    errata: tuple[str, ...] = ()
    compute: Callable[[Inputs], Sheet] = field(init=False)

    def __call__(self, compute: Callable[[Inputs], Sheet]) -> Callable[[Inputs], Sheet]:
        self.compute = compute
        RULES[self.key] = self
        return compute

    def estimate(self, inputs: Inputs) -> Estimate:
        """Return the estimate whose ledger is the sum of the parts, line by line."""
        sheet = self.compute(inputs)
        parts = tuple(
            Part(
                name=name,
                line=line,
                bytes=size,
                at_peak=size if counts else 0,
                formula=formula,
                source=self.source,
                lifetime="as long as the job runs" if counts else BESIDE_TOTAL,
            )
            for name, line, size, formula, counts in sheet.parts
        )
        sums: dict[Line, int] = {}
        for _, line, size, _, counts in sheet.parts:
            if counts:
                sums[line] = sums.get(line, 0) + size
        leaves: dict[Category, int | None] = {category: sums.get(category) for category in CATEGORIES}
        known = [size for size in leaves.values() if size is not None]
        ledger = Ledger(
            **leaves, allocated=sum(known) if known else None, context=sums.get("context"), process=sum(sums.values())
        )
        errata = (f"Erratum: {erratum}" for erratum in self.errata)
        return Estimate(
            method=f"rules:{self.key}",
            parts=parts,
            ledger=ledger,
            peak_phase=sheet.phase,
            assumptions=(OWN_TOTAL, *sheet.assumptions, *errata),
        )


def estimate_rules(workload: Workload, device: Device, rule_id: str | None = None) -> list[Estimate]:
    """Estimate by every rule that covers `workload`, or by the one called `rule_id`. Rules do not depend on the GPU.
    Raises UserError if the rule is unknown, or none covers the workload.
    """
    del device
    if rule_id is not None and rule_id not in RULES:
        raise UserError(f"no rule is called {rule_id!r}{nearest(rule_id, RULES)}; there are: {', '.join(RULES)}")
    model, run, inputs = workload.model, workload.run, None
    if isinstance(model, TransformerModel) and isinstance(run, (TrainRun, InferRun)):
        inputs = Inputs(
            model=model,
            run=run,
            parallel=workload.parallel or Parallel(),
            parameters=model.parameters or _count(model),
            length=run.sequence_length or 0,
            new_tokens=run.new_tokens if isinstance(run, InferRun) else 0,
            trains=isinstance(run, TrainRun),
            lora=isinstance(run, TrainRun) and run.lora is not None,
        )
    fitting = [
        key
        for key, rule in RULES.items()
        if inputs is not None and (inputs.length or not rule.needs_length) and rule.fits(inputs)
    ]
    if inputs is None or not fitting:
        raise UserError("no rule fits this workload: rules cover training and generation of decoder-only transformers")
    if rule_id is not None and rule_id not in fitting:
        raise UserError(f"the rule {rule_id!r} does not fit this workload; these do: {', '.join(fitting)}")
    return [RULES[key].estimate(inputs) for key in fitting if rule_id in {None, key}]


def _count(model: TransformerModel) -> int:
    """Count the parameters of attention, MLP, norms and embeddings."""
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


def _largest_tensor(model: TransformerModel) -> int:
    """Return the parameters of the embedding, or of one matrix of the MLP if that is larger."""
    return max(model.vocab_size, model.ffn_size) * model.hidden_size


def _share(whole: int, ranks: int) -> int:
    return -(-whole // ranks)


def _gb(size: int) -> str:
    return f"{size / 10**9:,.2f} GB"


def _gib(size: int) -> str:
    return f"{size / 2**30:,.3f} GiB"


def _mb(size: int) -> str:
    return f"{size / 2**20:,.2f} MB"


# Bytes per parameter of the weights by dtype, and of each state by what is done with the model.
WEIGHTS = {
    "fp32": Fraction(4), "tf32": Fraction(4), "bf16": Fraction(2), "fp16": Fraction(2), "int8": Fraction(1),
    "int4": Fraction(1, 2),
}  # fmt: skip
BYTES_PER_PARAMETER: dict[str, dict[Category, tuple[Fraction, str]]] = {
    "full fp16": {
        "weights": (Fraction(2), "fp16"), "gradients": (Fraction(2), "fp16"),
        "optimizer": (Fraction(4), "two fp16 moments"),
    },
    "mixed bf16": {
        "weights": (Fraction(6), "2 bf16 and 4 of the fp32 copy"), "gradients": (Fraction(2), "bf16"),
        "optimizer": (Fraction(8), "two fp32 moments"),
    },
    "LoRA": {"weights": (Fraction(2), "frozen, 16 bits; the adapters are left out")},
    "QLoRA": {"weights": (Fraction(1, 2), "frozen, 4 bits; the adapters are left out")},
}  # fmt: skip
FOUR_BITS = {"int4", "nf4", "nf4-double"}


@Rule(
    "bytes-per-parameter",
    "Rule of thumb in wide use: 6 + 2 + 8 bytes for AdamW in mixed precision (Hugging Face, model memory anatomy; "
    "Rajbhandari et al. 2020, section 3.1), only weights for LoRA and QLoRA",
    lambda inputs: not inputs.lora or inputs.run.quantization in {None, *FOUR_BITS},
    needs_length=False,
    errata=(
        "a published example has 1 B parameters in fp32 take 1 B x 2 = 2 GB; fp32 takes 4 bytes: 4 GB, 2 GB more.",
        "a published table gives TF32 2 bytes; it computes with 19 bits of numbers that are kept in 4 bytes.",
    ),
)
def bytes_per_parameter(inputs: Inputs) -> Sheet:
    """Multiply parameters by bytes, line by line; mention the rest of the table."""
    count, run = inputs.parameters, inputs.run
    sheet = Sheet("step" if inputs.trains else "build", "No activations, no inputs, no CUDA context.")
    dtype = title = ""
    if not inputs.trains:
        dtype = run.precision if run.precision in {"fp32", "tf32", "fp16"} else "bf16"
        lines: dict[Category, tuple[Fraction, str]] = {"weights": (WEIGHTS[dtype], dtype)}
    else:
        full = "full fp16" if run.precision in {"bf16", "fp16"} else "mixed bf16"
        title = full if not inputs.lora else "LoRA" if run.quantization is None else "QLoRA"
        lines = BYTES_PER_PARAMETER[title]

    def formula(each: Fraction, why: str) -> tuple[int, str]:
        size = round(count * each)
        return size, f"{count:,} parameters x {float(each):g} B ({why}) = {_gb(size)}"

    for line, (each, why) in lines.items():
        sheet.add(line, line, *formula(each, why))
    for other, states in BYTES_PER_PARAMETER.items():
        if other != title:
            sheet.mention(
                f"all, {other}", "process", *formula(sum((b for b, _ in states.values()), Fraction(0)), other)
            )
    for other, each in WEIGHTS.items():
        if other != dtype:
            sheet.mention(f"weights in {other}", "weights", *formula(each, other))
    return sheet


ZERO_SOURCE = "Rajbhandari et al. 2020, ZeRO: Memory Optimizations Toward Training Trillion Parameter Models"
# Bytes per parameter, and the first ZeRO stage that shards them.
ZERO_STATES: tuple[tuple[str, Category, int, int], ...] = (
    ("weights, fp16", "weights", 2, 3),
    ("gradients, fp16", "gradients", 2, 2),
    ("weights, fp32", "master_weights", 4, 1),
    ("momentum, fp32", "optimizer", 4, 1),
    ("variance, fp32", "optimizer", 4, 1),
)
ZERO_STAGES = ("baseline", "ZeRO-1 (optimizer)", "ZeRO-2 (and gradients)", "ZeRO-3 (and parameters)")


@Rule(
    "gpt2-residual",
    f"{ZERO_SOURCE}, section 3",
    lambda inputs: inputs.whole_training,
    errata=(
        (
            "checkpointing is said to take the square root of 60 GB, 8 GB. A root of bytes has no unit: one input "
            "kept for each layer and one layer made again are what it takes (both are mentioned)."
        ),
        (
            "a model of 100 B parameters is said to need 60 GB of activations with checkpointing, without its "
            "shape; the same square root gives 28.4 GB for 8,192 wide and 125 layers, one input per layer 67.1 GB."
        ),
    ),
)
def gpt2_residual(inputs: Inputs) -> Sheet:
    """16 B per parameter; activations 12 x hidden x batch x sequence x layers in fp16; a fused fp32 buffer."""
    count, model = inputs.parameters, inputs.model
    sheet = Sheet("backward", "Adam in mixed precision; one buffer of fp32 for fused gradients.")
    for name, line, each, _ in ZERO_STATES:
        sheet.add(name, line, each * count, f"{count:,} parameters x {each} B = {_gb(each * count)}")
    sheet.mention("model states", "process", 16 * count, f"{count:,} parameters x 16 B = {_gb(16 * count)}")
    tokens = f"hidden {model.hidden_size} x batch {inputs.run.batch_size} x sequence {inputs.length}"
    one, layers = model.hidden_size * inputs.tokens * 2, model.num_hidden_layers
    full, stored = 12 * one * layers, one * layers
    # The paper says "the square root of the total", which holds only with the total in units of 1 GB.
    root = isqrt(full * 10**9)
    keeps_all = not isinstance(inputs.run, TrainRun) or inputs.run.checkpointing == "none"
    sheet.add(
        "activations", "activations", full, f"12 x {tokens} x {layers} layers x 2 B = {_gb(full)}", counts=keeps_all
    )
    sheet.add(
        "activations, checkpointed as published",
        "activations",
        root,
        f"the square root of the {full / 10**9:.1f} GB, taken in units of GB = {_gb(root)}, published as about 8 GB "
        "for GPT-2 of 1.5 B",
        counts=not keeps_all,
    )
    what = f"{tokens} x {layers} layers x 2 B = {_gb(stored)}"
    sheet.mention("activations, one input stored per layer", "activations", stored, what)
    what = f"12 x {tokens} x 2 B = {_gb(12 * one)}"
    sheet.mention("activations of one layer, made again", "activations", 12 * one, what)
    sheet.add("fused fp32 buffer", "temporaries", 4 * count, f"{count:,} parameters x 4 B = {_gb(4 * count)}")
    used = sum(size for _, _, size, _, counts in sheet.parts if counts)
    lost = round(used * Fraction(3, 7))
    what = f"30% of the memory is free but unusable: {_gb(used)} x 0.3 / 0.7 = {_gb(lost)}"
    sheet.mention("fragmentation when memory runs out", "cached", lost, what)
    return sheet


@Rule(
    "lora-calculator",
    "Published LoRA memory calculator, with Gemma 2 27B as its example (hidden size 4068 as printed there)",
    lambda inputs: inputs.lora or not inputs.trains,
    errata=(
        (
            "Gemma 2 27B is printed with a hidden size of 4,068; its config.json says 4,608. With that the "
            "activations are 3.234 GiB instead of 2.855, and the total 66.360 GiB instead of 65.981."
        ),
        (
            "one activation a layer is what full checkpointing keeps: without it this run's eager attention keeps "
            "some hundreds of GiB (`vramtui estimate gemma-2-27b-lora`)."
        ),
        "0.977 GiB is printed for the first CUDA call, and 2 GiB is taken for it.",
    ),
)
def lora_calculator(inputs: Inputs) -> Sheet:
    """Training counts the logits twice, inference once and no gradients or moments."""
    model, count, train = inputs.model, inputs.parameters, inputs.trains
    sheet = Sheet("backward" if train else "prefill", "All tensors take 2 B an element; 2 % of the model is trained.")
    kernels, weights, trained = 2 << 30, 2 * count, round(2 * count * TRAINED_SHARE)
    hidden = model.num_hidden_layers * inputs.tokens * model.hidden_size * 2
    logits = inputs.tokens * model.vocab_size * 2
    tokens = f"batch {inputs.run.batch_size} x sequence {inputs.length}"
    sheet.add("CUDA kernels", "context", kernels, f"{_gib(kernels)}, taken as constant")
    sheet.add("weights", "weights", weights, f"{count:,} x 2 B = {_gib(weights)}")
    if train:
        sheet.add("gradients", "gradients", trained, f"0.02 x {count:,} x 2 B = {_gib(trained)}")
        what = f"0.02 x {count:,} x 2 moments x 2 B = {_gib(2 * trained)}"
        sheet.add("moments", "optimizer", 2 * trained, what)
    what = f"{model.num_hidden_layers} layers x {tokens} x hidden {model.hidden_size} x 2 B = {_gib(hidden)}"
    sheet.add("activations", "activations", hidden, what)
    what, times = f"{tokens} x vocabulary {model.vocab_size} x 2 B", 2 if train else 1
    what = f"2 x {what}" if train else what
    sheet.add("logits", "activations", times * logits, f"{what} = {_gib(times * logits)}")
    base = kernels + weights + hidden
    if train:
        what = f"without gradients, moments: {_gib(base + logits)}"
        sheet.mention("all, inference", "process", base + logits, what)
    else:
        total = base + 3 * trained + 2 * logits
        sheet.mention("all, training", "process", total, f"with gradients and moments, logits twice: {_gib(total)}")
    return sheet


@Rule(
    "kv-cache",
    "Pope et al. 2022; fewer key/value heads as in Shazeer 2019 (MQA) and Ainslie et al. 2023 (GQA)",
    lambda inputs: not inputs.trains,
    errata=(
        (
            "a published text has every head keep keys and values of its own in MQA; all heads share one pair, so "
            "that the cache is the number of heads times smaller."
        ),
    ),
)
def kv_cache(inputs: Inputs) -> Sheet:
    """2 x batch x sequence x layers x key/value heads x head size x bytes."""
    model, run = inputs.model, inputs.run
    sheet = Sheet("decode", "A full-length cache for every sequence, without pages or windows.")
    cache = run.kv_cache if isinstance(run, InferRun) and run.kv_cache else run.precision
    item, length = 4 if cache in {"fp32", "tf32"} else 2, inputs.length + inputs.new_tokens
    one = run.batch_size * length * model.num_hidden_layers * model.head_size * item
    what = (
        f"batch {run.batch_size} x sequence {length} x {model.num_hidden_layers} layers x "
        f"head size {model.head_size} x {item} B"
    )
    heads = model.kv_heads
    for name in ("keys", "values"):
        sheet.add(name, "kv_cache", one * heads, f"{what} x {heads} heads = {_gib(one * heads)}")
    for name, count in {"": heads, " as MHA": model.num_attention_heads, " as MQA": 1}.items():
        if not name or count != heads:
            size = 2 * one * count
            sheet.mention(f"keys and values{name}", "kv_cache", size, f"2 x {what} x {count} heads = {_gib(size)}")
    return sheet


ACCELERATE_PARTS = {"fp32": Fraction(1), "fp16": Fraction(1, 2), "int8": Fraction(1, 4), "int4": Fraction(1, 8)}


@Rule(
    "accelerate",
    "Hugging Face accelerate, docs/source/usage_guides/model_size_estimator.md and commands/estimate.py",
    lambda _: True,
    needs_length=False,
)
def accelerate(inputs: Inputs) -> Sheet:
    """Weights in fp32, scaled by the dtype; training is 4 x that (model, gradients, two moments)."""
    count, layer, train = inputs.parameters, _largest_tensor(inputs.model), inputs.whole_training
    sheet = Sheet("step" if train else "build", "No activations; accelerate's MB and GB are 2^20 and 2^30 bytes.")
    half = inputs.run.precision in {"bf16", "fp16"}
    part, full = Fraction(1, 2) if half else Fraction(1), 4 * count
    size = round(full * part)
    sheet.add("model", "weights", size, f"({count:,} parameters x 4 B) x {part} = {_mb(size)}")
    if train:
        sheet.add("gradients", "gradients", size, f"as the model, {_mb(size)}")
        sheet.add("Adam's moments", "optimizer", 2 * size, f"2 x {_mb(size)}")
    sheet.mention("training using Adam", "process", 4 * size, f"4 x {_mb(size)} = {_mb(4 * size)}")
    largest = round(layer * 4 * part)
    sheet.mention("largest layer", "weights", largest, f"{layer:,} x 4 B x {part} = {_mb(largest)}")
    for other, each in ACCELERATE_PARTS.items():
        if half or other != "fp32":
            scaled = round(full * each)
            sheet.mention(f"model in {other}", "weights", scaled, f"{full:,} B x {each} = {_mb(scaled)}")
    what = f"2 x {_mb(full)} of fp32 = {_mb(2 * full)}"
    sheet.mention("training in mixed precision", "process", 2 * full, what)
    return sheet


@Rule(
    "eleutherai",
    "EleutherAI cookbook, calc/calc_transformer_mem.py; Anthony et al. 2023, Transformer Math 101",
    lambda inputs: not inputs.lora,
)
def eleutherai(inputs: Inputs) -> Sheet:
    """Model, gradients (4 B), optimizer (12 B), communication, activations; the KV cache without its factor 2."""
    model, run, parallel, train = inputs.model, inputs.run, inputs.parallel, inputs.trains
    hidden, layers, tokens, stage = model.hidden_size, model.num_hidden_layers, inputs.tokens, parallel.zero_stage
    low, ranks = 4 if run.precision in {"fp32", "tf32"} else 2, parallel.ranks
    kv = Fraction(repr(model.kv_heads / model.num_attention_heads))
    # Two embeddings, positions, eight norm vectors a layer, attention and MLP.
    count = (
        (2 * model.vocab_size + inputs.length + 8 * layers + 2) * hidden
        + int(2 * (1 + kv) * layers * hidden * hidden)
        + (3 if model.gated_mlp else 2) * layers * hidden * Fraction(repr(model.ffn_size / hidden)) * hidden
    )
    what = f"{round(count):,} parameters"
    size = count * low / (parallel.tensor * parallel.pipeline) / (ranks if stage == 3 else 1)
    sheet = Sheet(
        "backward" if train else "decode",
        "Gradients and optimizer are divided by ZeRO's ranks only, not by tensor or pipeline parallelism.",
    )
    sheet.add("model", "weights", round(size), f"{what} x {low} B, on one rank: {_gib(round(size))}")
    if train:
        states: tuple[tuple[str, Category, int, int], ...] = (
            ("gradients", "gradients", 4, 2),
            ("optimizer", "optimizer", 12, 1),
        )
        for name, line, each, first in states:
            share = round(each * count / (ranks if stage >= first else 1))
            sheet.add(name, line, share, f"{what} x {each} B, ZeRO stage {stage} of {ranks} ranks")
        if stage >= 1 and ranks > 1:
            bucket, live = 500_000_000, 1_000_000_000 if stage == 3 else 0
            how = f"({bucket:,} bucket + {live:,} live parameters) x {low} B"
            sheet.add("communication", "temporaries", (bucket + live) * low, how)
    activations, unit = tokens * hidden * 34, f"hidden {hidden} x (16 x 2 + 2)"
    if not train:
        how = f"{tokens} tokens x {unit}, one layer"
    elif isinstance(run, TrainRun) and run.checkpointing != "none":
        activations, how = activations * layers, f"{tokens} tokens x {unit} x {layers} layers"
    else:
        activations = (activations + 5 * model.num_attention_heads * inputs.length * tokens) * layers
        how = (
            f"{tokens} tokens x {layers} layers x ({unit} + (2 x 2 + 1) x {model.num_attention_heads} heads x "
            f"{inputs.length})"
        )
    if parallel.sequence_parallel:
        activations, how = round(Fraction(activations, parallel.tensor)), f"{how} / {parallel.tensor}"
    sheet.add("activations", "activations", activations, f"{how} = {_gib(activations)}")
    if not train:
        tokens = run.batch_size * (inputs.length + max(1, inputs.new_tokens))
        cache = 2 * hidden * layers * tokens
        how = f"2 B x hidden {hidden} x {layers} layers x {tokens} tokens = {_gib(cache)}"
        sheet.add("KV cache", "kv_cache", cache, f"{how}, keys or values as the script has it")
    return sheet


@Rule(
    "activation-recomputation",
    "Korthikanti et al. 2022, Reducing Activation Recomputation in Large Transformer Models, Table 2",
    lambda inputs: inputs.trains,
)
def activation_recomputation(inputs: Inputs) -> Sheet:
    """s·b·h·(10 + 24/t + 5·a·s/(h·t)) per layer; selective recomputation does not keep the last term."""
    model, run, ranks = inputs.model, inputs.run, inputs.parallel.tensor
    sheet = Sheet("backward", "16-bit activations, MLP of 4 x hidden, dropout, eager attention.")
    unit, heads = inputs.tokens * model.hidden_size * model.num_hidden_layers, model.num_attention_heads
    over, split = f" / {ranks}" if ranks > 1 else "", inputs.parallel.sequence_parallel
    outside = Fraction(10 * unit, ranks if split else 1)
    core = Fraction(5 * heads * inputs.length * inputs.tokens * model.num_hidden_layers, ranks)
    what, ratio = f"s·b·h·L = {unit:,}", 5 * heads * inputs.length / model.hidden_size
    full = isinstance(run, TrainRun) and run.checkpointing == "full"
    eager = isinstance(run, TrainRun) and run.attention == "eager"
    for name, exact, formula, counts in (
        ("norms, dropouts and inputs", outside, f"10 x {what}{over if split else ''}", not full),
        ("attention and MLP", Fraction(24 * unit, ranks), f"24 x {what}{over}", not full),
        ("attention core", core, f"5·a·s/h x {what}{over}, 5·a·s/h = {ratio:g}", eager and not full),
    ):
        sheet.add(name, "activations", round(exact), f"{formula} = {_gib(round(exact))}", counts=counts)
    formula = f"2 x {what} = {_gib(2 * unit)}, all that full recomputation keeps"
    sheet.add("inputs of each layer", "activations", 2 * unit, formula, counts=full)
    return sheet


@Rule(
    "megatron",
    "NVIDIA Megatron-LM, megatron/training/theoretical_memory_usage.py",
    lambda inputs: inputs.whole_training,
)
def megatron(inputs: Inputs) -> Sheet:
    """18 B per parameter of the shard (6 + 12 / data parallel with the distributed optimizer), and activations."""
    model, parallel, tokens = inputs.model, inputs.parallel, inputs.tokens
    hidden, layers, ranks, stages = model.hidden_size, model.num_hidden_layers, parallel.tensor, parallel.pipeline
    sheet = Sheet("backward", "No CUDA context, no communication buffers, no fragmentation.")
    query = model.head_size * model.num_attention_heads
    attention = 2 * hidden * query * (1 + Fraction(model.kv_heads, model.num_attention_heads))
    norm, wide = 1 if model.norm == "rmsnorm" else 2, model.ffn_size * (Fraction(3, 2) if model.gated_mlp else 1)
    block = layers * (2 * hidden * (wide + norm) + attention) + norm * hidden
    embeddings = (2 if not model.tie_word_embeddings and stages == 1 else 1) * hidden * model.vocab_size
    count = (Fraction(block) / stages + embeddings) / ranks
    what = f"{round(count):,} parameters on the most loaded shard"
    over, total = inputs.parallel.data if parallel.zero_stage else 1, 0
    states: tuple[tuple[str, Category, int, str], ...] = (
        ("weights, 16 bits", "weights", 2, ""),
        ("main gradients, fp32", "gradients", 4, ""),
        ("main weights, fp32", "master_weights", 4, f" / {over}"),
        ("Adam's moments, fp32", "optimizer", 8, f" / {over}"),
    )
    for name, line, each, shared in states:
        size = ceil(count * each / (over if shared else 1))
        total += size
        sheet.add(name, line, size, f"{what} x {each} B{shared}")
    sheet.mention("weight and optimizer", "process", total, f"{what} x (6 + 12 / {over}) B = {_gib(total)}")
    where, dropout = f"s·b = {tokens:,}, h = {hidden}", (tokens * hidden * stages, f"s·b·h x {stages} in flight")
    terms: dict[str, tuple[int | Fraction, str]] = {}
    if parallel.sequence_parallel or ranks == 1:
        layer = tokens * (18 * hidden + 4 * model.ffn_size)
        terms["layers"] = (layer * layers, f"{layers} layers x s·b·(18 h + 4 ffn)")
        terms["input ids"] = (8 * tokens * stages, f"8 x s·b x {stages} in flight")
        terms["embedding dropout"] = dropout
        if stages == 1:
            terms["output layer and loss"] = (4 * tokens * (hidden + model.vocab_size), "4 x s·b·(h + vocabulary)")
        for name, (exact, formula) in terms.items():
            size = ceil(Fraction(exact) / ranks)
            sheet.add(name, "activations", size, f"{formula} / {ranks}, {where}: {_gib(size)}")
        one = _share(layer, ranks)
        formula = f"s·b·(18 h + 4 ffn) / {ranks} = {one / 2**20:.1f} MiB"
        sheet.mention("activations of one layer", "activations", one, formula)
        return sheet
    terms["layers"] = (
        tokens * hidden * (10 + Fraction(24, ranks)) * layers,
        f"{layers} layers x s·b·h·(10 + 24 / {ranks})",
    )
    terms["input ids"] = (8 * tokens * stages, f"8 x s·b x {stages} in flight")
    terms["embedding dropout"] = dropout
    if stages == 1:
        logits = Fraction(2 * tokens * model.vocab_size, ranks) + 2 * tokens * hidden
        terms["output layer and loss"] = (logits, f"2 x s·b·(vocabulary / {ranks} + h)")
    for name, (exact, formula) in terms.items():
        size = ceil(exact * Fraction(105, 100))
        sheet.add(name, "activations", size, f"1.05 x {formula}, {where}: {_gib(size)}")
    return sheet


@Rule("zero", f"{ZERO_SOURCE}, Figure 1", lambda inputs: inputs.whole_training, needs_length=False)
def zero(inputs: Inputs) -> Sheet:
    """2 + 2 + 12 bytes per parameter; from its stage on, each state is divided by the ranks."""
    count, ranks = inputs.parameters, inputs.parallel.data
    sheet = Sheet("step", "Only model states, on one rank; Adam in mixed precision.")
    for name, line, each, stage in ZERO_STATES:
        over = ranks if inputs.parallel.zero_stage >= stage else 1
        size = _share(count * each, over)
        sheet.add(name, line, size, f"{count:,} parameters x {each} B / {over} = {_gb(size)}")
    for stage, name in enumerate(ZERO_STAGES):
        total = sum(_share(count * each, ranks if stage >= first else 1) for _, _, each, first in ZERO_STATES)
        sheet.mention(f"all, {name}", "process", total, f"on each of {ranks} ranks: {_gb(total)}")
    return sheet


@Rule(
    "deepspeed",
    "DeepSpeed, docs/code-docs/source/memory.rst; runtime/zero/stage_1_and_2.py and stage3.py "
    "(estimate_zero2/3_model_states_mem_needs)",
    lambda inputs: inputs.whole_training and inputs.parallel.strategy == "zero" and inputs.parallel.zero_stage >= 2,
    needs_length=False,
)
def deepspeed(inputs: Inputs) -> Sheet:
    """ZeRO-2: 4 B per parameter + 16 B / ranks; ZeRO-3: 4 x the largest layer + 18 B / ranks."""
    count, ranks, third = inputs.parameters, inputs.parallel.data, inputs.parallel.zero_stage == 3
    layer = _largest_tensor(inputs.model)

    def states(*, optimizer: bool, parameters: bool) -> list[tuple[str, Line, int, str]]:
        parts: list[tuple[str, Line, int, str]] = []
        if third:
            parts.append(("largest layer, gathered", "temporaries", 4 * layer, f"{layer:,} parameters x (2 + 2) B"))
        per_parameter: list[tuple[str, Line, int, int]] = []
        if parameters:
            per_parameter.append(("weights, fp16", "weights", 2, ranks if third else 1))
        if optimizer:
            per_parameter += [] if third else [("gradients, fp16", "gradients", 2, 1)]
            per_parameter += [("gradients, fp32", "gradients", 4, ranks), ("weights, fp32", "master_weights", 4, ranks)]
            per_parameter.append(("Adam's moments", "optimizer", 8, ranks))
        for name, line, each, over in per_parameter:
            parts.append((name, line, _share(count * each, over), f"{count:,} parameters x {each} B / {over}"))
        return parts

    sheet = Sheet("step", "Only model states, on one GPU; DeepSpeed's GB are 2^30 bytes.")
    for name, line, size, formula in states(optimizer=not inputs.parallel.cpu_offload, parameters=True):
        sheet.add(name, line, size, f"{formula} = {_gib(size)}")
    for name, optimizer, parameters in (
        ("all, nothing offloaded", True, True),
        ("all, optimizer offloaded", False, True),
        ("all, parameters and optimizer offloaded", False, False),
    ):
        if third or parameters:
            total = sum(size for _, _, size, _ in states(optimizer=optimizer, parameters=parameters))
            sheet.mention(name, "process", total, f"on each of {ranks} GPUs: {_gib(total)}")
    return sheet


TRAINED_SHARE = Fraction(2, 100)

"""Generation: weights, the KV cache, and the fullest moment of the prefill."""

from vramtui.core.devices import Device
from vramtui.core.estimate import Estimate
from vramtui.core.models import TransformerModel
from vramtui.core.workload import InferRun
from vramtui.estimators.analytic.assembly import Fact, Moments, assemble
from vramtui.estimators.analytic.blocks import rounded, tail
from vramtui.estimators.analytic.job import Job, job_of
from vramtui.estimators.analytic.precision import DTYPE_BYTES
from vramtui.estimators.analytic.states import held
from vramtui.estimators.analytic.tensors import model_tensors, parameter_count
from vramtui.estimators.analytic.workspaces import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.analytic.workspaces import workspace_bytes


def estimate_inference(model: TransformerModel, run: InferRun, device: Device) -> Estimate:
    """The estimate for `generate()`: the prompt at once, then one token after another with a growing cache.

    Raises:
        UserError: the workload contradicts itself.
    """
    job = job_of(model, run)
    weights = held(model_tensors(model), job.recipe.frozen)
    workspace = workspace_bytes(device.capability)
    element = DTYPE_BYTES[run.kv_cache] if run.kv_cache else job.recipe.compute
    prompt, whole = (_cache(job, length, element) for length in (job.sequence, job.sequence + run.new_tokens))
    grown = 2 * rounded(job.batch * job.keys * (job.sequence + run.new_tokens) * element) if run.new_tokens else 0
    prefill = _prefill(job)
    inputs = rounded(8 * job.tokens)
    resting = {"weights": weights.bytes, "weight tails": weights.tails, "workspaces": workspace, "inputs": inputs}
    moments = Moments()
    moments.note("build", 0, {"weights": weights.bytes, "weight tails": weights.tails})
    moments.note("prefill", 0, resting | {"kv cache": prompt, "prefill": prefill}, end=False)
    moments.note("prefill", 0, resting | {"kv cache": prompt, "logits": _logits(job)})
    moments.note("decode", 0, resting | {"kv cache": whole, "cache growth": grown, "logits": _logits(job)})
    facts = _facts(job, run, element) | {
        "workspaces": Fact(
            line="workspaces",
            bytes=workspace,
            formula=f"{workspace:,} B: one thread multiplies matrices",
            source=WORKSPACE_SOURCE,
            lifetime="from the first matrix product to the end",
            count=1,
        )
    }
    sizes = {"weights": weights.bytes, "weight tails": weights.tails, "kv cache": whole, "cache growth": grown}
    sizes |= {"prefill": prefill, "logits": _logits(job), "inputs": inputs, "workspaces": workspace}
    sized = {name: _with_bytes(fact, sizes[name]) for name, fact in facts.items()}
    notes = ("the prompt is processed at once; logits are computed for its last token only, as generate() does",)
    return assemble(moments, sized, device, notes)


def _cache(job: Job, length: int, element: int) -> int:
    """Keys and values of every layer, each in a tensor of its own."""
    size = job.batch * job.keys * length * element
    return 2 * job.model.num_hidden_layers * (rounded(size) + tail(size))


def _prefill(job: Job) -> int:
    """The fullest moment of one block over the whole prompt: its input, its output and the MLP's or the heads'."""
    wide = rounded(job.tokens * job.model.hidden_size * job.recipe.stream)
    inner = rounded(job.tokens * job.model.ffn_size * job.recipe.compute)
    norm = wide * 4 // job.recipe.stream if job.model.norm == "rmsnorm" and not job.plain else wide
    heads = rounded(job.tokens * job.queries * job.recipe.compute) * 2
    scores = 2 * rounded(job.scores * 4) if job.eager else 0
    return wide + max(wide + inner * (3 if job.model.gated_mlp else 2), wide + heads + scores, 2 * norm)


def _logits(job: Job) -> int:
    count = job.batch * job.model.vocab_size
    return rounded(count * job.recipe.compute) + rounded(count * 4)


def _with_bytes(fact: Fact, size: int) -> Fact:
    return Fact(
        line=fact.line,
        bytes=size,
        formula=fact.formula,
        source=fact.source,
        lifetime=fact.lifetime,
        count=fact.count,
    )


def _facts(job: Job, run: InferRun, element: int) -> dict[str, Fact]:
    model = job.model
    length = job.sequence + run.new_tokens
    shapes, allocator = "the model's shapes", "PyTorch, c10/cuda/CUDACachingAllocator.cpp"
    weights = f"{parameter_count(model):,} parameters x {job.recipe.frozen} B, each tensor in blocks of 512 B"
    cache = (
        f"2 x {model.num_hidden_layers} layers x {job.batch} x {length:,} tokens x {model.kv_heads} heads x "
        f"{model.head_size} x {element} B"
    )
    always = "from build to the end"
    return {
        "weights": Fact(line="weights", bytes=0, formula=weights, source=shapes, lifetime=always),
        "weight tails": Fact(
            line="weights",
            bytes=0,
            formula="what large blocks hold beyond their tensors (segments come in steps of 2 MiB)",
            source=allocator,
            lifetime=always,
        ),
        "kv cache": Fact(
            line="kv_cache", bytes=0, formula=cache, source="Shazeer 2019; Ainslie et al. 2023", lifetime="a generation"
        ),
        "cache growth": Fact(
            line="temporaries",
            bytes=0,
            formula="one layer's keys and values again: torch.cat makes the longer cache before the old one goes",
            source="transformers, DynamicLayer.update",
            lifetime="within each new token",
        ),
        "prefill": Fact(
            line="activations",
            bytes=0,
            formula=f"one block's tensors over {job.tokens:,} tokens at their fullest; nothing is saved for a backward",
            source="the model's code",
            lifetime="within the prefill",
        ),
        "logits": Fact(
            line="activations",
            bytes=0,
            formula=f"{job.batch} x {model.vocab_size:,} in the compute type and in fp32",
            source="transformers, GenerationMixin",
            lifetime="within each token",
        ),
        "inputs": Fact(
            line="inputs", bytes=0, formula=f"{job.tokens:,} token ids x 8 B", source="torch.int64", lifetime="a prompt"
        ),
    }

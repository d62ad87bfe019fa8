"""From moments to an Estimate: the fullest moment, the parts alive in it in words, and the timeline."""

from collections import Counter
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from vramtui.core.base.units import format_bytes
from vramtui.core.estimate import estimate as estimates
from vramtui.core.estimate.devices import Device
from vramtui.core.schema.models import ModuleLoading
from vramtui.core.schema.workload import InferRun, Run, TrainRun
from vramtui.estimators.analytic.sizes.precision import BlockBytes, numel_of, words_for
from vramtui.estimators.analytic.sizes.runtime import workspace_for
from vramtui.estimators.analytic.tape import tape as tapes
from vramtui.estimators.torch_facts.allocator_sizes import SEGMENT_ROUNDING
from vramtui.estimators.torch_facts.cards import cuda_context, cuda_context_bytes, cuda_context_spread
from vramtui.estimators.torch_facts.cublas import PASSING_SOURCE as PASSING_WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import Workspace

# Share of what is not weights, gradients or optimizer state that stays cached beyond the peak of allocated, as the
# median over recorded runs of transformers has it; benchmarks/accuracy.py prints how far it is off for each. Where
# blocks are run again in the backward pass more stays: each comes back in pieces that fit the holes less well.
CACHED_SHARE = 0.16
RECOMPUTED_SHARE = 0.3
ALWAYS = "from start to end"
LASTING: frozenset[estimates.Line] = frozenset(
    {"weights", "gradients", "optimizer", "master_weights", "kv_cache", "workspaces"}
)


class Fact(msgspec.Struct, frozen=True):
    """A part without how much of it is alive when. `bytes` is its own full size, if that is known."""

    line: estimates.Line
    formula: str
    source: str
    lifetime: str = ALWAYS
    bytes: int = 0
    count: int = 0

    def part(self, name: str, at_peak: int, most: int = 0) -> estimates.Part:
        """Return the part of that name: `at_peak` bytes at the peak, and `most` at its own fullest moment."""
        size = max(self.bytes, at_peak, most)
        passing = f" + {size - self.bytes:,} B that pass through at the fullest moment" if size > self.bytes > 0 else ""
        return estimates.Part(
            name=name,
            line=self.line,
            bytes=size,
            at_peak=at_peak,
            formula=self.formula + passing,
            source=self.source,
            lifetime=self.lifetime,
            count=self.count,
        )


class Cached(msgspec.Struct, frozen=True):
    """Bytes that stay in the allocator's cache.

    Attributes:
        share: of what comes and goes, how much stays beyond the peak of allocated.
        aside: further bytes, on streams that share nothing with the others.
        left: bytes that the build leaves, which what comes and goes uses first.
        apart: the part whose bytes are in `aside`, on a stream of its own.
        most: bytes from which on the allocator gives blocks back before it asks for more.
    """

    share: float = CACHED_SHARE
    aside: int = 0
    left: int = 0
    apart: str = ""
    most: int | None = None


USUAL_CACHE = Cached()


class MomentLog:
    """Named bytes at one moment after another. `end` marks the last moment of a phase."""

    def __init__(self) -> None:
        self.noted: list[tuple[estimates.Phase, int, dict[str, int], bool]] = []

    def note(self, phase: estimates.Phase, step: int, sizes: dict[str, int], *, end: bool = True) -> None:
        """At some moment of `phase` these parts are alive with these bytes."""
        self.noted.append((phase, step, sizes, end))


def assemble(
    moments: MomentLog,
    facts: dict[str, Fact],
    device: Device,
    assumptions: tuple[str, ...] = (),
    other: int = 0,
    *,
    cache: Cached = USUAL_CACHE,
) -> estimates.Estimate:
    phase, step, sizes, _ = max(moments.noted, key=lambda moment: sum(moment[2].values()))
    most: dict[str, int] = {}
    for _, _, there, _ in moments.noted:
        for name, size in there.items():
            if size > most.get(name, 0):
                most[name] = size
    leaves = dict.fromkeys(estimates.CATEGORIES, 0)
    for name, size in sizes.items():
        line = facts[name].line
        if line in leaves:
            leaves[line] += size
    allocated = sum(leaves.values())
    timeline = _timeline(moments, facts, cache)
    # Segments stay when a moment that needed more of them is over, even if it was not the fullest.
    reserved = max(moment.peak_reserved or 0 for moment in timeline) + cache.aside
    if cache.most is not None:
        reserved = min(reserved, max(cache.most, allocated))
    copies = f"; {cache.aside:,} B of copies between ranks, on streams of their own" if cache.aside else ""
    cached = Fact(
        "cached",
        f"{cache.share:.0%} of what comes and goes, in segments of 2 MiB{copies}",
        "median over recorded PyTorch runs; the caching allocator keeps freed blocks",
        "from the first peak on",
    )
    parts = [fact.part(name, sizes.get(name, 0), most[name]) for name, fact in facts.items() if most.get(name)]
    parts += [cached.part("cached", reserved - allocated), context_part(device, "the whole run")]
    context = cuda_context_bytes(device.capability)
    return estimates.Estimate(
        method="analytic",
        parts=tuple(parts),
        ledger=estimates.ledger_from_parts(leaves, reserved=reserved, context=context, other=other),
        peak_phase=phase,
        peak_step=step,
        timeline=timeline,
        assumptions=assumptions,
        error=estimates.USUAL_ERROR,
    )


def _timeline(moments: MomentLog, facts: dict[str, Fact], cache: Cached) -> tuple[estimates.Moment, ...]:
    """One Moment per phase and step: what is held at its end, and the phase's own peak. Reserved never shrinks."""
    rows: list[estimates.Moment] = []
    reserved = peak = 0
    for phase, step, sizes, end in moments.noted:
        lines = dict.fromkeys(estimates.CATEGORIES, 0)
        for name, size in sizes.items():
            lines[facts[name].line] += size  # type: ignore[index] # moments hold only the allocator's parts
        total = sum(lines.values())
        peak = max(peak, total)
        apart = sizes.get(cache.apart, 0)
        transient = sum(size for line, size in lines.items() if line not in LASTING) - apart
        more = max(int(transient * cache.share), cache.left - transient)
        reserved = max(reserved, -(-(total - apart + more) // SEGMENT_ROUNDING) * SEGMENT_ROUNDING)
        if end:
            rows.append(
                estimates.Moment(
                    phase=phase,
                    step=step,
                    allocated=total,
                    reserved=reserved,
                    peak_allocated=peak,
                    peak_reserved=reserved,
                    categories={line: size for line, size in lines.items() if size},
                )
            )
            peak = total
    return tuple(rows)


def cached_share(run: TrainRun) -> float:
    """How much of what comes and goes in a training job stays cached beyond the peak of allocated."""
    return RECOMPUTED_SHARE if run.checkpointing in {"full", "selective-ops"} else CACHED_SHARE


def context_part(device: Device, lifetime: str) -> estimates.Part:
    """The CUDA context where kernels are loaded when first used."""
    size, (major, minor) = cuda_context_bytes(device.capability), device.capability
    context = Fact(
        "context",
        f"{format_bytes(size, 0)} on capability {major}.{minor}, give or take "
        f"{format_bytes(cuda_context_spread(device.capability), 0)}",
        "NVML's process memory less torch's reserved, public measurements",
        lifetime,
    )
    return context.part("cuda context", size)


def loading_of(run: Run) -> ModuleLoading:
    """How the job loads kernels; servers load them when first used, as their images set it."""
    return run.module_loading if isinstance(run, (TrainRun, InferRun)) else "lazy"


def with_module_loading(estimate: estimates.Estimate, run: Run, device: Device) -> estimates.Estimate:
    """`estimate`, which counts the context of lazy loading, with the one that the job has."""
    if loading_of(run) == "lazy":
        return estimate
    context, lazy = cuda_context(device.capability, "eager"), estimate.ledger.context or 0
    major, minor = device.capability
    formula = (
        f"{format_bytes(context.bytes, 0)} with every kernel loaded at the start (run.module_loading = eager) on "
        f"capability {major}.{minor}, give or take {format_bytes(context.spread, 0)}; {format_bytes(lazy, 0)} with "
        "kernels loaded when first used"
    )
    parts = tuple(
        replace(part, bytes=context.bytes, at_peak=context.bytes, formula=formula, source=context.source)
        if part.line == "context"
        else part
        for part in estimate.parts
    )
    ledger = replace(estimate.ledger, context=context.bytes, process=estimate.process + context.bytes - lazy)
    return replace(estimate, parts=parts, ledger=ledger)


def workspace_fact(workspace: Workspace, whose: str, threads: int = 1) -> Fact:
    """Workspaces of cuBLAS: of each of so many threads, `whose` they are in words, or of one product after another."""
    if workspace.passing:
        return Fact(
            "workspaces",
            f"{workspace.passing:,} B within each matrix product, given back after it",
            PASSING_WORKSPACE_SOURCE,
            "within each matrix product",
            bytes=workspace.passing,
            count=1,
        )
    times = f"{threads} x " if threads > 1 else ""
    first = "each thread's first" if threads > 1 else "the first"
    return Fact(
        "workspaces",
        f"{times}{workspace.persistent:,} B: {whose}",
        WORKSPACE_SOURCE,
        f"from {first} matrix product to the end",
        bytes=threads * workspace.persistent,
        count=threads,
    )


def model_facts(program: tapes.Program, weights: BlockBytes, apart: int = 0) -> dict[str, Fact]:
    """Weights and what else belongs to the model; `apart` bytes of the weights are parts of their own."""
    recipe, trained = program.recipe, program.trained_numel
    terms, kind = [], "frozen parameters" if trained else "parameters"
    if program.quantization and program.frozen:
        storage = f"in {program.quantization}: {words_for(program.quantization)}, where it applies"
        terms = [f"{numel_of(program.frozen):,} {kind} {storage}"]
    elif program.frozen:
        numbers: Counter[float] = Counter()  # by bytes of a number
        for tensor in program.frozen:
            itemsize = recipe.frozen if tensor.bits is None else tensor.bits / 8
            numbers[itemsize] += tensor.numel * tensor.count
        terms = [f"{count:,} {kind} x {itemsize:g} B" for itemsize, count in numbers.items()]
    if trained:
        terms.append(f"{trained:,} parameters x {recipe.weights} B")
    always = "from build to the end"
    return {
        "weights": Fact(
            "weights",
            f"{' + '.join(terms)}{f' - {apart:,} B in parts below' if apart else ''}, each tensor in blocks of 512 B",
            "the model's shapes",
            always,
            bytes=weights.bytes - apart,
            count=weights.count,
        ),
        "weight tails": Fact(
            "weights",
            "what tensors of 10 MiB and more hold beyond their size: segments come in steps of 2 MiB, and "
            "up to 1 MiB is not split off",
            "PyTorch, c10/cuda/CUDACachingAllocator.cpp",
            always,
            bytes=weights.tails,
        ),
        "buffers": Fact("weights", program.buffers_formula, "the model's code", always, bytes=program.buffers),
    }


def tower_facts(program: tapes.Program) -> dict[str, Fact]:
    """The frozen weights of each tower for images or sound and of what joins it to the words."""
    return {
        f"weights: {name}": Fact(
            "weights",
            f"{numbers:,} parameters, {8 * blocks.bytes / numbers:.3g} bits each in blocks of 512 B",
            "the model's shapes",
            "from build to the end",
            bytes=blocks.bytes,
            count=blocks.count,
        )
        for name, (numbers, blocks) in program.towers().items()
    }


def tower_pass_facts(tower: tapes.TowerPass | None) -> dict[str, Fact]:
    if tower is None:
        return {}
    return {
        tapes.PIXELS: Fact(
            "inputs",
            "numbers of images and spectrograms, 4 B each as a processor makes them",
            tapes.TOWER_SOURCE,
            "a whole pass",
            bytes=tower.pixels,
        ),
        tapes.TOWER: Fact(
            "activations",
            tower.formula,
            tapes.TOWER_SOURCE,
            "while the tower runs" if not tower.saved else "from before the words to the end of the backward pass",
            bytes=tower.fullest,
        ),
        tapes.FEATURES: Fact(
            "activations",
            "what images and sound become in the sequence",
            tapes.TOWER_SOURCE,
            "while the words are read",
            bytes=tower.features,
        ),
    }


def passing_facts(
    program: tapes.Program, stages: Sequence[tapes.TapeStage], workspace: Workspace, what: str
) -> dict[str, Fact]:
    groups = dict.fromkeys(s.group for stage in stages for node in stage.tape.nodes for s in node.makes)
    code, passing = "the model's code", "within one pass"
    words = f"tensors on their way over {what}, at their fullest; none is kept"
    return {
        **{group: Fact("activations", words, code, passing) for group in groups},
        tapes.SCRATCH: Fact("temporaries", "operators' own", code, passing),
        tapes.CASTS: Fact("temporaries", "autocast's copies", code, passing),
        "inputs": Fact("inputs", program.inputs_formula, "the batch", passing, bytes=program.inputs),
        tapes.WORKSPACES: workspace_fact(workspace, "one thread multiplies matrices"),
    }


def estimate_forward(program: tapes.Program, run: InferRun, device: Device) -> estimates.Estimate:
    """The estimate of one forward pass, of a model that generates nothing."""
    weights = program.weights
    workspace = workspace_for(run, device)
    built = {"weights": weights.bytes, "weight tails": weights.tails, "buffers": program.buffers}
    fed = built | {"inputs": program.inputs}
    working = fed | {tapes.WORKSPACES: workspace.persistent}
    done = tapes.prefilled(program.stages, workspace)
    moments = MomentLog()
    moments.note("build", 0, built)
    moments.note("input", 0, fed)
    moments.note("forward", 0, tapes.summed(fed, done.early), end=False)
    moments.note("forward", 0, tapes.summed(working, done.late), end=False)
    moments.note("forward", 0, tapes.summed(working, done.end))
    facts = model_facts(program, weights) | passing_facts(
        program, program.stages, workspace, f"a batch of {run.batch_size}"
    )
    return assemble(moments, facts, device, program.notes)

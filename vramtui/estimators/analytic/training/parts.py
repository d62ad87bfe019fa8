"""The parts of a training estimate in words: formula, source and lifetime of each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from vramtui.core.estimate.estimate import Part
from vramtui.core.estimate.ledger import Line
from vramtui.core.schema.workload import TrainRun
from vramtui.estimators.analytic.assemble import Fact
from vramtui.estimators.analytic.ops.operators import CASTS
from vramtui.estimators.analytic.sizes.precision import BlockBytes, numel_of
from vramtui.estimators.analytic.sizes.quantization import words_for
from vramtui.estimators.analytic.tape.program import (
    FEATURES,
    PIXELS,
    TOWER,
    TOWER_SOURCE,
    Program,
    SavedTensors,
    TowerPass,
    passing_groups,
    saved_by_group,
)
from vramtui.estimators.analytic.tape.replay import BACKWARD, SCRATCH, WORKSPACES, TapeStage
from vramtui.estimators.torch_facts.cublas import PASSING_SOURCE as PASSING_WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import SOURCE as WORKSPACE_SOURCE
from vramtui.estimators.torch_facts.cublas import Workspace

if TYPE_CHECKING:
    from vramtui.estimators.analytic.optimizers import States

ALLOCATOR_SOURCE = "PyTorch, c10/cuda/CUDACachingAllocator.cpp"
AUTOGRAD_SOURCE = "PyTorch, tools/autograd/derivatives.yaml, and the model's code"
LINES: dict[str, Line] = {CASTS: "temporaries"}


class Sizes(Protocol):
    """What a trainer knows; see `training.Trainer`."""

    program: Program
    run: TrainRun
    weights: BlockBytes
    gradients: BlockBytes
    states: "States"
    master: BlockBytes
    clipping: int
    workspace: Workspace


def training_facts(sizes: Sizes) -> dict[str, Fact]:
    """The facts of every part that a training job can hold, in the order they are shown."""
    return {
        **model_facts(sizes.program, sizes.weights),
        **_state_facts(sizes),
        **tower_pass_facts(sizes.program.tower),
        **activation_facts(sizes.program, checkpointed=sizes.run.checkpointing != "none"),
        **_passing_facts(sizes),
    }


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


def model_facts(program: Program, weights: BlockBytes) -> dict[str, Fact]:
    """Weights and what else belongs to the model."""
    recipe, frozen, trained = program.recipe, numel_of(program.frozen), program.trained_numel
    terms = [f"{trained:,} parameters x {recipe.weights} B"] if trained else []
    if frozen:
        storage = f"x {recipe.frozen} B"
        if program.quantization:
            storage = f"in {program.quantization}: {words_for(program.quantization)}, where it applies"
        terms.insert(0, f"{frozen:,} {'frozen ' if trained else ''}parameters {storage}")
    always = "from build to the end"
    return {
        "weights": Fact(
            "weights",
            f"{' + '.join(terms)}, each tensor in blocks of 512 B",
            "the model's shapes",
            always,
            bytes=weights.bytes,
            count=weights.count,
        ),
        "weight tails": Fact(
            "weights",
            "what tensors of 10 MiB and more hold beyond their size: segments come in steps of 2 MiB, and "
            "up to 1 MiB is not split off",
            ALLOCATOR_SOURCE,
            always,
            bytes=weights.tails,
        ),
        "buffers": Fact("weights", program.buffers_formula, "the model's code", always, bytes=program.buffers),
    }


def tower_facts(program: Program) -> dict[str, Fact]:
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


def tower_pass_facts(tower: TowerPass | None) -> dict[str, Fact]:
    """What towers hold while they run, beside its weights; none where it does not run."""
    if tower is None:
        return {}
    return {
        PIXELS: Fact(
            "inputs",
            "numbers of images and spectrograms, 4 B each as a processor makes them",
            TOWER_SOURCE,
            "a whole pass",
            bytes=tower.pixels,
        ),
        TOWER: Fact(
            "activations",
            tower.formula,
            TOWER_SOURCE,
            "while the tower runs" if not tower.saved else "from before the words to the end of the backward pass",
            bytes=tower.fullest,
        ),
        FEATURES: Fact(
            "activations",
            "what images and sound become in the sequence",
            TOWER_SOURCE,
            "while the words are read",
            bytes=tower.features,
        ),
    }


def _state_facts(sizes: Sizes) -> dict[str, Fact]:
    itemsize, states, trained = sizes.program.recipe.weights, sizes.states, sizes.program.trained_numel
    since = "build" if states.from_build else "the first optimizer step"
    return {
        "gradients": Fact(
            "gradients",
            f"{trained:,} trained parameters x {itemsize} B, of the weights' type",
            "torch.autograd: a gradient has its parameter's type and shape",
            "from each layer's backward to zero_grad(set_to_none=True)",
            bytes=sizes.gradients.bytes,
            count=sizes.gradients.count,
        ),
        "optimizer": Fact(
            "optimizer",
            f"{sizes.run.optimizer}: {states.formula}",
            states.source,
            f"from {since} to the end",
            bytes=states.bytes,
            count=states.count,
        ),
        "master weights": Fact(
            "master_weights",
            f"{trained:,} x 4 B: the optimizer's own copy in fp32",
            "Micikevicius et al. 2018 (arXiv 1710.03740)",
            "from build to the end",
            bytes=sizes.master.bytes,
            count=sizes.master.count,
        ),
        "fp32 gradients": Fact(
            "temporaries",
            f"{trained:,} x 4 B: gradients raised to the master weights' type",
            "Micikevicius et al. 2018 (arXiv 1710.03740)",
            "within the optimizer step",
            bytes=sizes.master.bytes,
        ),
        "gradient clipping": Fact(
            "temporaries",
            f"a norm for each of {sizes.gradients.count:,} gradients, once alone and once stacked",
            "PyTorch, torch/nn/utils/clip_grad.py",
            "before the optimizer step",
            bytes=sizes.clipping,
        ),
        "step temporaries": Fact(
            "temporaries",
            f"{sizes.run.stepping} {sizes.run.optimizer}: {states.step_formula}",
            states.source,
            "within the optimizer step",
            bytes=states.step,
        ),
    }


def paged_part(states: "States") -> Part:
    """Optimizer states in managed memory."""
    return Part(
        name="paged optimizer states",
        line="other",
        bytes=states.paged,
        at_peak=states.paged,
        formula=states.formula,
        source=states.source,
        lifetime="from the first optimizer step to the end",
    )


def activation_facts(program: Program, *, checkpointed: bool) -> dict[str, Fact]:
    """Every group of tensors that autograd keeps."""
    lifetime = "made again in the backward pass of its block" if checkpointed else "from forward to backward"
    kept_by = saved_by_group(program.stages)
    return {
        group: Fact(
            LINES.get(group, "activations"),
            formula_of(tensors),
            AUTOGRAD_SOURCE,
            "from the first block to the last" if group.endswith("stream") else lifetime,
            bytes=sum(saved.size * saved.count * saved.times for saved in tensors),
            count=sum(saved.count * saved.times for saved in tensors),
        )
        for group, tensors in kept_by.items()
    } | {
        group: Fact(
            LINES.get(group, "activations"),
            "passed on at once; autograd keeps none of it",
            AUTOGRAD_SOURCE,
            "within its operators",
        )
        for group in passing_groups(program.stages, kept_by)
    }


def formula_of(tensors: Sequence[SavedTensors]) -> str:
    """The tensors of a group by how often they stand: `12 x (queries 196,608 x 2 B + ...)`."""
    by_count: dict[int, list[str]] = {}
    for saved in tensors:
        each = f"{saved.numel:,} x {saved.itemsize} B ({', '.join(saved.labels)})"
        by_count.setdefault(saved.count, []).append(f"{saved.times} x {each}" if saved.times > 1 else each)
    terms = ((count, " + ".join(sizes)) for count, sizes in by_count.items())
    return " + ".join(f"{count} x ({inner})" if count > 1 else inner for count, inner in terms)


def _passing_facts(sizes: Sizes) -> dict[str, Fact]:
    return {
        "inputs": Fact(
            "inputs",
            sizes.program.inputs_formula
            + (f"; and {sizes.program.loss:,} B that the last mse_loss keeps" if sizes.program.loss else ""),
            "one batch; the next is made while the last is alive",
            "one step",
            bytes=sizes.program.inputs + sizes.program.loss,
        ),
        WORKSPACES: workspace_fact(sizes.workspace, "one for the forward pass's thread, one for autograd's", 2),
        BACKWARD: Fact(
            "temporaries",
            "the gradients of activations alive together at the fullest moment of the backward pass",
            AUTOGRAD_SOURCE,
            "within the backward pass of its block",
        ),
        SCRATCH: Fact(
            "temporaries",
            "what the operator at the fullest moment needs for itself: partial sums, products on the way",
            "PyTorch, aten/src/ATen/native/cuda",
            "within one operator",
        ),
    }


CODE = "the model's code"


PASSING = "within one pass"


def passing_facts(program: Program, stages: Sequence[TapeStage], workspace: Workspace, what: str) -> dict[str, Fact]:
    """What comes and goes in forward passes of which nothing is kept."""
    groups = dict.fromkeys(s.group for stage in stages for node in stage.tape.nodes for s in node.makes)
    return {
        **{
            group: Fact(
                "activations", f"tensors on their way over {what}, at their fullest; none is kept", CODE, PASSING
            )
            for group in groups
        },
        SCRATCH: Fact("temporaries", "operators' own", CODE, PASSING),
        CASTS: Fact("temporaries", "autocast's copies", CODE, PASSING),
        "inputs": Fact("inputs", program.inputs_formula, "the batch", PASSING, bytes=program.inputs),
        WORKSPACES: workspace_fact(workspace, "one thread multiplies matrices"),
    }

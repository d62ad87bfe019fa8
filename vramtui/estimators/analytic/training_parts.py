"""The parts of a training estimate in words: formula, source and lifetime of each."""

from collections.abc import Iterable
from typing import Protocol

from vramtui.core.ledger import Line
from vramtui.core.workload import TrainRun
from vramtui.estimators.analytic.assembly import Fact
from vramtui.estimators.analytic.blocks import rounded
from vramtui.estimators.analytic.job import Job
from vramtui.estimators.analytic.loss import Loss
from vramtui.estimators.analytic.saved import Saved, saved_by_norm
from vramtui.estimators.analytic.states import STATES, Held
from vramtui.estimators.analytic.tensors import Tensor
from vramtui.estimators.analytic.workspaces import SOURCE as WORKSPACE_SOURCE

ALLOCATOR_SOURCE = "PyTorch, c10/cuda/CUDACachingAllocator.cpp"
AUTOGRAD_SOURCE = "PyTorch, tools/autograd/derivatives.yaml and the model's code"
LINES: dict[str, Line] = {"autocast weight copies": "temporaries"}


class Sizes(Protocol):
    """What a trainer knows; see `training.Trainer`."""

    job: Job
    run: TrainRun
    base: tuple[Tensor, ...]
    trained: tuple[Tensor, ...]
    weights: Held
    gradients: Held
    states: Held
    temporaries: Held
    layer: list[Saved]
    loss: Loss
    inputs: int
    workspace: int


def training_facts(sizes: Sizes) -> dict[str, Fact]:
    """The facts of every part that a training job can hold, in the order they are shown."""
    return {**_state_facts(sizes), **_activation_facts(sizes), **_passing_facts(sizes)}


def _numel(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel * tensor.count for tensor in tensors)


def _state_facts(sizes: Sizes) -> dict[str, Fact]:
    recipe, run = sizes.job.recipe, sizes.run
    base, trained = _numel(sizes.base), _numel(sizes.trained)
    weights = f"{base:,} parameters x {recipe.weights} B"
    if run.lora:
        weights = f"{base:,} frozen x {recipe.frozen} B + {trained:,} in adapters x {recipe.weights} B"
    each = STATES[run.optimizer]
    rest = "what large blocks hold beyond their tensors (segments come in steps of 2 MiB)"
    return {
        "weights": Fact(
            line="weights",
            bytes=sizes.weights.bytes,
            formula=f"{weights}, each tensor in blocks of 512 B",
            source="the model's shapes",
            lifetime="from build to the end",
            count=sizes.weights.count,
        ),
        "weight tails": Fact(
            line="weights", bytes=sizes.weights.tails, formula=rest, lifetime="as the weights", source=ALLOCATOR_SOURCE
        ),
        "gradients": Fact(
            line="gradients",
            bytes=sizes.gradients.bytes,
            formula=f"{trained:,} trained parameters x {recipe.weights} B, of the weights' type",
            source="torch.autograd: a gradient has its parameter's type and shape",
            lifetime="from each layer's backward to zero_grad(set_to_none=True)",
            count=sizes.gradients.count,
        ),
        "gradient tails": Fact(
            line="gradients",
            bytes=sizes.gradients.tails,
            formula=rest,
            lifetime="as the gradients",
            source=ALLOCATOR_SOURCE,
        ),
        "optimizer": Fact(
            line="optimizer",
            bytes=sizes.states.bytes,
            formula=f"{each} state(s) of {run.optimizer} x {trained:,} x {recipe.weights} B",
            source=f"PyTorch, torch/optim/{'sgd' if run.optimizer in {'sgd', 'momentum'} else 'adam'}.py",
            lifetime="from the first optimizer step to the end",
            count=sizes.states.count,
        ),
        "optimizer tails": Fact(
            line="optimizer",
            bytes=sizes.states.tails,
            formula=rest,
            lifetime="as the optimizer's states",
            source=ALLOCATOR_SOURCE,
        ),
    }


def _activation_facts(sizes: Sizes) -> dict[str, Fact]:
    layers = sizes.job.model.num_hidden_layers
    groups: dict[str, list[Saved]] = {}
    for saved in sizes.layer:
        groups.setdefault(saved.group, []).append(saved)
    checkpointed = sizes.run.checkpointing == "full"
    facts = {
        group: _activation_fact(sizes, group, entries, layers, checkpointed=checkpointed)
        for group, entries in groups.items()
    }
    job = sizes.job
    head = rounded(job.tokens * job.model.hidden_size * job.recipe.compute)
    facts["activations: output layer and loss"] = Fact(
        line="activations",
        bytes=sizes.loss.in_backward + head,
        formula=f"{job.tokens:,} tokens x {job.model.vocab_size:,} words: {sizes.loss.formula}; "
        f"and the output layer's input",
        source="PyTorch, aten/src/ATen/native/LossNLL.cpp (cross_entropy_loss) and SoftMax.cu",
        lifetime="from the loss to the start of the backward pass",
    )
    return facts


def _activation_fact(sizes: Sizes, group: str, entries: list[Saved], layers: int, *, checkpointed: bool) -> Fact:
    terms = " + ".join(f"{e.count} x {e.bytes:,}" if e.count > 1 else f"{e.bytes:,}" for e in entries)
    names = "; ".join(entry.what for entry in entries)
    once = sum(entry.total for entry in entries)
    ends = sum(saved.total for saved in saved_by_norm(sizes.job) if saved.group == group)
    stored = 1 if checkpointed else layers
    total = once * stored + ends
    if checkpointed and group == "activations: residual stream":
        total += rounded(sizes.job.tokens * sizes.job.model.hidden_size * sizes.job.recipe.stream) * layers
    if group == "autocast weight copies":
        job = sizes.job
        total += rounded(job.model.vocab_size * job.model.hidden_size * job.recipe.compute)
    held = f"one block at a time, recomputed; {layers} block inputs stay" if checkpointed else f"{layers} blocks"
    return Fact(
        line=LINES.get(group, "activations"),
        bytes=total,
        formula=f"({terms}) B for a block, {held}: {names}",
        source=AUTOGRAD_SOURCE,
        lifetime="recomputed in the backward pass" if checkpointed else "from forward to backward of its block",
    )


def _passing_facts(sizes: Sizes) -> dict[str, Fact]:
    moving = "the largest of a block's gradients that are alive together"
    return {
        "inputs": Fact(
            line="inputs",
            bytes=sizes.inputs,
            formula=f"token ids and labels, {sizes.job.tokens:,} x 8 B each",
            source="torch.int64 tensors",
            lifetime="one step",
        ),
        "workspaces": Fact(
            line="workspaces",
            bytes=2 * sizes.workspace,
            formula=f"2 x {sizes.workspace:,} B: one for the forward pass's thread, one for autograd's",
            source=WORKSPACE_SOURCE,
            lifetime="from each thread's first matrix product to the end",
            count=2,
        ),
        "gradients of activations": Fact(
            line="temporaries",
            bytes=0,
            formula=moving,
            source=AUTOGRAD_SOURCE,
            lifetime="within a block's backward pass",
        ),
        "step temporaries": Fact(
            line="temporaries",
            bytes=sizes.temporaries.whole,
            formula=f"{sizes.run.optimizer_implementation} {sizes.run.optimizer}: square roots of the second moments",
            source="PyTorch, torch/optim/adam.py",
            lifetime="within the optimizer step",
        ),
    }

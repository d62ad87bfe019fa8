"""Which experiments there are, and what each shows. No torch here: their code is in `traced/experiments`."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError, nearest


class ExperimentRun(msgspec.Struct, frozen=True):
    """One function of an experiment's code, and what tells it from the others; empty where it is alone."""

    function: str
    title: str = ""


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """One experiment.

    Attributes:
        key: what commands call it by.
        title: what people read.
        lesson: what to see in it, in a sentence or two.
        module: the file of `traced/experiments`.
        runs: its functions, each run in a process of its own.
        plot: what `--plot` draws: bars of allocated, the curve over the sizes, or stacked bars by category.
    """

    key: str
    title: str
    lesson: str
    module: str
    runs: tuple[ExperimentRun, ...]
    plot: Literal["bars", "curve", "stacks"] = "bars"


EXPERIMENTS: dict[str, Experiment] = {
    one.key: one
    for one in (
        Experiment(
            key="cache",
            title="Reserved against allocated, and empty_cache",
            lesson="Freed memory stays reserved for the next tensor; empty_cache gives back only segments that hold "
            "nothing any more. Small tensors share segments of 2 MiB, middle ones of 20 MiB.",
            module="tensors",
            runs=(ExperimentRun("cache"),),
        ),
        Experiment(
            key="dtypes",
            title="Bytes of 1,048,576 numbers in each dtype",
            lesson="Allocated divided by 1,048,576 is the size of one number.",
            module="tensors",
            runs=(ExperimentRun("dtypes"),),
        ),
        Experiment(
            key="blocks",
            title="A tensor takes whole blocks of 512 bytes",
            lesson="One byte takes 512, and 513 bytes take 1024.",
            module="tensors",
            runs=(ExperimentRun("blocks"),),
            plot="curve",
        ),
        Experiment(
            key="linear",
            title="Linear(256, 250), forward and backward, with workspaces",
            lesson="The first product of each thread makes cuBLAS a workspace that stays when all else is deleted: "
            "33,554,432 bytes on capability 9.0, 8,519,680 below.",
            module="nets",
            runs=(ExperimentRun("linear"),),
        ),
        Experiment(
            key="autograd",
            title="What the graph of an expression keeps, 64 x 64 numbers of fp32",
            lesson="A leaf is kept anyway; a factor that was computed stays for the gradient of the other one.",
            module="nets",
            runs=(ExperimentRun("autograd"),),
        ),
        Experiment(
            key="mlp",
            title="An MLP's intermediates, in training and in inference mode",
            lesson="Training keeps every layer's output for backward; in inference mode two at a time are enough.",
            module="nets",
            runs=(ExperimentRun("mlp_training", "training"), ExperimentRun("mlp_inference", "inference_mode")),
        ),
        Experiment(
            key="layernorm",
            title="Layer norm as one kernel, and spelled out",
            lesson="The kernel keeps a mean and a deviation for each row; spelled out, single operators keep whole "
            "tensors for backward.",
            module="nets",
            runs=(ExperimentRun("layernorm_fused", "nn.LayerNorm"), ExperimentRun("layernorm_manual", "spelled out")),
        ),
        Experiment(
            key="optimizer",
            title="Two steps with SGD and with Adam",
            lesson="Adam's two moments appear in the first step and stay, so that the second step is the fuller one.",
            module="nets",
            runs=(ExperimentRun("optimizer_sgd", "SGD"), ExperimentRun("optimizer_adam", "Adam")),
            plot="stacks",
        ),
    )
}


def chosen(name: str) -> Sequence[Experiment]:
    """The experiment called so, or every one for `all`.

    Raises:
        UserError: there is none; the sentence names the nearest one.
    """
    if name == "all":
        return tuple(EXPERIMENTS.values())
    if name not in EXPERIMENTS:
        known = (*EXPERIMENTS, "all")
        raise UserError(f"there is no experiment {name!r}{nearest(name, known)}; there are: {', '.join(known)}")
    return (EXPERIMENTS[name],)

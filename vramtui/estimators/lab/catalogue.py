"""Which experiments there are, and what each shows. No torch here: their code is in `traced/experiments`."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.rule_inputs import LayerNormRule, LinearRule, MlpRule, OptimizerTimelineRule, RuleInputs

BLOCK_SIZES = tuple(
    sorted((0, 1, *(512 * blocks + beside for blocks in range(1, 9) for beside in (-1, 0, 1)), 3200, 4196))
)
STEPS = 4
_STEP_LABELS = tuple(
    f"{phase} {step}" for step in range(STEPS) for phase in ("forward", "backward", "step", "zero_grad")
)


class ExperimentRun(msgspec.Struct, frozen=True):
    """One function of an experiment's code.

    Attributes:
        function: its name.
        title: what tells it from the experiment's others; empty where it is alone.
        rule: the formula that predicts it; None where there is none.
        labels: the moments that are predicted, in the order in which the formula has them.
        printed: bytes allocated at a moment as an article prints them.
    """

    function: str
    title: str = ""
    rule: RuleInputs | None = None
    labels: tuple[str, ...] = ()
    printed: dict[str, int] = {}


def _small_steps(optimizer: Literal["sgd", "adam"], title: str, after: dict[str, int]) -> ExperimentRun:
    """Four steps of Linear(256, 250) on a batch of 100."""
    return ExperimentRun(
        f"small_steps_{optimizer}",
        title,
        rule=OptimizerTimelineRule(in_features=256, out_features=250, batch_size=100, optimizer=optimizer),
        labels=("model", "input", *_STEP_LABELS),
        printed={"model": 257_024, "input": 359_424} | after,
    )


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
            key="small-cache",
            title="1024 numbers, deleted, and empty_cache",
            lesson="Deleting a tensor frees its block, not its segment: allocated falls, reserved stays at 2 MiB.",
            module="tensors",
            runs=(
                ExperimentRun(
                    "small_cache",
                    printed={"nothing yet": 0, "1024 numbers": 4096, "deleted": 0, "empty_cache": 0},
                ),
            ),
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
            runs=(ExperimentRun("blocks", labels=tuple(map(str, BLOCK_SIZES)), printed={"3200": 3584}),),
            plot="curve",
        ),
        Experiment(
            key="linear",
            title="Linear(256, 250), forward and backward, with workspaces",
            lesson="The first product of each thread makes cuBLAS a workspace that stays when all else is deleted: "
            "33,554,432 bytes on capability 9.0, 8,519,680 below.",
            module="nets",
            runs=(
                ExperimentRun(
                    "linear",
                    rule=LinearRule(in_features=256, out_features=250),
                    labels=("model", "input", "forward", "backward", "deletion", "workspaces cleared"),
                    printed={
                        "model": 257_024,
                        "input": 258_048,
                        "forward": 8_778_752,
                        "backward": 17_555_456,
                        "deletion": 17_039_360,
                        "workspaces cleared": 0,
                    },
                ),
            ),
        ),
        Experiment(
            key="autograd",
            title="What the graph of an expression keeps, 64 x 64 numbers of fp32",
            lesson="A leaf is kept anyway; a factor that was computed stays for the gradient of the other one.",
            module="nets",
            runs=(ExperimentRun("autograd"),),
        ),
        Experiment(
            key="small-mlp",
            title="Linear(200, 100), ReLU, Linear(100, 200), Sigmoid on a batch of 5",
            lesson="Forward keeps the outputs of ReLU and Sigmoid for backward; inference mode only the last one.",
            module="nets",
            runs=(
                ExperimentRun(
                    "small_mlp_training",
                    "training",
                    rule=MlpRule(in_features=200, hidden_features=100, out_features=200, batch_size=5),
                    labels=("model", "input", "forward", "backward"),
                    printed={"forward": 8_692_224, "backward": 17_372_160},
                ),
                ExperimentRun(
                    "small_mlp_inference",
                    "inference_mode",
                    rule=MlpRule(
                        in_features=200, hidden_features=100, out_features=200, batch_size=5, mode="inference"
                    ),
                    labels=("model", "input", "forward"),
                    printed={"forward": 8_690_176},
                ),
            ),
        ),
        Experiment(
            key="mlp",
            title="An MLP's intermediates, in training and in inference mode",
            lesson="Training keeps every layer's output for backward; in inference mode two at a time are enough.",
            module="nets",
            runs=(ExperimentRun("mlp_training", "training"), ExperimentRun("mlp_inference", "inference_mode")),
        ),
        Experiment(
            key="small-layernorm",
            title="A layer norm of ten numbers in one line",
            lesson="Of the line's intermediates only the normalised numbers stay, which the factor's gradient needs.",
            module="nets",
            runs=(
                ExperimentRun(
                    "small_layernorm",
                    rule=LayerNormRule(shape=(10,)),
                    labels=("factor", "input", "forward"),
                    printed={"forward": 2048},
                ),
            ),
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
            key="small-steps",
            title="Four steps of Linear(256, 250) with SGD and with Adam, without workspaces",
            lesson="Adam's first step adds two numbers for each weight, which stay: from then on the second backward "
            "pass is the fullest moment.",
            module="nets",
            runs=(
                _small_steps("sgd", "SGD", {"step 0": 616_448}),
                _small_steps(
                    "adam",
                    "Adam",
                    {
                        "forward 0": 459_776,
                        "backward 0": 716_800,
                        "step 0": 1_130_496,
                        "zero_grad 0": 873_472,
                        "forward 1": 973_824,
                        "backward 1": 1_230_848,
                    },
                ),
            ),
            plot="stacks",
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

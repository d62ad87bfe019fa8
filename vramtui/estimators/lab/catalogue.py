"""Which experiments there are, and what each shows, from `experiments.json`. No torch here: their code is in
`traced/experiments`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from vramtui.core.base.errors import UserError, nearest
from vramtui.core.schema.rule_inputs import RuleInputs


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


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment of the lab.

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


def _read() -> tuple[Experiment, ...]:
    text = Path(__file__).with_name("experiments.json").read_bytes()
    return msgspec.json.decode(text, type=tuple[Experiment, ...])


EXPERIMENTS = {one.key: one for one in _read()}


def select_experiments(name: str) -> Sequence[Experiment]:
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

"""What the Plan screen shows at one moment."""

from collections.abc import Mapping

import msgspec

from vramtui.app.plan.axes import Axis
from vramtui.app.plan.grid import Cells, Holds
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.workload import Workload
from vramtui.estimators.planner.planner import Edge, Effect, FitResult


class MapView(msgspec.Struct, frozen=True, eq=False):
    """One heatmap: whose it is, its axes, and the answers so far; `done` of `total` cells are known. `is_exact` when
    those that may fit are as near as they get; until then `exact_cells` are those that are.
    """

    title: str
    x: Axis
    y: Axis
    cells: Cells
    done: int
    total: int
    is_exact: bool
    exact_cells: frozenset[tuple[int, int]] = frozenset()


class AdviceView(msgspec.Struct, frozen=True, eq=False):
    """What is known so far; see `sheets.Advice`. `changes` are those of its effects that are worth it, best first."""

    edges: tuple[Edge, ...] = ()
    mitigations: tuple[tuple[str, str], ...] | None = None
    settings: Mapping[str, object] = {}
    with_them: int | None = None
    cards: tuple[Holds, ...] = ()
    changes: tuple[Effect, ...] = ()
    is_whole: bool = False


class PlanSide(msgspec.Struct, frozen=True, eq=False):
    """A variant with its estimate, or why there is none. `what` is its name in a heading, `how` what it stands for."""

    what: str
    how: str
    workload: Workload | None
    estimate: Estimate | None
    answer: FitResult | None

    @property
    def process(self) -> int | None:
        """Bytes of the process, or that it would need where it does not start; None where neither is known."""
        if self.estimate is not None:
            return self.estimate.process
        return self.answer.process if self.answer is not None else None


class PlanView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Plan screen.

    Attributes:
        problem: the sentence that stands there instead of a map.
        preset: its key.
        device: the card, and `where` what people call it.
        maps: one, or two of the same axes.
        cursor: column and row of the cell that the rest is about.
        side: that cell; `other` is what it is set beside.
        advice: about that cell.
        change: which of the advice's changes is chosen.
        tried: how many cards the advice looks at.
        assumed: the settings that are only assumed of the job, with their values; empty where they move little.
        changed: whether the preset's values are not its file's.
        view_only: nothing may be written.
    """

    problem: str = ""
    preset: str = ""
    device: Device | None = None
    where: str = ""
    maps: tuple[MapView, ...] = ()
    cursor: tuple[int, int] = (0, 0)
    side: PlanSide | None = None
    other: PlanSide | None = None
    advice: AdviceView = AdviceView()
    change: int = 0
    tried: int = 0
    assumed: str = ""
    changed: bool = False
    view_only: bool = False

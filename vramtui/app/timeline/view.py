"""What the Timeline shows at one moment."""

import msgspec

from vramtui.app.state.view import Panel
from vramtui.core.estimate.estimate import Moment
from vramtui.dryrun.result import DryRun


class TimelineView(msgspec.Struct, frozen=True, eq=False):
    """The panel's estimates, and what stands beside them.

    Attributes:
        panel: the preset with its estimates; None where none is chosen.
        observed: what the job itself reports at the end of its phases; empty where no job does.
        alone: the same of the selected process, where that runs no preset.
        result: the whole trace of the panel's workload.
        running: how far a trace in the background is.
        problem: why the last one ended early.
        refusal: why none can be started.
    """

    panel: Panel | None = None
    observed: tuple[Moment, ...] = ()
    alone: tuple[Moment, ...] = ()
    result: DryRun | None = None
    running: str = ""
    problem: str = ""
    refusal: str = ""

"""Everything about a past run, for files; its method is asked again for what the history does not keep."""

import msgspec

from vramtui import __version__
from vramtui.core.base.compatibility import with_known_fields
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import CARDS, DEFAULT_CARD, Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.runs.run import Run, RunReport, StoredRun, run_report
from vramtui.core.schema.workload import Workload


def report_of(stored: StoredRun) -> RunReport:
    """Everything about `stored`. A trace is not run again: it takes seconds, and code of somebody's."""
    again, problem = _again(stored.run)
    return run_report(stored, again, problem, __version__)


def _again(run: Run) -> tuple[Estimate | None, str]:
    """The estimate of the kept workload by the run's own method, or why there is none."""
    if not run.method or not run.workload:
        return None, "it ran without a preset"
    if run.method == "traced":
        return None, "traces are not repeated here; use vramtui dry-run"
    from vramtui.estimators.methods import estimates_by

    try:
        workload = with_known_fields(msgspec.json.encode(run.workload), Workload)
        return estimates_by(run.method, workload, _device(run))[0], ""
    except (msgspec.ValidationError, UserError) as error:
        return None, f"this version cannot read the stored workload ({error})"


def _device(run: Run) -> Device:
    try:
        return card(run.gpu_name)
    except UserError:
        return msgspec.structs.replace(CARDS[DEFAULT_CARD], name=run.gpu_name)

"""The Python API: estimates, fits, dry runs, observations and readings. `import vramtui` has the same names.

These names, their arguments and the JSON that `to_dict` gives stay as they are within a major version; whatever else
is in the package may change with any release. Bytes are whole numbers, unknown is None, and bad input raises
`UserError` with one sentence for a person; `Error` is above that and all else that is raised on purpose.
"""

from vramtui.api.dry_runs import DryRun, dry_run
from vramtui.api.estimation import FitReport, JobEstimate, estimate, fit
from vramtui.api.observation import ObservedRun, SampleStream, observe, sample, watch
from vramtui.api.schemas import schema
from vramtui.core.base.errors import Error, SourceFailed, UserError
from vramtui.core.estimate.estimate import Estimate, Ledger, Part
from vramtui.core.estimate.fits import Comparison, Fit
from vramtui.core.observation.probe_messages import ObservedJob, PhaseEnd
from vramtui.core.observation.readings import (
    Absence,
    Ancestors,
    Gpu,
    Host,
    JobRank,
    Memory,
    Problem,
    Process,
    Sample,
    XidError,
)
from vramtui.estimators.planner.planner import Edge, Effect

__all__ = [
    "Absence", "Ancestors", "Comparison", "DryRun", "Edge", "Effect", "Error", "Estimate", "Fit", "FitReport", "Gpu",
    "Host", "JobEstimate", "JobRank", "Ledger", "Memory", "ObservedJob", "ObservedRun", "Part", "PhaseEnd", "Problem",
    "Process", "Sample", "SampleStream", "SourceFailed", "UserError", "XidError", "dry_run", "estimate", "fit",
    "observe", "sample", "schema", "watch",
]  # fmt: skip

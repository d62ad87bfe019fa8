"""What other programs may call: estimates, fits, traces, observations and readings. `import vramtui` offers it too.

These names, their arguments and the JSON that `to_dict` gives stay as they are within a major version; whatever else
is in the package may change with any release. Bytes are whole numbers, unknown is None, and bad input raises
`UserError` with one sentence for a person.
"""

from vramtui.api.estimation import FitReport, JobEstimate, estimate, fit
from vramtui.api.observation import ObservedRun, observe, sample
from vramtui.api.schemas import schema
from vramtui.api.tracing import trace
from vramtui.core.base.errors import UserError

__all__ = [
    "FitReport",
    "JobEstimate",
    "ObservedRun",
    "UserError",
    "estimate",
    "fit",
    "observe",
    "sample",
    "schema",
    "trace",
]

"""What was measured of a run, into the `[measured]` table of its preset."""

import datetime as dt

from vramtui.core.errors import UserError
from vramtui.core.runs import Run
from vramtui.presets.edits import put_value, quoted, take_value
from vramtui.presets.reading import parse_preset

HOW = {
    "sampled": "peaks seen by sampling",
    "accounting": "peak by the driver's accounting",
    "probe": "peaks by the probe",
}


def with_measured(text: str, run: Run) -> str:
    """`text` with what `run` was seen to take in `[measured]`: allocated, reserved and process in bytes, those that are
    known, and where that was. Figures that stood there and are not known of this run go, since they are another's.

    Raises:
        UserError: nothing was measured of the run, or the text is no preset.
    """
    parse_preset(text, "the preset")
    totals = {name: getattr(run.observed, name) for name in ("allocated", "reserved", "process")}
    if all(value is None for value in totals.values()):
        raise UserError("nothing was measured of this run")
    return measured_from(text, totals, where_of(run))


def measured_from(text: str, totals: dict[str, int | None], where: str) -> str:
    """`text` with `totals` in bytes and `where` in `[measured]`."""
    for name, value in totals.items():
        key = ("measured", name)
        text = take_value(text, key) if value is None else put_value(text, key, str(value))
    return put_value(text, ("measured", "where"), quoted(where))


def where_of(run: Run) -> str:
    """The card, host, programs and day of a run, and how its peaks were learnt, in one line."""
    day = dt.datetime.fromtimestamp(run.ended_at or run.started_at, tz=dt.timezone.utc).date().isoformat()
    versions = [f"{name} {version}" for name, version in sorted(run.versions.items())]
    return ", ".join((f"{run.gpu_name} in {run.host}", *versions, HOW.get(run.peak_how, run.peak_how), day))

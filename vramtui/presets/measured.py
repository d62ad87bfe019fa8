"""Write what was measured of a run into the `[measured]` table of its preset."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.estimate import TOTALS
from vramtui.core.runs.run import Run
from vramtui.presets.reader import Parsed
from vramtui.presets.schema import SHOWN, describe
from vramtui.presets.toml_text import set_values

HOW = {
    "sampled": "peaks seen by sampling",
    "accounting": "peak by the driver's accounting",
    "probe": "peaks by the probe",
}
TOLD = 3


def with_measured(text: str, run: Run, folder: Path | None = None, *, anyway: bool = False) -> str:
    """Return a preset's text with the run's peaks in `[measured]`: known ones of allocated, reserved and process in
    bytes, and where that was. Old figures that this run does not have are removed, as they are another run's. `anyway`
    also writes those of a run that broke off, or with other values than the text's. Raises UserError if nothing was
    measured, it cannot have reached this preset's peak, or the text is not a preset.
    """
    totals: dict[str, int | None] = {name: run.observed.bytes_of(name) for name in TOTALS}
    if all(value is None for value in totals.values()):
        raise UserError("nothing was measured of this run")
    doubt = doubt_of(text, run, folder)
    if doubt is not None and not anyway:
        raise UserError(doubt)
    values = {f"measured.{name}": value for name, value in totals.items()}
    return set_values(text, values | {"measured.where": where_of(run)})


def doubt_of(text: str, run: Run, folder: Path | None = None) -> str | None:
    """Explain why the run's peaks may not be those of the preset in `text`; None if they are. Raises UserError if the
    text is not a preset.
    """
    parsed = Parsed(text, folder)
    if parsed.preset is None:
        raise UserError(parsed.problems[0].at("the preset"))
    if not run.finished:
        ending = {"running": "still goes on", "out_of_memory": "ran out of memory"}.get(run.ending, "broke off")
        return f"this run {ending}: it may not have reached its peak"

    def short(value: object) -> str:
        if value is None:
            return "nothing"
        return printable(value)[:SHOWN] if isinstance(value, str) else describe(value)

    here = msgspec.to_builtins(parsed.preset.workload)
    others = [
        f"{printable(key)} = {short(there)} instead of {short(value)}"
        for key, value, there in _differences(here, run.workload)
    ]
    if not run.workload or not others:
        return None
    more = f" and {len(others) - TOLD} more" if len(others) > TOLD else ""
    return f"this run had {', '.join(others[:TOLD])}{more}"


def _differences(here: object, there: object, key: str = "") -> Iterator[tuple[str, object, object]]:
    """Yield each key whose values differ; a missing one is None."""
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        for name in dict.fromkeys((*here, *there)):
            yield from _differences(here.get(name), there.get(name), f"{key}.{name}".removeprefix("."))
    elif (list(here) if isinstance(here, tuple) else here) != there:
        yield key, here, there


def where_of(run: Run) -> str:
    """Card, host, programs and day of a run, and how its peaks were measured, in one line."""
    day = dt.datetime.fromtimestamp(run.ended_at or run.started_at, tz=dt.timezone.utc).date().isoformat()
    versions = [f"{name} {version}" for name, version in sorted(run.versions.items())]
    return ", ".join((f"{run.gpu_name} in {run.host}", *versions, HOW.get(run.peak_how, run.peak_how), day))

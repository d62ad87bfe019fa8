"""What was measured of a run, into the `[measured]` table of its preset."""

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.estimate.ledger import TOTALS
from vramtui.core.runs.run import Run
from vramtui.presets.reader import Parsed
from vramtui.presets.schema import SHOWN, describe
from vramtui.presets.toml.edits import set_values

HOW = {
    "sampled": "peaks seen by sampling",
    "accounting": "peak by the driver's accounting",
    "probe": "peaks by the probe",
}
TOLD = 3


def with_measured(text: str, run: Run, folder: Path | None = None, *, anyway: bool = False) -> str:
    """`text` with what `run` was seen to take in `[measured]`: allocated, reserved and process in bytes, those that are
    known, and where that was. Figures that stood there and are not known of this run go, since they are another's.

    Args:
        text: a preset.
        run: what was measured.
        folder: the preset's own, which a model's file is looked for from.
        anyway: also a run that broke off, or of other values than the text's.

    Raises:
        UserError: nothing was measured of the run, it cannot have shown this preset's peak, or the text is no preset.
    """
    totals: dict[str, int | None] = {name: run.observed.bytes_of(name) for name in TOTALS}
    if all(value is None for value in totals.values()):
        raise UserError("nothing was measured of this run")
    doubt = doubt_of(text, run, folder)
    if doubt is not None and not anyway:
        raise UserError(doubt)
    return measured_from(text, totals, where_of(run))


def measured_from(text: str, totals: Mapping[str, int | None], where: str) -> str:
    """`text` with `totals` in bytes and `where` in `[measured]`."""
    return set_values(text, {f"measured.{name}": value for name, value in totals.items()} | {"measured.where": where})


def doubt_of(text: str, run: Run, folder: Path | None = None) -> str | None:
    """Why what was measured of `run` may not be the peak of the preset in `text`; None when it is.

    Raises:
        UserError: the text is no preset.
    """
    parsed = Parsed(text, folder)
    if parsed.preset is None:
        raise UserError(parsed.problems[0].at("the preset"))
    if not run.finished:
        ending = {"running": "still goes on", "out_of_memory": "ran out of memory"}.get(run.ending, "broke off")
        return f"this run {ending}: it may not have reached its peak"
    here = msgspec.to_builtins(parsed.preset.workload)
    others = [
        f"{printable(key)} = {_short_value(there)} instead of {_short_value(value)}"
        for key, value, there in _differences(here, run.workload)
    ]
    if not run.workload or not others:
        return None
    more = f" and {len(others) - TOLD} more" if len(others) > TOLD else ""
    return f"this run had {', '.join(others[:TOLD])}{more}"


def _short_value(value: object) -> str:
    if value is None:
        return "nothing"
    return printable(value)[:SHOWN] if isinstance(value, str) else describe(value)


def _differences(here: object, there: object, key: str = "") -> Iterator[tuple[str, object, object]]:
    """Each key whose values differ; nothing said and None are the same."""
    if isinstance(here, Mapping) and isinstance(there, Mapping):
        for name in dict.fromkeys((*here, *there)):
            yield from _differences(here.get(name), there.get(name), f"{key}.{name}".removeprefix("."))
    elif (list(here) if isinstance(here, tuple) else here) != there:
        yield key, here, there


def where_of(run: Run) -> str:
    """The card, host, programs and day of a run, and how its peaks were learned, in one line."""
    day = dt.datetime.fromtimestamp(run.ended_at or run.started_at, tz=dt.timezone.utc).date().isoformat()
    versions = [f"{name} {version}" for name, version in sorted(run.versions.items())]
    return ", ".join((f"{run.gpu_name} in {run.host}", *versions, HOW.get(run.peak_how, run.peak_how), day))

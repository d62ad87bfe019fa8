"""`vramtui lab` for people: what an experiment shows, its figures to the byte, how far a card is from them, and with
`--plot` the drawing of it.
"""

import textwrap
from collections.abc import Sequence
from itertools import groupby

from vramtui.cli.common.plot import MARKS, Bars, drawing, finished
from vramtui.cli.trace.text import columns
from vramtui.core.base.colours import DARK
from vramtui.core.base.text import printable
from vramtui.core.base.units import unit_of
from vramtui.core.estimate.devices import Device
from vramtui.estimators.lab.catalogue import Experiment
from vramtui.estimators.lab.formulas import FormulaRow
from vramtui.estimators.lab.runner import LabRow, Outcome, TorchFigures

LINES_BESIDE = 3
FIGURES = {
    "allocated": "allocated",
    "reserved": "reserved",
    "peak_allocated": "peak allocated",
    "peak_reserved": "peak reserved",
}


def plotted(outcome: Outcome, width: int, bars: Bars) -> str:
    """The experiment's drawing, in at most `width` columns."""
    if outcome.experiment.plot == "curve":
        return _curve(outcome.rows, width, colour=bars.colour)
    if outcome.experiment.plot == "stacks":
        runs = groupby(outcome.rows, key=lambda row: row.run)
        drawn = (_stacks(title, tuple(rows), width, bars) for title, rows in runs)
        return "\n".join((*drawn, bars.legend(set(MARKS), width, peaks=False)))
    return _lengths(outcome.rows, width, colour=bars.colour)


def _curve(rows: tuple[LabRow, ...], width: int, *, colour: bool) -> str:
    """Allocated over the size asked for."""
    figure = drawing("allocated bytes over bytes asked for", width, 20, colour=colour)
    asked = [int(row.label) for row in rows]
    curve = figure.signal(asked, [row.predicted.allocated for row in rows], marker="braille")
    curve.lines()
    figure.draw(curve)
    measured = [(int(row.label), row.measured.allocated) for row in rows if row.measured is not None]
    if measured:
        figure.draw(figure.signal([x for x, _ in measured], [y for _, y in measured], marker="o"))
    return finished(figure, colour=colour)


def _stacks(title: str, rows: tuple[LabRow, ...], width: int, bars: Bars) -> str:
    """A bar for each moment, split by category; the first moment on top."""
    import plotext

    unit, name = unit_of(max(row.predicted.allocated for row in rows))
    heading = f"{title}: allocated at each moment, {name}"
    figure = drawing(heading, width, len(rows) + LINES_BESIDE + 1, colour=bars.colour)
    upward = rows[::-1]
    labels = [row.label for row in upward]
    heights = [[row.predicted.categories.get(category, 0) / unit for row in upward] for category in MARKS]
    markers = [
        plotext.marker(letter, _colour(category)) if bars.colour else letter for category, letter in MARKS.items()
    ]
    figure.draw(figure.bar(labels, heights, stacked=True, orientation="horizontal", marker=markers, width=0.5))
    return finished(figure, colour=bars.colour)


def _lengths(rows: tuple[LabRow, ...], width: int, *, colour: bool) -> str:
    """A bar of allocated for each moment, and beside it one of reserved."""
    unit, name = unit_of(max(row.predicted.reserved for row in rows))
    heading = f"allocated (#) within reserved (·), {name}"
    figure = drawing(heading, width, len(rows) + LINES_BESIDE + 1, colour=colour)
    upward = rows[::-1]
    labels = [f"{row.run} {row.label}".strip() for row in upward]
    allocated = [row.predicted.allocated / unit for row in upward]
    cached = [(row.predicted.reserved - row.predicted.allocated) / unit for row in upward]
    figure.draw(
        figure.bar(labels, [allocated, cached], stacked=True, orientation="horizontal", marker=["#", "·"], width=0.5)
    )
    return finished(figure, colour=colour)


def _colour(category: str) -> tuple[int, int, int]:
    red, green, blue = bytes.fromhex(DARK[category.replace("_", "-")].removeprefix("#"))
    return red, green, blue


def print_formulas(experiment: Experiment, device: Device, rows: Sequence[FormulaRow]) -> None:
    """The lesson, and what arithmetic alone says of each moment."""
    bars = Bars()
    _print_lesson(experiment, bars)
    if not rows:
        print("There is no formula for it.\n")
        return
    major, minor = device.capability
    print(f"By formula for {printable(device.name)}, compute capability {major}.{minor}\n")
    name, run = max(len(row.label) for row in rows), ""
    printed = any(row.printed is not None for row in rows)
    print(bars.strong(f"{'BYTES':<{name}}  {'ALLOCATED':>14}{'    AS PRINTED' if printed else ''}"))
    for row in rows:
        if row.run != run:
            run = row.run
            print(bars.strong(run))
        shown = "" if row.printed is None else f"  {row.printed:>12,}"
        print(f"{row.label:<{name}}  {row.allocated:>14,}{shown}")
    print()


def _print_lesson(experiment: Experiment, bars: Bars) -> None:
    print(bars.strong(experiment.title))
    print(textwrap.fill(experiment.lesson, columns()))


def print_outcome(outcome: Outcome, *, plot: bool) -> None:
    """The lesson, the table, the drawing if asked for, and the verdict."""
    width, bars = columns(), Bars()
    _print_lesson(outcome.experiment, bars)
    major, minor = outcome.device.capability
    print(
        f"Predicted for {printable(outcome.device.name)}, compute capability {major}.{minor}; torch {outcome.torch}\n"
    )
    _print_rows(outcome, bars)
    if plot:
        print(f"\n{plotted(outcome, width, bars)}")
    print(f"\n{verdict(outcome)}\n")


def verdict(outcome: Outcome) -> str:
    """Whether a card agrees, in a sentence."""
    if outcome.facts is None or outcome.facts.card is None:
        return "Not measured: PyTorch has no such card here."
    where = f"{printable(outcome.facts.card.name)} with torch {printable(outcome.facts.torch)}"
    off = [row for row in outcome.rows if not row.exact]
    if not off:
        return f"Measured on {where}: every figure agrees to the byte."
    return f"Measured on {where}: {len(off)} of {len(outcome.rows)} rows differ, the first at {_where(off[0])}."


def _print_rows(outcome: Outcome, bars: Bars) -> None:
    measured = outcome.facts is not None
    printed = any(row.printed is not None for row in outcome.rows)
    name = max(len(row.label) for row in outcome.rows)
    head = f"{'BYTES':<{name}}  {'ALLOCATED':>14}  {'RESERVED':>14}"
    head += f"  {'AS PRINTED':>12}" if printed else ""
    print(bars.strong(head + (f"  {'MEASURED':>14}  DIFFERENCE" if measured else f"  {'PEAK ALLOCATED':>14}")))
    run = ""
    for row in outcome.rows:
        if row.run != run:
            run = row.run
            print(bars.strong(run))
        print(_row(row, name, measured=measured, printed=printed))


def _row(row: LabRow, width: int, *, measured: bool, printed: bool) -> str:
    start = f"{row.label:<{width}}  {row.predicted.allocated:>14,}  {row.predicted.reserved:>14,}"
    if printed:
        start += f"  {'' if row.printed is None else format(row.printed, ','):>12}"
    if not measured:
        return f"{start}  {row.predicted.peak_allocated:>14,}"
    if row.measured is None:
        return f"{start}  {'–':>14}"
    return f"{start}  {row.measured.allocated:>14,}  {difference(row.predicted, row.measured)}"


def difference(predicted: TorchFigures, measured: TorchFigures) -> str:
    """`exact`, or how far the first figure that differs is from the measured one, and which it is."""
    for name, title in FIGURES.items():
        off = getattr(predicted, name) - getattr(measured, name)
        if off:
            return f"{off:+,} {title}".replace("-", "−")
    return "exact"


def _where(row: LabRow) -> str:
    return f"{row.run} {row.label}".strip()

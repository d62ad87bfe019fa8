"""`vramtui lab --plot`: an experiment drawn in the terminal."""

from vramtui.cli.common.category_bars import MARKS, Bars
from vramtui.cli.common.plotting import drawing, finished
from vramtui.core.base.colours import DARK
from vramtui.core.base.units import unit_of
from vramtui.estimators.lab.runner import LabRow, Outcome
from vramtui.estimators.traced.process.results import TraceRow

LINES_BESIDE = 3


def plotted(outcome: Outcome, width: int, bars: Bars) -> str:
    """The experiment's drawing, in at most `width` columns."""
    if outcome.experiment.plot == "curve":
        return _curve(outcome.rows, width, colour=bars.colour)
    if outcome.experiment.plot == "stacks":
        drawn = (_stacks(title, rows, width, bars) for title, rows in outcome.phases.items())
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


def _stacks(title: str, rows: tuple[TraceRow, ...], width: int, bars: Bars) -> str:
    """A bar for each phase, split by category; the first phase on top."""
    import plotext  # noqa: PLC0415 - only where something is drawn

    unit, name = unit_of(max(row.allocated for row in rows))
    heading = f"{title}: held at the end of each phase, {name}"
    figure = drawing(heading, width, len(rows) + LINES_BESIDE + 1, colour=bars.colour)
    labels = [f"{row.phase} {row.step}" if row.step >= 0 else row.phase for row in reversed(rows)]
    heights = [[row.categories.get(category, 0) / unit for row in reversed(rows)] for category in MARKS]
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

"""`vramtui history --plot`: how far predictions were off, run by run and how often, drawn by plotext."""

from collections.abc import Sequence

from vramtui.core.runs.run import Run
from vramtui.core.runs.run_list import BARS, histogram

HEIGHT = 16  # rows of the drawing over time: a tenth of a percent is seen where errors stay within one percent
DAY = 86400.0
NOTHING = "No finished run has both a prediction and an observation yet; there is nothing to draw.\n"


def plotted(runs: Sequence[Run], now: float, width: int, *, colour: bool) -> str:
    """Each finished run's error over the days before `now`, then how many runs stand in each range of errors.

    Args:
        runs: in any order; those without an end or without an error are left out.
        now: seconds since the epoch, where the drawing ends.
        width: columns.
        colour: whether ANSI colours may be used.
    """
    known = [(run.started_at, run.error) for run in runs if run.finished and run.error is not None]
    if not known:
        return NOTHING
    days = [(at - now) / DAY for at, _ in known]
    errors = [error for _, error in known]
    drawings = (_over_time(days, errors, width, colour=colour), _distribution(errors, width, colour=colour))
    return "\n\n".join(drawings) + "\n"


def _over_time(days: Sequence[float], errors: Sequence[float], width: int, *, colour: bool) -> str:
    """A dot for each run; the line is a prediction without error."""
    from vramtui.cli.common.plot import drawing, finished  # loads plotext, 0.4 s

    figure = drawing("observed over predicted, % (over the last days)", width, HEIGHT, colour=colour)
    figure.draw(figure.signal([min(days), 0.0], [0.0, 0.0], marker="·").lines())
    figure.draw(figure.signal(list(days), [error * 100 for error in errors], marker="o"))
    return finished(figure, colour=colour)


def _distribution(errors: Sequence[float], width: int, *, colour: bool) -> str:
    """A bar for each range of errors that holds a run, and for those between."""
    from vramtui.cli.common.plot import drawing, finished

    counts = histogram(errors)
    shown = [at for at, number in enumerate(counts) if number]
    ranges = slice(shown[0], shown[-1] + 1)
    labels, numbers = list(BARS[ranges])[::-1], list(counts[ranges])[::-1]
    figure = drawing("runs in each range of errors", width, len(labels) + 4, colour=colour)
    figure.draw(figure.bar(labels, numbers, orientation="horizontal", marker="#", width=0.5))
    return finished(figure, colour=colour)

"""`vramtui lab` for people: what an experiment shows, its figures to the byte, and how far a card is from them."""

import textwrap

from vramtui.cli.common.category_bars import Bars
from vramtui.cli.lab.plots import plotted
from vramtui.cli.trace.text import columns
from vramtui.core.base.text import printable
from vramtui.estimators.lab.runner import LabRow, Outcome, TorchFigures

FIGURES = {
    "allocated": "allocated",
    "reserved": "reserved",
    "peak_allocated": "peak allocated",
    "peak_reserved": "peak reserved",
}


def print_outcome(outcome: Outcome, *, plot: bool) -> None:
    """The lesson, the table, the drawing if asked for, and the verdict."""
    width, bars = columns(), Bars()
    print(bars.strong(outcome.experiment.title))
    print(textwrap.fill(outcome.experiment.lesson, width))
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

"""`vramtui lab`: classic experiments on PyTorch's memory, predicted, and measured where there is a card."""

import functools
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import NO, exit_on_user_error
from vramtui.cli.common.plot import MARKS, Bars, drawing, finished
from vramtui.cli.completion import cards, experiments
from vramtui.cli.trace.command import JobPython, chosen_interpreter
from vramtui.cli.trace.text import columns
from vramtui.core.base.colours import DARK
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import unit_of
from vramtui.core.estimate.devices import Device, chosen_device
from vramtui.estimators.lab import runner as running
from vramtui.estimators.lab.catalogue import EXPERIMENTS, Experiment, select_experiments
from vramtui.estimators.lab.formulas import FormulaRow, formula_rows
from vramtui.estimators.lab.runner import LabRow, Outcome, TorchFigures

if TYPE_CHECKING:
    from vramtui.estimators.traced.process.interpreters import Interpreter


def lab(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="Which experiment, or all; a list of them when absent.",
            autocompletion=experiments,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="The card to predict for: A100, H200 …; the one here when absent.", autocompletion=cards),
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Also draw a plot.")] = False,
    python: JobPython = None,
    predict_only: Annotated[bool, typer.Option("--predict-only", help="Do not use a card of this machine.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")] = False,
) -> None:
    """Small experiments on what PyTorch's memory does: predicted to the byte, and measured beside it on a GPU.

    Without torch formulas answer, where there are some. Exit code 1 when a measured figure differs from the predicted.
    """
    with exit_on_user_error():
        if name is None:
            _list(tuple(EXPERIMENTS.values()), json=json)
            return

        chosen = select_experiments(name)
        try:
            interpreter = chosen_interpreter("", python)
        except UserError as error:
            if python is not None:
                raise
            _answer_by_formula(chosen, device, str(error), plot=plot, json=json)
            return
        outcomes = []
        for experiment in chosen:
            outcomes.append(_perform(experiment, device, interpreter, measured=not predict_only))
            if not json:
                print_outcome(outcomes[-1], plot=plot)
        if json:
            print_json({"schema": 1, "experiments": [outcome_document(outcome) for outcome in outcomes]})
        if any(outcome.exact is False for outcome in outcomes):
            raise typer.Exit(NO)


def _list(experiments: Sequence[Experiment], *, json: bool) -> None:
    if json:
        listed = [{"name": one.key, "title": one.title, "lesson": one.lesson} for one in experiments]
        print_json({"schema": 1, "experiments": listed})
        return
    print_table(("NAME", "EXPERIMENT"), [(one.key, one.title) for one in experiments])
    print("\nvramtui lab NAME runs one, vramtui lab all every one; --plot draws.")


def _answer_by_formula(
    experiments: Sequence[Experiment], device: str | None, why: str, *, plot: bool, json: bool
) -> None:
    """Print what arithmetic alone says of them.

    Args:
        experiments: which.
        device: the card to predict for; the default one where None.
        why: the reason that they are not traced.
        plot: a drawing was asked for, which is of what a trace sees.
        json: print one JSON document.

    Raises:
        UserError: none of them has a formula.
    """
    card = chosen_device(device, None, rename=False)
    answers = {one.key: formula_rows(one, card) for one in experiments}
    if not any(answers.values()):
        raise UserError(f"{experiments[0].key} has no formula, and {why}")
    if json:
        documents = [formula_document(one, card, answers[one.key]) for one in experiments]
        print_json({"schema": 1, "experiments": documents})
        return
    for experiment in experiments:
        print_formulas(experiment, card, answers[experiment.key])
    print(f"By formula, not traced: {why}.")
    if plot:
        print("--plot draws what a trace saw, so there is no drawing.")


def _perform(experiment: Experiment, device: str | None, interpreter: "Interpreter", *, measured: bool) -> Outcome:
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{experiment.key} …")
        sys.stderr.flush()
    try:
        return running.perform(
            experiment,
            chosen_device(device, None, rename=False),
            measurer=functools.partial(running.measure, interpreter=interpreter) if measured else None,
            named=device is not None,
            interpreter=interpreter,
        )
    finally:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()


def document(experiment: Experiment, device: Device, rows: Iterable[object], **ran: object) -> dict[str, object]:
    """One experiment of what `--json` prints; `ran` is what a trace of it, and a card, came to."""
    return {
        "name": experiment.key,
        "title": experiment.title,
        "device": device.name,
        "capability": device.capability,
        **({"torch": None, "measured_on": None, "exact": None} | ran),
        "rows": list(rows),
    }


def outcome_document(outcome: Outcome) -> dict[str, object]:
    """The document of an experiment that was traced."""
    rows = (
        {
            "run": row.run,
            "label": row.label,
            "predicted": {**_figures(row.predicted), "categories": row.predicted.categories},
            "measured": None if row.measured is None else _figures(row.measured),
            "difference": row.difference,
            "formula": row.formula,
            "printed": row.printed,
        }
        for row in outcome.rows
    )
    ran = {"torch": outcome.torch, "measured_on": outcome.facts, "exact": outcome.exact}
    return document(outcome.experiment, outcome.device, rows, **ran)


def formula_document(experiment: Experiment, device: Device, rows: Sequence[FormulaRow]) -> dict[str, object]:
    """An experiment's document where nothing was traced: formulas alone, and `null` for what they do not say."""
    untold = {"predicted": None, "measured": None, "difference": None}
    shown = (
        {"run": row.run, "label": row.label, **untold, "formula": row.allocated, "printed": row.printed} for row in rows
    )
    return document(experiment, device, shown)


def _figures(figures: TorchFigures) -> dict[str, int]:
    names = ("allocated", "reserved", "peak_allocated", "peak_reserved")
    return {name: getattr(figures, name) for name in names}


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

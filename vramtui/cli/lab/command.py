"""`vramtui lab`: classic experiments on PyTorch's memory, predicted, and measured where there is a card."""

import functools
import sys
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from vramtui.cli.common.console import print_json, print_table
from vramtui.cli.common.exit_codes import NO, exit_on_user_error
from vramtui.cli.completion import cards, experiments
from vramtui.cli.trace.command import JobPython, chosen_interpreter
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import chosen_device

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramtui.core.estimate.devices import Device
    from vramtui.estimators.lab.catalogue import Experiment
    from vramtui.estimators.lab.formulas import FormulaRow
    from vramtui.estimators.lab.runner import Outcome, TorchFigures
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
        from vramtui.estimators.lab.catalogue import EXPERIMENTS, select_experiments

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
                _print(outcomes[-1], plot=plot)
        if json:
            print_json({"schema": 1, "experiments": [document(outcome) for outcome in outcomes]})
        if any(outcome.exact is False for outcome in outcomes):
            raise typer.Exit(NO)


def _list(experiments: "Sequence[Experiment]", *, json: bool) -> None:
    if json:
        listed = [{"name": one.key, "title": one.title, "lesson": one.lesson} for one in experiments]
        print_json({"schema": 1, "experiments": listed})
        return
    print_table(("NAME", "EXPERIMENT"), [(one.key, one.title) for one in experiments])
    print("\nvramtui lab NAME runs one, vramtui lab all every one; --plot draws.")


def _answer_by_formula(
    experiments: "Sequence[Experiment]", device: str | None, why: str, *, plot: bool, json: bool
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
    from vramtui.cli.lab.text import print_formulas
    from vramtui.estimators.lab.formulas import formula_rows

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


def _perform(experiment: "Experiment", device: str | None, interpreter: "Interpreter", *, measured: bool) -> "Outcome":
    from vramtui.estimators.lab import runner as running

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


def document(outcome: "Outcome") -> dict[str, object]:
    """One experiment of what `--json` prints."""
    device, facts = outcome.device, outcome.facts
    return {
        "name": outcome.experiment.key,
        "title": outcome.experiment.title,
        "device": device.name,
        "capability": device.capability,
        "torch": outcome.torch,
        "measured_on": None if facts is None else msgspec.to_builtins(facts),
        "exact": outcome.exact,
        "rows": [
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
        ],
    }


def formula_document(experiment: "Experiment", device: "Device", rows: "Sequence[FormulaRow]") -> dict[str, object]:
    """The same where nothing is traced: formulas alone, and `null` for what they do not say."""
    return {
        "name": experiment.key,
        "title": experiment.title,
        "device": device.name,
        "capability": device.capability,
        "torch": None,
        "measured_on": None,
        "exact": None,
        "rows": [
            {
                "run": row.run,
                "label": row.label,
                "predicted": None,
                "measured": None,
                "difference": None,
                "formula": row.allocated,
                "printed": row.printed,
            }
            for row in rows
        ],
    }


def _figures(figures: "TorchFigures") -> dict[str, int]:
    names = ("allocated", "reserved", "peak_allocated", "peak_reserved")
    return {name: getattr(figures, name) for name in names}


def _print(outcome: "Outcome", *, plot: bool) -> None:
    from vramtui.cli.lab.text import print_outcome

    print_outcome(outcome, plot=plot)

"""Figures of a run, written into the draft's `[measured]`."""

import time
from collections.abc import Callable

from textual.screen import Screen

from vramtui.app.editor.dialogs import Pick, QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.open_draft import EditorHost, OpenDraft
from vramtui.app.ui.dialog import ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.runs.run import Run
from vramtui.presets.measured import with_measured


class MeasuredFigures:
    """Takes a run's figures; doubtful ones only when told to.

    Args:
        screen: asks and tells.
        opened: gets the figures.
        host: knows the runs.
        go_to: puts the form's cursor on a key.
    """

    def __init__(self, screen: Screen[None], opened: OpenDraft, host: EditorHost, go_to: Callable[[str], None]) -> None:
        self._screen = screen
        self._open = opened
        self._host = host
        self._go_to = go_to

    def take(self) -> None:
        """Take a run's figures; which one is asked where there are several."""
        runs = self._host.runs_of(self._open.draft.name)
        if not runs:
            name = printable(self._open.draft.name)
            self._screen.notify(
                f"No run of {name} is known: select its process, or open History (4) first.", markup=False
            )
            return
        if len(runs) == 1:
            self._measure(runs[0])
            return

        pick = Pick("Which run's figures?", [(_name(run), _figures(run)) for run in runs])
        ask(self._screen.app, pick, lambda at: self._measure(runs[at]))

    def _measure(self, run: Run, *, anyway: bool = False) -> None:
        try:
            text = with_measured(self._open.draft.text, run, self._open.draft.folder, anyway=anyway)
        except UserError as error:
            self._doubted(run, str(error), anyway=anyway)
            return
        self._open.draft.replace_text(text)
        self._open.refresh()
        self._go_to("measured.process")
        self._screen.notify(f"[measured] has the figures of {_name(run)}; ctrl+s saves them.", markup=False)

    def _doubted(self, run: Run, why: str, *, anyway: bool) -> None:
        if anyway or run.observed.process is None:
            self._screen.notify(why[:1].upper() + why[1:], severity="warning", markup=False)
            return
        question = f"{why[:1].upper()}{why[1:]}. Write its figures anyway?"
        dialog = QuestionDialog(_name(run), question, (QuestionOption("y", "write them"),))
        confirm(self._screen.app, dialog, lambda: self._measure(run, anyway=True))


def _name(run: Run) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))
    return f"pid {run.pid} on {printable(run.host)}, {at}"


def _figures(run: Run) -> str:
    process = format_bytes(run.observed.process) if run.observed.process is not None else "not measured"
    return f"{run.ending.replace('_', ' ')} · {run.gpu_name} · process {process}"

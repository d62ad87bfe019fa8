"""Write the measured memory of a run into the draft's `[measured]`."""

import time
from collections.abc import Callable

from textual.screen import Screen

from vramtui.app.editor.dialogs import Pick, QuestionDialog, QuestionOption, confirm
from vramtui.app.editor.open_draft import OpenDraft
from vramtui.app.ui.dialog import ask
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.runs.run import Run
from vramtui.presets.measured import with_measured


def take_measured(screen: Screen[None], opened: OpenDraft, go_to: Callable[[str], None]) -> None:
    """Take the figures of a run; ask which if there are several."""
    runs = opened.host.runs_of(opened.draft.name)
    if not runs:
        name = printable(opened.draft.name)
        screen.notify(f"No run of {name} is known: select its process, or open History (4) first.", markup=False)
    elif len(runs) == 1:
        _measure(screen, opened, go_to, runs[0])
    else:
        lines = []
        for run in runs:
            process = format_bytes(run.observed.process) if run.observed.process is not None else "not measured"
            lines.append((_name(run), f"{run.ending.replace('_', ' ')} · {run.gpu_name} · process {process}"))
        ask(screen.app, Pick("Which run's figures?", lines), lambda at: _measure(screen, opened, go_to, runs[at]))


def _measure(
    screen: Screen[None], opened: OpenDraft, go_to: Callable[[str], None], run: Run, *, anyway: bool = False
) -> None:
    """Write the figures. If they may not be the peak of this preset, ask first."""
    try:
        text = with_measured(opened.draft.text, run, opened.draft.folder, anyway=anyway)
    except UserError as error:
        why = f"{str(error)[:1].upper()}{str(error)[1:]}"
        if anyway or run.observed.process is None:
            screen.notify(why, severity="warning", markup=False)
            return
        question = f"{why}. Write its figures anyway?"
        dialog = QuestionDialog(_name(run), question, (QuestionOption("y", "write them"),))
        confirm(screen.app, dialog, lambda: _measure(screen, opened, go_to, run, anyway=True))
        return
    opened.draft.replace_text(text)
    opened.refresh()
    go_to("measured.process")
    screen.notify(f"[measured] has the figures of {_name(run)}; ctrl+s saves them.", markup=False)


def _name(run: Run) -> str:
    at = time.strftime("%Y-%m-%d %H:%M", time.localtime(run.started_at))
    return f"pid {run.pid} on {printable(run.host)}, {at}"

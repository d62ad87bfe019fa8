"""A running job traced by its own command, from Watch: asked first, and its result beside what is observed."""

import shlex

from vramtui.app.context import AppContext
from vramtui.app.timeline.trace_jobs import TraceJobs
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.estimators.traced.process.results import JobCommand

LONGEST_COMMAND = 400
QUESTION = (
    "This runs the job's own command a second time, on fake tensors, beside the job:\n\n{command}\n\nin {folder}\nwith"
    " {python}{ranks}\n\nIt sees no GPU and has the lowest priority; what it writes is thrown away, and it reaches no"
    " network."
)


class ProcessTracer:
    """Asks about the selected process, traces what it runs, and predicts it by that.

    Args:
        shared: the dashboard's own parts.
        traces: what traces.
    """

    def __init__(self, shared: AppContext, traces: TraceJobs) -> None:
        self._shared = shared
        self._traces = traces

    def ask(self) -> None:
        """Ask whether to trace the selected process's command."""
        app, row = self._shared.app, self._shared.state.view().chosen
        if row is None or row.process is None or not isinstance(row.id, ProcessKey):
            app.notify("Select a process first: its own command is what is traced.", markup=False)
            return
        if self._traces.running is not None:
            app.notify("A trace is already running (x on Timeline cancels it).", markup=False)
            return
        process, device = row.id, device_of(row.gpu)
        try:
            command = self._traces.command_of(process.pid, row.process.command or "")
        except UserError as error:
            app.notify(str(error), title="Not traced", severity="warning", markup=False)
            return
        from vramtui.app.ui.dialog import Confirm

        def on_answer(yes: bool | None) -> None:
            if yes:
                self._traces.start_job(command, device, lambda found: self._assign(process, found))
                app.notify(f"Tracing what pid {process.pid} runs; Timeline (3) says how far it is.", markup=False)
                self._shared.redraw.now()

        app.push_screen(Confirm(f"Trace what pid {process.pid} runs?", question_of(command)), on_answer)

    def _assign(self, process: ProcessKey, preset_file: PresetFile) -> None:
        """The trace is what the process is predicted by from now on."""
        state = self._shared.state
        state.add_preset(preset_file)
        state.assign(process, preset_file.key)
        self._shared.app.notify(
            f"pid {process.pid} is traced: predicted beside observed, its phases on Timeline (3).", markup=False
        )


def question_of(command: JobCommand) -> str:
    """What will run, where, and with what."""
    words = shlex.join(command.words)
    shown = words if len(words) <= LONGEST_COMMAND else words[: LONGEST_COMMAND - 1] + "…"
    ranks = f", as rank 0 of {command.ranks}" if command.ranks > 1 else ""
    return QUESTION.format(
        command=printable(shown), folder=printable(command.folder), python=printable(command.python), ranks=ranks
    )

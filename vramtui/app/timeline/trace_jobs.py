"""Traces in the background, of workloads and of running jobs' own commands: at most one runs, each is kept."""

import shlex
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from textual.app import App

from vramtui.app.context import AppContext, Feature
from vramtui.app.redraw import RedrawThrottle
from vramtui.app.state.view import Panel, ProcessRow
from vramtui.app.timeline.tracer import Tracer
from vramtui.app.timeline.view import TimelineView
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Moment
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.dryrun.result import JobCommand, Progress
from vramtui.dryrun.traces import FinishedTrace, Job, JobTrace, Traces
from vramtui.monitor.job_reports import Jobs, reported_moments

if TYPE_CHECKING:
    from vramtui.app.ui.view_screen import ViewScreen

NO_TRACER = "no dry runs here"
OF_A_JOB = "this is the dry run of a job's command: t on Watch, on the job, makes a new one"


class TraceJobs(Feature):
    """Starts traces on threads of their own, whose answers it takes between two turns of the app.

    Args:
        app: calls back from any thread.
        tracer: what traces; None where nothing does.
        redraw: draws what is known now.

    Attributes:
        kept: what was traced so far, which whatever predicts asks, too.
    """

    def __init__(self, app: App[None], tracer: Tracer | None, redraw: RedrawThrottle) -> None:
        self._app = app
        self._tracer = tracer
        self._redraw = redraw
        self.store = Traces()
        self._problems: dict[Job, str] = {}
        self._running: tuple[Job | JobCommand, threading.Event] | None = None
        self._words = ""

    def screen(self, shared: AppContext) -> "ViewScreen":
        from vramtui.app.timeline.screen import TimelineScreen

        return TimelineScreen(shared, self)

    def finished_trace(self, job: Job) -> FinishedTrace | None:
        """The finished trace of a workload on a card."""
        return self.store.get(job)

    def problem(self, job: Job) -> str:
        """Why its last trace ended early."""
        return self._problems.get(job, "")

    def refusal(self, job: Job) -> str:
        if self._tracer is None:
            return NO_TRACER
        return OF_A_JOB if self.store.is_of_job(job[0]) else self._tracer.refusal(job[0])

    def view(self, panel: Panel | None, jobs: Jobs, chosen: ProcessRow | None) -> TimelineView:
        """What is known of the panel's workload phase by phase. A `chosen`
        process without a preset tells of its own phases.
        """
        alone = _alone(jobs, chosen)
        if panel is None:
            return TimelineView(observed=alone)
        job = (panel.workload, panel.device)
        done, running = self.finished_trace(job), self.running
        words = "" if running is None else self.words
        return TimelineView(
            panel=panel,
            observed=observed_moments(jobs, panel),
            alone=alone,
            result=None if done is None else done.result,
            running=words if not words or running == job else f"another workload: {words}",
            problem=self.problem(job),
            refusal="" if running is not None else self.refusal(job),
        )

    @property
    def running(self) -> Job | JobCommand | None:
        return None if self._running is None else self._running[0]

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def words(self) -> str:
        return self._words

    def start(self, job: Job) -> bool:
        if self._tracer is None or self._running is not None:
            return False
        cancelled = threading.Event()
        self._running = (job, cancelled)
        self._words = "starting PyTorch in a process of its own"
        self._problems.pop(job, None)
        threading.Thread(target=self._run, args=(self._tracer, job, cancelled), name="trace", daemon=True).start()
        return True

    def command_of(self, pid: int, command: str) -> JobCommand:
        """What the process `pid` of this machine, shown with `command`, was started with.

        Raises:
            UserError: nothing traces here, the process is another's or elsewhere, or it runs no Python script.
        """
        if self._tracer is None:
            raise UserError(NO_TRACER)
        return self._tracer.command_of(pid, command)

    def start_job(self, command: JobCommand, device: Device, then: Callable[[PresetFile], None]) -> bool:
        """Trace a running job's own command in the background; False while another trace runs.

        Args:
            command: what it was started with.
            device: the card that it runs on.
            then: given the preset that the trace amounts to, once it has ended well.
        """
        if self._tracer is None or self._running is not None:
            return False
        cancelled = threading.Event()
        self._running = (command, cancelled)
        self._words = "starting PyTorch in a process of its own"
        tracer = self._tracer

        def run() -> None:
            try:
                traced, problem = tracer.trace_job(command, device, self._teller(command), cancelled), ""
            except (UserError, OSError) as error:
                traced, problem = None, str(error)
            self._app.call_later(self._take_job, traced, problem, then)

        threading.Thread(target=run, name="trace", daemon=True).start()
        return True

    def _take_job(self, traced: JobTrace | None, problem: str, then: Callable[[PresetFile], None]) -> None:
        """Keep what came of a job's trace, and say why there is none."""
        self._running = None
        if traced is not None:
            then(self.store.take(traced))
        elif problem:
            self._app.notify(problem, title="No dry run", severity="warning", timeout=10, markup=False)
        self._redraw.now()

    def cancel(self) -> bool:
        """Cancel the trace; False when none runs."""
        if self._running is None:
            return False
        self._running[1].set()
        self._words = "stopping"
        return True

    def _teller(self, job: Job | JobCommand) -> Callable[[Progress], None]:
        """Takes how far a trace is, on its own thread."""

        def tell(progress: Progress) -> None:
            self._app.call_later(self._progressed, job, words_of(progress))

        return tell

    def _progressed(self, job: Job | JobCommand, words: str) -> None:
        if self.running == job and self._running is not None and not self._running[1].is_set():
            self._words = words
        self._redraw.soon()

    def _take(self, job: Job, traced: FinishedTrace | None, problem: str = "") -> None:
        """Keep what came of it: a trace; or why it ended early, which is empty where it was cancelled."""
        if traced is not None:
            self.store.keep(job, traced)
        elif problem:
            self._problems[job] = problem
        if self.running == job:
            self._running = None
        self._redraw.now()

    def _run(self, tracer: Tracer, job: Job, cancelled: threading.Event) -> None:
        try:
            traced, problem = tracer.trace(*job, self._teller(job), cancelled), ""
        except (UserError, OSError) as error:
            traced, problem = None, str(error)
        self._app.call_later(self._take, job, traced, problem)


def _alone(jobs: Jobs, chosen: ProcessRow | None) -> tuple[Moment, ...]:
    if chosen is None or chosen.process is None or chosen.preset is not None:
        return ()
    return reported_moments(jobs, chosen.gpu, chosen.process)


def observed_moments(jobs: Jobs, panel: Panel) -> tuple[Moment, ...]:
    """The ends of the phases that the panel's process reported on the panel's card."""
    if panel.process is None or panel.gpu is None:
        return ()
    return reported_moments(jobs, panel.gpu, panel.process)


def words_of(progress: Progress) -> str:
    """How far a trace is, in words."""
    if progress.notice:
        return progress.notice
    step = f"step {progress.step + 1}, " if progress.step >= 0 else ""
    memory = f"{format_bytes(progress.allocated)} held, {format_bytes(progress.peak_allocated)} at most"
    return f"{step}{progress.phase} {'is running' if progress.place else 'is done'}: {memory}"


LONGEST_COMMAND = 400
QUESTION = (
    "This is a dry run of the job's own command, beside the job:\n\n{command}\n\nin {folder}\nwith"
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
            app.notify("Select a process first: the dry run is of its command.", markup=False)
            return
        if self._traces.running is not None:
            app.notify("A dry run is already running (x on Timeline cancels it).", markup=False)
            return
        process, device = row.id, device_of(row.gpu)
        try:
            command = self._traces.command_of(process.pid, row.process.command or "")
        except UserError as error:
            app.notify(str(error), title="No dry run", severity="warning", markup=False)
            return
        from vramtui.app.ui.dialog import Confirm

        def on_answer(yes: bool | None) -> None:
            if yes:
                self._traces.start_job(command, device, lambda traced: self._assign(process, traced))
                app.notify(f"Dry run of pid {process.pid}'s command; Timeline (3) shows how far it is.", markup=False)
                self._shared.redraw.now()

        app.push_screen(Confirm(f"Dry run of what pid {process.pid} runs?", question_of(command)), on_answer)

    def _assign(self, process: ProcessKey, preset_file: PresetFile) -> None:
        """The trace is what the process is predicted by from now on."""
        state = self._shared.state
        state.add_preset(preset_file)
        state.assign(process, preset_file.key)
        self._shared.app.notify(
            f"pid {process.pid} has a dry run: predicted beside observed, its phases on Timeline (3).", markup=False
        )


def question_of(command: JobCommand) -> str:
    """What will run, where, and with what."""
    words = shlex.join(command.words)
    shown = words if len(words) <= LONGEST_COMMAND else words[: LONGEST_COMMAND - 1] + "…"
    ranks = f", as rank 0 of {command.ranks}" if command.ranks > 1 else ""
    return QUESTION.format(
        command=printable(shown), folder=printable(command.folder), python=printable(command.python), ranks=ranks
    )

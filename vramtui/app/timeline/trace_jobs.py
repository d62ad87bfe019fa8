"""Dry runs in the background, of workloads and of running jobs' commands: one at a time, and each is kept."""

import shlex
import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec
from textual.app import App

from vramtui.app.context import AppContext, Feature, RedrawThrottle, ask
from vramtui.app.state.view import Panel, ProcessRow
from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Moment
from vramtui.core.observation.readings import ProcessKey
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Workload
from vramtui.dryrun.result import DryRun, JobCommand, Progress
from vramtui.dryrun.traces import FinishedTrace, Job, JobTrace, Traces
from vramtui.monitor.jobs import Jobs, reported_moments

Traced = TypeVar("Traced", FinishedTrace, JobTrace)
Tell = Callable[[Progress], None]

NO_TRACER = "no dry runs here"
OF_A_JOB = "this is the dry run of a job's command: t on Watch, on the job, makes a new one"
LONGEST_COMMAND = 400
QUESTION = (
    "This is a dry run of the job's own command, while the job runs:\n\n{command}\n\nin {folder}\nwith"
    " {python}{ranks}\n\nIt sees no GPU and has the lowest priority; what it writes is thrown away, and it reaches no"
    " network."
)


class Tracer(Protocol):
    """Makes dry runs in a process of its own. Everything but `refusal` may take seconds and raise a UserError."""

    def refusal(self, workload: Workload) -> str:
        """Why there is no dry run of `workload`; empty if there can be one."""

    def trace(self, workload: Workload, device: Device, tell: Tell, cancel: threading.Event) -> FinishedTrace | None:
        """Make a dry run of a preset's code; None when `cancel` was set."""

    def command_of(self, pid: int, command: str) -> JobCommand:
        """Return the command of the process `pid` of this machine."""

    def trace_job(self, command: JobCommand, device: Device, tell: Tell, cancel: threading.Event) -> JobTrace | None:
        """Make a dry run of a running job's own command; None when `cancel` was set."""


class TimelineView(msgspec.Struct, frozen=True, eq=False):
    """Everything on the Timeline screen: the phases that the job itself reports, or the selected process without a
    preset (`unmatched`), the dry run's result or progress, why the last one ended early, and why none can be started.
    """

    panel: Panel | None = None
    observed: tuple[Moment, ...] = ()
    unmatched: tuple[Moment, ...] = ()
    result: DryRun | None = None
    running: str = ""
    problem: str = ""
    refusal: str = ""


class TraceJobs(Feature):
    """Starts dry runs on threads, and takes their results between two turns of the app. The `store` has those so far,
    `words` the progress of the running one.
    """

    def __init__(self, app: App[None], tracer: Tracer | None, redraw: RedrawThrottle) -> None:
        self._app, self._tracer, self._redraw = app, tracer, redraw
        self.store = Traces()
        self.words = ""
        self._problems: dict[Job, str] = {}
        self._running: tuple[Job | JobCommand, threading.Event] | None = None

    def refusal(self, job: Job) -> str:
        if self._tracer is None:
            return NO_TRACER
        return OF_A_JOB if job[0] in self.store.of_jobs else self._tracer.refusal(job[0])

    def view(self, panel: Panel | None, jobs: Jobs, chosen: ProcessRow | None) -> TimelineView:
        """The panel's workload phase by phase. A `chosen` process without a preset shows its own phases."""
        unmatched: tuple[Moment, ...] = ()
        if chosen is not None and chosen.process is not None and chosen.preset is None:
            unmatched = reported_moments(jobs, chosen.gpu, chosen.process)
        if panel is None:
            return TimelineView(observed=unmatched)
        job = (panel.workload, panel.device)
        done, running = self.store.get(job), self.running
        words = "" if running is None else self.words
        return TimelineView(
            panel=panel,
            observed=observed_moments(jobs, panel),
            unmatched=unmatched,
            result=None if done is None else done.result,
            running=words if not words or running == job else f"another workload: {words}",
            problem=self._problems.get(job, ""),
            refusal="" if running is not None else self.refusal(job),
        )

    @property
    def running(self) -> Job | JobCommand | None:
        return None if self._running is None else self._running[0]

    @property
    def busy(self) -> bool:
        return self._running is not None

    def start(self, job: Job) -> None:
        """Make a dry run of a workload in the background, unless one is running."""
        tracer = self._tracer
        if tracer is None or self.busy:
            return
        self._problems.pop(job, None)

        def take(traced: FinishedTrace | None, problem: str) -> None:
            if traced is not None:
                self.store.done[job] = traced
            elif problem:
                self._problems[job] = problem

        self._begin(job, lambda tell, cancel: tracer.trace(*job, tell, cancel), take)

    def start_job(self, command: JobCommand, device: Device, then: Callable[[PresetFile], None]) -> None:
        """Make a dry run of a job's command in the background, unless one is running; `then` takes its preset."""
        tracer = self._tracer
        if tracer is None or self.busy:
            return

        def take(traced: JobTrace | None, problem: str) -> None:
            if traced is not None:
                then(self.store.take(traced))
            elif problem:
                self._app.notify(problem, title="No dry run", severity="warning", timeout=10)

        self._begin(command, lambda tell, cancel: tracer.trace_job(command, device, tell, cancel), take)

    def _begin(
        self,
        job: Job | JobCommand,
        trace: Callable[[Tell, threading.Event], Traced | None],
        take: Callable[[Traced | None, str], None],
    ) -> None:
        """Run on a thread; `take` gets the result, or why it ended early."""
        later, cancelled = self._app.call_later, threading.Event()
        self._running = (job, cancelled)
        self.words = "starting PyTorch in a process of its own"

        def progressed(words: str) -> None:
            if self.running == job and not cancelled.is_set():
                self.words = words
            self._redraw.soon()

        def ended(traced: Traced | None, problem: str) -> None:
            self._running = None
            take(traced, problem)
            self._redraw.now()

        def tell(progress: Progress) -> None:
            later(progressed, words_of(progress))

        def run() -> None:
            try:
                traced, problem = trace(tell, cancelled), ""
            except (UserError, OSError) as error:
                traced, problem = None, str(error)
            later(ended, traced, problem)

        threading.Thread(target=run, name="trace", daemon=True).start()

    def command_of(self, pid: int, command: str) -> JobCommand:
        if self._tracer is None:
            raise UserError(NO_TRACER)
        return self._tracer.command_of(pid, command)

    def cancel(self) -> bool:
        """Cancel the dry run; False if none is running."""
        if self._running is None:
            return False
        self._running[1].set()
        self.words = "stopping"
        return True


def observed_moments(jobs: Jobs, panel: Panel) -> tuple[Moment, ...]:
    """The ends of the phases that the panel's process reported on the panel's card."""
    return () if panel.process is None or panel.gpu is None else reported_moments(jobs, panel.gpu, panel.process)


def words_of(progress: Progress) -> str:
    if progress.notice:
        return progress.notice
    step = f"step {progress.step + 1}, " if progress.step >= 0 else ""
    memory = f"{format_bytes(progress.allocated)} held, {format_bytes(progress.peak_allocated)} peak"
    return f"{step}{progress.phase} {'is done' if progress.line is None else 'is running'}: {memory}"


class ProcessTracer:
    """Asks about the selected process, makes a dry run of its command, and predicts the process by it."""

    def __init__(self, shared: AppContext, traces: TraceJobs) -> None:
        self._shared, self._traces = shared, traces

    def ask(self) -> None:
        """Ask whether to make a dry run of the selected process's command."""
        app, state, row = self._shared.app, self._shared.state, self._shared.state.view().chosen
        if row is None or row.process is None or not isinstance(row.id, ProcessKey):
            app.notify("Select a process first: the dry run is of its command.")
            return
        if self._traces.busy:
            app.notify("A dry run is already running (x on Timeline cancels it).")
            return
        process, device = row.id, device_of(row.gpu)
        try:
            command = self._traces.command_of(process.pid, row.process.command or "")
        except UserError as error:
            app.notify(str(error), title="No dry run", severity="warning")
            return
        from vramtui.app.ui.chooser import Confirm

        def assign(preset_file: PresetFile) -> None:
            state.add_preset(preset_file)
            state.assign(process, preset_file.key)
            app.notify(f"pid {process.pid} has a dry run: predicted and observed on Watch, its phases on Timeline (3).")

        def start(_yes: bool) -> None:
            self._traces.start_job(command, device, assign)
            app.notify(f"Dry run of pid {process.pid}'s command; Timeline (3) shows how far it is.")
            self._shared.redraw.now()

        words = shlex.join(command.words)
        question = QUESTION.format(
            command=printable(words if len(words) <= LONGEST_COMMAND else words[: LONGEST_COMMAND - 1] + "…"),
            folder=printable(command.folder),
            python=printable(command.python),
            ranks=f", as rank 0 of {command.ranks}" if command.ranks > 1 else "",
        )
        ask(app, Confirm(f"Dry run of what pid {process.pid} runs?", question), start)

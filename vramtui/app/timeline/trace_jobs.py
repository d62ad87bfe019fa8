"""Traces in the background: at most one runs, each is kept by its workload and card."""

import threading
from collections.abc import Callable

from textual.message import Message

from vramtui.app.messages import TraceEnded, TraceProgressed
from vramtui.app.state import Panel, Timeline
from vramtui.app.timeline.tracer import FinishedTrace, Job, Tracer
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.estimate import Estimate, Moment
from vramtui.estimators.traced.process.results import Progress
from vramtui.monitor.probes import Jobs, reported_moments

NO_TRACER = "tracing is not available here"


class TraceJobs:
    """Starts traces on threads of their own, which post what comes of them.

    Args:
        tracer: what traces; None where nothing does.
        post: takes the messages, from any thread.
    """

    def __init__(self, tracer: Tracer | None, post: Callable[[Message], object]) -> None:
        self._tracer = tracer
        self._post = post
        self._done: dict[Job, FinishedTrace] = {}
        self._problems: dict[Job, str] = {}
        self._looked_for: set[Job] = set()
        self._running: tuple[Job, threading.Event] | None = None
        self._words = ""

    def done(self, job: Job) -> FinishedTrace | None:
        """The finished trace of a workload on a card."""
        return self._done.get(job)

    def estimate(self, job: Job) -> Estimate | None:
        """Its estimate."""
        found = self._done.get(job)
        return None if found is None else found.estimate

    def problem(self, job: Job) -> str:
        """Why its last trace ended early."""
        return self._problems.get(job, "")

    def refusal(self, job: Job) -> str:
        """Why it cannot be traced; empty where it can."""
        return NO_TRACER if self._tracer is None else self._tracer.refusal(job[0])

    @property
    def running(self) -> Job | None:
        """What is being traced now."""
        return None if self._running is None else self._running[0]

    @property
    def words(self) -> str:
        """How far it is."""
        return self._words

    def look_for(self, job: Job) -> None:
        """See, once, whether an earlier trace was kept."""
        if self._tracer is None or job in self._looked_for:
            return
        self._looked_for.add(job)
        tracer = self._tracer

        def look() -> None:
            found = tracer.recall(*job)
            if found is not None:
                self._post(TraceEnded(job, found, recalled=True))

        threading.Thread(target=look, name="recall trace", daemon=True).start()

    def start(self, job: Job) -> bool:
        """Trace in the background; False while another one runs."""
        if self._tracer is None or self._running is not None:
            return False
        called_off = threading.Event()
        self._running = (job, called_off)
        self._words = "starting PyTorch in a process of its own"
        self._problems.pop(job, None)
        threading.Thread(target=self._run, args=(self._tracer, job, called_off), name="trace", daemon=True).start()
        return True

    def cancel(self) -> bool:
        """Cancel the trace; False when none runs."""
        if self._running is None:
            return False
        self._running[1].set()
        self._words = "stopping"
        return True

    def progressed(self, message: TraceProgressed) -> None:
        """Note how far it is."""
        if self.running == message.job and self._running is not None and not self._running[1].is_set():
            self._words = message.words

    def ended(self, message: TraceEnded) -> None:
        """Keep what came of it."""
        if message.traced is not None:
            self._done[message.job] = message.traced
        elif message.problem:
            self._problems[message.job] = message.problem
        if self.running == message.job and not message.recalled:
            self._running = None

    def _run(self, tracer: Tracer, job: Job, called_off: threading.Event) -> None:
        def tell(progress: Progress) -> None:
            self._post(TraceProgressed(job, words_of(progress)))

        try:
            self._post(TraceEnded(job, tracer.trace(*job, tell, called_off)))
        except (UserError, OSError) as error:
            self._post(TraceEnded(job, problem=str(error)))


def timeline_of(traces: TraceJobs, panel: Panel | None, jobs: Jobs) -> Timeline:
    """What is known of the panel's workload phase by phase; an earlier trace of it is looked for."""
    if panel is None:
        return Timeline()
    job = (panel.workload, panel.device)
    traces.look_for(job)
    done, running = traces.done(job), traces.running
    words = "" if running is None else traces.words
    return Timeline(
        observed=observed_moments(jobs, panel),
        result=None if done is None else done.result,
        running=words if not words or running == job else f"another workload: {words}",
        problem=traces.problem(job),
        refusal="" if running is not None else traces.refusal(job),
    )


def observed_moments(jobs: Jobs, panel: Panel) -> tuple[Moment, ...]:
    """The ends of the phases that the panel's process reported on the panel's card."""
    if panel.process is None or panel.gpu is None:
        return ()
    return reported_moments(jobs, panel.gpu, panel.process)


def words_of(progress: Progress) -> str:
    """How far a trace is, in words."""
    step = f"step {progress.step + 1}, " if progress.step >= 0 else ""
    held = f"{format_bytes(progress.allocated)} held, {format_bytes(progress.peak_allocated)} at most"
    return f"{step}{progress.phase} is done: {held}"

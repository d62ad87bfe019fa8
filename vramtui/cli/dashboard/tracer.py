"""The dashboard's dry runs of jobs, on one GPU or on several; each runs in a child process."""

import os
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device, card
from vramtui.core.schema.workload import Workload

if TYPE_CHECKING:
    from vramtui.app.plan.each_card import CardRun
    from vramtui.dryrun.command import RunTools
    from vramtui.dryrun.result import JobCommand, Progress
    from vramtui.dryrun.traces import FinishedTrace, JobTrace


class DashboardDryRuns:
    """Makes dry runs for the dashboard; torch stays in their processes."""

    def __init__(self) -> None:
        self._refusals: dict[Workload, str] = {}

    def refusal(self, workload: Workload) -> str:
        """Why the workload's code cannot run, empty if it can. Timeline asks for each picture; each is tried once."""
        from vramtui.dryrun.estimate import request_of

        if workload not in self._refusals:
            self._refusals[workload] = ""
            try:
                request_of(workload, Device(name="any", capability=(9, 0), total_memory=1))
            except UserError as error:
                self._refusals[workload] = str(error)
        return self._refusals[workload]

    def trace(
        self, workload: Workload, device: Device, progress: "Callable[[Progress], None]", cancel: threading.Event
    ) -> "FinishedTrace | None":
        """Run the code that a preset names on fake tensors, on a GPU that has all the memory one could ask for."""
        from vramtui.dryrun.estimate import NO_LIMIT, STEPS, estimate_of, request_of
        from vramtui.dryrun.fake.run import TraceCancelledError, trace
        from vramtui.dryrun.traces import FinishedTrace

        request = request_of(workload, msgspec.structs.replace(device, total_memory=NO_LIMIT))
        try:
            result = trace(msgspec.structs.replace(request, steps=STEPS), progress=progress, cancel=cancel)
        except TraceCancelledError:
            return None
        return FinishedTrace(estimate_of(result, workload), result)

    def command_of(self, pid: int, command: str) -> "JobCommand":
        """The job that a process on this host runs."""
        from vramtui.dryrun.job_command import command_of_process
        from vramtui.presets.importers.derived import place_of

        if place_of(pid, command) is None:
            raise UserError(f"pid {pid} cannot be looked into here: it is another user's, on another host, or gone")
        return command_of_process(pid)

    def trace_job(
        self, command: "JobCommand", device: Device, progress: "Callable[[Progress], None]", cancel: threading.Event
    ) -> "JobTrace | None":
        """Make a dry run of a running job's command."""
        from vramtui.dryrun.command import CancelledError, dry_run_of

        try:
            return dry_run_of(command, device, _tools(progress, cancel))
        except CancelledError:
            return None

    def run(
        self, words: Sequence[str], job: "JobCommand | None", name: str, cancel: threading.Event
    ) -> "CardRun | None":
        """Run a command on one GPU for Plan's table."""
        from vramtui.app.plan.each_card import STEPS, CardRun
        from vramtui.dryrun.command import CancelledError, dry_run, engine_of, prepared
        from vramtui.dryrun.job_command import DryRunJob

        asked = prepared(
            DryRunJob(
                words=tuple(words),
                folder=os.getcwd() if job is None else job.folder,  # noqa: PTH109 - as the shell has it
                environment=dict(os.environ if job is None else job.environment),
                steps=STEPS,
            )
        )
        tools = _tools(None, cancel)
        device = card(name)
        try:
            answer = dry_run(asked, (device, 1), engine_of(asked, tools)[0], tools)
        except CancelledError:
            return None
        result = answer.result
        return CardRun(
            card=device.name,
            allocated=None if result is None else result.peak_allocated,
            reserved=None if result is None else result.peak_reserved,
            process=None if result is None else result.fit.needs,
            memory=device.total_memory,
            verdict=f"failed: {answer.error}" if result is None else answer.verdict,
        )


def _tools(progress: "Callable[[Progress], None] | None", cancel: threading.Event) -> "RunTools":
    from vramtui.cli.common.paths import cache_dir
    from vramtui.cli.run.placement import open_listener
    from vramtui.dryrun.command import RunTools

    return RunTools(open_listener, cache_dir(), progress, cancel)

"""The dashboard's runs on emulated cards: the command `run --on`, in a process of its own."""

import contextlib
import os
import subprocess
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vramtui.cli.dashboard.tracer import command_of

if TYPE_CHECKING:
    from vramtui.app.plan.each_card import CardRun
    from vramtui.estimators.traced.process.results import JobCommand

LOOK = 0.2  # seconds between two looks at whether it is to end
GRACE = 5.0  # seconds that the job has to end in


class ChildCardRunner:
    """Runs `vramtui run --on CARD` for Plan; what the job prints is seen only where it fails."""

    command_of = staticmethod(command_of)

    def run(
        self, words: Sequence[str], job: "JobCommand | None", name: str, cancel: threading.Event
    ) -> "CardRun | None":
        """Run the job on an emulated card in a child process, as the `CardRunner` protocol asks."""
        import tempfile  # every dashboard would load it and its random numbers

        from vramtui.api.tracing import dry_arguments, dry_result
        from vramtui.app.plan.each_card import STEPS, CardRun

        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            with subprocess.Popen(  # noqa: S603 - the person's own command, in this very program
                dry_arguments(words, on=name, steps=STEPS),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                cwd=None if job is None else job.folder,
                env=os.environ if job is None else job.environment,
            ) as child:
                while child.poll() is None:
                    if cancel.wait(LOOK):
                        child.terminate()  # which it passes on to the job
                        with contextlib.suppress(subprocess.TimeoutExpired):
                            child.wait(GRACE)
                        child.kill()
                        return None
            output.seek(0)
            errors.seek(0)
            ran = dry_result(output.read(), errors.read())
        return CardRun(
            card=ran.card,
            allocated=ran.allocated,
            reserved=ran.reserved,
            process=ran.process,
            memory=ran.memory,
            verdict=f"failed with exit code {ran.exit_code}" if ran.verdict == "failed" else ran.verdict,
        )

"""Traces for tests, each in a fork of one process that has loaded torch and transformers (`warm_torch.py`)."""

import os

import msgspec

from tests.warm_torch import ask
from vramtui.core.base.errors import UserError
from vramtui.dryrun.fake.run import by_other_runs
from vramtui.dryrun.result import ChildLine, DryRun, TraceReads, TraceRequest
from vramtui.estimators.torch_facts.convolutions import WITHOUT_DEVICE


class WarmTraces:
    def trace(self, request: TraceRequest, **_how: object) -> DryRun:
        """What the trace answers.

        Raises:
            UserError: the code cannot be traced.
        """
        kept = {one: to for one, to in os.environ.items() if one.startswith("TORCH_") or one == WITHOUT_DEVICE}

        def ran(other_numbers: str = "") -> tuple[DryRun, TraceReads]:
            asked = msgspec.structs.replace(request, other_numbers=other_numbers)
            answer = self.answer(asked, f"import os; os.environ.update({kept!r})")
            if answer.result is None or answer.reads is None:
                raise UserError(answer.error or "no answer")
            return answer.result, answer.reads

        result, reads = ran()
        return by_other_runs(result, reads, ran)

    def answer(self, request: TraceRequest, before: str = "") -> ChildLine:
        """The trace's last line, after `before`, which is Python, has run in the fork as it is."""
        own = {name: os.environ[name] for name in ("XDG_RUNTIME_DIR",) if name in os.environ}  # of this worker
        reader, writer = os.pipe()
        ask("trace", [own, before, msgspec.json.encode(request).decode()], [writer, 2], transformers=True)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            said = pipe.read()
        return (
            msgspec.json.decode(said, type=ChildLine) if said else ChildLine(error="the fork ended without an answer")
        )


WARM = WarmTraces()

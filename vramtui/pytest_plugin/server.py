"""The other end of `client`: a pytest that waits to be told which test to run, and traces it in a fork of itself."""

import gc
import os
import sys
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from vramtui.api.estimation import device_of
from vramtui.core.base.errors import UserError
from vramtui.dryrun.fake.process.child import trace_here
from vramtui.dryrun.result import DryRun, TraceRequest
from vramtui.pytest_plugin.client import PIPES, TraceAnswer, TraceQuestion

_OUTCOMES = (pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception)


class TracedCall:
    """Runs the body of the one test of this process as a trace."""

    def __init__(self, request: TraceRequest) -> None:
        self.result: DryRun | None = None
        self._request = request

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """The test function with its fixtures, within the trace."""
        names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - as pytest's own hook does
        arguments = {name: pyfuncitem.funcargs[name] for name in names}
        errors: list[BaseException] = []

        def code() -> None:
            try:
                pyfuncitem.obj(**arguments)
            except _OUTCOMES as outcome:
                errors.append(outcome)

        self.result = trace_here(self._request, lambda _progress: None, code)
        if errors:
            raise errors[0]
        return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Answer until there are no more questions."""
    load_once()
    gc.freeze()  # a fork that looked through it for garbage would copy every page of it
    asks, answers = map(int, os.environ[PIPES].split(","))
    items = {item.nodeid: item for item in session.items}
    with os.fdopen(asks, "rb") as questions:
        for line in questions:
            asked = msgspec.json.decode(line, type=TraceQuestion)
            item = items.get(asked.nodeid)
            error = f"{asked.nodeid} is not found by the pytest that traces"
            _write(answers, _forked(item, asked) if item is not None else TraceAnswer(error=error))
    return True


def load_once() -> None:
    """Load here what every fork would load for itself, two seconds of it. No backward pass runs: autograd's threads
    would be missing in a fork.
    """
    import torch  # noqa: PLC0415 - only in the process that traces
    import torch.fx.experimental.symbolic_shapes  # noqa: PLC0415 - the first fake tensor would load it
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415 - comes with torch

    from vramtui.dryrun.fake import session  # noqa: F401, PLC0415 - loads torch
    from vramtui.dryrun.fake.kernels import load_all  # noqa: PLC0415 - loads torch

    load_all()
    with FakeTensorMode():
        torch.add(torch.ones(1), 1)


def _forked(item: pytest.Item, asked: TraceQuestion) -> TraceAnswer:
    """The answer of a fork of this process."""
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(read)
        _write(write, _answer(item, asked))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        line = answer.read()
    _, status = os.waitpid(pid, 0)
    if not line:
        return TraceAnswer(error=f"the test ended its process (exit code {os.waitstatus_to_exitcode(status)})")
    return msgspec.json.decode(line, type=TraceAnswer)


def _answer(item: pytest.Item, asked: TraceQuestion) -> TraceAnswer:
    try:
        request = TraceRequest(device=device_of(asked.device, asked.memory), steps=asked.steps)
    except UserError as error:
        return TraceAnswer(error=str(error))
    call = TracedCall(request)
    item.config.pluginmanager.register(call)
    reports = runtestprotocol(item, log=False, nextitem=None)
    return TraceAnswer(reports=tuple(_plain(item, reports)), result=call.result)


def _plain(item: pytest.Item, reports: list[pytest.TestReport]) -> Iterator[Any]:
    for report in reports:
        yield item.config.hook.pytest_report_to_serializable(config=item.config, report=report)


def _write(handle: int, answered: TraceAnswer) -> None:
    data = msgspec.json.encode(answered, enc_hook=str) + b"\n"
    while data:
        data = data[os.write(handle, data) :]

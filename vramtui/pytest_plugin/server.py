"""The other end of `client`: a pytest that runs one test at a time, as a dry run in a fork of itself."""

import gc
import os
import sys
from typing import Any

import msgspec
import pytest
from _pytest.runner import runtestprotocol

from vramtui.api.estimation import device_of
from vramtui.core.base.errors import UserError
from vramtui.dryrun.fake.child import trace_here
from vramtui.dryrun.result import DryRun, TraceRequest
from vramtui.pytest_plugin.client import PIPES, TraceAnswer, TraceQuestion

OUTCOMES = (pytest.skip.Exception, pytest.fail.Exception, pytest.xfail.Exception)


class TracedCall:
    """A plugin that runs the body of this process's one test as a dry run."""

    def __init__(self, request: TraceRequest) -> None:
        self.result: DryRun | None = None
        self._request = request

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        """Run the test function with its fixtures."""
        names = pyfuncitem._fixtureinfo.argnames  # noqa: SLF001 - as pytest's own hook does
        arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
        errors: list[BaseException] = []

        def code() -> None:
            try:
                pyfuncitem.obj(**arguments)
            except OUTCOMES as outcome:
                errors.append(outcome)

        self.result = trace_here(self._request, lambda _progress: None, code)
        if errors:
            raise errors[0]
        return True


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    gc.disable()
    import vramtui.dryrun.fake.session  # noqa: F401, PLC0415 - two seconds of imports that every fork needs

    gc.enable()
    gc.collect()
    gc.freeze()  # a fork that looked through it for garbage would copy every page of it
    asks, answers = map(int, os.environ[PIPES].split(","))
    items = {item.nodeid: item for item in session.items}
    with os.fdopen(asks, "rb") as questions:
        for line in questions:
            asked = msgspec.json.decode(line, type=TraceQuestion)
            item = items.get(asked.nodeid)
            error = f"{asked.nodeid} is not found by the pytest that runs vram tests"
            _write(answers, _forked(item, asked) if item is not None else TraceAnswer(error=error))
    return True


def _forked(item: pytest.Item, asked: TraceQuestion) -> TraceAnswer:
    read, write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        os.close(read)
        try:
            call = TracedCall(TraceRequest(device=device_of(asked.device, asked.memory), steps=asked.steps))
            item.config.pluginmanager.register(call)
            to_plain = item.config.hook.pytest_report_to_serializable
            reports = runtestprotocol(item, log=False, nextitem=None)
            plain = tuple(to_plain(config=item.config, report=report) for report in reports)
            _write(write, TraceAnswer(reports=plain, result=call.result))
        except UserError as error:
            _write(write, TraceAnswer(error=str(error)))
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        line = answer.read()
    _, status = os.waitpid(pid, 0)
    if not line:
        return TraceAnswer(error=f"the test ended its process (exit code {os.waitstatus_to_exitcode(status)})")
    return msgspec.json.decode(line, type=TraceAnswer)


def _write(handle: int, answer: TraceAnswer) -> None:
    data = msgspec.json.encode(answer, enc_hook=str) + b"\n"
    while data:
        data = data[os.write(handle, data) :]

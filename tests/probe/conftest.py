import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.dryrun.child import probed_environment
from vramtui.probe.socket_dir import SOCKET
from vramtui.sources.probe_listener import ProbeListener

JOBS = Path(__file__).parent / "jobs"
MARK = "a run of the tests"


class Heard(NamedTuple):
    code: int
    stdout: str
    stderr: str
    jobs: tuple[ObservedJob, ...]
    malformed: int

    @property
    def job(self) -> ObservedJob:
        (only,) = self.jobs
        return only


Start = Callable[..., Heard]


@pytest.fixture
def start(runtime: Path) -> Start:
    assert runtime.is_dir()

    def run(*command: str, python: str = sys.executable, **variables: str) -> Heard:
        listener = ProbeListener("test", run=MARK)
        try:
            environment = probed_environment({**os.environ, **variables}, str(listener.path), MARK)
            environment[SOCKET] = variables.get(SOCKET, environment[SOCKET])
            ended = subprocess.run(
                [python, *command], env=environment, capture_output=True, text=True, timeout=240, check=False
            )
        finally:
            listener.close()
        return Heard(ended.returncode, ended.stdout, ended.stderr, listener.jobs(), listener.malformed)

    return run

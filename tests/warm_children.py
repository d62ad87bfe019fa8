"""Children that trace, forked from a process that has loaded torch (`warm_torch.py`); else as those of `subprocess`."""

import os
import select
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from tests.warm_torch import ask


class WarmChild:
    def __init__(
        self,
        command: list[str],
        *,
        stdin: int,
        stdout: int,
        stderr: IO[bytes] | None,
        env: dict[str, str],
        cwd: str | Path | None,
        pass_fds: tuple[int, ...],
        start_new_session: bool,
    ) -> None:
        assert "fake.child" in command[-1]
        assert (stdin, stdout, pass_fds, start_new_session) == (subprocess.PIPE, subprocess.PIPE, (), True)
        asked, told, status = os.pipe(), os.pipe(), os.pipe()
        said = 2 if stderr is None else stderr.fileno()
        ask("child", [env, str(cwd or Path.cwd())], [asked[0], told[1], said, status[1]])
        for descriptor in (asked[0], told[1], status[1]):
            os.close(descriptor)
        self.stdin, self.stdout = os.fdopen(asked[1], "wb"), os.fdopen(told[0], "rb")
        self.returncode: int | None = None
        self._status = os.fdopen(status[0], "rb")
        self._lock = threading.Lock()
        self.pid = int(self._status.readline())

    def wait(self, _timeout: float = 0.0) -> int:
        with self._lock:
            if self.returncode is None:
                code = int(self._status.readline())
                self.returncode = code if code >= 0 else 128 - code
                self._status.close()
            return self.returncode

    def poll(self) -> int | None:
        has_ended = self.returncode is not None or select.select([self._status], [], [], 0)[0]
        return self.wait() if has_ended else None

    def terminate(self) -> None:
        with suppress(ProcessLookupError):  # it has ended
            os.killpg(self.pid, signal.SIGKILL)

    kill = terminate

"""Children that trace, forked from a process that has loaded torch (`warm_torch.py`); else as those of `subprocess`."""

import os
import select
import signal
import subprocess
import threading
from contextlib import suppress
from typing import Any

from tests.warm_torch import ask


def start_warm(command: list[str], **how: Any) -> Any:
    return WarmChild(command[-1], **how) if "vramtui.dryrun.fake.child" in command else subprocess.Popen(command, **how)


class WarmChild:
    def __init__(
        self,
        folder: str,
        *,
        env: dict[str, str],
        cwd: str,
        stdin: int,
        stdout: Any,
        stderr: Any,
        start_new_session: bool,
    ) -> None:
        assert (stdin, stderr, start_new_session) == (subprocess.DEVNULL, stdout, True)
        told, status = os.pipe()
        ask("child", [env, cwd, folder], [stdout if isinstance(stdout, int) else stdout.fileno(), status])
        os.close(status)
        self.returncode: int | None = None
        self._status = os.fdopen(told, "rb")
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

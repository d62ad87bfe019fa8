"""The probe: a guest in somebody's training job that reports to vramtui what PyTorch knows about its memory.

It is loaded by `vramtui run` (through `hook/sitecustomize.py`), or by a line of code: where
vramtui is installed `import vramtui.probe; vramtui.probe.start()`, elsewhere `runpy.run_path` of that hook.

It uses the standard library and the job's own torch, which it never imports: it waits for the job to do so. Whatever
goes wrong in it stays in it: a hook never raises, a message without a listener is dropped.
"""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import os
import sys

from .import_hook import when_imported

__all__ = ["start"]
HOOKED = "_vramtui_probe"  # what `hook/sitecustomize.py` loads this package as
_started: list[bool] = []


def start() -> None:
    """Watch this process from now on, or from the moment that it imports torch. Starting twice is starting once."""
    already = sys.modules.get(HOOKED)
    if already is not None and already.__name__ != __name__:
        already.start()
        return
    if _started:
        return
    _started.append(True)
    if "VRAMTUI_CARD" in os.environ:  # as `socket_dir` has it, which a job without torch does not load
        from . import servers

        servers.prepare()
    when_imported("torch", _arm)


def _arm(torch: object) -> None:
    from .session import arm

    arm(torch)

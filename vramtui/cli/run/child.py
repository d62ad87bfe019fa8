"""A command run as if the shell had started it: its terminal, its signals, its exit code."""

import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vramtui.core.base.errors import SourceFailed, os_reason
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import NVIDIA, Gpu, usable_gpus

if TYPE_CHECKING:
    from vramtui.sources.probe_listener import ProbeListener


def usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a job may use: those of one vendor, as a build of PyTorch runs on no other's (the first card's, so
    NVIDIA's where there are both), and of these what the variables of this process show.
    """
    own = [gpu for gpu in usable_gpus(gpus) if gpu.vendor == gpus[0].vendor]
    if not own or own[0].vendor == NVIDIA:
        return _visible_gpus(own, gpus, "CUDA_VISIBLE_DEVICES")
    # HIP counts anew what ROCr leaves, and takes CUDA's variable where its own is missing (ROCm: GPU isolation).
    left = _visible_gpus(own, gpus, "ROCR_VISIBLE_DEVICES")
    names = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return left if names is None else [gpu for at, gpu in enumerate(left) if str(at) in names.split(",")]


def own_index(gpu: Gpu, gpus: Sequence[Gpu]) -> int:
    """A GPU's index among those of its vendor, as the vendor's runtime counts."""
    return gpu.index - next(one.index for one in gpus if one.vendor == gpu.vendor)


def runtime_uuid(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """The name by which the vendor's runtime finds a GPU, whatever the order of devices; its index where a card of
    AMD's has no serial number, but only a place on the bus.
    """
    if gpu.vendor == NVIDIA:
        return gpu.uuid
    serial = gpu.uuid.removeprefix("AMD-").removeprefix("0x")
    return str(own_index(gpu, gpus)) if ":" in serial else f"GPU-{serial}"


def job_name(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """What a variable calls it: its index among those of its vendor, of a MIG instance its uuid, as it has no index."""
    return str(own_index(gpu, gpus)) if gpu.mig_parent is None else gpu.uuid


def placing(chosen: Sequence[Gpu], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that put a job on these GPUs of a machine and no others."""
    names = ",".join(runtime_uuid(gpu, gpus) for gpu in chosen)
    if chosen[0].vendor == NVIDIA:
        return {"CUDA_VISIBLE_DEVICES": names}
    return {"ROCR_VISIBLE_DEVICES": names, "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(chosen))))}


def _visible_gpus(own: list[Gpu], gpus: Sequence[Gpu], variable: str) -> list[Gpu]:
    value = os.environ.get(variable)
    if value is None:
        return own
    names = [name.strip() for name in value.split(",") if name.strip()]
    return [gpu for gpu in own if any(_is_called(gpu, gpus, name) for name in names)]


def _is_called(gpu: Gpu, gpus: Sequence[Gpu], name: str) -> bool:
    """Whether a GPU is named by its index, or by the beginning of its uuid."""
    return name == str(own_index(gpu, gpus)) or (
        len(name) > 4 and runtime_uuid(gpu, gpus).lower().startswith(name.lower())
    )


NOT_FOUND = 127
NOT_ALLOWED = 126
FROM_SIGNAL = 128
_FORWARDED = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
)
# Python ignores these for itself; what it starts shall not.
_RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


class NotStartedError(Exception):
    """The command could not be started: the shell's exit code for that, and a sentence."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


Mask = set[int | signal.Signals]


def hold_signals() -> Mask:
    """Let this process's signals wait for `Child.wait`, and say what was held back before.

    To be called before there are other threads: one that does not hold a signal back takes it from the one that waits.
    """
    return signal.pthread_sigmask(signal.SIG_BLOCK, (*_FORWARDED, signal.SIGCHLD))


class Child:
    """A started command.

    Args:
        mask: the signals that it starts with held back, as `hold_signals` gave them.
        command: the program, looked for in the PATH, and its arguments.
        environment: all of its variables.

    Raises:
        NotStartedError: there is no such program, or it may not be run.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], mask: Mask) -> None:
        try:
            self.pid = os.posix_spawnp(command[0], list(command), environment, setsigmask=mask, setsigdef=_RESTORED)
        except OSError as error:
            code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_ALLOWED
            name = printable(command[0])
            is_script = name.endswith(".py") and Path(command[0]).is_file()
            hint = f"; it is a script: vramtui run python {name}" if is_script else ""
            raise NotStartedError(code, f"{name}: {os_reason(error)}{hint}") from None

    def wait(self, timeout: float | None = None) -> int:
        """Pass signals on until it ends. Its exit code, or 128 and the number of the signal that killed it.

        Raises:
            TimeoutError: it runs on after `timeout` seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        taken = (*_FORWARDED, signal.SIGCHLD)
        while True:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else FROM_SIGNAL - code
            left = None if until is None else max(0.0, until - time.monotonic())
            signal_info = signal.sigwaitinfo(taken) if left is None else signal.sigtimedwait(taken, left)
            if signal_info is None:
                raise TimeoutError
            # What the terminal sends it sends to the child as well: only what was meant for us alone is passed on.
            if signal_info.si_signo != signal.SIGCHLD and signal_info.si_code <= 0:
                os.kill(self.pid, signal_info.si_signo)


def probed_environment(environment: Mapping[str, str], socket: str, run: str) -> dict[str, str]:
    """`environment` in which every Python loads the probe, which tells what listens at `socket`."""
    from vramtui.probe.socket_dir import RUN, SOCKET

    paths = (str(hook_folder()), environment.get("PYTHONPATH", ""))
    return {**environment, "PYTHONPATH": os.pathsep.join(filter(None, paths)), SOCKET: socket, RUN: run}


def hook_folder() -> Path:
    """The folder whose `sitecustomize` loads the probe."""
    return Path(__file__).resolve().parents[2] / "probe" / "hook"


def open_listener(mark: str) -> "ProbeListener | None":
    """What hears the job's probe; None where it cannot be, which is said, and the job runs all the same."""
    from vramtui.sources.probe_listener import ProbeListener

    try:
        return ProbeListener(f"run-{os.getpid()}", run=mark)
    except SourceFailed as error:
        sys.stderr.write(f"vramtui: the job runs without a probe. {error.message} {error.hint}\n")
        return None

"""GPUs for a job: which it may use, which have room, and claims so that two jobs do not take the same one."""

import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from vramtui.cli.common.exit_codes import say
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import asked_size, format_bytes
from vramtui.core.estimate.fits import Fit
from vramtui.core.observation.readings import NVIDIA, Gpu, Sample, Source, usable_gpus
from vramtui.core.observation.snapshot import device_of
from vramtui.core.schema.preset import PresetFile

if TYPE_CHECKING:
    from vramtui.sources.probe_listener import ProbeListener

EVERY = 2.0  # seconds between two samples while it waits
SAY_EVERY = 60.0


def usable(gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs that a job may use: those of the first GPU's vendor, as a build of PyTorch runs only on one
    vendor's, and of these the ones that the environment's variables show.
    """
    own = [gpu for gpu in usable_gpus(gpus) if gpu.vendor == gpus[0].vendor]
    if not own or own[0].vendor == NVIDIA:
        return _visible_gpus(own, gpus, "CUDA_VISIBLE_DEVICES")
    # HIP counts anew what ROCr leaves, and takes CUDA's variable if its own is not set (ROCm: GPU isolation).
    left = _visible_gpus(own, gpus, "ROCR_VISIBLE_DEVICES")
    names = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    return left if names is None else [gpu for at, gpu in enumerate(left) if str(at) in names.split(",")]


def _visible_gpus(own: list[Gpu], gpus: Sequence[Gpu], variable: str) -> list[Gpu]:
    """Those that the variable names, by index or by the beginning of the uuid."""
    value = os.environ.get(variable)
    if value is None:
        return own
    names = {name.strip().lower() for name in value.split(",")}
    prefixes = tuple(name for name in names if len(name) > 4)
    return [
        gpu for gpu in own if str(own_index(gpu, gpus)) in names or runtime_uuid(gpu, gpus).lower().startswith(prefixes)
    ]


def own_index(gpu: Gpu, gpus: Sequence[Gpu]) -> int:
    """A GPU's index among those of its vendor, as the vendor's runtime counts."""
    return gpu.index - next(one.index for one in gpus if one.vendor == gpu.vendor)


def runtime_uuid(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """The name by which the vendor's runtime finds a GPU in any order of devices; its index if it is an AMD GPU without
    a serial number, which has only a place on the bus.
    """
    if gpu.vendor == NVIDIA:
        return gpu.uuid
    serial = gpu.uuid.removeprefix("AMD-").removeprefix("0x")
    return str(own_index(gpu, gpus)) if ":" in serial else f"GPU-{serial}"


def job_name(gpu: Gpu, gpus: Sequence[Gpu]) -> str:
    """A GPU's name in a variable: its index among those of its vendor, or a MIG instance's uuid, as it has no index."""
    return str(own_index(gpu, gpus)) if gpu.mig_parent is None else gpu.uuid


def placing(chosen: Sequence[Gpu], gpus: Sequence[Gpu]) -> dict[str, str]:
    """The variables that put a job on these GPUs of a machine and no others."""
    names = ",".join(runtime_uuid(gpu, gpus) for gpu in chosen)
    if chosen[0].vendor == NVIDIA:
        return {"CUDA_VISIBLE_DEVICES": names}
    return {"ROCR_VISIBLE_DEVICES": names, "HIP_VISIBLE_DEVICES": ",".join(map(str, range(len(chosen))))}


def open_listener(mark: str) -> "ProbeListener | None":
    """The listener for the job's probe; None if there can be none, which is shown, and the job runs all the same."""
    from vramtui.sources.probe_listener import ProbeListener

    try:
        return ProbeListener(f"run-{mark}", run=mark)
    except SourceFailed as error:
        say(f"the job runs without a probe. {error.message} {error.hint}")
        return None


class Need(msgspec.Struct, frozen=True):
    """A job's need on each of so many GPUs: bytes, or else the estimate of its preset for the GPU in question."""

    size: int | None = None
    preset: PresetFile | None = None
    count: int = 1

    def fit(self, gpu: Gpu) -> Fit | None:
        """The verdict on a GPU's free memory, None if unknown; raises UserError if the preset cannot be estimated."""
        if gpu.state != "ok" or gpu.memory.free is None:
            return None
        if self.size is not None:
            return Fit(needs=self.size, has=gpu.memory.free, error=0.0)
        if self.preset is None:
            return None
        from vramtui.estimators.methods import estimates_by

        estimate = estimates_by(None, self.preset.preset.workload, device_of(gpu))[0]
        return Fit(needs=estimate.process, has=gpu.memory.free, error=estimate.error)


def need_of(needs: str | None, preset: PresetFile | None, gpus: int | None) -> Need:
    """The need by `--needs`, `--preset` and `--gpus`; a preset's own ranks if no number is given. Raises UserError if
    there is neither a size nor a preset, or the size is wrong.
    """
    size = None if needs is None else asked_size(needs)
    if size is None and preset is None:
        raise UserError("say what the job needs: --needs 38GiB, or --preset NAME")
    parallel = preset.preset.parallel if preset is not None else None
    return Need(size, preset, gpus or (parallel.ranks if parallel is not None else 1))


class Claims:
    """Locks of the GPUs of this host, one file each; they end with the process that holds them. Every user of the host
    has to see the same `folder`.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir()) / "vramtui-claims"
        self._handles: list[int] = []

    def take(self, uuid: str) -> bool:
        """Claim a GPU; False if another process has it; raises UserError if the folder cannot be used."""
        path = self.folder / "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in uuid)
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(parents=True)
                self.folder.chmod(0o1777)  # as /tmp: everyone makes files there and removes only their own
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            except PermissionError:  # another user's file can be opened to read, which is enough for a lock
                handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise UserError(f"{self.folder} cannot be used to claim a GPU: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        self._handles.append(handle)
        return True

    def release(self) -> None:
        for handle in self._handles:
            os.close(handle)
        self._handles.clear()


def candidates(sample: Sample, need: Need) -> list[tuple[Gpu, Fit]]:
    """The GPUs with room for the job, the one with most first; raises UserError if the preset cannot be estimated."""
    gpus = usable(sample.gpus)
    if need.count > 1:  # CUDA takes only one MIG instance (NVIDIA's MIG User Guide, "Device Enumeration")
        gpus = [gpu for gpu in gpus if gpu.mig_parent is None]
    fits = ((gpu, need.fit(gpu)) for gpu in gpus)
    return sorted(
        ((gpu, fit) for gpu, fit in fits if fit is not None and fit.is_enough), key=lambda pair: -pair[1].spare
    )


def claimed(sample: Sample, need: Need, claims: Claims) -> list[tuple[Gpu, Fit]]:
    """Claim as many GPUs with room as are needed; an empty list if there are too few. Raises UserError if the preset
    cannot be estimated, or claims cannot be made.
    """
    taken: list[tuple[Gpu, Fit]] = []
    for gpu, fit in candidates(sample, need):
        if claims.take(gpu.uuid):
            taken.append((gpu, fit))
        if len(taken) == need.count:
            return taken
    claims.release()
    return []


def wait_for_room(
    source: Source,
    need: Need,
    claims: Claims,
    *,
    say: Callable[[str], None],
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> tuple[Sample, list[tuple[Gpu, Fit]]]:
    """Look again and again until there is room, and show what is waited for at once and every minute. Return the sample
    with room, and the GPUs. Raises SourceFailed if the GPUs cannot be read at the first look, and UserError if it will
    never fit, cannot be estimated, or claims cannot be made.
    """
    plural = "s" if need.count > 1 else ""
    first, said_at = True, float("-inf")
    while True:
        try:
            sample = source.read()
        except SourceFailed:
            if first:
                raise
        else:
            fits = [(gpu, need.fit(gpu)) for gpu in usable(sample.gpus)]
            large = sum(fit is None or fit.needs <= (gpu.memory.total or fit.needs) for gpu, fit in fits)
            if first and large < need.count:
                least = min((fit.needs for _, fit in fits if fit is not None), default=None)
                raise UserError(
                    f"the job needs {format_bytes(least)} on each of {need.count} GPU{plural}, and"
                    f" {large} of the {len(fits)} here have that much even when empty"
                )
            placement = claimed(sample, need, claims)
            if placement:
                return sample, placement
            if clock() - said_at >= SAY_EVERY:
                said_at = clock()
                words = [f"waiting for {need.count} GPU{plural}"]
                for gpu, fit in fits:
                    if fit is None:
                        state = printable(gpu.reason or "does not report its free memory")
                    else:
                        state = "has room and is claimed by another `vramtui run`" if fit.is_enough else fit.sentence
                    words.append(f"GPU {gpu.index} {state}")
                say("; ".join(words))
        first = False
        sleep(EVERY)

"""Which GPUs have room for a job: found, waited for, and claimed so that two that wait do not take the same one."""

import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from vramtui.cli.common.exit_codes import for_terminal
from vramtui.cli.run.child import usable
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.base.units import asked_size, format_bytes
from vramtui.core.estimate.fits import Fit
from vramtui.core.observation.readings import Gpu, Sample
from vramtui.core.observation.snapshot import device_of
from vramtui.core.observation.source import Source
from vramtui.core.schema.preset import PresetFile

EVERY = 2.0  # seconds between two samples while it waits
SAY_EVERY = 60.0


class Need(msgspec.Struct, frozen=True):
    """What a job needs on each of its GPUs.

    Attributes:
        size: bytes, where they were given; else what `preset` is estimated to need on the GPU in question.
        preset: the job's preset, or None.
        count: how many GPUs.
    """

    size: int | None = None
    preset: PresetFile | None = None
    count: int = 1

    def fit(self, gpu: Gpu) -> Fit | None:
        """The verdict on what is free of a GPU; None where that is not known.

        Raises:
            UserError: the preset cannot be estimated.
        """
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
    """What `--needs`, `--preset` and `--gpus` ask for; a preset's own ranks where no number is given.

    Raises:
        UserError: there is neither a size nor a preset, or the size is none.
    """
    size = None if needs is None else asked_size(needs)
    if size is None and preset is None:
        raise UserError("say what the job needs: --needs 38GiB, or --preset NAME")
    parallel = preset.preset.parallel if preset is not None else None
    return Need(size, preset, gpus or (parallel.ranks if parallel is not None else 1))


class Claims:
    """Locks of the GPUs of this host, one file each, which end with the process that holds them.

    Args:
        folder: where the files are; every user of the host has to see the same.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or Path(tempfile.gettempdir()) / "vramtui-claims"
        self._handles: list[int] = []

    def take(self, uuid: str) -> bool:
        """Claim a GPU; False where another process has.

        Raises:
            UserError: the folder cannot be used.
        """
        name = "".join(letter if letter.isalnum() or letter == "-" else "_" for letter in uuid)
        try:
            with suppress(FileExistsError):
                self.folder.mkdir(parents=True)
                self.folder.chmod(0o1777)  # as /tmp: everyone makes files there, nobody removes another's
            handle = _opened(self.folder / name)
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


def _opened(path: Path) -> int:
    """A file to lock. One of another user's can be opened to read, which is enough for a lock."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    except PermissionError:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def candidates(sample: Sample, need: Need) -> list[tuple[Gpu, Fit]]:
    """The GPUs with room, the one with most first; those that CUDA_VISIBLE_DEVICES hides, or ROCm's variables for
    AMD's, are left out.

    Raises:
        UserError: the preset cannot be estimated.
    """
    gpus = usable(sample.gpus)
    if need.count > 1:  # of MIG instances CUDA takes one (NVIDIA's MIG User Guide, "Device Enumeration")
        gpus = [gpu for gpu in gpus if gpu.mig_parent is None]
    fits = ((gpu, need.fit(gpu)) for gpu in gpus)
    return sorted(
        ((gpu, fit) for gpu, fit in fits if fit is not None and fit.is_enough), key=lambda pair: -pair[1].spare
    )


def claimed(sample: Sample, need: Need, claims: Claims) -> list[tuple[Gpu, Fit]]:
    """Claim as many GPUs with room as are needed; an empty list where there are too few.

    Raises:
        UserError: the preset cannot be estimated, or claims cannot be made.
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
    """Look again and again until there is room; what is waited for is said at once, and every minute. The sample in
    which there was, and the GPUs.

    Raises:
        SourceFailed: the GPUs cannot be read at the first look.
        UserError: it will never fit, cannot be estimated, or claims cannot be made.
    """
    first, said_at = True, float("-inf")
    while True:
        try:
            sample = source.read()
        except SourceFailed:
            if first:
                raise
        else:
            if first:
                _check_possible(sample, need)
            placement = claimed(sample, need, claims)
            if placement:
                return sample, placement
            if clock() - said_at >= SAY_EVERY:
                said_at = clock()
                say("; ".join(_waiting(sample, need)))
        first = False
        sleep(EVERY)


def _check_possible(sample: Sample, need: Need) -> None:
    gpus = usable(sample.gpus)
    large_enough = [
        gpu for gpu in gpus if (fit := need.fit(gpu)) is None or fit.needs <= (gpu.memory.total or fit.needs)
    ]
    if len(large_enough) < need.count:
        fits = [fit for gpu in gpus if (fit := need.fit(gpu)) is not None]
        needs = format_bytes(min((fit.needs for fit in fits), default=None))
        raise UserError(
            f"the job needs {needs} on each of {need.count} GPU{'s' if need.count > 1 else ''}, and"
            f" {len(large_enough)} of the {len(gpus)} here have that much even when empty"
        )


def _waiting(sample: Sample, need: Need) -> Iterator[str]:
    """What is waited for, GPU by GPU."""
    yield f"waiting for {need.count} GPU{'s' if need.count > 1 else ''}"
    for gpu in usable(sample.gpus):
        fit = need.fit(gpu)
        if fit is None:
            yield f"GPU {gpu.index} {printable(gpu.reason or 'does not report its free memory')}"
        elif fit.is_enough:
            yield f"GPU {gpu.index} has room and is claimed by another `vramtui run`"
        else:
            yield f"GPU {gpu.index} {fit.sentence}"


def say_waiting(sentence: str) -> None:
    """Print `sentence` on standard error."""
    sys.stderr.write(for_terminal(f"vramtui: {printable(sentence)}") + "\n")
    sys.stderr.flush()

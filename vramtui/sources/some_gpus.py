"""Some of a host's GPUs, as a source: those that somebody wants to see."""

import os
from collections.abc import Sequence

import msgspec

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.readings import Gpu, Sample
from vramtui.core.observation.source import FastSource, Source, TrafficSource

VISIBLE, VARIABLE = "visible", "CUDA_VISIBLE_DEVICES"
LEAST_UUID = 5  # letters of one that are more than its kind: GPU-3


def gpu_names(asked: str) -> tuple[str, ...]:
    """What `--only` names: indices and beginnings of uuids; `visible` are those of CUDA_VISIBLE_DEVICES.

    Raises:
        UserError: it names nothing, or what cannot be a GPU.
    """
    text = asked
    if asked == VISIBLE:
        if VARIABLE not in os.environ:
            raise UserError(f"--only {VISIBLE}: {VARIABLE} is not set")
        text = os.environ[VARIABLE]
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = next((name for name in names if not name.isdecimal() and len(name) < LEAST_UUID), None)
    if wrong is not None or not names:
        what = printable(repr(wrong if wrong is not None else text))
        raise UserError(f"{what} is no GPU: give indices or uuids, as 0,2 or GPU-3f2a, or {VISIBLE}")
    return names


class SomeGpus:
    """Another source's samples, with these GPUs and their MIG instances alone.

    Args:
        source: what is read.
        names: indices and beginnings of uuids.
    """

    def __init__(self, source: Source, names: Sequence[str]) -> None:
        self.name = source.name
        self._source = source
        self._names = names
        self.host = getattr(source, "host", "")
        if isinstance(source, FastSource):
            self.look = source.look
        if isinstance(source, TrafficSource):
            self.measure_traffic = source.measure_traffic

    def read(self) -> Sample:
        """What there is to see of them.

        Raises:
            SourceFailed: the source says nothing, or has no such GPU.
        """
        sample = self._source.read()
        gpus = tuple(gpu for gpu in sample.gpus if any(_is_called(gpu, name) for name in self._names))
        missing = next((name for name in self._names if not any(_is_called(gpu, name) for gpu in gpus)), None)
        if missing is not None and sample.gpus:
            known = ", ".join(sorted({str(gpu.index) for gpu in sample.gpus}, key=int))
            raise SourceFailed(f"there is no GPU {printable(missing)} here.", f"There are {known}.")
        return msgspec.structs.replace(sample, gpus=gpus)

    def close(self) -> None:
        self._source.close()


def _is_called(gpu: Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    return any(uuid.lower().startswith(name.lower()) for uuid in (gpu.uuid, gpu.mig_parent or ""))

"""Which source sees this machine's GPUs, and which of its GPUs are shown."""

import contextlib
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from shutil import which
from typing import NamedTuple

from msgspec.structs import replace

from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.text import printable
from vramtui.core.observation import readings
from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck

TIMEOUT = 2.0  # seconds for one driver: with a quarter of it for the other a read is not overdue yet
AGAIN = 5.0  # seconds between two attempts to open a source
VISIBLE, VARIABLE = "visible", "CUDA_VISIBLE_DEVICES"
LEAST_UUID = 5  # letters of a uuid that say more than its kind: GPU-3


class MergedSource:
    """The first source's sample with the other's cards behind its own, under indices that go on from there. Each has a
    deadline of its own: if one fails or hangs, its cards keep their rows without a figure, a problem says why, and
    the other's are as live as ever. The driver's versions are the first's.

    Args:
        first: NVIDIA's.
        other: of other vendors' cards.
        timeout: seconds that one of them may take.
    """

    def __init__(self, first: readings.Source, other: readings.Source, timeout: float = TIMEOUT) -> None:
        self.name = f"{first.name}+{other.name}"
        self._sources = (first, other)
        self._worker: DeadlineWorker[readings.Sample | SourceFailed] = DeadlineWorker(timeout)
        self._latest: dict[int, readings.Sample] = {}

    def read(self) -> readings.Sample:
        """Return both sources' cards in one sample; raises SourceFailed, with the reason of the first, if both fail."""
        answers = self._worker.run({at: partial(_read, source) for at, source in enumerate(self._sources)})
        gpus: list[readings.Gpu] = []
        problems: list[readings.Problem] = []
        failures: list[SourceFailed] = []
        for at, answer in answers.items():
            beyond = max((gpu.index for gpu in gpus), default=-1) + 1
            if isinstance(answer, readings.Sample):
                self._latest[at] = answer
                rows = answer.gpus
                problems += answer.problems
            else:
                name = self._sources[at].name
                if isinstance(answer, Stuck):
                    age = max(0.0, time.monotonic() - answer.since)
                    failure, absence = SourceFailed(f"{name}: no answer for {age:.0f} s."), readings.Absence.NO_ANSWER
                elif not answer.message:
                    failure, absence = (
                        SourceFailed(f"{name} shows no card any more.", answer.hint),
                        readings.Absence.LOST,
                    )
                else:
                    failure, absence = answer, readings.Absence.FAILED
                failures.append(failure)
                last = self._latest[at].gpus if at in self._latest else ()
                rows = tuple(  # while its driver does not answer
                    readings.Gpu(
                        index=gpu.index,
                        uuid=gpu.uuid,
                        name=gpu.name,
                        vendor=gpu.vendor,
                        mig_parent=gpu.mig_parent,
                        mig_profile=gpu.mig_profile,
                        state="lost" if absence is readings.Absence.LOST else "failed",
                        reason=failure.message.rstrip("."),
                        absent=dict.fromkeys(("memory", "processes", *readings.METRICS), absence),
                    )
                    for gpu in last
                )
                problems.append(readings.Problem(where=name, message=failure.message, hint=failure.hint))
            gpus += [replace(gpu, index=beyond + gpu.index) for gpu in rows]
        answered = next((answer for answer in answers.values() if isinstance(answer, readings.Sample)), None)
        if answered is None:
            raise failures[0]
        first = self._latest.get(0, answered).host
        host = replace(answered.host, driver_version=first.driver_version, cuda_version=first.cuda_version)
        return replace(answered, source=self.name, host=host, gpus=tuple(gpus), problems=tuple(problems))

    def shorten_first_read(self) -> None:
        for source in self._sources:
            if isinstance(source, readings.ScreenSource):
                source.shorten_first_read()

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Return bytes by pid on one card, if its driver can be asked often; empty for any other."""
        first = self._sources[0]
        return first.look(gpu_uuid) if isinstance(first, readings.FastSource) else {}

    def measure_traffic(self, gpu_uuid: str) -> readings.PcieTraffic | readings.Absence:
        first = self._sources[0]
        return (
            first.measure_traffic(gpu_uuid) if isinstance(first, readings.TrafficSource) else readings.Absence.NOT_ASKED
        )

    def close(self) -> None:
        self._worker.close()
        for source in self._sources:
            source.close()


def _read(source: readings.Source) -> readings.Sample | SourceFailed:
    """Return the source's sample, or why there is none: no error of one source may end the other."""
    try:
        return source.read()
    except SourceFailed as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - as the poller has it for a single source
        return SourceFailed(f"the {source.name} source broke: {type(error).__name__}: {error}")


class SourceCandidate(NamedTuple):
    """One way to this machine's GPUs.

    `open_here(because)` of its module returns the source, asked once already if that is quick; `because` is why those
    before it are not used, and is reported in every sample. It raises SourceFailed, with what to do about it, if it
    cannot see this machine's GPUs.

    Attributes:
        title: how a sentence calls it.
        module: its module in `vramtui.sources`, loaded when it is asked.
        program: the program that it runs. If it is installed and fails, its reason is better than a missing library.
        stands_beside: it shows cards that no other does, which follow those of the source that answered before it: its
            module has a function `open_beside` for that.
    """

    title: str
    module: str
    program: str = ""
    stands_beside: bool = False


# In the order in which they are asked.
CANDIDATES = (
    SourceCandidate("NVML", "nvml"),
    SourceCandidate("nvidia-smi", "nvidia_smi", program="nvidia-smi"),
    SourceCandidate("amdgpu", "amdgpu", stands_beside=True),
    SourceCandidate("a simulated GPU", "emulated"),
)


def pick_source(ways: tuple[SourceCandidate, ...] = CANDIDATES) -> readings.Source:
    """Return the first source that can be opened, merged with those of other vendors' cards; one that is not the first
    says in every sample why. Raises SourceFailed if none answers; says why each does not, and what to do.
    """
    failures: list[SourceFailed] = []
    for at, way in enumerate(ways):
        because = None
        if failures:
            failed = " ".join(error.message for error in failures)
            message = f"{failed} {way.title} is used instead."
            because = readings.Problem(where=ways[0].title, message=message, hint=failures[0].hint)
        try:
            source: readings.Source = import_module(f"vramtui.sources.{way.module}").open_here(because)
        except SourceFailed as error:
            failures.append(error)
            continue
        for other in ways[at + 1 :]:
            if other.stands_beside:
                with contextlib.suppress(SourceFailed):
                    source = MergedSource(source, import_module(f"vramtui.sources.{other.module}").open_beside())
        return source
    there = [failure for way, failure in zip(ways, failures, strict=True) if way.program and which(way.program)]
    hint = next((failure.hint for failure in (*reversed(there), *failures) if failure.hint), "")
    raise SourceFailed(
        " ".join(dict.fromkeys(failure.message for failure in failures if failure.message)), hint
    ) from failures[-1]


class UnreadSource:
    """A machine whose GPUs cannot be read yet: every few seconds a read tries to open its source."""

    name = "none"

    def __init__(self, failure: SourceFailed) -> None:
        self._failure, self._next = failure, time.monotonic() + AGAIN
        self._source: readings.Source | None = None

    def read(self) -> readings.Sample:
        """Return a sample of the source that could be opened; raises SourceFailed if there is none yet, or it fails."""
        if self._source is None and time.monotonic() >= self._next:
            self._next = time.monotonic() + AGAIN
            try:
                self._source = pick_source()
            except SourceFailed as failure:
                self._failure = failure
        if self._source is None:
            raise self._failure
        return self._source.read()

    def close(self) -> None:
        if self._source is not None:
            self._source.close()


def gpu_names(asked: str) -> tuple[str, ...]:
    """Read `--only`: indices and beginnings of uuids; `visible` are those of CUDA_VISIBLE_DEVICES. Raises UserError if
    it names nothing, or something else than a GPU.
    """
    text = asked
    if asked == VISIBLE:
        if VARIABLE not in os.environ:
            raise UserError(f"--only {VISIBLE}: {VARIABLE} is not set")
        text = os.environ[VARIABLE]
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    wrong = next((name for name in names if not name.isdecimal() and len(name) < LEAST_UUID), None)
    if wrong is not None or not names:
        shown = printable(repr(text if wrong is None else wrong))
        raise UserError(f"--only: {shown} is not a GPU; give indices or uuids, as 0,2 or GPU-3f2a, or {VISIBLE}")
    return names


class SomeGpus:
    """Another source's samples with only some GPUs and their MIG instances, by indices and beginnings of uuids."""

    def __init__(self, source: readings.Source, names: Sequence[str]) -> None:
        self.name = source.name
        self._source = source
        self._names = names
        self.host = getattr(source, "host", "")
        if isinstance(source, readings.FastSource):
            self.look = source.look
        if isinstance(source, readings.TrafficSource):
            self.measure_traffic = source.measure_traffic

    def read(self) -> readings.Sample:
        """Return a sample of these GPUs; raises SourceFailed if the source fails, or has no such GPU."""
        sample = self._source.read()
        gpus = tuple(gpu for gpu in sample.gpus if any(_is_called(gpu, name) for name in self._names))
        missing = next((name for name in self._names if not any(_is_called(gpu, name) for gpu in gpus)), None)
        if missing is not None and sample.gpus:
            known = ", ".join(sorted({str(gpu.index) for gpu in sample.gpus}, key=int))
            raise SourceFailed(f"there is no GPU {printable(missing)} here.", f"There are {known}.")
        return replace(sample, gpus=gpus)

    def close(self) -> None:
        self._source.close()


def _is_called(gpu: readings.Gpu, name: str) -> bool:
    if name.isdecimal():
        return gpu.index == int(name)
    return any(uuid.lower().startswith(name.lower()) for uuid in (gpu.uuid, gpu.mig_parent or ""))

"""Which source sees this machine's GPUs."""

import contextlib
import time
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from shutil import which
from typing import NamedTuple, Protocol

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Host, Problem, Sample
from vramtui.core.observation.source import FastSource, PcieTraffic, ScreenSource, Source, TrafficSource
from vramtui.sources.host.deadline_worker import DeadlineWorker, Stuck

TIMEOUT = 2.0  # seconds for one driver: with a quarter of it for the other a read is no overdue one yet


class MergedSource:
    """The first source's sample with the other's cards behind its own, under indices that go on from there. Each has a
    deadline of its own: where one fails or hangs, its cards keep their rows without a figure, a problem says why, and
    the other's are as live as ever. Versions of the driver are the first's.

    Args:
        first: NVIDIA's.
        other: of the cards beside them.
        timeout: seconds that one of them may take.
    """

    def __init__(self, first: Source, other: Source, timeout: float = TIMEOUT) -> None:
        self.name = f"{first.name}+{other.name}"
        self._sources = (first, other)
        self._worker: DeadlineWorker[Sample | SourceFailed] = DeadlineWorker(timeout)
        self._latest: dict[int, Sample] = {}

    def read(self) -> Sample:
        """What both show.

        Raises:
            SourceFailed: neither can say anything; the first's reason.
        """
        answers = self._worker.run({at: partial(_read, source) for at, source in enumerate(self._sources)})
        gpus: list[Gpu] = []
        problems: list[Problem] = []
        failures: list[SourceFailed] = []
        for at, answer in answers.items():
            beyond = max((gpu.index for gpu in gpus), default=-1) + 1
            if isinstance(answer, Sample):
                self._latest[at] = answer
                rows = answer.gpus
                problems += answer.problems
            else:
                failure, absence = self._failure(at, answer)
                failures.append(failure)
                rows = tuple(_silent(gpu, failure.message, absence) for gpu in self._latest_gpus(at))
                problems.append(Problem(where=self._sources[at].name, message=failure.message, hint=failure.hint))
            gpus += [msgspec.structs.replace(gpu, index=beyond + gpu.index) for gpu in rows]
        answered = [answer for answer in answers.values() if isinstance(answer, Sample)]
        if not answered:
            raise failures[0]
        return msgspec.structs.replace(
            answered[0], source=self.name, host=self._host(answered[0]), gpus=tuple(gpus), problems=tuple(problems)
        )

    def shorten_first_read(self) -> None:
        for source in self._sources:
            if isinstance(source, ScreenSource):
                source.shorten_first_read()

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Bytes by pid on one card, where its driver can be asked often; nothing of any other."""
        first = self._sources[0]
        return first.look(gpu_uuid) if isinstance(first, FastSource) else {}

    def measure_traffic(self, gpu_uuid: str) -> PcieTraffic | Absence:
        """What goes over PCIe to one card, where its driver measures that."""
        first = self._sources[0]
        return first.measure_traffic(gpu_uuid) if isinstance(first, TrafficSource) else Absence.NOT_ASKED

    def close(self) -> None:
        self._worker.close()
        for source in self._sources:
            source.close()

    def _latest_gpus(self, at: int) -> tuple[Gpu, ...]:
        return self._latest[at].gpus if at in self._latest else ()

    def _host(self, answered: Sample) -> Host:
        first = self._latest.get(0, answered).host
        return msgspec.structs.replace(
            answered.host, driver_version=first.driver_version, cuda_version=first.cuda_version
        )

    def _failure(self, at: int, answer: SourceFailed | Stuck) -> tuple[SourceFailed, Absence]:
        name = self._sources[at].name
        if isinstance(answer, Stuck):
            age = max(0.0, time.monotonic() - answer.since)
            return SourceFailed(f"{name}: no answer for {age:.0f} s."), Absence.NO_ANSWER
        if not answer.message:
            return SourceFailed(f"{name} shows no card any more.", answer.hint), Absence.LOST
        return answer, Absence.FAILED


def _read(source: Source) -> Sample | SourceFailed:
    """What the source says, or why it says nothing: whatever goes wrong in one is nothing to the other."""
    try:
        return source.read()
    except SourceFailed as failure:
        return failure
    except Exception as error:  # noqa: BLE001 - as the poller has it for a source alone
        return SourceFailed(f"the {source.name} source broke: {type(error).__name__}: {error}")


def _silent(gpu: Gpu, reason: str, absence: Absence) -> Gpu:
    """The row of a card of which its driver tells nothing now."""
    return Gpu(
        index=gpu.index,
        uuid=gpu.uuid,
        name=gpu.name,
        vendor=gpu.vendor,
        mig_parent=gpu.mig_parent,
        mig_profile=gpu.mig_profile,
        state="lost" if absence is Absence.LOST else "failed",
        reason=reason.rstrip("."),
        absent=dict.fromkeys(("memory", "processes", *METRICS), absence),
    )


class Opening(Protocol):
    """The function `open_here` of a source's module."""

    def __call__(self, because: Problem | None = None) -> Source:
        """The source, asked once already where that is quick; `because` says what was asked before it and why that is
        not used, and is told in every sample.

        Raises:
            SourceFailed: it cannot see this machine's GPUs; says why, and what to do about it.
        """
        ...


class SourceCandidate(NamedTuple):
    """One way to this machine's GPUs.

    Attributes:
        title: how a sentence calls it.
        module: its module in `vramtui.sources`, loaded when it is asked.
        program: what it runs. One that is there and fails knows more than that another's library is missing.
        stands_beside: it shows cards that no other does, which stand beside those of whichever answered before it: its
            module has a function `open_beside` for that.
    """

    title: str
    module: str
    program: str = ""
    stands_beside: bool = False


# In the order in which they are asked.
CANDIDATES = (
    SourceCandidate("NVML", "nvml.load"),
    SourceCandidate("nvidia-smi", "nvidia_smi.source", program="nvidia-smi"),
    SourceCandidate("amdgpu", "amdgpu", stands_beside=True),
    SourceCandidate("an emulated card", "emulated"),
)


def pick_source(ways: tuple[SourceCandidate, ...] = CANDIDATES) -> Source:
    """The first source that can be opened, with those of other vendors' cards beside it; one that is not the first
    says in every sample why.

    Raises:
        SourceFailed: none answers; says why each does not, and what to do.
    """
    failures: list[SourceFailed] = []
    for at, way in enumerate(ways):
        opening: Opening = import_module(f"vramtui.sources.{way.module}").open_here
        try:
            source = opening(_because(ways[:at], failures, way))
        except SourceFailed as error:
            failures.append(error)
            continue
        return _with_others(source, ways[at + 1 :])
    there = [failure for way, failure in zip(ways, failures, strict=True) if way.program and which(way.program)]
    hint = next((failure.hint for failure in (*reversed(there), *failures) if failure.hint), "")
    raise SourceFailed(" ".join(failure.message for failure in failures if failure.message), hint) from failures[-1]


def _with_others(source: Source, later: tuple[SourceCandidate, ...]) -> Source:
    """The source, merged with every later one whose cards it does not show."""
    for way in later:
        if way.stands_beside:
            with contextlib.suppress(SourceFailed):
                source = MergedSource(source, import_module(f"vramtui.sources.{way.module}").open_beside())
    return source


def _because(asked: tuple[SourceCandidate, ...], failures: list[SourceFailed], way: SourceCandidate) -> Problem | None:
    """Why `way` is used and none of those that were asked before it."""
    if not failures:
        return None
    failed = " ".join(error.message for error in failures)
    return Problem(where=asked[0].title, message=f"{failed} {way.title} is used instead.", hint=failures[0].hint)

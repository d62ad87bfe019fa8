"""Cards of two vendors in one machine, each shown by its own driver, as one source."""

import time
from collections.abc import Mapping
from functools import partial

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import METRICS, Absence, Gpu, Host, Problem, Sample
from vramtui.core.observation.source import FastSource, Source
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

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Bytes by pid on one card, where its driver can be asked often; nothing of any other."""
        first = self._sources[0]
        return first.look(gpu_uuid) if isinstance(first, FastSource) else {}

    def close(self) -> None:
        """Let go of both."""
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

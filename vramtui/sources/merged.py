"""Cards of two vendors in one machine, each shown by its own driver, as one source."""

from collections.abc import Mapping

import msgspec

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.readings import Problem, Sample
from vramtui.core.observation.source import FastSource, Source


class MergedSource:
    """The first source's sample with the other's cards behind its own, under indices that go on from there. Where one
    of them fails, the other is shown with a problem that says so; the host is as the first tells it.

    Args:
        first: NVIDIA's.
        other: of the cards beside them.
    """

    def __init__(self, first: Source, other: Source) -> None:
        self.name = f"{first.name}+{other.name}"
        self._sources = (first, other)

    def read(self) -> Sample:
        """What both show.

        Raises:
            SourceFailed: neither can say anything; the first's reason.
        """
        samples: list[Sample] = []
        problems: list[Problem] = []
        failures: list[SourceFailed] = []
        for source in self._sources:
            try:
                samples.append(source.read())
            except SourceFailed as failure:  # noqa: PERF203 - one of them may fail
                failures.append(failure)
                message = failure.message or f"{source.name} shows no card any more."
                problems.append(Problem(where=source.name, message=message, hint=failure.hint))
        if not samples:
            raise failures[0]
        gpus = list(samples[0].gpus)
        for sample in samples[1:]:
            beyond = max((gpu.index for gpu in gpus), default=-1) + 1
            gpus += [msgspec.structs.replace(gpu, index=beyond + gpu.index) for gpu in sample.gpus]
        told = [problem for sample in samples for problem in sample.problems]
        return msgspec.structs.replace(samples[0], source=self.name, gpus=tuple(gpus), problems=(*told, *problems))

    def look(self, gpu_uuid: str) -> Mapping[int, int]:
        """Bytes by pid on one card, where its driver can be asked often; nothing of any other."""
        first = self._sources[0]
        return first.look(gpu_uuid) if isinstance(first, FastSource) else {}

    def close(self) -> None:
        """Let go of both."""
        for source in self._sources:
            source.close()

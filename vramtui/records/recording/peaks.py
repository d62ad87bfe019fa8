"""Lifetime peaks that no sample of a recording shows: seen before it began, or between two of its samples.

`{"peaks": {"at": …, "processes": [{"host", "gpu_uuid", "pid", "started_at", "peak": {"bytes", "at", "how", "interval"}}]}}`:
each peak as `vramtui.core.observation.history.Peak` has it. `at` is the time of the sample at which it was noted.
"""  # noqa: E501 - an example is easier to read on one line

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

import msgspec
from msgspec import Meta

from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.track import Peak

FORGOTTEN = 4096  # processes that are gone, before they are forgotten


class ProcessPeak(msgspec.Struct, frozen=True, kw_only=True):
    """A process and its peak."""

    host: str
    gpu_uuid: str
    pid: int
    started_at: float | None
    peak: Peak


class PeaksLine(msgspec.Struct, frozen=True, kw_only=True):
    """See the module's text."""

    at: Annotated[float, Meta(ge=0, lt=1e12)]
    processes: tuple[ProcessPeak, ...]


class WrittenPeaks:
    """Makes the lines about peaks, sample after sample."""

    def __init__(self) -> None:
        self._known: dict[ProcessKey, int] = {}

    def lines(self, sample: Sample, peaks: Mapping[ProcessKey, Peak]) -> Iterator[bytes]:
        """The line for `sample`, at which processes have these peaks; none where its samples tell them all."""
        changed = []
        for key, peak in peaks.items():
            if peak.bytes <= self._known.get(key, -1) or peak.at > sample.taken_at:
                continue
            self._known[key] = peak.bytes
            if peak.at != sample.taken_at:
                changed.append(
                    ProcessPeak(host=key.host, gpu_uuid=key.gpu_uuid, pid=key.pid, started_at=key.started_at, peak=peak)
                )
        if len(self._known) > len(peaks) + FORGOTTEN:
            self._known = {key: size for key, size in self._known.items() if key in peaks}
        if changed:
            yield msgspec.json.encode({"peaks": PeaksLine(at=sample.taken_at, processes=tuple(changed))})


class ReadPeaks:
    """The peaks of a recording by the sample at which they were noted.

    Args:
        most: that may wait for their sample; the earliest go. None: all of them.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._peaks: dict[float, list[tuple[ProcessKey, Peak]]] = {}

    def take(self, line: PeaksLine) -> None:
        self._peaks.setdefault(line.at, []).extend(
            (ProcessKey(one.host, one.gpu_uuid, one.pid, one.started_at), one.peak) for one in line.processes
        )
        while self._most is not None and sum(map(len, list(self._peaks.values()))) > self._most:
            self._peaks.pop(min(self._peaks))

    def at(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """What was noted at the sample that was taken at exactly `when`."""
        return self._peaks.get(when, ())

    def pop_until(self, until: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """What was noted at samples up to that time, which is then forgotten."""
        due = [when for when in list(self._peaks) if when <= until]
        return [entry for when in due for entry in self._peaks.pop(when, ())]

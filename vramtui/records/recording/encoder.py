"""The lines of a recording, made of one sample after another; where they go is for others to say.

The first line is the header, `{"vramtui_recording": 1, "started_at": …, "interval": …, "versions": {…}}`; every other
line is one Sample in its JSON form (`vramtui.core.observation.readings`) or what changed since the one before
(`vramtui.records.recording.deltas`); a whole sample comes at least once a minute. After a sample come lines about what
the jobs' own probes told (`vramtui.records.recording.jobs`), what presets predicted for its processes
(`vramtui.records.recording.predictions`) and peaks that no sample shows (`vramtui.records.recording.peaks`), where
there is any of it.

The 1 of the header, and `schema` in a whole sample, is the format's only number. It goes up where an older reader would
be wrong about what it reads; new fields and new kinds of lines leave it as it is, and readers pass over them.
"""

import msgspec

from vramtui.core.observation.readings import Sample, encode_sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.export.sanitize import clean
from vramtui.records.recording.deltas import DeltaLine, difference
from vramtui.records.recording.jobs import WrittenJobs
from vramtui.records.recording.peaks import WrittenPeaks
from vramtui.records.recording.predictions import WrittenPredictions
from vramtui.records.recording.recording import RecordingHeader

WHOLE_EVERY = 60.0  # seconds between samples that stand by themselves


class RecordingEncoder:
    """Makes the lines, each with its newline; what one sample brings belongs together."""

    def __init__(self) -> None:
        self._last: Sample | None = None
        self._next_whole = float("-inf")
        self._jobs = WrittenJobs()
        self._predictions = WrittenPredictions()
        self._peaks = WrittenPeaks()

    @staticmethod
    def header(header: RecordingHeader) -> bytes:
        """The first line."""
        return msgspec.json.encode(header) + b"\n"

    def lines(self, tick: RecordedTick) -> bytes:
        """The next sample: what changed since the last one where that will do."""
        sample = tick.sample
        predicted = self._predictions.lines(sample, tick.predictions)
        told = self._jobs.lines(sample.taken_at, tick.jobs)
        lines = (self._sample_line(sample), *predicted, *self._peaks.lines(sample, tick.peaks), *told)
        return b"".join(line + b"\n" for line in lines)

    def _sample_line(self, sample: Sample) -> bytes:
        last, self._last = self._last, sample
        delta = None
        if last is not None and last.taken_at <= sample.taken_at < self._next_whole:
            delta = difference(last, sample)
        if delta is None:
            self._next_whole = sample.taken_at + WHOLE_EVERY
        try:
            return encode_sample(sample) if delta is None else msgspec.json.encode(DeltaLine(delta))
        except UnicodeEncodeError:
            # A name that is no Unicode at all cannot stand in JSON.
            return msgspec.json.encode(clean(msgspec.to_builtins(sample if delta is None else DeltaLine(delta))))

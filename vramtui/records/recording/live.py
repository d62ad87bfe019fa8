"""A recording that comes line by line while it is made."""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.text import printable
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.core.observation.readings import ProcessKey, Sample
from vramtui.core.observation.track import Peak
from vramtui.records.recording.decoder import RecordingDecoder


class LiveRecording:
    """Takes lines on one thread; what they tell beside the samples may be asked for on another. Of the past it keeps
    nothing, so that it may go on for ever.
    """

    def __init__(self) -> None:
        self._decoder = RecordingDecoder()

    @property
    def interval(self) -> float | None:
        """Seconds between samples, as the header has it."""
        return None if self._decoder.header is None else self._decoder.header.interval

    @property
    def versions(self) -> dict[str, str]:
        """What made it."""
        return {} if self._decoder.header is None else self._decoder.header.versions

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells; None where it tells something else.

        Raises:
            UserError: it is no line of a recording, or of a newer version.
        """
        try:
            return self._decoder.take(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UserError(printable(str(error))) from None

    def jobs(self) -> tuple[ObservedJob, ...]:
        """What each job has told by now."""
        return self._decoder.jobs.at(float("inf"))

    def peaks(self, when: float) -> Sequence[tuple[ProcessKey, Peak]]:
        """The peaks that were noted up to the sample of `when` and that no sample shows; each is given once."""
        return self._decoder.peaks.pop_until(when)

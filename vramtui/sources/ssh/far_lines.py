"""The lines of a far host, whichever of the three programs prints them there."""

from collections.abc import Callable

from vramtui.core.base.errors import UserError
from vramtui.core.observation.readings import Sample
from vramtui.sources.feed.pipe import LineDecoder
from vramtui.sources.ssh.far_command import SMI_MARK
from vramtui.sources.ssh.smi_frames import SmiFrames

MOST_GREETING = 200  # lines that a login shell may print before anything else


class FarLines:
    """Passes over what a login shell prints first, and then knows by the first line who speaks.

    Args:
        recording: makes what reads the lines of a recording.

    Attributes:
        decoder: what reads the lines; None until somebody speaks.
    """

    def __init__(self, recording: Callable[[], LineDecoder]) -> None:
        self._recording = recording
        self._greeting = 0
        self.decoder: LineDecoder | None = None

    def take(self, line: bytes) -> Sample | None:
        """The sample that the next line tells, if any.

        Raises:
            UserError: it is none of theirs.
        """
        if self.decoder is not None:
            return self.decoder.take(line)
        if line.startswith(b'{"vramtui_recording":'):
            self.decoder = self._recording()
            return self.decoder.take(line)
        if line.strip() == SMI_MARK.encode():
            self.decoder = SmiFrames()
            return None
        self._greeting += 1
        if self._greeting > MOST_GREETING:
            raise UserError("it prints something else than a recording")
        return None

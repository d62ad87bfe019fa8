"""Lines out of what a pipe gives, piece by piece."""

from vramtui.core.base.file_limits import RECORDING


class LineTooLargeError(Exception):
    """A line of more than RECORDING.size bytes: what sends it is no recording."""


class LineSplitter:
    """Keeps what has no newline yet."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def add(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their newlines.

        Raises:
            LineTooLargeError: one does not end.
        """
        if b"\n" not in piece:
            self._rest += piece
            if len(self._rest) > RECORDING.size:
                raise LineTooLargeError
            return []
        first, *lines = piece.split(b"\n")
        lines.insert(0, bytes(self._rest) + first)
        self._rest = bytearray(lines.pop())
        return lines

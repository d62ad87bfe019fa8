"""What a traced process that ended without an answer is told as; no torch here."""

import re
import signal
from pathlib import Path
from typing import IO

_OURS = str(Path(__file__).parents[3])
_WHAT = re.compile(r"^  what\(\):  (.+)$", re.MULTILINE)  # of an exception that nobody caught in C++
_FRAME = re.compile(r'^  File "(?P<file>[^"]+)", line (?P<line>\d+) in ', re.MULTILINE)  # as faulthandler writes it
_LIBRARIES = ("site-packages", "dist-packages", "/lib/python3")


def words_of(errors: IO[bytes] | None) -> str:
    """All that a process wrote to standard error, from the file that took it; "" where it went elsewhere."""
    if errors is None:
        return ""
    errors.seek(0)
    return errors.read().decode(errors="replace")


def sentence(code: int, errors: str) -> str:
    """How it ended, where the code was, and whose that is.

    Args:
        code: of its exit; below zero the signal's number.
        errors: its standard error, with the frames that Python's faulthandler wrote; "" where nobody knows.
    """
    plain = f"the traced process ended without an answer (exit code {code})"
    if code not in {-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS, -signal.SIGFPE, -signal.SIGILL}:
        return plain
    what = _WHAT.search(errors)
    frames = (match for match in _FRAME.finditer(errors) if not _is_librarys(match["file"]))
    frame = next(frames, None)
    place = f" at {frame['file']}:{frame['line']}" if frame else ""
    why = f": {what[1]}" if what else ""
    return (
        f"{plain}: a library in C++ ended it by {signal.Signals(-code).name}{place}{why}; where the same line runs "
        "without a trace, that is a limit of the trace, and then trace a function of the file that goes without it "
        "(FILE.py:FUNCTION)"
    )


def _is_librarys(file: str) -> bool:
    return file.startswith(("<", _OURS)) or any(part in file for part in _LIBRARIES)

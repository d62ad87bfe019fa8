"""Which lines of the program were reached for the first time: what an engine that goes by coverage has to know."""

import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

# Calls of a function in a row that reach no new line of it, after which its lines are looked at no more.
LOOKS = 40


class NewLines:
    """Counts the lines of a package that are reached; each is told once and costs nothing from then on.

    Before Python 3.12, which has no `sys.monitoring`, each call costs; a function's lines are followed until it was
    called `LOOKS` times and nothing new came of it.
    """

    def __init__(self, package: str) -> None:
        spec = find_spec(package)
        assert spec is not None
        self._folder = str(Path(str(spec.origin)).parent)
        self._new = 0
        self._monitoring: Any = getattr(sys, "monitoring", None)
        self._known: set[tuple[CodeType, int]] = set()
        self._looks: Counter[CodeType] = Counter()

    def begin(self) -> None:
        """Count from now on."""
        if self._monitoring is not None:
            tool, line = self._monitoring.COVERAGE_ID, self._monitoring.events.LINE
            self._monitoring.use_tool_id(tool, "fuzz")
            self._monitoring.register_callback(tool, line, self._reached)
            self._monitoring.set_events(tool, line)
        else:
            sys.settrace(self._called)

    def taken(self) -> int:
        """How many there were since the last time."""
        new, self._new = self._new, 0
        return new

    def _reached(self, code: CodeType, line: int) -> object:
        del line
        self._new += code.co_filename.startswith(self._folder)
        return self._monitoring.DISABLE

    def _called(self, frame: FrameType, event: str, _: object) -> "Any":  # noqa: ANN401 - as sys.settrace has it
        code = frame.f_code
        self._looks[code] += 1
        if event != "call" or self._looks[code] > LOOKS or not code.co_filename.startswith(self._folder):
            return None
        return self._line

    def _line(self, frame: FrameType, event: str, _: object) -> "Any":  # noqa: ANN401 - as above
        place = frame.f_code, frame.f_lineno
        if event == "line" and place not in self._known:
            self._known.add(place)
            self._new += 1
            self._looks[frame.f_code] = 0
        return self._line

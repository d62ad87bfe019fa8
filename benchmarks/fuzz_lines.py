"""Which lines of the program were reached for the first time: what an engine that goes by coverage has to know."""

import sys
from importlib.util import find_spec
from pathlib import Path
from types import CodeType
from typing import Any


class NewLines:
    """Counts the lines of a package that are reached; each is told once and costs nothing from then on.

    Before Python 3.12, which has no `sys.monitoring`, none is ever told.
    """

    def __init__(self, package: str) -> None:
        spec = find_spec(package)
        assert spec is not None
        self._folder = str(Path(str(spec.origin)).parent)
        self._new = 0
        self._monitoring: Any = getattr(sys, "monitoring", None)

    def begin(self) -> None:
        """Count from now on."""
        if self._monitoring is not None:
            tool, line = self._monitoring.COVERAGE_ID, self._monitoring.events.LINE
            self._monitoring.use_tool_id(tool, "fuzz")
            self._monitoring.register_callback(tool, line, self._reached)
            self._monitoring.set_events(tool, line)

    def taken(self) -> int:
        """How many there were since the last time."""
        new, self._new = self._new, 0
        return new

    def _reached(self, code: CodeType, line: int) -> object:
        del line
        self._new += code.co_filename.startswith(self._folder)
        return self._monitoring.DISABLE

"""Libraries that are not installed where a script is traced: an import of one finds what stands in for it.

An import that is allowed to fail, within `try` or asked by `find_spec`, does.
"""

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

from vramtui.estimators.traced.accounting.memory import SimulatedMemory
from vramtui.estimators.traced.device.patches import Patches
from vramtui.estimators.traced.libraries import attention_stand_ins, bitsandbytes_stand_in

_STAND_INS = (attention_stand_ins, bitsandbytes_stand_in)


def install(patches: Patches, memory: SimulatedMemory) -> None:
    """Answer the imports that nothing else answers."""
    patches.set(sys, "meta_path", [*sys.meta_path, LibraryFinder(memory.warn)])


class LibraryFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives the modules that stand in for libraries, each with all of its names.

    Args:
        tell: takes a sentence that says what stands in for what.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def find_spec(self, fullname: str, *_place: object) -> importlib.machinery.ModuleSpec | None:
        """A spec where the code cannot go on without one."""
        known = any(library.names_of(fullname) is not None for library in _STAND_INS)
        if not known or ("." not in fullname and _may_fail()):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        """All names at once."""
        for library in _STAND_INS:
            names = library.names_of(module.__name__)
            if names is not None:
                vars(module).update(names)
                self._tell(library.NOTE.format(module.__name__.partition(".")[0]))


def _may_fail() -> bool:
    """Whether who imports asks only, or goes on without."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and "importlib" in frame.f_code.co_filename:
        if frame.f_code.co_name == "find_spec":  # importlib.util's
            return True
        frame = frame.f_back
    return frame is None or _within_try(frame.f_code.co_filename, frame.f_lineno)


def _within_try(file: str, line: int) -> bool:
    try:
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return False
    tries = (node for node in ast.walk(tree) if isinstance(node, ast.Try) and node.handlers)
    return any(node.body[0].lineno <= line <= (node.body[-1].end_lineno or 0) for node in tries)

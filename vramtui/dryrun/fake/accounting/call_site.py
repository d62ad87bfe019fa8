"""Who made an allocation: the module that was running, and the user's line."""

import os
import sys
import sysconfig
import threading
import traceback
from types import CodeType, FrameType
from typing import Any

import torch
import torch.nn.modules.module as hooks

from vramtui.dryrun.fake.accounting.memory import StorageEntry

_OURS = __file__.partition(f"{os.sep}dryrun{os.sep}")[0] + os.sep
# Also those of another environment, which a .pth file, PYTHONPATH or --system-site-packages brings in.
_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
# A missing module or file, or an argument of another type: none of them hangs on what a tensor holds.
OF_NO_VALUE = (ImportError, OSError, TypeError, NameError)
_LIBRARIES = tuple({sysconfig.get_paths()[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")})


class Whereabouts:
    """Keeps the stack of running modules and finds the nearest line that is the user's own."""

    def __init__(self) -> None:
        self.names: dict[int, str] = {}
        self.last_line = ""
        self._stacks = threading.local()
        # By id, as the hash of a code object goes through all of its bytes; kept, so that no other takes the id.
        self._users: dict[int, tuple[bool, CodeType]] = {}
        self._by_sequence: dict[int, tuple[str, str]] = {}
        self._handles: list[Any] = []

    def install(self) -> None:
        """Watch modules come and go."""
        self._handles = [
            hooks.register_module_forward_pre_hook(self._entered),
            hooks.register_module_forward_hook(self._left, always_call=True),
        ]

    def remove(self) -> None:
        """Stop watching modules."""
        for handle in self._handles:
            handle.remove()

    def depth(self) -> int:
        """How many modules this thread is inside."""
        return len(self._stack())

    def locate(self, entry: StorageEntry) -> None:
        """Fill in an entry's module and line."""
        if torch._C._current_graph_task_id() != -1 and not self._stack():
            entry.module, entry.line = self._of_backward()
        else:
            entry.module, entry.line = self._module(), self.user_line()
        self.last_line = entry.line or self.last_line

    def remember(self) -> None:
        """An operator is about to be dispatched in forward: its autograd node, just made, leads back here."""
        sequence = torch._C._autograd._get_sequence_nr() - 1
        if sequence not in self._by_sequence:
            self._by_sequence[sequence] = self._module(), self.user_line()

    def user_line(self) -> str:
        """The nearest frame outside torch, libraries and this program, as `file:line`; empty when there is none."""
        return self._nearest_line(sys._getframe(1))

    def line_of(self, thread: int) -> str:
        """Find the nearest such frame of another thread, by its number."""
        return self._nearest_line(sys._current_frames().get(thread))

    def _nearest_line(self, frame: FrameType | None) -> str:
        while frame is not None:
            code = frame.f_code
            known = self._users.get(id(code))
            if known is None:
                known = self._users[id(code)] = is_users(code.co_filename), code
            if known[0]:
                return f"{code.co_filename}:{frame.f_lineno}"
            frame = frame.f_back
        return ""

    def _of_backward(self) -> tuple[str, str]:
        node = torch._C._current_autograd_node()
        if node is None:
            return "", ""
        module, line = self._by_sequence.get(node._sequence_nr(), ("", ""))
        return (f"backward of {module}" if module else node.name()), line

    def _module(self) -> str:
        stack = self._stack()
        return self.names.get(stack[-1], "") if stack else ""

    def _stack(self) -> list[int]:
        frames: list[int] | None = getattr(self._stacks, "modules", None)
        if frames is None:
            frames = self._stacks.modules = []
        return frames

    def _entered(self, module: torch.nn.Module, _args: Any) -> None:
        key = id(module)
        if key not in self.names:
            for path, one in module.named_modules(remove_duplicate=False):
                self.names.setdefault(id(one), f"{path} ({type(one).__name__})" if path else type(one).__name__)
        self._stack().append(key)

    def _left(self, _module: torch.nn.Module, _args: Any, _out: Any) -> None:
        stack = self._stack()
        if stack:
            stack.pop()


def is_users(filename: str) -> bool:
    if filename.startswith(("<", _OURS, *_LIBRARIES)):
        return False
    return not any(folder in filename for folder in _PACKAGES)


def guess_read_before(error: BaseException, memory: Any, *, by_operator: bool) -> str:
    """Where the function of the code's own that failed has read a value that was a constant, or where one decided how
    often a loop went round before an operator was given other sizes than it takes; "" where neither was.

    Args:
        error: what the code ended with.
        memory: knows the lines at which such values were read, as `file:line`.
        by_operator: whether an operator of torch raised it.
    """
    guesses = memory.guesses_read
    users = [frame for frame, _line in traceback.walk_tb(error.__traceback__) if is_users(frame.f_code.co_filename)]
    if not users or isinstance(error, OF_NO_VALUE):
        return ""
    for frame in reversed(users):
        code = frame.f_code
        lines = [f"{code.co_filename}:{line}" for _, _, line in code.co_lines()]
        read = next((line for line in reversed(lines) if line in guesses), "")
        # What is counted in one function is divided by in another; a comprehension has its numbers from around it.
        if read or not (isinstance(error, ZeroDivisionError) or code.co_name.startswith("<")):
            return read or (memory.loop_decided if by_operator else "")
    return memory.loop_decided if by_operator else ""

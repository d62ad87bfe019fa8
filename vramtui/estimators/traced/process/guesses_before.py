"""Which value that nobody computes was read before the code failed, so that the code is not blamed for a constant."""

import traceback

from vramtui.estimators.traced.accounting.call_site import is_users
from vramtui.estimators.traced.accounting.memory import SimulatedMemory

# A missing module or file, or an argument of another type: none of them hangs on what a tensor holds.
OF_NO_VALUE = (ImportError, OSError, TypeError, NameError)


def guess_read_before(error: BaseException, memory: SimulatedMemory, *, by_operator: bool) -> str:
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

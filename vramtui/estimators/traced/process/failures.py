"""What stopped a trace, in one sentence that names the operator and the user's line."""

import functools
import traceback
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    UnsupportedOperatorException,
)

from vramtui.core.base.errors import UserError
from vramtui.estimators.traced.accounting.call_site import is_users
from vramtui.estimators.traced.device.device import SIM
from vramtui.estimators.traced.device.patches import Patches

_LONGEST = 240


class Escape:
    """Carries what an operator raised out of autograd's threads, which lose it on the way (see `device._Guard`)."""

    def __init__(self) -> None:
        self.error: BaseException | None = None

    def install(self, patches: Patches) -> None:
        """Watch every run of the engine."""
        plain = vars(torch.autograd)["_engine_run_backward"]

        @functools.wraps(plain)
        def run(*args: Any, **kwargs: Any) -> Any:
            self.error = None
            try:
                return plain(*args, **kwargs)
            except SystemError:
                if self.error is None:
                    raise
                raise self.error from None

        patches.set(torch.autograd, "_engine_run_backward", run)


def out_of_memory(error: BaseException, session: Any) -> str | None:
    """That the card was too small, and where; None for any other error."""
    if not isinstance(error, torch.OutOfMemoryError):
        return None
    line = _user_line(error, session)
    return f"out of memory in {session.phases.now}{f' at {line}' if line else ''}: {error}"


def in_words(error: BaseException, session: Any) -> UserError:
    """The error as a sentence for the person whose code it is."""
    if isinstance(error, UserError):
        return error
    if isinstance(error, SystemExit):
        return UserError(f"the code ended itself with exit code {error.code}")
    line = _user_line(error, session)
    place = f" at {line}" if line else ""
    if isinstance(error, (DataDependentOutputException, DynamicOutputShapeException)):
        return UserError(
            f"{_name(error.func)}{place} gives a shape or value that depends on data, which a trace does not have"
        )
    if isinstance(error, UnsupportedOperatorException):
        stranger = "" if error.func.namespace == "aten" else "is not an operator of PyTorch itself, and "
        return UserError(f"{_name(error.func)}{place} {stranger}allocates what nothing tells without running it")
    return _other(error, place)


def _other(error: BaseException, place: str) -> UserError:
    if isinstance(error, KeyboardInterrupt):
        return UserError("the trace was interrupted")
    text = str(error).replace(f"{SIM}:0", "cuda:0").replace(SIM, "cuda").strip()
    if "SparseTensorImpl" in text:
        return UserError(f"a sparse tensor{place}: a trace follows dense ones only")
    first = text.splitlines()[0][:_LONGEST] if text else ""
    return UserError(f"the code failed{place}: {type(error).__name__}{': ' + first if first else ''}")


def _name(func: Any) -> str:
    return str(func).replace("aten.", "torch.ops.aten.", 1)


def _user_line(error: BaseException, session: Any) -> str:
    """The innermost frame of the traceback that is the user's; in backward, the forward line that led there."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if is_users(frame.filename):
            return f"{frame.filename}:{frame.lineno}"
    return str(session.where.last_line)

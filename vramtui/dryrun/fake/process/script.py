"""Runs the user's file as Python would, or one function of it."""

import importlib.util
import inspect
import os
import pickle
import runpy
import sys
from collections.abc import Callable
from multiprocessing import spawn
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramtui.core.base.errors import UserError, nearest

if TYPE_CHECKING:
    from vramtui.dryrun.fake.session import TraceSession


def run_script(path: str, arguments: tuple[str, ...]) -> None:
    """The file as `__main__`, with `arguments` behind its name in `sys.argv`."""
    _enter_script_dir(path, arguments)
    runpy.run_path(path, run_name="__main__")


def run_module(name: str, arguments: tuple[str, ...]) -> None:
    """The module as `python -m` runs it, with the current folder in front of the search path."""
    sys.argv = [name, *arguments]
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as Python sets it itself
    runpy.run_module(name, run_name="__main__", alter_sys=True)


def run_function(path: str, function: str, arguments: tuple[str, ...]) -> None:
    """Import the file under its own name and call one function of it, without arguments.

    Raises:
        UserError: the file has no such function.
    """
    _enter_script_dir(path, arguments)
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    called = getattr(module, function, None)
    if not callable(called):
        known = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
        raise UserError(f"{path} has no function {function!r}{nearest(function, known)}")
    _refuse_arguments(path, function, called)
    called()


def run_pickled(path: str, steps: int, session: "TraceSession") -> None:
    """Call a function that another process of this user has just written, `steps` times, with its arguments: a module
    among them stands on "cuda" then, and an optimizer has its parameters there.

    Args:
        path: of the pickle.
        steps: how often.
        session: the trace, which begins anew once the function's own modules are imported: what those make is not
            what is called.
    """
    with open(path, "rb") as file:  # noqa: PTH123 - one file is read twice
        preparation = pickle.load(file)  # noqa: S301 - our own process wrote it, in a folder of its own
        sys.path[:] = preparation.pop("sys_path", sys.path)
        spawn.prepare(preparation)
        step, arguments = pickle.load(file)  # noqa: S301 - as above
    session.begin_again()
    _move_to_card(arguments)
    session.phases.adopt([one for one in arguments if hasattr(one, "param_groups")])
    for _ in range(steps):
        step(*arguments)


def _move_to_card(arguments: tuple[Any, ...]) -> None:
    """Modules go to the card. Theirs are new parameters then, which the optimizers take for the old ones."""
    moved: dict[int, Any] = {}
    for module in arguments:
        if hasattr(module, "named_parameters"):
            before = dict(module.named_parameters())
            on_meta = any(parameter.is_meta for parameter in before.values())
            module.to_empty(device="cuda") if on_meta else module.to("cuda")
            moved |= {id(before[name]): parameter for name, parameter in module.named_parameters()}
    for optimizer in arguments:
        for group in getattr(optimizer, "param_groups", ()):
            group["params"] = [moved.get(id(parameter), parameter) for parameter in group["params"]]


def _refuse_arguments(path: str, function: str, called: Callable[..., object]) -> None:
    try:
        parameters = inspect.signature(called).parameters.values()
    except (TypeError, ValueError):
        return
    optional = {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}
    needed = [one.name for one in parameters if one.default is one.empty and one.kind not in optional]
    if needed:
        raise UserError(
            f"{function} in {path} needs {', '.join(needed)}; a function to trace takes no arguments, so write one "
            "that calls it"
        )


def _enter_script_dir(path: str, arguments: tuple[str, ...]) -> None:
    sys.argv = [path, *arguments]
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))  # noqa: PTH100,PTH120 - as Python sets it itself

"""A `triton` where none is installed: CUDA builds of PyTorch come with it, so code takes its way through its kernels.

What runs on the host is here: `jit`, `autotune`, `heuristics`, `Config`, `cdiv`, `next_power_of_2`. The language, in
which only kernels are written, has whatever name is asked for.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import inspect
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType, SimpleNamespace
from typing import Any

import torch

from vramtui.estimators.traced.device.patches import Patches

VERSION = "3.7.1"  # that of PyTorch 2.13
_TORCH = str(Path(torch.__file__).parent)
_MACHINERY = ("importlib", "<frozen importlib")


def install(
    patches: Patches,
    launch: Callable[[], None],
    timers: dict[str, Callable[..., Any]],
    driver: Callable[[], SimpleNamespace],
) -> None:
    """Answer imports of triton.

    Args:
        patches: what takes it back.
        launch: is told of each launch.
        timers: what stands for the functions of `triton.testing`; `do_bench` times a configuration as well.
        driver: makes what is asked of Triton's driver.
    """
    top = _top(launch, timers["do_bench"], driver) | {"_timers": timers}
    patches.set(sys, "meta_path", [*sys.meta_path, StandInFinder(top)])


class StandInFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives `triton` and every module below it; to torch's own code, which looks for compilers, none."""

    def __init__(self, top: dict[str, Any]) -> None:
        self._top = top

    def find_spec(self, fullname: str, *_place: object) -> importlib.machinery.ModuleSpec | None:
        """A spec for triton and what is below it."""
        if fullname.partition(".")[0] != "triton" or _asked_by_torch():
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        """One in which any name is found."""
        return OpenModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Put the host's side into the top module."""
        if module.__name__ == "triton":
            vars(module).update(self._top)
        if module.__name__ in {"triton.runtime", "triton.runtime.driver"}:
            vars(module).update(driver=self._top["_driver"])
        if module.__name__ == "triton.testing":
            vars(module).update(self._top["_timers"])


class OpenModule(ModuleType):
    """Any name in it is a `Word`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name in {"language", "runtime", "testing", "compiler"}:
            return importlib.import_module(f"{self.__name__}.{name}")
        return Word


class Word:
    """What stands for a name of the language: a decorator, a type or a function, which nobody runs."""

    def __new__(cls, function: Any = None, *_args: Any, **_kwargs: Any) -> Any:
        """What it was given, so that it decorates."""
        return function if callable(function) else super().__new__(cls)

    def __class_getitem__(cls, _item: Any) -> type:
        return cls

    def __call__(self, *args: Any, **_kwargs: Any) -> Any:
        return args[0] if args and callable(args[0]) else self


class LaunchedKernel:
    """A function under `triton.jit`: `kernel[grid](...)` launches nothing."""

    def __init__(self, function: Any, launch: Callable[[], None]) -> None:
        self.fn, self._launch = function, launch
        self.__name__ = getattr(function, "__name__", "kernel")
        self.arg_names = list(inspect.signature(function).parameters) if inspect.isfunction(function) else []

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return self.run

    def run(self, *_args: Any, **_kwargs: Any) -> None:
        """Report the launch; nothing runs."""
        self._launch()


class TunedKernel:
    """One under `triton.autotune`: the first launch of each key times every configuration."""

    def __init__(self, kernel: LaunchedKernel, configs: Sequence[Any], key: Sequence[str], tune: Any) -> None:
        self.fn, self.arg_names, self.configs = kernel, kernel.arg_names, list(configs)
        self._key, self._tune, self._timed = tuple(key), tune, set[tuple[Any, ...]]()

    def __getitem__(self, _grid: Any) -> Callable[..., None]:
        return self.run

    def run(self, *args: Any, **kwargs: Any) -> None:
        """Run the kernel; the first call of each key is preceded by timing."""
        given = dict(zip(self.arg_names, args, strict=False)) | kwargs
        types = [str(value.dtype) for value in given.values() if isinstance(value, torch.Tensor)]
        key = (*(given.get(name) for name in self._key), *types)
        if len(self.configs) > 1 and key not in self._timed:
            self._timed.add(key)
            self._tune(lambda: None)
        self.fn.run(*args, **kwargs)


def _top(launch: Callable[[], None], tune: Callable[..., Any], driver: Callable[[], SimpleNamespace]) -> dict[str, Any]:
    def jit(function: Any = None, **_kwargs: Any) -> Any:
        return jit if function is None else LaunchedKernel(function, launch)

    def autotune(configs: Sequence[Any] = (), key: Sequence[str] = (), **_kwargs: Any) -> Any:
        return lambda kernel: TunedKernel(kernel, configs, key, tune)

    return {
        "__version__": VERSION,
        "jit": jit,
        "autotune": autotune,
        "heuristics": lambda *_args, **_kwargs: lambda kernel: kernel,
        "Config": lambda *_args, **kwargs: SimpleNamespace(kwargs=_args[0] if _args else {}, **kwargs),
        "cdiv": lambda size, step: -(-size // step),
        "next_power_of_2": lambda size: 1 << (size - 1).bit_length() if size > 1 else 1,
        "_driver": SimpleNamespace(active=driver()),
    }


def _asked_by_torch() -> bool:
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and (
        frame.f_code.co_filename.startswith(_MACHINERY) or "/importlib/" in frame.f_code.co_filename
    ):
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith(_TORCH)

"""Stands where `torch._dynamo` is, which every optimizer imports for a second of the processor and no job here uses."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any


class NoCompiler(ModuleType):
    """What an optimizer asks of it (torch/optim/optimizer.py and torch/_compile.py, PyTorch 2.13)."""

    def graph_break(self) -> None:
        """There is no graph."""

    def disable(self, fn: Callable[..., Any], *_args: Any, **_kwargs: Any) -> Callable[..., Any]:
        return fn


sys.modules["torch._dynamo"] = NoCompiler("torch._dynamo")

"""What a job on an emulated card needs of its own torch: kernels do nothing there, so that results read as zeros."""

import functools
import os
from typing import Any

from . import socket_dir
from .collectives import let_go_of_collectives, meet_at_barriers
from .followed import Follower, count_choices
from .guards import answer_guards
from .import_hook import replace, when_imported
from .reads import Reads, read_ones


def prepare(torch: Any) -> Reads:
    """Follow values, answer checks of results as in a healthy job, count reads."""
    scaler = torch.amp.GradScaler  # whose scale stays, as nothing overflows
    scaler.get_scale = lambda self: self._init_scale if self.is_enabled() else 1.0
    reads = Reads(torch)
    follower = Follower(torch, reads)
    torch.Tensor.__bool__ = answer_guards(torch.Tensor.__bool__, reads, follower.values)
    count_choices(torch, reads, follower)
    meet_at_barriers(torch)
    let_go_of_collectives(torch)
    when_imported("torch.utils.data.dataloader", _fork_workers)
    when_imported("triton.runtime.autotuner", _time_one)
    when_imported("torch._inductor.select_algorithm", _select_one)
    when_imported("torch._inductor.runtime.triton_heuristics", _configure_one)
    if os.environ.get(socket_dir.VALUES) == "ones":
        read_ones(torch, reads)
    reads.begin()
    follower.begin()
    return reads


FITS = "_vramtui_fits"  # on a tuner of Triton's, while it looks for the fastest configuration
NEVER = [float("inf")] * 3  # seconds of a configuration of Triton's that does not fit the card


def _fork_workers(module: Any) -> None:
    """Let a loader fork its workers where the way of starting them was handed down by `torch.multiprocessing.spawn`:
    each would import PyTorch anew, some 5 s of processor, in each pass over the data. None of them uses a card
    (`_MultiProcessingDataLoaderIter`, torch/utils/data/dataloader.py, 2.13).
    """
    import multiprocessing

    def start(begin: Any) -> Any:
        @functools.wraps(begin)
        def begin_with_forks(self: Any, loader: Any) -> None:
            is_inherited = multiprocessing.parent_process() is not None and loader.multiprocessing_context is None
            if not is_inherited or multiprocessing.get_start_method() != "spawn":
                begin(self, loader)
                return
            loader.multiprocessing_context = "fork"
            try:
                begin(self, loader)
            finally:
                loader.multiprocessing_context = None

        return begin_with_forks

    replace(module._MultiProcessingDataLoaderIter, "__init__", start)  # noqa: SLF001 - PyTorch's own name for it


def _time_one(module: Any) -> None:
    """Let Triton's autotuner take the first configuration of a kernel that fits the card: times of kernels that do
    nothing tell nothing, and the others need not be compiled (`Autotuner.run`, triton/runtime/autotuner.py, 3.7).
    """

    def begin(run: Any) -> Any:
        @functools.wraps(run)
        def run_anew(self: Any, *arguments: Any, **named: Any) -> Any:
            setattr(self, FITS, False)
            return run(self, *arguments, **named)

        return run_anew

    def measure(bench: Any) -> Any:
        @functools.wraps(bench)
        def time_one(self: Any, *arguments: Any, **named: Any) -> Any:
            if getattr(self, FITS, False):
                return NEVER
            times = bench(self, *arguments, **named)
            setattr(self, FITS, (times[0] if isinstance(times, (list, tuple)) else times) != NEVER[0])
            return times

        return time_one

    replace(module.Autotuner, "run", begin)
    replace(module.Autotuner, "_bench", measure)


def _select_one(module: Any) -> None:
    """So does `mode="max-autotune"` of `torch.compile`: the library's own kernel where that is among the choices, else
    the first (`AlgorithmSelectorCache`, torch/_inductor/select_algorithm.py, 2.10 and 2.13).
    """

    def choose(call: Any) -> Any:
        @functools.wraps(call)
        def choose_one(self: Any, name: Any, choices: Any, *arguments: Any, **named: Any) -> Any:
            one = [self.pick_deterministic_choice(choices)] if len(choices) > 1 else choices
            return call(self, name, one, *arguments, **named)

        return choose_one

    replace(module.AlgorithmSelectorCache, "__call__", choose)


def _configure_one(module: Any) -> None:
    """And each kernel that Inductor writes is compiled in the first of its configurations (`CachingAutotuner`,
    torch/_inductor/runtime/triton_heuristics.py, 2.13); what a job wrote itself may not fit the card in that one.
    """

    def build(begin: Any) -> Any:
        @functools.wraps(begin)
        def begin_with_one(self: Any, *arguments: Any, **named: Any) -> None:
            begin(self, *arguments, **named)
            if not self.custom_kernel:
                self.configs = self.configs[:1]

        return begin_with_one

    replace(module.CachingAutotuner, "__init__", build)

"""Prepare torch in a job on a simulated GPU: kernels do nothing there, so results read as zeros."""

from __future__ import annotations

import functools
import os
import random
import sys
import threading
import time
import traceback
from typing import Any

from .followed import Follower, count_choices, load_shared
from .guards import TURNS, answer_guards, way_of
from .import_hook import ModuleChanges, around, when_imported
from .reads import OWN, Reads
from .socket_dir import REPORTS


def prepare(torch: Any) -> Reads:
    """Follow values, answer checks of results as in a healthy job, count reads."""
    hide_own_frames()
    reads = Reads(torch)
    follower = Follower(torch, reads)
    torch.Tensor.__bool__ = answer_guards(torch.Tensor.__bool__, reads, follower.values)
    around(torch.Tensor, "item", follow_numbers(reads))
    for name in TAKING:
        setattr(torch.Tensor, name, count_taken(reads, follower.values, getattr(torch.Tensor, name)))
    from multiprocessing.reduction import ForkingPickler

    from torch.multiprocessing.reductions import reduce_tensor

    ForkingPickler.register(torch.Tensor, count_taken(reads, follower.values, reduce_tensor))
    count_choices(torch, reads, follower)
    if torch.distributed.is_available():
        c10d = torch.distributed.distributed_c10d
        for owner in (torch.distributed, c10d):
            around(owner, "barrier", functools.partial(meet_by_host, c10d))
    let_go_of_collectives(torch)
    random.seed(0)  # a job that sets no seed has the same batches whenever it runs
    torch.default_generator.manual_seed(0)
    when_imported("numpy.random", lambda numpy: numpy.seed(0))
    CHANGES.put_on()
    reads.begin()
    follower.begin()
    return reads


def hide_own_frames() -> None:
    """Let no traceback that the job prints have frames of this package."""

    def print_without(plain: Any, *given: Any, **named: Any) -> None:
        for one in given:
            frame = getattr(one, "exc_traceback", one)
            while getattr(frame, "tb_next", None) is not None:
                if frame.tb_next.tb_frame.f_code.co_filename.startswith(OWN):
                    frame.tb_next = frame.tb_next.tb_next
                else:
                    frame = frame.tb_next
        plain(*given, **named)

    around(traceback.TracebackException, "__init__", print_without)
    around(threading, "excepthook", print_without)
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = traceback.print_exception


def follow_numbers(reads: Reads) -> Any:
    """Return what gives `item` numbers that tell what the job does with them, if they were read of a guess."""
    number_of = load_shared("values").note_uses_of

    def way(place: Any, is_turned: bool, frame: Any, answer: bool, *, can_turn: bool) -> bool:
        known = way_of(frame, is_torch=reads.is_of_torch(frame))
        truth = answer != (not is_turned and TURNS.are_over(frame)) if known is None else known[0]
        is_open = can_turn and (known is None or known[1])  # other numbers than zero are not equal either
        return reads.truth_in_this_run(place, truth, frame, frame) if is_open else truth

    def item(plain: Any, tensor: Any) -> Any:
        before, asked, reads.is_followed = reads.count, TURNS.asked, tensor.is_floating_point()
        try:
            number = plain(tensor)
        finally:
            reads.is_followed = False
        if reads.count == before or type(number) is not float:
            return number
        find_way = functools.partial(way, reads.last, TURNS.asked != asked)
        return number_of(number, find_way, functools.partial(reads.use, reads.last))

    return item


# What takes numbers of a tensor on the host past its operators; `__array__` asks for `numpy`.
TAKING = "numpy", "tolist", "__float__", "__int__", "__index__", "__dlpack__", "__reduce_ex__"


def count_taken(reads: Reads, values: Any, plain: Any) -> Any:
    """Return a `plain` that counts a read of its line where the tensor's numbers are guesses, unless PyTorch did."""

    @functools.wraps(plain)
    def take(tensor: Any, *args: Any, **named: Any) -> Any:
        before = reads.count
        answer = plain(tensor, *args, **named)
        is_copied = tensor.is_cuda and plain.__name__ == "tolist" and values.value_of(tensor) is None  # by PyTorch
        if reads.count == before and (is_copied or (not tensor.is_cuda and values.is_taken(tensor))):
            reads.count_here(takes_all=str(tensor.dtype) == "torch.bool")
        return answer

    return take


NEVER = [float("inf")] * 3  # seconds of a configuration of Triton's that does not fit the card
TIMED = "_vramtui_timed"  # on a kernel of Inductor's, until it runs: its configurations if there are several
FITS = "_vramtui_fits"  # on a tuner of Triton's, while it looks for the fastest configuration
CHANGES = ModuleChanges()


@CHANGES.around("torch.utils.data.dataloader", "_MultiProcessingDataLoaderIter.__init__")
def begin_with_forks(begin: Any, self: Any, loader: Any) -> None:
    """Fork a loader's workers if `torch.multiprocessing.spawn` only handed its way down: each imports PyTorch, 5 s, and
    uses no card (`_MultiProcessingDataLoaderIter`, torch/utils/data/dataloader.py, 2.13).
    """
    import multiprocessing

    own = loader.multiprocessing_context
    is_inherited = multiprocessing.parent_process() is not None and own is None
    loader.multiprocessing_context = "fork" if is_inherited and multiprocessing.get_start_method() == "spawn" else own
    try:
        begin(self, loader)
    finally:
        loader.multiprocessing_context = own


@CHANGES.around("triton.runtime.autotuner", "Autotuner.run")
def run_anew(run: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    setattr(self, FITS, False)
    return run(self, *arguments, **named)


@CHANGES.around("triton.runtime.autotuner", "Autotuner._bench")
def time_one(bench: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Let Triton's autotuner take the first configuration of a kernel that fits the card: times of kernels that do
    nothing tell nothing, and the others need not be compiled (`Autotuner.run`, triton/runtime/autotuner.py, 3.7).
    """
    if getattr(self, FITS, False):
        return NEVER
    times = bench(self, *arguments, **named)
    setattr(self, FITS, (times[0] if isinstance(times, (list, tuple)) else times) != NEVER[0])
    return times


@CHANGES.around("torch._inductor.select_algorithm", "AlgorithmSelectorCache.__call__")
def choose_one(call: Any, self: Any, name: Any, choices: Any, *arguments: Any, **named: Any) -> Any:
    """So does `mode="max-autotune"` of `torch.compile`: the library's own kernel where that is among the choices, else
    the first (`AlgorithmSelectorCache`, torch/_inductor/select_algorithm.py, 2.10 and 2.13).
    """
    one = [self.pick_deterministic_choice(choices)] if len(choices) > 1 else choices
    return call(self, name, one, *arguments, **named)


@CHANGES.around("torch._inductor.runtime.triton_heuristics", "CachingAutotuner.__init__")
def begin_with_one(begin: Any, self: Any, *arguments: Any, **named: Any) -> None:
    """Compile each kernel that Inductor writes in its first configuration, in which a job's own may not fit the card
    (`CachingAutotuner`, torch/_inductor/runtime/triton_heuristics.py, 2.13).
    """
    begin(self, *arguments, **named)
    if not self.custom_kernel:
        setattr(self, TIMED, len(self.configs) if len(self.configs or ()) > 1 else 0)
        self.configs = self.configs[:1]


@CHANGES.around("torch._inductor.runtime.triton_heuristics", "CachingAutotuner.run")
def take_as_timing_does(run: Any, self: Any, *arguments: Any, **named: Any) -> Any:
    """Timing all of them takes copies of what the kernel changes and a buffer as large as the GPU's cache
    (`InductorBenchmarker.benchmark_gpu`, torch/_inductor/runtime/benchmarking.py, 2.13).
    """
    for _ in range(self.__dict__.pop(TIMED, 0)):
        import torch

        size = getattr(torch.cuda.get_device_properties(torch.cuda.current_device()), "L2_cache_size", 0)
        on_host = self.copy_args_to_cpu_if_needed(*arguments)  # what would raise the peak so far, if it were cloned
        timed = torch.empty(size // 4, dtype=torch.int, device="cuda"), self.maybe_clone_args(on_host, *arguments)
        del on_host, timed
    return run(self, *arguments, **named)


@CHANGES.around("torch._inductor.compile_worker.subproc_pool", "python_subprocess_env")
def begin_workers_alike(environment: Any) -> Any:
    """Put the probe back on the path of the processes in which Inductor compiles (torch/_inductor/utils.py, 2.13)."""
    paths = os.environ.get("PYTHONPATH", ""), environment().get("PYTHONPATH", "")
    return {**environment(), "PYTHONPATH": os.pathsep.join(filter(None, paths))}


WATCHDOG_SLEEPS = 0.1  # seconds
LONGEST_WAIT = 300  # seconds for ranks that do not come to a barrier


def let_go_of_collectives(torch: Any) -> None:
    """Wait after each step of an optimizer as long as NCCL's watchdog sleeps, 100 ms, and once more: what a collective
    held it lets go of then (kWatchdogThreadSleepMillis, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, 2.13). A card
    takes longer for a step; without this the first buckets of DDP are there in some runs while the second are made.
    """
    from torch.optim.optimizer import register_optimizer_step_post_hook

    distributed = torch.distributed

    def wait(*_: Any) -> None:
        if distributed.is_available() and distributed.is_initialized() and distributed.get_backend() == "nccl":
            time.sleep(2 * WATCHDOG_SLEEPS)

    register_optimizer_step_post_hook(wait)


def meet_by_host(c10d: Any, barrier: Any, group: Any = None, async_op: bool = False, **named: Any) -> Any:
    """A barrier at which processes wait for each other, which no kernel of NCCL does for them: of each rank, a file
    next to the driver's reports has a byte for each time that it came.
    """
    folder, own = os.environ.get(REPORTS), group or c10d.group.WORLD
    answer = barrier(group, async_op, **named)
    rank = c10d.get_rank(own)
    if folder is not None and not async_op and rank >= 0 and c10d.get_backend(own) == "nccl":
        name = os.path.join(folder, f"barrier-{own.group_name.encode().hex()}-")
        files = [f"{name}{other}" for other in range(c10d.get_world_size(own))]
        with open(files[rank], "ab") as file:
            file.write(b".")
            times = file.tell()
        last = time.monotonic() + LONGEST_WAIT
        for path in files:
            while (not os.path.exists(path) or os.stat(path).st_size < times) and time.monotonic() < last:
                time.sleep(0.005)
    return answer

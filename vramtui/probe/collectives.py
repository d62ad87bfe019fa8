"""Ranks on simulated GPUs: they wait for each other at barriers, and collectives let go of memory after each step."""

from __future__ import annotations

import functools
import os
import time
from typing import Any

from .reads import FOLDER

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


def meet_at_barriers(torch: Any) -> None:
    """Let ranks wait for each other at a barrier."""
    if torch.distributed.is_available():
        from torch.distributed import distributed_c10d

        distributed_c10d.barrier = torch.distributed.barrier = meet_by_host(distributed_c10d)


def meet_by_host(c10d: Any) -> Any:
    """A barrier at which processes wait for each other, which no kernel of NCCL does for them: of each rank, a file
    beside the driver's reports has a byte for each time that it came.
    """
    barrier, folder = c10d.barrier, os.environ.get(FOLDER)

    @functools.wraps(barrier)
    def met(group: Any = None, async_op: bool = False, **named: Any) -> Any:
        answer = barrier(group, async_op, **named)
        own = group or c10d.group.WORLD
        rank = c10d.get_rank(own)
        if folder is not None and not async_op and rank >= 0 and c10d.get_backend(own) == "nccl":
            name = os.path.join(folder, f"barrier-{own.group_name.encode().hex()}-")
            files = [f"{name}{other}" for other in range(c10d.get_world_size(own))]
            with open(files[rank], "ab") as file:
                file.write(b".")
                times = file.tell()
            last = time.monotonic() + LONGEST_WAIT
            while any(_size(path) < times for path in files) and time.monotonic() < last:
                time.sleep(0.005)
        return answer

    return met


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0

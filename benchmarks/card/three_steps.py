"""A script on the card that is there, up to so many optimizer steps: `python three_steps.py [--steps 3] SCRIPT ARGS`.

Its last line on standard output is one JSON object: why it ended, the peaks of allocated and reserved by PyTorch's own
counters, and the most that NVML ever showed of the process, looked at every 10 ms and after each step.
"""

import argparse
import json
import os
import runpy
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import pynvml
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

LOOK_SECONDS = 0.01


class Done(BaseException):
    """Enough steps were taken; no error, which a script's own `except Exception` would catch."""


class Process:
    """This process as NVML sees it, in bytes."""

    def __init__(self) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        self.most = 0

    def read(self) -> int:
        """Its memory now; 0 while it has no context."""
        own = os.getpid()
        shown = [
            p.usedGpuMemory or 0 for p in pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle) if p.pid == own
        ]
        self.most = max([self.most, *shown])
        return max(shown, default=0)

    def watch(self) -> None:
        """For as long as the process lives."""
        while True:
            self.read()
            time.sleep(LOOK_SECONDS)


def main() -> None:
    """Run the script, then say what it took."""
    asked = argparse.ArgumentParser()
    asked.add_argument("--steps", type=int, default=3)
    asked.add_argument("script", nargs=argparse.REMAINDER)
    options = asked.parse_args()
    process, rows, best = Process(), list[list[int]](), [0, 0]
    threading.Thread(target=process.watch, daemon=True).start()

    def remember() -> None:
        best[:] = [max(best[0], torch.cuda.max_memory_allocated()), max(best[1], torch.cuda.max_memory_reserved())]

    def end_of_step(*_: object) -> None:
        torch.cuda.synchronize()
        remember()
        rows.append([torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), *best, process.read()])
        if len(rows) >= options.steps:
            raise Done

    reset = torch.cuda.reset_peak_memory_stats

    def remember_and_reset(*args: Any, **named: Any) -> None:  # noqa: ANN401 - torch's own arguments
        remember()
        reset(*args, **named)

    torch.cuda.reset_peak_memory_stats = torch.cuda.memory.reset_peak_memory_stats = remember_and_reset
    register_optimizer_step_post_hook(end_of_step)
    script, why = str(Path(options.script[0]).resolve()), "the script ended"
    sys.argv, sys.path[0] = options.script, str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except Done:
        why = f"{options.steps} steps"
    except SystemExit as error:
        why = f"the script left with {error.code}"
    except BaseException as error:  # noqa: BLE001 - whatever it was is the answer
        traceback.print_exc()
        why = f"{type(error).__name__}: {str(error)[:300]}"
    remember()
    process.read()
    answer = {"why": why, "allocated": best[0], "reserved": best[1], "process": process.most, "rows": rows}
    print(json.dumps(answer), flush=True)


main()

"""Parts and largest tensors at the peak, from PyTorch's own history of its allocations (engine `cuda`)."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import bisect
import gc
import json
import linecache
import os
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from .report import BLOCK, SLIGHT

MOST_EVENTS = 400_000
COUNTED = re.compile(r"(?:allocation|requested_bytes)\..*\.allocated")
MOST_LOOKS = 64  # at one address, where each step has another gradient
LARGEST = 10
WORKSPACES = {8_519_680, 33_554_432}  # cuBLAS's defaults (CUBLAS_WORKSPACE_CONFIG), before and from Hopper on
PHASES = {"build": "inputs", "input": "inputs", "forward": "activations"}
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.")
GARBAGE_NOTE = (
    "objects in cycles, as a model that refers to itself, held up to {} until Python's collector ran, and when it runs "
    "depends on how many objects are made, which differs here; a `gc.collect()` after their last use makes it certain"
)
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class PeakHistory:
    """Records allocations from the first use of CUDA on, and which of them were weights, gradients or states."""

    def __init__(self, torch: Any, workspaces: set[int]) -> None:
        self._torch, self._workspaces = torch, workspaces  # addresses of those of convolutions
        self._turns: list[tuple[int, str, int]] = []  # the end of each phase
        self._labels: dict[int, list[tuple[int, str, str]]] = {}  # by address
        self.collections: list[tuple[int, int]] = []  # when Python's collector ran by itself, from and to
        self._began = 0
        self._known: dict[int, dict[str, Any]] = {}  # what `look_back` saw, by device
        self._highest, self._running = 0, ("build", -1)  # its bytes, and the phase that has not ended

    def begin(self) -> None:
        gc.callbacks.append(self.note_collection)
        self._torch.cuda.memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MOST_EVENTS)  # noqa: SLF001 - PyTorch documents it

    def note_collection(self, phase: str, _info: dict[str, int]) -> None:
        """Note a collection that ran by itself, if it did in the thread whose other work waits for it."""
        now, asking = time.time_ns() // 1000, sys._getframe().f_back  # noqa: SLF001 - Python documents it
        if phase == "start":
            self._began = now
        elif not is_asked(asking) and threading.current_thread() is threading.main_thread():
            self.collections.append((self._began, now))

    def turn(self, phase: str, step: int) -> None:
        self._turns.append((time.time_ns() // 1000, phase, step))

    def look(self, optimizers: list[Any], modules: list[Any], *, stepped: bool) -> None:
        for tensor, kind, name in parts_of(modules, optimizers):
            local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's own shard
            if isinstance(local, self._torch.Tensor) and local.is_cuda and (stepped or kind != "optimizer"):
                known = self._labels.setdefault(local.untyped_storage().data_ptr(), [])
                is_new = not known or known[-1][1] != kind or (name and not known[-1][2])
                if is_new or (kind == "gradients" and len(known) < MOST_LOOKS):
                    known.append((time.time_ns() // 1000, kind, name))

    @staticmethod
    def own_line() -> str:
        """The innermost line of the job's own code that is running, as `file.py:12`; empty without one."""
        frame: Any = sys._getframe(1)  # noqa: SLF001 - Python documents it
        while frame is not None and not is_own(frame.f_code.co_filename):
            frame = frame.f_back
        return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"

    def look_back(self, peak: int, running: tuple[str, int] = ("build", -1), slight: float = SLIGHT) -> None:
        """Summarise what was held at a new peak of so many bytes: later the history may have lost what led to it."""
        if abs(peak - self._highest) > slight * self._highest:
            seen, self._running = self._torch.cuda.memory._snapshot(), running  # noqa: SLF001 - as above
            for at, events in enumerate(seen["device_traces"]):
                blocks = [block for one in seen["segments"] if one["device"] == at for block in one["blocks"]]
                if events and (slight or len(events) < MOST_EVENTS or at not in self._known):
                    self._known[at] = self.summarise(events, blocks if len(events) >= MOST_EVENTS else None)
            self._highest = peak

    def write(self, folder: str, peak: int, passes: dict[str, Any]) -> None:
        """Write that into `folder`, with the job's passes."""
        self.look_back(peak, slight=0)
        for index, summary in self._known.items():
            if summary["events"] >= MOST_EVENTS:  # so it has lost some: PyTorch counts all
                counted = self._torch.cuda.memory_stats(index).items()
                summary["requests"].update({name: number for name, number in counted if COUNTED.match(name)})
            path = os.path.join(folder, f"{os.getpid()}-{index}.peak")
            with open(path + ".new", "w", encoding="utf-8") as file:
                json.dump({**summary, "passes": passes}, file)
            os.replace(path + ".new", path)  # whole or not there, should the job be ended meanwhile

    def summarise(self, events: list[dict[str, Any]], at_end: list[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Summarise a device's history; if that has lost its beginning, with the allocator's blocks `at_end`."""
        # Each block from its allocation to its release; places are numbers of events, moments are microseconds. A brief
        # one is a convolution's workspace: it is given back before another is made.
        blocks: list[dict[str, Any]] = []
        live: dict[int, dict[str, Any]] = {}
        early: list[dict[str, Any]] = []  # made before the first event
        requests: Counter[int] = Counter()

        def add(to: list[dict[str, Any]], at: int, size: int, first: int, born: int, frames: Any) -> dict[str, Any]:
            block = {"address": at, "bytes": -(-max(size, 1) // BLOCK) * BLOCK, "first": first, "last": len(events)}
            to.append({**block, "born": born, "died": 1 << 62, "frames": frames, "brief": False, "operator": ""})
            return to[-1]

        for number, event in enumerate(events):
            at, born = event.get("addr", -1), event["time_us"]
            if event["action"] == "alloc":
                requests[event["size"]] += 1
                live[at] = add(blocks, at, event["size"], number, born, event.get("frames", ()))
            elif event["action"] == "free_completed" and at in live:
                live[at].update(last=number, died=born, brief=live[at] is blocks[-1] and at in self._workspaces)
                del live[at]
            elif event["action"] == "free_completed" and at_end is not None:
                add(early, at, event["size"], -1, 0, ()).update(last=number, died=born)
        for one in at_end or ():
            if one["address"] not in live and one["state"] != "inactive":
                add(early, one["address"], one["requested_size"], -1, 0, one.get("frames", ()))
        blocks = early + blocks
        for block in blocks:
            at = bisect.bisect_left(self._turns, (block["born"],))
            block["phase"], block["step"] = self._turns[at][1:] if at < len(self._turns) else self._running
            known = self._labels.get(block["address"], ())
            looks = [look for look in known if block["born"] <= look[0] <= block["died"]]
            looks = looks[-int(not block["born"]) :]  # those before were of other blocks
            is_workspace = block["bytes"] in WORKSPACES and block["died"] >= 1 << 61
            kind = "workspaces" if is_workspace else PHASES.get(block["phase"], "temporaries")
            block["category"], block["name"] = max(looks, key=lambda look: bool(look[2]), default=(0, kind, ""))[1:]
        changes = sorted(
            change
            for number, one in enumerate(blocks)
            for change in ((one["first"], one["bytes"], number), (one["last"], -one["bytes"], number))
        )
        ending = bisect.bisect_left(changes, (len(events),))  # of what is there at the end
        allocated, most, steady, peak_at = 0, 0, 0, -1
        for at, change, number in changes:
            allocated += change
            if allocated > most:
                most, peak_at = allocated, at
            if not blocks[number]["brief"]:
                steady = max(steady, allocated)
        alive, cyclic = [], 0
        categories: Counter[str] = Counter()
        freed: Counter[int] = Counter()
        for block in blocks:
            is_alive = block["first"] <= peak_at < block["last"]
            if is_alive:
                alive.append(block)
                categories[block["category"]] += block["bytes"]
            # When the collector runs depends on how many objects are made: what it freed may be there at the peak.
            at = bisect.bisect(self.collections, (block["died"], 1 << 62)) - 1
            if at >= 0 and block["died"] <= self.collections[at][1]:
                cyclic += block["bytes"] * is_alive
                freed[at] += block["bytes"] * (block["last"] <= peak_at)
        rows, place, allocated = [], 0, 0
        sums: Counter[str] = Counter()
        for end, phase, step in self._turns:
            highest = allocated
            while place < ending and events[max(0, changes[place][0])]["time_us"] <= end:
                _, change, number = changes[place]
                allocated += change
                sums[blocks[number]["category"]] += change
                highest, place = max(highest, allocated), place + 1
            rows.append({"phase": phase, "step": step, "allocated": allocated, "peak": highest, "categories": +sums})
        largest = sorted(alive, key=lambda block: -block["bytes"])[:LARGEST]
        for block in largest:  # the innermost module whose `forward` was running, by its file: `linear`
            frames = block.pop("frames")
            files = (os.path.basename(one["filename"]) for one in frames if one["name"] == "forward")
            own = (one for one in frames if one["filename"].endswith(".py") and is_own(one["filename"]))
            block["module"] = block["name"] or next(files, "").rpartition(".")[0]
            block["line"] = next((f"{one['filename']}:{one['line']}" for one in own), "")
        return {
            "events": len(events),
            "requests": requests,
            "peak": most,
            "steady": steady,  # without convolutions' workspaces
            "garbage": (cyclic, max(freed.values(), default=0)),  # at the peak, and freed before it
            "categories": categories,
            "rows": rows[-2000:],
            "largest": largest,
        }


def parts_of(modules: Iterable[Any], optimizers: Iterable[Any]) -> Iterator[tuple[Any, str, str]]:
    """Yield all that models and optimizers hold, with its kind and its name if it has one; not only tensors."""
    for module in modules:
        for name, buffer in module.named_buffers():
            yield buffer, "weights", name
        for name, parameter in module.named_parameters():
            yield parameter, "weights", name
            yield parameter.grad, "gradients", name
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                yield parameter, "weights", ""
                yield parameter.grad, "gradients", ""
        for state in list(optimizer.state.values()):
            for key, leaf in state.items() if isinstance(state, dict) else ():
                yield leaf, "optimizer", str(key)


def is_asked(frame: Any) -> bool:
    """Return whether it is the code of this frame, and not chance, that runs Python's collector."""
    return frame is not None and "collect(" in linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def is_own(path: str) -> bool:
    """Return whether a file is the job's own code, and none of Python, of a library in any environment, or of ours."""
    return not path.startswith((PACKAGE, "<")) and not any(part in path for part in LIBRARIES)

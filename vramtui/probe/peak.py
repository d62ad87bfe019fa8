"""Parts and largest tensors at the peak, from PyTorch's own history of its allocations (engine `cuda`)."""

from __future__ import annotations  # Python 3.8, which a job may run under, knows no `dict[str, int]`

import bisect
import json
import os
import time
from collections.abc import Iterable, Iterator
from typing import Any

BLOCK = 512  # the CUDA allocator hands out multiples of this
MOST_EVENTS = 400_000
MOST_LOOKS = 64  # at one address, where each step has another gradient
LARGEST = 10
WORKSPACES = {8_519_680, 33_554_432}  # cuBLAS's defaults (CUBLAS_WORKSPACE_CONFIG), before and from Hopper on
PHASES = {"build": "inputs", "input": "inputs", "forward": "activations"}
LIBRARIES = ("/site-packages/", "/dist-packages/", "/lib/python3.")
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class PeakHistory:
    """Records allocations from the first use of CUDA on, and which of them were weights, gradients or states."""

    def __init__(self, torch: Any, workspaces: set[int]) -> None:
        self._torch, self._workspaces = torch, workspaces  # addresses of those of convolutions
        self._turns: list[tuple[int, str, int]] = []  # the end of each phase
        self._labels: dict[int, list[tuple[int, str, str]]] = {}  # by address

    def begin(self) -> None:
        memory = self._torch.cuda.memory
        memory._record_memory_history("all", context="alloc", stacks="python", max_entries=MOST_EVENTS)  # noqa: SLF001 - PyTorch documents it

    def turn(self, phase: str, step: int) -> None:
        self._turns.append((time.time_ns() // 1000, phase, step))

    def look(self, optimizers: list[Any], modules: list[Any], *, stepped: bool) -> None:
        for tensor, kind, name in parts_of(modules, optimizers):
            local = getattr(tensor, "_local_tensor", tensor)  # a DTensor's own shard
            is_here = isinstance(local, self._torch.Tensor) and local.is_cuda
            if is_here and (stepped or kind != "optimizer"):
                known = self._labels.setdefault(local.untyped_storage().data_ptr(), [])
                is_new = not known or known[-1][1] != kind or (name and not known[-1][2])
                if is_new or (kind == "gradients" and len(known) < MOST_LOOKS):
                    known.append((time.time_ns() // 1000, kind, name))

    def write(self, folder: str) -> None:
        """Write what was held at the peak of each device into `folder`."""
        snapshot = self._torch.cuda.memory._snapshot()  # noqa: SLF001 - as above
        for index, events in enumerate(snapshot["device_traces"]):
            if events:
                summary = self._summary(events)
                path = os.path.join(folder, f"{os.getpid()}-{index}.peak")
                with open(path + ".new", "w", encoding="utf-8") as file:
                    json.dump(summary, file)
                os.replace(path + ".new", path)

    def _summary(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        # Each block from its allocation to its release; places are numbers of events, moments are microseconds. A brief
        # one is a convolution's workspace: it is given back before another is made.
        blocks: list[dict[str, Any]] = []
        live: dict[int, dict[str, Any]] = {}
        for number, event in enumerate(events):
            at, born = event.get("addr", -1), event["time_us"]
            if event["action"] == "alloc":
                size = -(-max(event["size"], 1) // BLOCK) * BLOCK
                live[at] = {"address": at, "size": size, "first": number, "last": len(events), "born": born}
                live[at].update(died=1 << 62, frames=event.get("frames", ()), brief=False)
                blocks.append(live[at])
            elif event["action"] == "free_completed" and at in live:
                live[at].update(last=number, died=born, brief=live[at] is blocks[-1] and at in self._workspaces)
                del live[at]
        for block in blocks:
            at = bisect.bisect_left(self._turns, (block["born"],))
            block["phase"], block["step"] = self._turns[at][1:] if at < len(self._turns) else ("build", -1)
            known = self._labels.get(block["address"], ())
            looks = [look for look in known if block["born"] <= look[0] <= block["died"]]
            if looks:
                block["category"], block["name"] = max(looks, key=lambda look: bool(look[2]))[1:]
            else:  # by the phase in which it was made
                is_workspace = block["size"] in WORKSPACES and block["died"] >= 1 << 61
                block["category"] = "workspaces" if is_workspace else PHASES.get(block["phase"], "temporaries")
                block["name"] = ""
        changes = sorted(
            change
            for number, one in enumerate(blocks)
            for change in ((one["first"], one["size"], number), (one["last"], -one["size"], number))
        )
        allocated = most = steady = 0
        peak_at = -1
        for at, change, number in changes:
            allocated += change
            if allocated > most:
                most, peak_at = allocated, at
            if not blocks[number]["brief"]:
                steady = max(steady, allocated)
        alive = [block for block in blocks if block["first"] <= peak_at < block["last"]]
        rows, place = [], 0
        sums: dict[str, int] = {}
        allocated = 0
        for end, phase, step in self._turns:
            highest = allocated
            while place < len(changes) and events[min(int(changes[place][0]), len(events) - 1)]["time_us"] <= end:
                _, change, number = changes[place]
                allocated += change
                category = blocks[number]["category"]
                sums[category] = sums.get(category, 0) + change
                highest, place = max(highest, allocated), place + 1
            parts = {name: size for name, size in sums.items() if size > 0}
            rows.append({"phase": phase, "step": step, "allocated": allocated, "peak": highest, "categories": parts})
        categories: dict[str, int] = {}
        for block in alive:
            categories[block["category"]] = categories.get(block["category"], 0) + block["size"]
        largest = sorted(alive, key=lambda block: -block["size"])[:LARGEST]
        for block in largest:  # the innermost module whose `forward` was running, by its file: `linear`
            files = (os.path.basename(one["filename"]) for one in block["frames"] if one["name"] == "forward")
            block["name"] = block["name"] or next(files, "").rpartition(".")[0]

        def line_of(frames: Iterable[dict[str, Any]]) -> str:
            paths = ((frame["filename"], frame["line"]) for frame in frames)
            return next((f"{path}:{line}" for path, line in paths if path.endswith(".py") and is_own(path)), "")

        return {
            "events": len(events),
            "peak": most,
            "steady": steady,  # without convolutions' workspaces
            "categories": categories,
            "rows": rows[-2000:],
            "largest": [
                {
                    "bytes": block["size"],
                    "category": block["category"],
                    "operator": "",
                    "module": block["name"],
                    "line": line_of(block["frames"]),
                    "phase": block["phase"],
                }
                for block in largest
            ],
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


def is_own(path: str) -> bool:
    """Return whether a file is the job's own code, and none of Python, of a library in any environment, or of ours."""
    return not path.startswith((PACKAGE, "<")) and not any(part in path for part in LIBRARIES)

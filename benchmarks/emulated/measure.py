"""Runs a script and writes down what PyTorch's allocator held: `measure.py OUT SCRIPT`.

The script knows nothing of it. After each optimizer step four counters are kept; at the end the peaks, what the whole
card has in use, and each request to the allocator with the lines that made it.
"""

import gzip
import json
import runpy
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

MOST_REQUESTS = 200_000
DEEPEST = 6  # frames of each request

steps: list[dict[str, int]] = []


def counters() -> dict[str, int]:
    """Allocated and reserved bytes now, and their peaks."""
    return {
        "allocated": torch.cuda.memory_allocated(),
        "reserved": torch.cuda.memory_reserved(),
        "max_allocated": torch.cuda.max_memory_allocated(),
        "max_reserved": torch.cuda.max_memory_reserved(),
    }


def requests() -> list[tuple[str, int, str]]:
    """Each event of the allocator: what it did, its bytes, and where in Python."""
    traces: list[list[dict[str, Any]]] = torch.cuda.memory._snapshot()["device_traces"]
    rows = []
    for event in next((trace for trace in traces if trace), []):
        if event["action"] in {"alloc", "segment_alloc", "segment_map", "oom"}:
            frames = [f"{Path(one['filename']).name}:{one['line']}" for one in event.get("frames", ())]
            rows.append((event["action"], event["size"], " < ".join(frames[:DEEPEST])))
    return rows


def main() -> None:
    """Run the script; what it raised is written down, and raised."""
    out, script = Path(sys.argv[1]), sys.argv[2]
    sys.argv = [script]
    started = time.perf_counter()
    torch.cuda.init()
    torch.cuda.memory._record_memory_history(context="alloc", stacks="python", max_entries=MOST_REQUESTS)
    register_optimizer_step_post_hook(lambda *_: steps.append(counters()))
    error = None
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException as raised:
        error = f"{type(raised).__name__}: {raised}"
        raise
    finally:
        free, total = torch.cuda.mem_get_info()
        found = {
            "error": error,
            "seconds": round(time.perf_counter() - started, 1),
            "steps": steps,
            "end": counters(),
            "in_use": total - free,
            "total": total,
            "device": torch.cuda.get_device_name(),
            "torch": torch.__version__,
            "retries": torch.cuda.memory_stats()["num_alloc_retries"],
            "ooms": torch.cuda.memory_stats()["num_ooms"],
        }
        out.write_text(json.dumps(found), encoding="utf-8")
        with gzip.open(out.with_suffix(".requests.gz"), "wt", encoding="utf-8") as file:
            json.dump(requests(), file)


if __name__ == "__main__":
    main()

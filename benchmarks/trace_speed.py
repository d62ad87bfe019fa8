"""How long a trace takes and how much host memory it needs: `python benchmarks/trace_speed.py [--json]`.

Wall time is that of the whole child process, from its start to its answer, imports included; the processor's seconds
are its own and of what it starts. Memory is the child's peak resident set.
"""

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import torch

from vramtui.core.estimate.devices import card
from vramtui.dryrun.fake.process.run import trace
from vramtui.dryrun.result import TraceRequest

HERE = Path(__file__).resolve()
JOBS = ("gpt_124m", "llama_8b")
LIMITS = {"gpt_124m": (6.0, 2e9), "llama_8b": (20.0, 2e9)}  # seconds, bytes


def gpt_124m() -> None:
    """GPT-2's size, 4 x 1024 tokens, bf16 autocast, AdamW."""
    sys.path.insert(0, str(HERE.parents[1]))
    from benchmarks.golden_training import jobs, train  # noqa: PLC0415 - found by the line above

    train(jobs()["gpt_124m_sdpa_bf16amp_adamw"])


def llama_8b() -> None:
    """Llama 3.1 8B, 4 x 4096 tokens, bf16, AdamW, checkpointing."""
    import transformers  # noqa: PLC0415 - only this job needs it

    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        use_cache=False,
    )
    model: Any = transformers.LlamaForCausalLM(config)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model = model.to("cuda", torch.bfloat16).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    for _ in range(3):
        ids = torch.randint(0, 128256, (4, 4096), device="cuda")
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def measured(name: str) -> dict[str, Any]:
    """Trace one of the functions above; the child's memory is the most that any child so far has had."""
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    result = trace(TraceRequest(path=str(HERE), function=name, device=card("H200")))
    seconds, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    peak = after.ru_maxrss * 1024
    return {
        "job": name,
        "seconds": round(seconds, 2),
        "processor_seconds": round(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2),
        "host_peak_bytes": peak,
        "peak_allocated": result.peak_allocated,
        "peak_reserved": result.peak_reserved,
        "events": result.events,
    }


def main() -> int:
    """Print a line for each job, the smaller first; 1 when one is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    lines = [measured(name) for name in JOBS]
    if options.json:
        print(json.dumps({"schema": 1, "jobs": lines}))
    else:
        for line in lines:
            held, peak = line["host_peak_bytes"] / 1e6, line["peak_allocated"] / 2**30
            used = f"{line['seconds']:6.2f} s  {line['processor_seconds']:6.2f} s of the processor"
            print(f"{line['job']:10} {used}  {held:7.0f} MB  peak allocated {peak:.2f} GiB")
    over = [
        line
        for line in lines
        if line["seconds"] > LIMITS[line["job"]][0] or line["host_peak_bytes"] > LIMITS[line["job"]][1]
    ]
    return int(bool(over))


if __name__ == "__main__":
    raise SystemExit(main())

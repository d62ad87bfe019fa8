"""Memory of PyTorch's operators beside its CUDA build: `python -m benchmarks.operators_memory --truth COMMAND`.

Two hundred entries of PyTorch's own database of operators, drawn by a fixed seed, with two samples each (the first, and
the one with the most numbers), forward and backward. COMMAND starts the Python of a CUDA build, on a card or on a
stand-in for the driver that hands copies on (`FAKECUDA_COPY_MAX=16777216 ./fake python`). What is compared of each
sample, in bytes beyond its inputs: held after forward, the peak in forward, held after backward, the peak in backward.
An entry is equal where all four are in both samples. Where the CUDA build answers with an error there is no truth.
Needs `pip install expecttest` on both sides. Exit code 1 where an entry is not equal.
"""

import argparse
import gc
import importlib
import itertools
import json
import os
import random
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.operators_sweep import SECONDS, give_up, lines_of_children

ENTRIES, SEED = 200, 31
# PyTorch's samples have sides of 5, 10 and 20, most of them smaller than a block of 512 bytes. Odd ones show rounding.
SIDES = {"S": (5, 11), "M": (10, 23), "L": (20, 37)}
MOST_SAMPLES = 60  # of which the largest is looked for
FIGURES = ("after forward", "peak of forward", "after backward", "peak of backward")


def enlarge_samples() -> None:
    """Give PyTorch's makers of samples longer sides."""
    importlib.import_module("torch.testing._internal.common_methods_invocations")
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal."):
            for side, (before, size) in SIDES.items():
                if vars(module).get(side) == before:
                    setattr(module, side, size)


def drawn_names(names: list[str]) -> list[str]:
    """The entries that are tried, of all that there are."""
    return sorted(random.Random(SEED).sample(sorted(names), ENTRIES))


def cases(only: str, *, every: bool) -> Iterator[tuple[str, int, Any]]:
    """Name, number and a function that gives the four figures, for each sample of the entries that were drawn, or of
    every entry.
    """
    import torch  # noqa: PLC0415 - the parent needs none

    enlarge_samples()
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds

    by_name = {f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name: op for op in op_db}
    for name in sorted(by_name) if every else drawn_names(list(by_name)):
        op = by_name[name]
        kinds = (torch.float32, torch.complex64, torch.int64, torch.bool)
        kind = next((one for one in kinds if one in op.dtypes), None)
        if kind is None or only not in name:
            continue
        differentiable = op.supports_autograd and (kind.is_floating_point or kind.is_complex)
        torch.manual_seed(0)
        made = op.sample_inputs("cpu", kind, requires_grad=differentiable)
        try:
            samples = list(itertools.islice(made, MOST_SAMPLES))
        except Exception as error:
            print(f"{name} has no samples of other sides: {error}", file=sys.stderr)
            continue
        largest = max(range(len(samples)), key=lambda i: _numbers(samples[i]))
        for number in sorted({0, largest}):
            sample = samples[number]
            yield name, number, _measurement(op, (sample.input, sample.args, sample.kwargs))


def _numbers(sample: Any) -> int:
    import torch  # noqa: PLC0415 - as above
    from torch.utils._pytree import tree_flatten  # noqa: PLC0415 - as above

    parts = tree_flatten((sample.input, sample.args, sample.kwargs))[0]
    return sum(part.numel() for part in parts if isinstance(part, torch.Tensor))


def _measurement(op: Any, given: Any) -> Any:
    """A function that runs a sample on the card and gives its four figures in bytes."""
    import torch  # noqa: PLC0415 - as above

    from benchmarks.operators_cases import differentiate, moved  # noqa: PLC0415 - loads torch

    def measure() -> list[int]:
        first, args, kwargs = inputs = moved(given, "cuda")
        torch.manual_seed(0)
        gc.collect()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        results = op(first, *args, **kwargs)
        figures = [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before]
        torch.cuda.reset_peak_memory_stats()
        gradients = differentiate(results, inputs)
        figures += [torch.cuda.memory_allocated() - before, torch.cuda.max_memory_allocated() - before]
        del gradients
        return figures

    return measure


def run_here(options: argparse.Namespace) -> None:
    """Measure all samples from `--start` on with the torch of this process; a line of JSON for each."""
    import torch  # noqa: PLC0415 - the parent needs none

    signal.signal(signal.SIGALRM, give_up)
    asked = [one for i, one in enumerate(cases(options.only, every=options.every)) if i >= options.start]
    if options.is_trace:
        from vramtui.core.estimate.devices import card  # noqa: PLC0415 - the parent needs none
        from vramtui.estimators.allocator.caching import CachingAllocator  # noqa: PLC0415 - as above
        from vramtui.estimators.traced.session import TraceSession  # noqa: PLC0415 - loads torch

        device = card("H200")
        TraceSession(CachingAllocator(device.total_memory), device, steps=1 << 60).__enter__()
    side = torch.ones(64, 64, device="cuda")
    torch.mm(side, side)  # cuBLAS keeps its workspace
    del side
    for number, (name, sample, measure) in enumerate(asked, options.start):
        print(json.dumps({"begun": number, "name": name, "sample": sample}), flush=True)
        signal.alarm(SECONDS)
        try:
            answer: dict[str, Any] = {"figures": measure()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        signal.alarm(0)
        print(json.dumps({"case": number, "name": name, "sample": sample, **answer}), flush=True)
    print(json.dumps({"over": True}), flush=True)
    os._exit(0)


def measured(
    command: list[str], options: argparse.Namespace, *, is_trace: bool
) -> dict[tuple[str, int], dict[str, Any]]:
    """What each sample comes to under a Python; one that ends the process is told so, and another goes on behind it.

    Args:
        command: what starts it.
        options: which entries.
        is_trace: within a trace, or on the card that it finds.
    """
    words = [*command, "-m", "benchmarks.operators_memory", "--child", "--only", options.only]
    words += ["--every"] * options.every + ["--trace"] * is_trace
    answers: dict[tuple[str, int], dict[str, Any]] = {}
    for line in lines_of_children(words, os.environ):
        if "ended" in line:
            line["error"] = f"the process ended with {line['ended']}"
        answers[line["name"], line["sample"]] = line
    return answers


def compare(true: list[dict[str, Any]], traced: list[dict[str, Any]]) -> tuple[str, str]:
    """How an entry's samples under a trace stand to those of the CUDA build, and in which words."""
    if any("error" in one for one in true):
        return "no truth", next(one["error"] for one in true if "error" in one)
    if any("error" in one for one in traced):
        return "no answer", next(one["error"] for one in traced if "error" in one)
    differing = [
        f"{name}: {there:,} B, traced {here:,}"
        for one, other in zip(true, traced, strict=True)
        for name, there, here in zip(FIGURES, one["figures"], other["figures"], strict=True)
        if there != here
    ]
    return ("not equal", "; ".join(differing)) if differing else ("equal", "")


def main() -> int:
    """Print what is not equal, and the counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--truth", default="", help="what starts the Python of a CUDA build")
    parser.add_argument("--kept", type=Path, help="where its answers are kept, and taken from where they are there")
    parser.add_argument("--only", default="", help="entries whose name has this in it")
    parser.add_argument("--every", action="store_true", help="all entries, in place of the two hundred")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--trace", dest="is_trace", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--start", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        run_here(options)
    kept = json.loads(options.kept.read_text(encoding="utf-8")) if options.kept and options.kept.exists() else None
    if kept is None:
        kept = list(measured(shlex.split(options.truth), options, is_trace=False).values())
        if options.kept:
            options.kept.write_text(json.dumps(kept, indent=1), encoding="utf-8")
    traced = measured([sys.executable], options, is_trace=True)
    counts: Counter[str] = Counter()
    asked = (one for one in kept if options.only in one["name"])
    for name, group in itertools.groupby(asked, lambda one: str(one["name"])):
        true = list(group)
        kind, words = compare(true, [traced[name, one["sample"]] for one in true])
        counts[kind] += 1
        if kind != "equal":
            print(f"{name}: {kind}: {words}")
    print(", ".join(f"{kind} {count}" for kind, count in counts.most_common()))
    return int(counts["equal"] + counts["no truth"] < counts.total())


if __name__ == "__main__":
    raise SystemExit(main())

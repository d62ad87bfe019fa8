"""By how much training through torch.compile differs from eager training: measured, not modelled.

Each row is a public model, cut to six blocks, trained for two steps by the CUDA build of PyTorch 2.13 on a stubbed
driver, eager and through `torch.compile(model)` with its defaults; `tests/golden/stated.json` has the peaks.
"""

from typing import NamedTuple


class CompiledRun(NamedTuple):
    """A model in a precision: its peaks of allocated and reserved compiled, over those of eager code, less one."""

    model: str
    precision: str
    allocated: float
    reserved: float


RUNS: tuple[CompiledRun, ...] = (
    CompiledRun("pythia-410m", "bf16", -0.219, -0.264),
    CompiledRun("opt-125m", "bf16", -0.301, -0.324),
    CompiledRun("qwen2.5-0.5b", "bf16", -0.355, -0.397),
    CompiledRun("smollm2-135m", "bf16", -0.372, -0.398),
    CompiledRun("tinyllama-1.1b", "bf16", -0.071, -0.131),
    CompiledRun("roberta-base", "bf16", -0.007, 0.063),
    CompiledRun("bert-classes", "bf16", -0.046, 0.074),
    CompiledRun("vit-base", "bf16", -0.057, -0.114),
    CompiledRun("resnet50", "bf16", -0.052, -0.039),
)


def measured_difference() -> str:
    """The effect of compiling on the peak of allocated, in words."""
    changes = sorted(run.allocated for run in RUNS)
    models = len({run.model for run in RUNS})
    middle = changes[len(changes) // 2]
    return (
        f"compiled training of {models} public models allocated {changes[0]:+.0%} to {changes[-1]:+.0%} beside eager "
        f"training at its peak, {middle:+.0%} in the median"
    )

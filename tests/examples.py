"""One small preset, one past run, one clock and one source, which tests change where they are about something else."""

import msgspec

from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Sample
from vramtui.core.runs.run import Run

SMALL_MODEL = """\
[model]
kind = "transformer"
hidden_size = 64
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 100
"""
SMALL = f"""\
name = "Small"
{SMALL_MODEL}[run]
kind = "train"
batch_size = 2
"""
NOTED = """\
# how we train
name   = "Small"   # on the old card

[model]
kind = "transformer"
hidden_size = 64            # as published
num_hidden_layers = 2
num_attention_heads = 4
vocab_size = 100

[run]
kind = "train"
batch_size = 2 # more does not fit
"""
"""The same preset as somebody wrote it by hand."""

_RUN = Run(
    key="k", source="run", host="gpu01", gpu_uuid="GPU-0", gpu_name="NVIDIA H200", pid=4213, command="python train.py",
    started_at=1000.0, preset="gpt2-124m", model_kind="transformer", method="analytic",
    predicted=Ledger(weights=GIB, process=20 * GIB), observed=Ledger(process=19 * GIB),
)  # fmt: skip


def a_run(**changes: object) -> Run:
    return msgspec.structs.replace(_RUN, **changes)


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Never:
    name = "test"

    def read(self) -> Sample:
        raise AssertionError("a test gives its samples itself")

    def close(self) -> None:
        """Nothing is held."""


def followed(*samples: Sample) -> History:
    history = History()
    for sample in samples:
        history.add(sample)
    return history

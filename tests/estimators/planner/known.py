"""An estimator whose every byte is known, and cards of any size."""

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Ledger
from vramtui.core.schema.workload import ServeRun, TrainRun, Workload


class Known:
    """1000 bytes of states and 10 a token, less with each change that a job can make; refuses above 512 tokens."""

    name = "known"

    def __init__(self) -> None:
        self.asked = 0

    def estimate(self, workload: Workload, device: Device) -> Estimate:
        del device
        self.asked += 1
        run = workload.run
        assert not isinstance(run, ServeRun)
        tokens = (run.sequence_length or 0) * run.batch_size
        if (run.sequence_length or 0) > 512:
            raise UserError("run.sequence_length is more than the model's 512 positions")
        states, each = 1000, 10
        if isinstance(run, TrainRun):
            states = 100 if run.lora else 500 if run.precision == "bf16" else 1000
            each -= 3 * (run.checkpointing == "full") + (run.attention == "flash")
        size = states + each * tokens
        return Estimate(method="known", parts=(), ledger=Ledger(process=size), peak_phase="forward")


def card(size: int) -> Device:
    return Device(name="a card", capability=(9, 0), total_memory=size)

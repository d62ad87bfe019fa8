"""What the dashboard remembers of the samples it was given."""

from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Sample


class SampleHistory(History):
    """A history that also has each card's latest answer, by uuid, with the time that it is of."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: dict[str, tuple[float, Gpu]] = {}

    def add(self, sample: Sample) -> None:
        """Take one more sample."""
        super().add(sample)
        for gpu in sample.gpus:
            if gpu.state == "ok":
                self.answered[gpu.uuid] = (sample.taken_at, gpu)

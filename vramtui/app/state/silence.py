"""What is shown while the source as a whole does not answer: the latest reading, every GPU of it with its own age."""

import msgspec

from vramtui.core.observation.readings import Gpu, Sample


def silent(latest: Sample, now: float, reason: str) -> Sample:
    """A sample of `now` (seconds since the epoch) in which no GPU answers, for this reason.

    A GPU that was lost already stays so. The readings stay too: rows are matched and estimates made by them. Whoever
    shows them finds by the state that they are old, and by the time of the last answer how old.
    """
    gpus = tuple(_silent(gpu, reason) if gpu.state == "ok" else gpu for gpu in latest.gpus)
    return msgspec.structs.replace(latest, taken_at=max(now, latest.taken_at), gpus=gpus)


def _silent(gpu: Gpu, reason: str) -> Gpu:
    return msgspec.structs.replace(gpu, state="failed", reason=reason)

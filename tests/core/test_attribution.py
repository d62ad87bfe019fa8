"""Bytes that are nobody's: named by what is known to hide their owner, and by nothing else."""

import msgspec
import pytest

from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Absence, Gpu, Host, Memory, Process, Sample, causes, overlap

HOST, CONTAINER = Host(name="h"), Host(name="h", private_pids=True)
MEMORY = Memory(total=80, used=40, reserved=1, free=39)


def process(pid: int, used: int | None = 1, **more: object) -> Process:
    return Process(pid=pid, type="C", used_memory=used, **more)  # type: ignore[arg-type]  # msgspec checks


def gpu(*processes: Process, **more: object) -> Gpu:
    fields: dict[str, object] = {"memory": MEMORY, **more}
    return Gpu(index=0, uuid="G", name="card", processes=processes, **fields)  # type: ignore[arg-type]  # as above


@pytest.mark.parametrize(
    ("card", "host", "named"),
    [
        (gpu(process(1)), HOST, ()),
        (gpu(process(1)), None, ()),
        (gpu(absent={"processes": Absence.NO_PERMISSION}), HOST, ("every process, because the list is unavailable",)),
        (gpu(process(1, None), process(2)), HOST, ("1 process listed without a size",)),
        (gpu(process(1, None), process(2, None)), HOST, ("2 processes listed without a size",)),
        (
            gpu(process(1), absent={"processes.graphics": Absence.NO_PERMISSION}),
            HOST,
            ("graphics clients, as they are not told",),
        ),
        (gpu(process(1, state="running")), CONTAINER, ("processes outside this container",)),
        (gpu(process(1, state="unseen")), CONTAINER, ()),  # the driver does list those outside
        (gpu(process(1, name="nvidia-cuda-mps-server")), HOST, ("clients of its MPS server",)),
        (gpu(process(1, command="/usr/bin/nvidia-cuda-mps-server")), HOST, ("clients of its MPS server",)),
        (gpu(mig_used=3), HOST, ("what MIG keeps for itself",)),
        (
            gpu(absent={"memory.reserved": Absence.DRIVER_TOO_OLD}),
            HOST,
            ("the driver itself, which is too old to tell that apart",),
        ),
        (gpu(process(1, None), mig_used=3), CONTAINER, (
            "1 process listed without a size", "processes outside this container", "what MIG keeps for itself",
        )),
    ],
)  # fmt: skip
def test_only_what_the_readings_show_is_named(card: Gpu, host: Host | None, named: tuple[str, ...]) -> None:
    assert causes(card, host) == named


def test_bytes_held_beyond_what_is_in_use_are_shared_unless_something_grew_as_much() -> None:
    memory = Memory(total=80, used=10, reserved=1, free=69)

    def sample(at: float, used: int) -> Sample:
        rows = (process(1, used), process(2, 6))
        return Sample(taken_at=at, source="nvml", host=HOST, gpus=(gpu(*rows, memory=memory),))

    history = History()
    history.add(sample(1.0, 4))
    assert history.grown("h", "G") is None
    card = gpu(process(1, 7), process(2, 6), memory=memory)
    assert card.unattributed == -3
    assert "or one grew" in overlap(card, history.grown("h", "G"))
    history.add(sample(2.0, 7))
    assert history.grown("h", "G") == 3
    assert overlap(card, 3) == "a process grew between two readings"
    history.add(sample(3.0, 7))
    assert history.grown("h", "G") == 0
    assert overlap(card, 0) == "counted more than once: processes share it"


def test_what_each_user_holds_is_the_sum_of_what_is_known() -> None:
    several = gpu(process(1, 5, user="anna"), process(2, 7, user="bo"), process(3, None, user="bo"), process(4, 2))
    assert several.held_by_user == {"anna": 5, "bo": 7, None: 2}
    assert gpu(process(1, 5, user="anna"), process(2, 7, user="anna")).held_by_user == {"anna": 12}
    assert gpu(process(1, None, user="anna")).held_by_user == {}
    later = msgspec.structs.replace(several, processes=(process(1, 6, user="anna"),))
    assert later.held_by_user == {"anna": 6}, "another reading adds up its own"

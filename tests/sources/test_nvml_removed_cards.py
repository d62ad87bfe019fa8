"""Cards that the driver stops listing keep a row, and are back with the next look."""

from tests.sources.conftest import Stage
from tests.stub.world import GPU_IS_LOST, StubGpu


def test_a_card_that_is_not_listed_any_more(stage: Stage) -> None:
    cards = [StubGpu(uuid=f"GPU-{index}") for index in range(3)]
    stage.world.gpus = list(cards)
    assert [gpu.state for gpu in stage.tick().gpus] == ["ok", "ok", "ok"]
    stage.world.gpus = cards[:2]
    gone = stage.tick().gpus
    assert [(gpu.uuid, gpu.state) for gpu in gone] == [("GPU-0", "ok"), ("GPU-1", "ok"), ("GPU-2", "lost")]
    assert gone[2].reason == "the driver does not list it any more"
    stage.world.gpus = list(cards)
    assert [gpu.state for gpu in stage.tick().gpus] == ["ok", "ok", "ok"]


def test_all_are_lost_and_the_count_with_them(stage: Stage) -> None:
    """Each card says so by itself; no name of a class is on the screen."""
    stage.tick()
    for gpu in stage.world.gpus:
        gpu.lose()
    stage.world.faults["nvmlDeviceGetCount"] = stage.world.faults["nvmlDeviceGetCount_v2"] = GPU_IS_LOST
    sample = stage.tick()
    assert {gpu.state for gpu in sample.gpus} == {"lost"}
    assert not any("DeviceGoneError" in problem.message for problem in sample.problems)
    for gpu in stage.world.gpus:
        gpu.faults.clear()
    stage.world.faults.clear()
    assert {gpu.state for gpu in stage.tick().gpus} == {"ok"}

"""What a card counts by itself: traffic, repaired memory, video engines and the driver's XID errors."""

from tests.sources.conftest import Stage
from tests.stub.world import FUNCTION_NOT_FOUND, NOT_AVAILABLE, NOT_SUPPORTED
from vramtui.core.observation.readings import Absence
from vramtui.core.observation.source import PcieTraffic

SECONDS = 10.0


def test_traffic_is_bytes_a_second_between_two_looks(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.nvlink_sent, card.pcie_received, card.pcie_sent = 1 << 40, 5_000, 1 << 50
    first = stage.tick().gpus[0]
    assert (first.nvlink_sent, first.absent["nvlink_sent"]) == (None, Absence.FIRST_LOOK)
    card.nvlink_sent += 3 << 20  # KiB
    card.pcie_received += 70_000
    card.pcie_sent = 10
    gpu = stage.tick(SECONDS).gpus[0]
    assert (gpu.nvlink_sent, gpu.nvlink_received, gpu.pcie_received) == ((3 << 30) // 10, 0, 7_000)
    assert gpu.absent["pcie_sent"] is Absence.FIRST_LOOK  # a count that begins anew is no rate
    card.pcie_sent = 30
    gpu = stage.tick(SECONDS).gpus[0]
    assert (gpu.pcie_sent, gpu.pcie_received) == (2, 0)


def test_what_is_counted_in_32_bits_is_measured_where_somebody_asks(stage: Stage) -> None:
    card, other, _ = stage.world.gpus
    card.pcie_narrow, card.pcie_throughput, card.pcie_sent = 1, 3_000, 7
    stage.tick()
    gpus = stage.tick(SECONDS).gpus
    assert gpus[0].absent["pcie_sent"] is Absence.NOT_ASKED
    assert stage.calls("nvmlDeviceGetPcieThroughput") == 0
    assert stage.source.measure_traffic(gpus[0].uuid) == PcieTraffic(sent=3_000_000, received=6_000_000)
    assert stage.source.measure_traffic(gpus[1].uuid) is Absence.NOT_SUPPORTED
    other.lose()
    stage.world.write(stage.path)
    assert stage.source.measure_traffic(gpus[1].uuid) is Absence.LOST
    assert stage.source.measure_traffic("GPU-of-nobody") is Absence.NO_ANSWER


def test_repairs_video_engines_and_a_driver_without_these_calls(stage: Stage) -> None:
    rows, pages, none = stage.world.gpus
    rows.remapped, rows.remap_pending = 3, 1
    rows.encoder, rows.decoder = 12, 34
    pages.remapped = pages.remap_pending = NOT_AVAILABLE
    pages.retired, pages.encoder = 5, None
    none.remapped = none.remap_pending = NOT_AVAILABLE
    none.fail(NOT_SUPPORTED, "nvmlDeviceRegisterEvents")
    seen = stage.tick().gpus
    assert [gpu.memory_repairs for gpu in seen] == [3, 5, None]  # rows or pages, whichever the card has
    assert [gpu.repair_pending for gpu in seen] == [True, None, None]
    assert seen[2].absent["memory_repairs"] is seen[2].absent["xid_errors"] is Absence.NOT_SUPPORTED
    assert (seen[0].encoder_utilization, seen[0].decoder_utilization) == (12, 34)
    assert seen[1].absent["encoder_utilization"] is Absence.NOT_SUPPORTED
    rows.fail(FUNCTION_NOT_FOUND, "nvmlDeviceGetFieldValues", "nvmlDeviceGetEncoderUtilization")
    gpu = stage.tick(SECONDS).gpus[0]
    assert gpu.state == "ok"
    assert gpu.absent["pcie_sent"] is gpu.absent["encoder_utilization"] is Absence.DRIVER_TOO_OLD


def test_errors_since_it_looks_stay_when_the_card_is_lost(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.xids = [13]  # before anybody looked
    assert stage.tick().gpus[0].xid_errors == ()
    card.xids = [13, 31, 79]
    seen = stage.tick(SECONDS).gpus[0].xid_errors
    assert seen is not None
    assert [error.code for error in seen] == [31, 79]
    card.lose()
    assert stage.tick(SECONDS).gpus[0].state == "lost"
    card.faults.clear()
    back = stage.tick(SECONDS).gpus[0].xid_errors
    assert back == seen

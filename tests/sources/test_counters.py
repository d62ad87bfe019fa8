"""What a card counts by itself: traffic, repaired memory, video engines and the driver's XID errors."""

from tests.sources.conftest import Stage
from tests.stub.world import FUNCTION_NOT_FOUND, NOT_AVAILABLE, NOT_SUPPORTED
from vramtui.core.observation.readings import Absence
from vramtui.core.observation.source import PcieTraffic

SECONDS = 10.0


def test_traffic_is_bytes_a_second_between_two_looks(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.nvlink_sent, card.pcie_received = 1 << 40, 5_000
    first = stage.tick().gpus[0]
    assert (first.nvlink_sent, first.absent["nvlink_sent"]) == (None, Absence.FIRST_LOOK)
    card.nvlink_sent += 3 << 20  # KiB
    card.pcie_received += 70_000
    gpu = stage.tick(SECONDS).gpus[0]
    assert (gpu.nvlink_sent, gpu.nvlink_received) == ((3 << 30) // 10, 0)
    assert (gpu.pcie_sent, gpu.pcie_received) == (0, 7_000)


def test_a_count_that_begins_anew_is_no_rate(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.pcie_sent = 1 << 50
    stage.tick()
    card.pcie_sent = 10
    assert stage.tick(SECONDS).gpus[0].absent["pcie_sent"] is Absence.FIRST_LOOK
    card.pcie_sent = 30
    assert stage.tick(SECONDS).gpus[0].pcie_sent == 2


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


def test_repairs_are_rows_or_pages_whichever_the_card_has(stage: Stage) -> None:
    rows, pages, none = stage.world.gpus
    rows.remapped, rows.remap_pending = 3, 1
    pages.remapped = pages.remap_pending = NOT_AVAILABLE
    pages.retired = 5
    none.remapped = none.remap_pending = NOT_AVAILABLE
    seen = stage.tick().gpus
    assert [gpu.memory_repairs for gpu in seen] == [3, 5, None]
    assert [gpu.repair_pending for gpu in seen] == [True, None, None]
    assert seen[2].absent["memory_repairs"] is Absence.NOT_SUPPORTED


def test_video_engines(stage: Stage) -> None:
    stage.world.gpus[0].encoder, stage.world.gpus[0].decoder = 12, 34
    stage.world.gpus[1].encoder = None
    busy, other, _ = stage.tick().gpus
    assert (busy.encoder_utilization, busy.decoder_utilization) == (12, 34)
    assert (other.encoder_utilization, other.absent["encoder_utilization"]) == (None, Absence.NOT_SUPPORTED)


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


def test_a_driver_without_these_calls(stage: Stage) -> None:
    card = stage.world.gpus[0]
    card.fail(FUNCTION_NOT_FOUND, "nvmlDeviceGetFieldValues", "nvmlDeviceGetEncoderUtilization")
    card.fail(NOT_SUPPORTED, "nvmlDeviceRegisterEvents")
    gpu = stage.tick().gpus[0]
    assert gpu.state == "ok"
    assert gpu.absent["pcie_sent"] is gpu.absent["encoder_utilization"] is Absence.DRIVER_TOO_OLD
    assert gpu.absent["xid_errors"] is Absence.NOT_SUPPORTED

"""The driver's own peaks, where accounting mode is on."""

import pytest

from tests.sources.conftest import OTHER, Stage
from tests.stub.world import GPU_IS_LOST, MIB, NO_PERMISSION, StubProcess
from vramtui.core.observation.history import History
from vramtui.sources.nvml.processes import accounting_modes

ONE, TWO = OTHER, OTHER - 1


@pytest.mark.parametrize(("accounting", "peak", "how"), [(1, 900 * MIB, "accounting"), (0, None, "sampled")])
def test_a_peak_between_two_looks_is_the_drivers_where_it_counts(
    stage: Stage, accounting: int, peak: int | None, how: str
) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB))
    stage.world.gpus[0].accounting, stage.world.gpus[0].accounted = accounting, {ONE: 900 * MIB}
    before = stage.calls("nvmlDeviceGetAccountingStats")
    history, sample = History(), stage.tick()
    history.add(sample)
    assert sample.gpus[0].processes[0].peak_memory == peak
    assert stage.calls("nvmlDeviceGetAccountingStats") - before == accounting
    (track,) = history.tracks.values()
    assert track.peak is not None
    assert (track.peak.bytes, track.peak.how) == (peak or 100 * MIB, how)


def test_the_last_word_comes_after_the_exit(stage: Stage) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB), StubProcess(TWO, 50 * MIB))
    stage.world.gpus[0].accounting = 1
    stage.world.gpus[0].accounted = {ONE: 100 * MIB, TWO: 50 * MIB}
    history = History()
    history.add(stage.tick())
    stage.world.gpus[0].accounted[ONE] = 700 * MIB
    stage.hold(0, StubProcess(TWO, 50 * MIB))
    sample = stage.tick()
    assert sample.gpus[0].final_peaks == {ONE: 700 * MIB}
    history.add(sample)
    peaks = {track.process.pid: track.peak for track in history.tracks.values()}
    last = peaks[ONE]
    assert last is not None
    assert (last.bytes, last.how) == (700 * MIB, "accounting")
    assert stage.tick().gpus[0].final_peaks == {}


def test_a_driver_that_does_not_tell_is_asked_once_a_minute(stage: Stage) -> None:
    stage.hold(0, StubProcess(ONE, 100 * MIB))
    for gpu in stage.world.gpus:
        gpu.fail(NO_PERMISSION, "nvmlDeviceGetAccountingMode")
    before = stage.calls("nvmlDeviceGetAccountingMode")
    for _ in range(5):
        assert stage.tick().gpus[0].processes[0].peak_memory is None
    assert stage.calls("nvmlDeviceGetAccountingMode") == before + 3


def test_peaks_are_asked_for_every_few_seconds_and_for_whoever_arrives(stage: Stage) -> None:
    gpu = stage.world.gpus[0]
    gpu.accounting, gpu.accounted = 1, {ONE: 10 * MIB}
    stage.hold(0, StubProcess(ONE, 10 * MIB))
    stage.tick()
    before = stage.calls("nvmlDeviceGetAccountingStats")
    stage.tick()
    stage.tick()
    assert stage.calls("nvmlDeviceGetAccountingStats") == before
    gpu.accounted[TWO] = 30 * MIB
    stage.hold(0, StubProcess(ONE, 10 * MIB), StubProcess(TWO, 20 * MIB))
    rows = {process.pid: process.peak_memory for process in stage.tick().gpus[0].processes}
    assert rows == {ONE: 10 * MIB, TWO: 30 * MIB}
    assert stage.calls("nvmlDeviceGetAccountingStats") == before + 1
    stage.tick(5.0)
    assert stage.calls("nvmlDeviceGetAccountingStats") == before + 3


def test_the_modes_of_all_cards(stage: Stage) -> None:
    stage.world.gpus[1].accounting = 1
    stage.world.gpus[2].fail(GPU_IS_LOST, "nvmlDeviceGetAccountingMode")
    stage.world.write(stage.path)
    assert accounting_modes() == {0: False, 1: True, 2: None}

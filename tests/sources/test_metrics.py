"""How busy processes keep a card, by what NVML answers."""

import pynvml
import pytest

from vramtui.sources.nvml.calls import Caller
from vramtui.sources.nvml.metrics import CALL, BusyProcesses


def _sample(pid: int, at: int, sm: int) -> pynvml.c_nvmlProcessUtilizationSample_t:
    return pynvml.c_nvmlProcessUtilizationSample_t(pid=pid, timeStamp=at, smUtil=sm)


def test_the_latest_sample_of_each_and_only_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(_: object, since: int) -> list[pynvml.c_nvmlProcessUtilizationSample_t]:
        asked.append(since)
        told = [(7, 100, 40), (7, 200, 60), (8, 150, 5), (9, 150, 4_000_000), (0, 0, 0)]
        return [_sample(*one) for one in told]

    monkeypatch.setattr(pynvml, CALL, answer)
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert busy.read(caller, None) == {7: 60, 8: 5}
    assert busy.read(caller, None) == {}
    assert asked == [0, 200]


@pytest.mark.parametrize("code", [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND])
def test_idle_processes_are_idle_and_not_unknown(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    busy, caller = BusyProcesses(), Caller("GPU 0")
    monkeypatch.setattr(pynvml, CALL, lambda *_: [_sample(7, 100, 40)])
    busy.read(caller, None)

    def nothing(*_: object) -> None:
        raise pynvml.NVMLError(code)

    monkeypatch.setattr(pynvml, CALL, nothing)
    assert busy.read(caller, None) == {}
    assert caller.problems == []


def test_a_device_that_does_not_know_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def refuses(*_: object) -> None:
        calls.append(1)
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, CALL, refuses)
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert [busy.read(caller, None), busy.read(caller, None)] == [None, None]
    assert len(calls) == 1

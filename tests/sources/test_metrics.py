"""How busy processes keep a card, by what NVML answers."""

import pytest

from vramtui.sources.nvml import library
from vramtui.sources.nvml.calls import Caller
from vramtui.sources.nvml.metrics import BusyProcesses

SAMPLES = "utilization_samples"


def test_the_latest_sample_of_each_and_only_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def answer(_: object, since: int) -> list[tuple[int, int, int]]:
        asked.append(since)
        return [(7, 100, 40), (7, 200, 60), (8, 150, 5), (9, 150, 4_000_000), (0, 0, 0)]

    monkeypatch.setattr(library, SAMPLES, answer)
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert busy.read(caller, None) == {7: 60, 8: 5}
    assert busy.read(caller, None) == {}
    assert asked == [0, 200]


@pytest.mark.parametrize("code", [library.SUCCESS, library.NOT_FOUND])
def test_idle_processes_are_idle_and_not_unknown(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    busy, caller = BusyProcesses(), Caller("GPU 0")
    monkeypatch.setattr(library, SAMPLES, lambda *_: [(7, 100, 40)])
    busy.read(caller, None)

    def nothing(*_: object) -> None:
        raise library.NvmlError(code)

    monkeypatch.setattr(library, SAMPLES, nothing)
    assert busy.read(caller, None) == {}
    assert caller.problems == []


def test_a_device_that_does_not_know_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def refuses(*_: object) -> None:
        calls.append(1)
        raise library.NvmlError(library.NOT_SUPPORTED)

    monkeypatch.setattr(library, SAMPLES, refuses)
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert [busy.read(caller, None), busy.read(caller, None)] == [None, None]
    assert len(calls) == 1

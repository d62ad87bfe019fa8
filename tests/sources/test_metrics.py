"""How busy processes keep a card, by what NVML answers."""

import ctypes
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from vramtui.core.observation.bounded_samples import MOST_PROCESSES
from vramtui.sources.nvml.calls import Caller
from vramtui.sources.nvml.metrics import CALL, BusyProcesses

Told = tuple[int, int, int]  # pid, time, percent


class _Driver:
    """The library's own call: it tells how many samples there are, then writes them."""

    def __init__(self, told: list[Told], code: int = pynvml.NVML_SUCCESS) -> None:
        self.told, self.code, self.asked = told, code, list[int]()

    def __call__(self, _: object, out: Any, count: Any, since: ctypes.c_ulonglong) -> int:
        self.asked.append(since.value)
        if self.code or not self.told:
            return self.code
        asked = ctypes.cast(count, ctypes.POINTER(ctypes.c_uint)).contents
        room, asked.value = asked.value, len(self.told)
        if room < len(self.told):
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        records = [pynvml.c_nvmlProcessUtilizationSample_t(pid, at, sm) for pid, at, sm in self.told]
        ctypes.memmove(out, b"".join(map(bytes, records)), len(records) * ctypes.sizeof(records[0]))
        return int(pynvml.NVML_SUCCESS)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> _Driver:
    """One that tells of process 7."""
    made = _Driver([(7, 100, 40)])
    monkeypatch.setattr(pynvml, "nvmlLib", SimpleNamespace(**{CALL: made}))
    return made


def test_the_latest_sample_of_each_and_only_new_ones(driver: _Driver) -> None:
    driver.told = [(7, 100, 40), (7, 200, 60), (8, 150, 5), (9, 150, 4_000_000), (0, 0, 0)]
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert busy.read(caller, None) == {7: 60, 8: 5}
    assert busy.read(caller, None) == {}
    assert driver.asked == [0, 0, 200, 200]


@pytest.mark.parametrize("code", [pynvml.NVML_SUCCESS, pynvml.NVML_ERROR_NOT_FOUND])
def test_idle_processes_are_idle_and_not_unknown(driver: _Driver, code: int) -> None:
    busy, caller = BusyProcesses(), Caller("GPU 0")
    busy.read(caller, None)
    driver.told, driver.code = [], code
    assert busy.read(caller, None) == {}
    assert caller.problems == []


def test_a_device_that_does_not_know_is_asked_once(driver: _Driver) -> None:
    driver.code = pynvml.NVML_ERROR_NOT_SUPPORTED
    busy, caller = BusyProcesses(), Caller("GPU 0")
    assert [busy.read(caller, None), busy.read(caller, None)] == [None, None]
    assert len(driver.asked) == 1


def test_more_samples_than_processes_can_be_are_not_read(driver: _Driver) -> None:
    driver.told = [(7, 100, 40)] * (MOST_PROCESSES + 1)
    caller = Caller("GPU 0")
    assert BusyProcesses().read(caller, None) is None
    assert len(driver.asked) == 1
    assert [problem.where for problem in caller.problems] == ["GPU 0"]

import pytest

from vramtui.core.base.units import GIB
from vramtui.core.observation.alerts import Alert
from vramtui.core.observation.oom.advice import sentences_of
from vramtui.core.observation.oom.report import OomReport
from vramtui.core.observation.probe_messages import Hello, ObservedJob, OutOfMemory, ProbeDevice
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.schema.settings import AlertRules
from vramtui.monitor.jobs import STANDS, oom_alerts
from vramtui.monitor.session import MonitorSession

CARD = ProbeDevice(index=0, name="card", total_memory=80 * GIB, capability=(9, 0), uuid="a")


def sample(at: float, others: int = 0) -> Sample:
    processes = [Process(pid=7, type="C", used_memory=40 * GIB, command="python main.py", started_at=1.0)]
    if others:
        processes.append(Process(pid=8, type="C", used_memory=others, started_at=1.0))
    memory = Memory(total=80 * GIB, used=40 * GIB + others, free=40 * GIB - others)
    gpu = Gpu(index=3, uuid="GPU-a", name="card", memory=memory, processes=tuple(processes))
    return Sample(taken_at=at, source="given", host=Host(name="here"), gpus=(gpu,))


def job(at: float, *, asked: int, free: int, limit: int | None = None, allocated: int = 38 * GIB) -> ObservedJob:
    reserved = allocated + 2 * GIB
    oom = OutOfMemory(
        v=1, pid=7, at=at, device=0, asked=asked, free=free, limit=limit, allocated=allocated, reserved=reserved, step=4
    )
    return ObservedJob(pid=7).heard(Hello(v=1, pid=7, at=0.0, devices=(CARD,))).heard(oom)


@pytest.mark.parametrize(("asked", "free", "allocated", "others", "cause"), [
    (50 * GIB, 40 * GIB, 38 * GIB, 0, "not enough memory"),
    (2 * GIB, 1 * GIB, 76 * GIB, 0, "fragmentation"),
    (20 * GIB, 10 * GIB, 38 * GIB, 30 * GIB, "another process"),
])  # fmt: skip
def test_the_words_are_those_of_the_command(asked: int, free: int, allocated: int, others: int, cause: str) -> None:
    (alert,) = oom_alerts(sample(100.0, others), [job(99.0, asked=asked, free=free, allocated=allocated)])
    report = OomReport(
        asked=asked,
        total=80 * GIB,
        free=free,
        allocated=allocated,
        unallocated=2 * GIB,
        others={8: others} if others else {},
    )
    assert report.cause == cause
    assert next(sentences_of(report)) in alert.sentence
    assert alert.sentence.startswith("pid 7, GPU 3. ")
    assert (alert.kind, alert.gpu_index) == ("out_of_memory", 3)


def test_the_dashboard_says_it_once_and_as_no_news_after_a_minute() -> None:
    (alert,) = oom_alerts(sample(100.0), [job(99.0, asked=4 * GIB, free=40 * GIB, limit=41 * GIB)])
    assert "within the process's own limit of 41.00 GiB" in alert.sentence
    assert "Refused" not in alert.sentence
    assert not list(oom_alerts(sample(100.0 + STANDS), [job(99.0, asked=GIB, free=0)]))
    session = MonitorSession(jobs=lambda: (job(99.0, asked=50 * GIB, free=40 * GIB),), alert_rules=AlertRules())
    session.take_presets([])
    said: list[Alert] = []
    for at in (100.0, 101.0, 102.0):
        session.ingest(sample(at))
        said += session.new_alerts
    assert [alert.kind for alert in said] == ["out_of_memory"]
    assert [alert.kind for alert in session.alerts] == ["out_of_memory"]

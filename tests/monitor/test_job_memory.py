from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ObservedJob, PhaseEnd, ProbeDevice
from vramtui.core.observation.readings import Gpu, Memory, Process
from vramtui.monitor.jobs import MOST_CURVES, PARTS, JobMemory

GPU = Gpu(index=0, uuid="GPU-a", name="card", memory=Memory(total=100, used=50))
PROCESS = Process(pid=7, type="C", used_memory=50)
HELLO = ProbeDevice(index=0, name="card", total_memory=100, capability=(9, 0), uuid="a")


def job(at: float, allocated: int, *ends: PhaseEnd, pid: int = 7) -> ObservedJob:
    beat = Beat(
        v=1,
        pid=pid,
        at=at,
        step=3,
        devices=(MemoryCounters(index=0, allocated=allocated, reserved=40),),
        parts={"weights": {"cuda:0": 10}, "gradients": {"cuda:0": 4}, "optimizer": {"cuda:0": 6}},
        moments=ends,
    )
    return ObservedJob(pid=pid).heard(Hello(v=1, pid=pid, at=0.0, devices=(HELLO,))).heard(beat)


def test_parts_of_the_fullest_moment_add_up_and_are_bounded() -> None:
    memory = JobMemory()
    memory.take(1.0, [job(1.0, 30)])
    curve = memory.of(PROCESS, GPU)
    assert PARTS == ("weights", "optimizer", "gradients", "activations", "cached")
    assert [values[0] for values in curve.values] == [10, 6, 4, 10, 10]
    memory = JobMemory()
    end = PhaseEnd(at=1.5, phase="forward", step=4, device=0, allocated=20, peak_allocated=38)
    for at, told in ((1.0, job(1.0, 16)), (2.0, job(2.0, 16, end)), (3.0, job(3.0, 16, end))):
        memory.take(at, [told])
    curve = memory.of(PROCESS, GPU)
    assert list(curve.values[PARTS.index("activations")]) == [0, 18, 0]
    # While they load, the parts that are told of are not there yet.
    memory = JobMemory()
    memory.take(1.0, [job(1.0, 8)])
    curve = memory.of(PROCESS, GPU)
    assert [values[0] for values in curve.values] == [8, 0, 0, 0, 32]
    memory = JobMemory()
    memory.take(1.0, [ObservedJob(pid=7)])
    assert memory.of(PROCESS, GPU) is None
    memory = JobMemory()
    memory.take(1.0, [job(1.0, 30, pid=pid) for pid in range(1, MOST_CURVES + 20)])
    assert memory.of(PROCESS, GPU) is None
    assert memory.of(Process(pid=MOST_CURVES, type="C", used_memory=1), GPU) is not None

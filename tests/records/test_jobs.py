import re
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.records.moments import moment
from vramtui.core.observation import probe_messages as messages
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import Recording, RecordingHeader, RecordingWriter, read_recording
from vramtui.records.recording.samples import BURST, BYTES_A_SECOND, JobLine, ReadJobs, WrittenJobs

DEVICE = messages.ProbeDevice(index=0, name="NVIDIA H200", total_memory=140 << 30, capability=(9, 0), uuid="GPU-0")
PHASES: tuple[messages.ProbePhase, ...] = ("forward", "backward", "step")


def hello(pid: int, at: float = 1.0, command: str = "train.py") -> messages.Hello:
    return messages.Hello(v=1, pid=pid, at=at, command=("python", command), torch="2.9.1", devices=(DEVICE,), rank=0)


def ends(step: int, at: float, allocated: int = 5 << 30) -> tuple[messages.PhaseEnd, ...]:
    return tuple(
        messages.PhaseEnd(at=at + place / 10, phase=phase, step=step, device=0, allocated=allocated + place)
        for place, phase in enumerate(PHASES)
    )


def beat(
    pid: int, step: int, at: float, *, allocated: int = 5 << 30, moments: Sequence[messages.PhaseEnd] = ()
) -> messages.Beat:
    return messages.Beat(
        v=1,
        pid=pid,
        at=at,
        phase="forward",
        step=step,
        step_seconds=0.25,
        devices=(
            messages.MemoryCounters(index=0, allocated=allocated, allocated_peak=allocated + 1, reserved=6 << 30),
        ),
        parts={"weights": {"cuda:0": 3 << 30}},
        moments=tuple(moments),
    )


def heard(pid: int, *several: messages.AnyMessage) -> messages.ObservedJob:
    job = messages.ObservedJob(pid=pid)
    for message in several:
        job = job.heard(message)
    return job


def lines_to_jobs(ticks: Sequence[tuple[float, Sequence[messages.ObservedJob]]]) -> tuple[ReadJobs, int]:
    writer, reader, size = WrittenJobs(), ReadJobs(), 0
    for at, jobs in ticks:
        for line in writer.lines(at, jobs):
            size += len(line)
            reader.take(msgspec.json.decode(line, type=dict[str, JobLine])["job"])
    return reader, size


counts = st.none() | st.integers(0, 1 << 40)
one, seven, zero, times = st.just(1), st.just(7), st.just(0), st.floats(0, 9)
some = st.integers(0, 1 << 40)
exchanges = st.lists(
    st.one_of(
        st.builds(messages.Hello, v=one, pid=seven, at=times, command=st.just(("a",)), rank=counts),
        st.builds(
            messages.Beat,
            v=st.just(1),
            pid=st.just(7),
            at=times,
            phase=st.none() | st.sampled_from(PHASES),
            step=st.integers(0, 9),
            step_seconds=st.none() | st.floats(0, 9),
            devices=st.lists(
                st.builds(
                    messages.MemoryCounters, index=st.integers(0, 2),
                    allocated=counts, reserved_peak=counts, num_ooms=counts,
                ),
                max_size=2,
                unique_by=lambda counters: counters.index,
            ).map(tuple),
            parts=st.dictionaries(
                st.sampled_from(["weights", "optimizer"]),
                st.dictionaries(st.sampled_from(["cuda:0", "cpu"]), st.integers(0, 9), max_size=2),
                max_size=2,
            ),
        ),
        st.builds(messages.OutOfMemory, v=one, pid=seven, at=times, device=zero, asked=some, step=some),
        st.builds(messages.End, v=one, pid=seven, at=times, error=st.none() | st.just("MemoryError")),
    ),
    max_size=12,
)  # fmt: skip


@given(exchanges)
def test_there_and_back_message_after_message(told: list[messages.AnyMessage]) -> None:
    job = messages.ObservedJob(pid=7)
    ticks = []
    for second, message in enumerate(told):
        at = float(second)
        job = job.heard(msgspec.structs.replace(message, at=at))
        if isinstance(message, messages.Beat) and second % 2:
            job = job.heard(msgspec.structs.replace(message, at=at, moments=ends(message.step, at)))
        ticks.append((at, (job,)))
    reader, _ = lines_to_jobs(ticks)
    for at, (then,) in ticks:
        (read,) = reader.at(at)
        assert _without_moments(read) == _without_moments(then)
        assert [end for end in read.moments if end.step < messages.FIRST_STEPS] == [
            end for end in then.moments if end.step < messages.FIRST_STEPS
        ]
        assert read.ledger(0) == then.ledger(0)
        assert set(read.moments) <= set(then.moments)
    assert reader.at(-1.0) == ()


def _without_moments(job: messages.ObservedJob) -> messages.ObservedJob:
    if job.beat is None:
        return msgspec.structs.replace(job, moments=())
    devices = tuple(sorted(job.beat.devices, key=lambda counters: counters.index))
    return msgspec.structs.replace(job, beat=msgspec.structs.replace(job.beat, moments=(), devices=devices), moments=())


def test_steps_alike_are_not_written_again_and_a_pid_may_be_anothers() -> None:
    job = heard(7, hello(7))
    ticks = []
    for step in range(50):
        grown = 5 << 30 if step < 40 else 6 << 30
        job = job.heard(beat(7, step, float(step), moments=ends(step, float(step), grown)))
        ticks.append((float(step), (job,)))
    reader, _ = lines_to_jobs(ticks)
    (read,) = reader.at(99.0)
    assert [end.step for end in read.moments if end.phase == "step"] == [0, 1, 2, 3, 40] or [
        end.step for end in read.moments if end.phase == "step"
    ] == [0, 1, 2, 40]
    assert read.ledger(0) == job.ledger(0)
    first = heard(
        7, hello(7), beat(7, 3, 2.0), messages.End(v=1, pid=7, at=3.0, error="MemoryError", out_of_memory=True)
    )
    gone = msgspec.structs.replace(first, gone=True)
    second = heard(7, hello(7, at=9.0, command="other.py"))
    reader, _ = lines_to_jobs([(1.0, (first,)), (2.0, (gone,)), (3.0, ()), (9.0, (second,))])
    assert [reader.at(at) for at in (1.0, 2.5, 3.0, 9.0)] == [
        (_no_beat_moments(first),),
        (_no_beat_moments(gone),),
        (_no_beat_moments(gone),),
        (second,),
    ]


def _no_beat_moments(job: messages.ObservedJob) -> messages.ObservedJob:
    assert job.beat is not None
    return msgspec.structs.replace(job, beat=msgspec.structs.replace(job.beat, moments=()))


@pytest.mark.slow
def test_a_hundred_busy_jobs_are_bounded_and_end_as_they_ended() -> None:
    pids = range(1, 101)
    jobs = {pid: heard(pid, hello(pid)) for pid in pids}
    ticks = []
    for second in range(600):
        if second < 500:
            for pid in pids:
                step, at = 4 * second, float(second)
                message = beat(pid, step, at, allocated=pid + (second << 20), moments=ends(step, at, second))
                jobs[pid] = jobs[pid].heard(message)
        ticks.append((float(second), tuple(jobs.values())))
    reader, size = lines_to_jobs(ticks)
    longest = 1 << 16
    assert size <= BURST + 600 * BYTES_A_SECOND + longest
    for read in reader.at(600.0):
        assert read.ledger(0) == jobs[read.pid].ledger(0)
        assert read.beat.step == 4 * 499


def record(path: Path, *ticks: Sequence[messages.ObservedJob]) -> Recording:
    sample = moment().sample
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for place, jobs in enumerate(ticks):
            writer.write(RecordedTick(msgspec.structs.replace(sample, taken_at=100.0 + place), jobs))
    return read_recording(path)


@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_recording_carries_them_beside_its_samples(name: str, tmp_path: Path) -> None:
    job = heard(7, hello(7))
    later = job.heard(beat(7, 1, 101.0))
    recording = record(tmp_path / name, (job,), (later,))
    assert recording.jobs_at(100.5) == (job,)
    assert recording.jobs_at(101.0) == (_no_beat_moments(later),)
    assert len(recording.samples) == 2
    assert recording.warnings == ()


def test_a_cut_leaves_what_was_before_and_a_recording_without_jobs_reads(tmp_path: Path) -> None:
    path = tmp_path / "whole.jsonl"
    job = heard(7, hello(7))
    record(path, (job,), (job.heard(beat(7, 1, 101.0)),))
    data = path.read_bytes()
    cut = tmp_path / "cut.jsonl"
    first = data.index(b'{"job":')
    for length in range(first, len(data)):
        cut.write_bytes(data[:length])
        recording = read_recording(cut)
        assert len(recording.jobs_at(1e9)) == (length >= data.index(b"\n", first))
        assert all("was cut off in line" in warning for warning in recording.warnings)
    recording = record(tmp_path / "r", (), ())
    assert recording.jobs_at(1e9) == ()


@pytest.mark.parametrize(("line", "said"), [
    (b'{"job":{"at":1.0,"pid":0}}', "Expected `int` >= 1"),
    (b'{"job":{"at":1.0,"pid":7,"changes":{"beat":{"step":"x"}}}}', "missing required field|Expected"),
    (b'{"job":{"at":1.0,"pid":7,"changes":{"gone":3}}}', "Expected `bool`"),
    (b'{"job":3}', "Expected `object`"),
])  # fmt: skip
def test_a_line_that_is_none_is_said_with_its_number(line: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    record(path, ())
    with path.open("ab") as file:
        file.write(line + b"\n")
    (warning,) = read_recording(path).warnings
    assert re.match(f"line 3 is damaged: .*({said})", warning)


def test_of_too_many_moments_of_jobs_the_turns_of_their_fate_are_kept() -> None:
    jobs = ReadJobs(most=40)
    for at in range(1, 200):
        changes = {} if at != 50 else {"hello": {"v": 1, "pid": 7, "at": 50.0, "command": ["train"]}}
        jobs.take(
            JobLine(
                at=float(at), pid=7, new=at == 1, changes={**changes, "beat": {"v": 1, "pid": 7, "at": at, "step": at}}
            )
        )
    hello = messages.Hello(v=1, pid=7, at=50.0, command=("train",))
    assert [job.hello for job in jobs.at(50.0)] == [hello]
    assert [job.hello for job in jobs.at(49.5)] == [None]
    (last,) = jobs.at(1e9)
    assert isinstance(last, messages.ObservedJob)
    assert last.beat.at == 199
    assert last.hello == hello
    assert len({id(job) for at in range(1, 200) for job in jobs.at(float(at))}) <= 41

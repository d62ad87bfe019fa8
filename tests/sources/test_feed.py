import gzip
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import msgspec
import pytest

from tests.examples import Clock
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.observation import readings
from vramtui.core.observation.history import Peak
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import LiveRecording, RecordingEncoder, RecordingHeader
from vramtui.records.recording.samples import MOST_LIVE, MOST_WAITING
from vramtui.sources.feed import LatestSample, LineSplitter, PipeSource, ReplaySource

KEY = readings.ProcessKey("far", "GPU-0", 7, 1.0)


def sample(at: float, used: int = 5) -> readings.Sample:
    process = readings.Process(pid=7, type="C", used_memory=used, started_at=1.0)
    gpu = readings.Gpu(
        index=0, uuid="GPU-0", name="H200", memory=readings.Memory(total=100, used=used, free=100 - used)
    )
    return readings.Sample(
        taken_at=at,
        source="nvml",
        host=readings.Host(name="far"),
        gpus=(msgspec.structs.replace(gpu, processes=(process,)),),
    )


def whole(*samples: readings.Sample) -> bytes:
    encoder = RecordingEncoder()
    head = encoder.header(RecordingHeader(interval=0.1))
    return head + b"".join(encoder.lines(RecordedTick(one)) for one in samples)


def piped(live: LiveRecording | None = None) -> tuple[PipeSource, int]:
    reader, writer = os.pipe()
    return PipeSource(reader, "the pipe", live or LiveRecording()), writer


def test_what_comes_through_a_pipe_is_seen_as_it_comes() -> None:
    source, writer = piped()
    encoder = RecordingEncoder()
    os.write(writer, encoder.header(RecordingHeader(interval=0.1)))
    for at in (10.0, 11.0, 12.0):
        os.write(writer, encoder.lines(RecordedTick(sample(at, int(at)))))
        assert source.read() == sample(at, int(at))
    os.write(writer, whole(*(sample(float(at)) for at in range(13, 21))))
    assert source.read().taken_at == 20.0  # of samples that waited the newest is given once
    os.close(writer)
    with pytest.raises(SourceFailed, match=r"the pipe has ended\."):
        source.read()


def test_a_file_that_grows_is_followed_from_its_end(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    text = whole(*(sample(float(at)) for at in range(1, 6)))
    path.write_bytes(text[:-20])
    source = PipeSource(os.open(path, os.O_RDONLY), "r.jsonl", LiveRecording())
    assert source.read().taken_at == 4.0
    with path.open("ab") as file:
        file.write(text[-20:])
    assert source.read().taken_at == 5.0
    source.close()


@pytest.mark.parametrize(("content", "sentence"), [
    (b"hello\n", "the pipe, line 1: JSON is malformed"),
    (b'{"vramtui_recording":9}\n', "line 1: made by a newer version of vramtui .format 9"),
    (whole(sample(1.0)).replace(b"1.0", b"-7e9"), "line 2: taken_at is"),
    (gzip.compress(whole(sample(1.0))), "the pipe is compressed"),
])  # fmt: skip
def test_what_is_no_recording_is_said(content: bytes, sentence: str) -> None:
    source, writer = piped()
    os.write(writer, content)
    with pytest.raises(SourceFailed, match=sentence):
        source.read()
    os.close(writer)


def test_a_damaged_line_hides_itself_and_what_changed_waits_for_a_whole_sample() -> None:
    live = LiveRecording()
    lines = [readings.encode_sample(sample(float(at))) for at in range(1, 100)]
    assert (live.take(b'{"vramtui_recording":1}'), live.take(lines[0])) == (None, sample(1.0))
    assert live.take(b"\xff\x00") is None
    after = live.take(lines[1])
    assert ([problem.where for problem in after.problems], after.gpus) == (["damaged lines"], sample(2.0).gpus)
    assert live.take(lines[-1]) == sample(99.0)  # for a minute
    assert [live.take(b"{}") for _ in range(2)] == [None, None]
    with pytest.raises(UserError, match="missing required field"):  # damage in a row is no recording any more
        live.take(b"{}")
    live = LiveRecording()
    header, first, *changes = whole(*(sample(float(at), at) for at in range(1, 9))).splitlines()
    for line in (header, first, changes[0]):
        live.take(line)
    assert live.take(b"{}") is None
    assert [live.take(line) for line in changes[1:]] == [None] * 6  # is no reason to end
    after = live.take(readings.encode_sample(sample(9.0)))
    assert after.taken_at == 9.0


def test_peaks_between_samples_come_along_and_nothing_fills_memory() -> None:
    live = LiveRecording()
    source, writer = piped(live)
    peak = Peak(bytes=90, at=9.5)
    os.write(writer, whole() + RecordingEncoder().lines(RecordedTick(sample(10.0), peaks={KEY: peak})))
    assert source.read().taken_at == 10.0
    while not (found := list(live.peaks(10.0))):
        time.sleep(0.01)
    assert (found, list(live.peaks(11.0))) == ([(KEY, peak)], [])
    os.close(writer)
    # Jobs that come and go, peaks of samples that never come, predictions, and what no version knows.
    live = LiveRecording()
    live.take(readings.encode_sample(sample(1.0)))
    process = {"host": "h", "gpu_uuid": "u", "pid": 1, "started_at": None, "peak": {"bytes": 1, "at": 1.0}}
    for number in range(1, MOST_LIVE + 100):
        live.take(b'{"job":{"at":%d,"pid":%d,"new":true,"changes":{"gone":%s}}}' % (number, number, b"true"))
        live.take(b'{"job":{"at":%d,"pid":7,"changes":{"gone":false}}}' % number)
        live.take(b'{"prediction":{"number":%d}}' % number)
        live.take(b'{"unheard%d":{}}' % number)
    peaks = msgspec.json.encode({"processes": {"at": 1e11, "processes": [process] * 1000}})
    for number in range(100):
        live.take(peaks.replace(b"100000000000.0", b"%d" % (10**11 + number)))
    assert len(live.jobs()) == MOST_LIVE
    assert 7 in {job.pid for job in live.jobs()}
    assert len(live.peaks(1e12)) <= MOST_WAITING


def test_lines_come_out_however_they_are_cut_and_many_hosts_begin_at_once() -> None:
    text = b"one\n\ntwo\nthree"
    for size in range(1, len(text) + 1):
        lines = LineSplitter()
        found = [line for at in range(0, len(text), size) for line in lines.add(text[at : at + size])]
        assert found == [b"one", b"", b"two"]
    # In a process that has read nothing yet: msgspec learns a type when it first reads one, in one thread only.
    text = whole(sample(1.0), sample(2.0), sample(3.0, used=9))
    ended = subprocess.run([sys.executable, "-c", HOSTS], input=text, capture_output=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout) == (0, b"24 True\n"), ended.stderr


HOSTS = """
import sys, threading
from vramtui.records.recording.files import LiveRecording
lines, found, together = sys.stdin.buffer.read().splitlines(), [], threading.Barrier(24)
def host():
    live = LiveRecording()
    together.wait()
    found.append([live.take(line) for line in lines][-1])
threads = [threading.Thread(target=host) for _ in range(24)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(found), all(one == found[0] for one in found))
"""


def test_a_recording_plays_at_its_own_pace_and_silence_is_death_by_our_own_clock() -> None:
    clock, samples = Clock(), tuple(map(sample, (100.0, 101.0, 102.5)))
    replay, fast = ReplaySource(samples, clock=clock), ReplaySource(samples, speed=10, clock=clock)
    seen, begin = [], clock.now
    for later in (0.0, 0.9, 1.0, 2.4, 2.5, 94.0):
        clock.now = begin + later
        seen.append(replay.read().taken_at)
        if later < 1:
            fast.read()
    assert seen == [100.0, 100.0, 101.0, 101.0, 102.5, 102.5]
    clock.now = begin + 0.25
    assert fast.read().taken_at == 102.5
    with pytest.raises(SourceFailed, match="holds no samples"):
        ReplaySource(())
    # However right or wrong the times in the samples are.
    clock = Clock()
    latest = LatestSample("far", clock)
    latest.deliver(sample(9e9))
    assert latest.next(6.0, 60.0).taken_at == 9e9
    clock.now += 7
    with pytest.raises(SourceFailed, match=r"far has sent nothing for 7 s\."):
        latest.next(readings.silence_limit(2.0), 60.0)
    latest.deliver(sample(1.0))
    assert latest.next(6.0, 60.0).taken_at == 1.0
    latest = LatestSample("far", clock)  # the first sample may take longer
    clock.now += 20
    threading.Timer(0.05, latest.deliver, [sample(1.0)]).start()
    assert latest.next(3.0, 60.0).taken_at == 1.0

"""Peaks that no sample shows are in a recording all the same, once each."""

from contextlib import closing
from pathlib import Path

from vramtui.core.observation.history import History
from vramtui.core.observation.readings import Gpu, Host, Process, ProcessKey, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.observation.track import FastSample, Peak
from vramtui.records.recording.writer import RecordingHeader, RecordingWriter, read_recording

KEY = ProcessKey("h", "GPU-0", 7, 5.0)


def sample(at: float, used: int) -> Sample:
    process = Process(pid=7, type="C", used_memory=used, started_at=5.0)
    return Sample(
        taken_at=at,
        source="nvml",
        host=Host(name="h"),
        gpus=(Gpu(index=0, uuid="GPU-0", name="A", processes=(process,)),),
    )


def test_what_was_seen_before_and_between_is_told_once(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    history = History()
    history.add(sample(1.0, 900))
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        for at, used in ((2.0, 100), (3.0, 100), (4.0, 950), (5.0, 940), (6.0, 400), (7.0, 990)):
            if at == 6.0:
                history.add_looks([FastSample(KEY, 5.5, 970, 0.1)], sample(5.0, 940))
            history.add(sample(at, used))
            peak = history.tracks[KEY].peak
            assert peak is not None
            writer.write(RecordedTick(sample(at, used), (), {}, {KEY: peak}))
    recording = read_recording(path)
    told = {at: recording.peaks_at(float(at)) for at in range(1, 8)}
    (before,), (between,) = told.pop(2), told.pop(6)
    assert not any(told.values())
    assert (before[0], before[1].bytes, before[1].at) == (KEY, 900, 1.0)
    assert (between[0], between[1].bytes, between[1].at) == (KEY, 970, 5.5)
    assert path.read_bytes().count(b'{"peaks":') == 2


def test_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "r.gz"
    peak = Peak(bytes=1 << 40, at=0.5, how="accounting", interval=0.1)
    with closing(RecordingWriter(path, RecordingHeader())) as writer:
        writer.write(RecordedTick(sample(1.0, 5), (), {}, {KEY: peak}))
    assert list(read_recording(path).peaks_at(1.0)) == [(KEY, peak)]

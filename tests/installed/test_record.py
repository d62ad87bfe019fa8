import fcntl
import gzip
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import tempfile
import termios
import time
from array import array
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest

from tests.hostile_feed import hostile_feed
from tests.installed.conftest import Open, Run
from tests.installed.our_presets import add_preset
from tests.installed.stand_in import GIB, HARMLESS, HOSTILE, StandIn
from tests.installed.terminal import PATIENCE, Terminal, until
from vramtui.core.base.errors import UserError
from vramtui.core.observation.probe_messages import Beat, Hello, MemoryCounters, ProbeDevice
from vramtui.core.observation.readings import Gpu, Host, Memory, Process, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.records.recording.files import LiveRecording, Recording, RecordingHeader, RecordingWriter, read_recording
from vramtui.sources.feed import LineSplitter


def test_a_recording_follows_the_host(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl.gz"
    ended = run("record", str(file), "--interval", "0.05", "--duration", "1")
    assert ended.stdout == ""
    assert f"vramtui --replay {file}" in ended.stderr
    recording = read_recording(file)
    assert recording.header.interval == 0.05
    assert len(recording.samples) >= 2  # how many more depends on the machine
    assert recording.samples[-1].gpus[0].memory.used == 40 * GIB
    assert recording.header.versions["driver"] == "580.95.05"
    run("record", str(file), "--duration", "0", code=2)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_ends_it_well_or_costs_a_line(number: int, program: str, stand_in: StandIn, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    command, env = [program, "record", str(file), "--interval", "0.05"], stand_in.whole_environment()
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        until(lambda: file.exists() and file.read_bytes().count(b"\n") >= 5)
        process.send_signal(number)
        killed = number == signal.SIGKILL
        assert process.wait(PATIENCE) == (-number if killed else 0)
        assert ("samples in" in process.stderr.read()) is not killed
    recording = read_recording(file)
    assert len(recording.samples) >= 4
    assert killed or recording.warnings == ()


@pytest.fixture
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vt") as made:
        yield Path(made)


def _wait_for(file: Path, text: bytes, process: "subprocess.Popen[str]") -> None:
    while not file.exists() or text not in file.read_bytes():
        assert process.poll() is None
        time.sleep(0.01)


def _tell(listeners: Path, process: "subprocess.Popen[str]") -> socket.socket:
    while not (found := [*listeners.glob("*.sock")]):
        assert process.poll() is None
        time.sleep(0.01)
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(found[0]))
    device = ProbeDevice(index=0, name="NVIDIA H200", total_memory=139 * GIB, capability=(9, 0), uuid="GPU-0")
    peer.send(msgspec.json.encode(Hello(v=1, pid=1, at=1.0, command=("train.py",), devices=(device,))))
    counters = MemoryCounters(index=0, allocated=5 * GIB, allocated_peak=6 * GIB, reserved_peak=7 * GIB)
    peer.send(msgspec.json.encode(Beat(v=1, pid=1, at=2.0, step=3, devices=(counters,))))
    return peer


def test_what_a_probe_tells_and_what_is_predicted(program: str, stand_in: StandIn, place: Path, tmp_path: Path) -> None:
    file = tmp_path / "job.jsonl"
    add_preset(tmp_path / "config")
    environment = stand_in.whole_environment(XDG_RUNTIME_DIR=str(place))
    with subprocess.Popen(
        [program, "record", str(file), "--interval", "0.05"], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        with _tell(place / "vramtui", process):
            _wait_for(file, b'"step":3', process)
            _wait_for(file, b'{"processes":', process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
    recording = read_recording(file)
    last = recording.samples[-1].taken_at
    (job,) = recording.jobs_at(last)
    assert (job.pid, job.ledger(0).reserved) == (os.getpid(), 7 * GIB)
    assert recording.jobs_at(recording.samples[0].taken_at - 1) == ()
    predicted = recording.predictions_at(last)
    assert {prediction.preset for prediction in predicted.values()} == {"ours"}
    assert not list((place / "vramtui").iterdir())


def test_it_records_where_no_probe_can_speak(program: str, stand_in: StandIn, place: Path, tmp_path: Path) -> None:
    (place / "vramtui").mkdir(mode=0o755)
    ended = subprocess.run(
        [program, "record", str(tmp_path / "r.jsonl"), "--duration", "0"], capture_output=True, text=True,
        env=stand_in.whole_environment(XDG_RUNTIME_DIR=str(place)), check=True,
    )  # fmt: skip
    assert "recording without probes: " in ended.stderr
    assert len(read_recording(tmp_path / "r.jsonl").samples) == 1


def _streamed(program: str, stand_in: StandIn, *more: str) -> "subprocess.Popen[bytes]":
    command = [program, "record", "-", "--interval", "0.05", "--close", "none", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=stand_in.whole_environment())


def test_a_stream_is_watched_kept_and_played(program: str, stand_in: StandIn, tmp_path: Path, run: Run) -> None:
    file = tmp_path / "kept.jsonl"
    with _streamed(program, stand_in) as sender:
        command = [program, "record", str(file), "--feed", "-", "--interval", "0.05", "--duration", "0.6"]
        env = stand_in.whole_environment()
        kept = subprocess.run(command, stdin=sender.stdout, env=env, timeout=PATIENCE, check=True, capture_output=True)
        command = [program, "ps", "--feed", "-", "--json"]
        seen = subprocess.run(command, stdin=sender.stdout, env=env, timeout=PATIENCE, check=False, capture_output=True)
        sender.stdout.close()
        assert sender.wait(PATIENCE) == 0
    assert b"vramtui --replay" in kept.stderr
    assert seen.returncode == 3  # the header went to the first reader
    assert read_recording(file).samples[0].gpus[0].memory.used == 40 * GIB
    played = msgspec.json.decode(run("ps", "--replay", str(file), "--json").stdout)
    assert [row["pid"] for row in played["gpus"][0]["processes"]] == [stand_in.pids[0], stand_in.pids[2]]


def test_a_reader_that_stops_costs_samples_and_no_memory(program: str, stand_in: StandIn) -> None:
    """A full pipe: the sender waits, goes on with the newest, and ends at once when it is told to."""
    with _streamed(program, stand_in, "--demo") as sender:
        pipe = sender.stdout.fileno()
        fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096)
        samples = _samples(pipe)  # one for all: what it has read beyond a sample is the beginning of the next
        times = [found.taken_at for found in itertools.islice(samples, 3)]
        before = -1
        while before != (before := _waiting(pipe)):  # until nothing more goes in
            time.sleep(0.8)
        times += [found.taken_at for found in itertools.islice(samples, 30)]
        gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert max(gaps) > 0.5  # what did not fit was not kept for later
        time.sleep(0.5)
        sender.send_signal(signal.SIGTERM)
        assert sender.wait(PATIENCE) == 0


def _waiting(pipe: int) -> int:
    size = array("i", [0])
    fcntl.ioctl(pipe, termios.FIONREAD, size)
    return size[0]


def _samples(pipe: int) -> Iterator[Sample]:
    lines, live = LineSplitter(), LiveRecording()
    while True:
        for line in lines.add(os.read(pipe, 512)):
            found = live.take(line)
            if found is not None:
                yield found


def test_a_stream_is_for_no_terminal(run: Run) -> None:
    run("ps", "--feed", "/nowhere", code=2)
    run("ps", "--feed", "-", "--demo", code=2)


def test_keys_are_answered_while_samples_of_megabytes_come(tmp_path: Path, open_terminal: Open) -> None:
    """Names of a megabyte and 20,000 problems: dialogs open and close, and `q` ends it (how soon:
    `benchmarks/hostile_feed.py`).
    """
    with hostile_feed(tmp_path) as feed:
        terminal = open_terminal("--feed", str(feed))
        terminal.wait_for("Processes", "cccc")
        for key, title in (("i", "─ Details ─"), ("!", "─ Problems ─")):
            terminal.send(key)
            terminal.wait_for(title)
            terminal.send("\x1b")
            terminal.wait(lambda screen, title=title: title not in screen, f"{title} to close")  # type: ignore[misc]  # bound for this round
        terminal.leave()


WIDE = (160, 40)


def _recording(folder: Path) -> Path:
    (path,) = folder.glob("vramtui-*.jsonl.gz")
    return path


def _wait_for_words(terminal: Terminal, title: str, *words: str) -> None:
    """Wait until the last line begins so, and `!` has all of it, wherever the length of a path breaks its lines."""
    terminal.wait(lambda screen: bool(screen.strip()) and title in screen.rstrip().splitlines()[-1], title)
    terminal.send("!")

    def said(screen: str) -> bool:
        told = " ".join(" ".join(line.strip("│╭╮╰╯─ ") for line in screen.splitlines()).split())
        return "Recent" in told and all(text in told for text in words)

    terminal.wait(said, f"{words} in what was said lately")
    terminal.send("\x1b")
    terminal.wait(lambda screen: "Recent" not in screen, "the window to close")


def _wait_for_samples(folder: Path, count: int, terminal: Terminal) -> Recording:
    def there(_screen: str) -> bool:
        with suppress(UserError, ValueError):
            return len(read_recording(_recording(folder)).samples) >= count
        return False  # it is only being begun

    terminal.wait(there, f"{count} samples")
    return read_recording(_recording(folder))


def test_r_records_what_is_watched_and_r_ends_it(open_terminal: Open, tmp_path: Path) -> None:
    add_preset(tmp_path / "config")
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py", "ours")
    terminal.send("r")
    folder = tmp_path / "data" / "recordings"
    _wait_for_samples(folder, 4, terminal)
    terminal.wait_for("● REC 0")
    terminal.send("r")
    _wait_for_words(terminal, "Recording written", "samples")
    recording = read_recording(_recording(folder))
    assert recording.warnings == ()
    assert (recording.header.interval, recording.header.versions["driver"]) == (0.1, "580.95.05")
    assert {made.preset for made in recording.every_prediction()} == {"ours"}
    terminal.leave()
    again = open_terminal("--replay", str(_recording(folder)), size=WIDE, LD_LIBRARY_PATH="")
    again.wait_for("train_llama.py", "ours", "estimate as recorded")


@pytest.mark.parametrize(("end", "code"), [(b"\x03", 130), (signal.SIGHUP, 128 + signal.SIGHUP)])
def test_leaving_ends_the_file(end: "bytes | signal.Signals", code: int, open_terminal: Open, tmp_path: Path) -> None:
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    terminal.send("r")
    folder = tmp_path / "data" / "recordings"
    _wait_for_samples(folder, 2, terminal)
    if isinstance(end, bytes):
        terminal.send(end.decode())
    else:
        terminal.process.send_signal(end)
    assert (terminal.ended(), terminal.left_behind()) == (code, [])
    assert read_recording(_recording(folder)).warnings == ()
    assert gzip.decompress(_recording(folder).read_bytes()), "and as gzip it is whole"
    assert f"vramtui: recorded in {_recording(folder)}".encode() in bytes(terminal.sent).replace(b"\r\n", b"")


def test_a_folder_that_cannot_be_used_is_said_and_the_dashboard_goes_on(open_terminal: Open, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "file").write_text("in the way")
    (tmp_path / "config" / "config.toml").write_text(f'[recording]\nfolder = "{tmp_path}/file/deep"\n')
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    terminal.send("r")
    _wait_for_words(terminal, "Recording ended", "cannot be used: not a directory")
    terminal.wait(lambda screen: "REC" not in screen.splitlines()[0])
    terminal.leave()


def test_a_full_disk_is_said_and_the_dashboard_goes_on(open_terminal: Open, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "recordings"
    folder.mkdir(parents=True)
    terminal = open_terminal("--interval", "0.1", size=WIDE)
    terminal.wait_for("train_llama.py")
    resource.prlimit(terminal.process.pid, resource.RLIMIT_FSIZE, (1500, 1500))  # nearly a full disk
    terminal.send("r")
    _wait_for_words(terminal, "Recording ended", "cannot be written")
    terminal.leave()
    assert len(read_recording(_recording(folder)).samples) >= 1


def _recorded(path: Path, ticks: int, interval: float, first: int, step: int) -> Path:
    """A job that begins with `first` bytes and grows by `step` at each tick."""
    with closing(RecordingWriter(path, RecordingHeader(started_at=1000.0, interval=interval))) as writer:
        for tick in range(ticks):
            used = first + tick * step
            command = f"{HOSTILE} rehearsed.py"
            job = Process(pid=77, type="C", used_memory=used, user="eve", command=command, started_at=5.0)
            memory = Memory(total=80 * GIB, used=used + GIB, reserved=GIB, free=78 * GIB - used)
            gpu = Gpu(index=0, uuid="GPU-0", name="NVIDIA A100", memory=memory, processes=(job,))
            sample = Sample(taken_at=1000 + tick * interval, source="nvml", host=Host(name="elsewhere"), gpus=(gpu,))
            writer.write(RecordedTick(sample))
    return path


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    return _recorded(tmp_path / "zipped.jsonl.gz", 20, 0.2, 10 * GIB, GIB)


def test_a_recording_is_looked_at_as_a_host(run: Run, recording: Path, tmp_path: Path) -> None:
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(gzip.decompress(recording.read_bytes()))
    for path in (recording, plain):
        document = json.loads(run("ps", "--json", "--replay", str(path)).stdout)
        assert (document["host"], document["taken_at"]) == ("elsewhere", 1000.0)
        (process,) = document["gpus"][0]["processes"]
        assert (process["used_memory"], process["command"]) == (10 * GIB, f"{HARMLESS} rehearsed.py")
    plain.write_text(plain.read_text()[:40] + "\nnonsense\n")
    ended = run("ps", "--replay", str(plain), code=2)
    assert ended.stderr.startswith(f"vramtui: {plain}, line 1: ")
    assert ended.stderr.count("\n") == 1


def test_the_dashboard_plays_it_at_its_pace(open_terminal: Open, recording: Path) -> None:
    terminal = open_terminal("--interval", "0.1", "--replay", str(recording), size=(160, 40))
    terminal.wait_for("elsewhere", "rehearsed.py", "eve", recording.name)
    terminal.wait_for("29.0")
    terminal.leave()


def test_a_recording_that_was_cut_off_plays_to_the_cut(open_terminal: Open, recording: Path) -> None:
    recording.write_bytes(recording.read_bytes()[:-25])
    terminal = open_terminal("--replay", str(recording), size=(160, 40))
    terminal.wait_for("cut off in line")
    terminal.wait_for("rehearsed.py")
    terminal.leave()


def _go_to(terminal: Terminal, text: str) -> None:
    terminal.wait(lambda screen: "go to: " not in screen)  # the line of the time before
    terminal.send("g")
    terminal.wait_for("go to: ")
    terminal.send(f"{text}\r")


def test_seeking_in_an_hour(open_terminal: Open, tmp_path: Path) -> None:
    hour = _recorded(tmp_path / "hour.jsonl.gz", 3600, 1.0, GIB, 10 * (1 << 20))
    terminal = open_terminal("--replay", str(hour), size=(160, 40), cwd=tmp_path, TZ="UTC")
    terminal.wait_for("rehearsed.py", "01:16:39", "1x")
    terminal.send(" ")
    _go_to(terminal, "50%")
    terminal.wait_for("00:46:39", "50%", "18.6")  # 1 GiB and 1799 times 10 MiB
    terminal.send(",")
    terminal.wait_for("00:46:38", "18.6")
    _go_to(terminal, "01:00")
    terminal.wait_for("01:00:00", "26.4")
    _go_to(terminal, "-40m")
    terminal.wait(lambda screen: "00:20:00" in screen and "3.0" in screen and "26.4" not in screen)
    _go_to(terminal, "tomorrow")
    terminal.wait_for("'tomorrow' is not a position in a recording")
    terminal.send("\x1b")
    # Gone from the line itself, or the next key would come as one with Alt held.
    terminal.wait(lambda screen: " tomorrow " not in screen)
    terminal.send(")")
    terminal.wait_for("2x")
    terminal.send("s")
    terminal.wait_for("Snapshot written")
    assert list(tmp_path.glob("vramtui-elsewhere-19700101-002000.md"))
    terminal.leave()

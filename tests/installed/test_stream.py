"""`vramtui record -` sends what `record` writes; other commands watch it, keep it and play it."""

import fcntl
import itertools
import os
import signal
import subprocess
import termios
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tests.hostile_feed import hostile_feed
from tests.installed.conftest import Open, Run
from tests.installed.stand_in import GIB, StandIn
from tests.installed.terminal import PATIENCE
from vramtui.core.observation.readings import Sample
from vramtui.records.recording.decoder import LiveRecording, read_recording
from vramtui.sources.feed import LineSplitter


def _streamed(program: str, stand_in: StandIn, *more: str) -> "subprocess.Popen[bytes]":
    command = [program, "record", "-", "--interval", "0.05", "--close", "none", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=stand_in.whole_environment())


def test_a_stream_is_watched_kept_and_played(program: str, stand_in: StandIn, tmp_path: Path, run: Run) -> None:
    """Through a real pipe, with the stand-in driver at its far end."""
    file = tmp_path / "kept.jsonl"
    with _streamed(program, stand_in) as sender:
        command = [program, "record", str(file), "--feed", "-", "--interval", "0.05", "--duration", "0.6"]
        env = stand_in.whole_environment()
        kept = subprocess.run(command, stdin=sender.stdout, env=env, timeout=PATIENCE, check=True, capture_output=True)
        command = [program, "ps", "--feed", "-", "--json"]
        seen = subprocess.run(command, stdin=sender.stdout, env=env, timeout=PATIENCE, check=False, capture_output=True)
        assert sender.stdout is not None
        sender.stdout.close()
        assert sender.wait(PATIENCE) == 0
    assert b"vramtui --replay" in kept.stderr
    assert seen.returncode == 3  # the header went to the first reader
    recording = read_recording(file)
    assert recording.samples[0].gpus[0].memory.used == 40 * GIB
    played = msgspec.json.decode(run("ps", "--replay", str(file), "--json").stdout)
    assert [row["pid"] for row in played["gpus"][0]["processes"]] == [stand_in.pids[0], stand_in.pids[2]]


def test_a_reader_that_stops_costs_samples_and_no_memory(program: str, stand_in: StandIn) -> None:
    """A full pipe: the sender waits, goes on with the newest, and ends at once when it is told to."""
    with _streamed(program, stand_in, "--demo") as sender:
        assert sender.stdout is not None
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
    """Bytes that nobody has read yet."""
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


def _lacks(title: str) -> Callable[[str], bool]:
    return lambda screen: title not in screen


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
            terminal.wait(_lacks(title), f"{title} to close")
        terminal.send("q")
        assert terminal.ended() == 0

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramtui.core.base.errors import SourceFailed
from vramtui.core.observation.probe_messages import ObservedJob
from vramtui.probe import socket_dir
from vramtui.sources import probe_listener
from vramtui.sources.probe_listener import ProbeListener

BEAT = {"kind": "beat", "v": 1, "pid": 1, "at": 1.0, "phase": "forward", "step": 7}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="vt") as made:
        yield Path(made) / "vramtui"


def connected(listener: ProbeListener) -> socket.socket:
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.connect(str(listener.path))
    return peer


def told(folder: Path, *messages: Any, run: str | None = None) -> tuple[tuple[ObservedJob, ...], ProbeListener]:
    listener = ProbeListener("test", folder, run=run)
    with connected(listener) as peer, contextlib.suppress(BrokenPipeError):
        for message in messages:
            peer.send(message if isinstance(message, bytes) else json.dumps(message).encode())
    listener.close()
    return listener.jobs(), listener


def test_a_folder_that_somebody_else_made_first_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a runtime folder, as over ssh: anybody may make the one in /tmp, and its owner alone could remove it."""
    theirs = tmp_path / "made by another"
    theirs.mkdir(mode=0o777)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("HOME", "/own")
    monkeypatch.setattr(socket_dir, "shared_folder", lambda: str(theirs))
    assert socket_dir.listeners_folder() == "/own/.vramtui-probes"
    theirs.chmod(0o700)
    assert socket_dir.listeners_folder() == str(theirs)


def test_sockets_of_those_who_were_killed_are_swept_away(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    for name in ("dead.sock", "dead.run"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dead:
            dead.bind(str(folder / name))
    other = ProbeListener("other", folder)
    mine = ProbeListener("mine", folder)
    assert {path.name for path in folder.iterdir()} == {"other.sock", "mine.sock"}
    other.close()
    mine.close()


def test_it_has_its_name_from_the_moment_it_listens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before: list[str] = []

    class Watched(socket.socket):
        def listen(self, backlog: int = 0) -> None:
            before.extend(path.name for path in folder.iterdir())
            super().listen(backlog)

    monkeypatch.setattr("socket.socket", Watched)
    listener = ProbeListener("test", folder)
    assert (before, [path.name for path in folder.iterdir()]) == (["test.new"], ["test.sock"])
    assert folder.stat().st_mode & 0o777 == 0o700  # for this user alone
    assert listener.path.stat().st_mode & 0o777 == 0o600
    listener.close()
    assert list(folder.iterdir()) == []
    with pytest.raises(SourceFailed, match="No socket can be made for probes"):
        ProbeListener("x" * 200, folder)


def test_the_kernels_word_on_who_speaks_goes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (job,), _ = told(folder, BEAT)
    assert job.pid == os.getpid()
    assert (job.beat.step, job.gone) == (7, True)
    monkeypatch.setattr(probe_listener, "own_uid", lambda: os.getuid() + 1)
    jobs, listener = told(folder, BEAT)  # another user's process is hung up on
    assert (jobs, listener.refused) == ((), 1)


@pytest.mark.parametrize(("mark", "heard"), [("mine", 1), ("another", 0), (None, 0)])
def test_a_run_hears_only_its_own(folder: Path, mark: str | None, heard: int) -> None:
    hello = {"kind": "hello", "v": 1, "pid": 1, "at": 1.0, "run": mark}
    jobs, _ = told(folder, hello, BEAT, run="mine")
    assert len(jobs) == heard


@pytest.mark.parametrize(
    "bad",
    [
        b"", b"\xff\xfe", b"{", b"[" * 100_000, b"[]", {**BEAT, "v": 2}, {**BEAT, "kind": "other"},
        {**BEAT, "phase": "\x1b[2J"}, {**BEAT, "step": -1}, {**BEAT, "step": 1 << 63}, {**BEAT, "step": 1e300},
        {**BEAT, "pid": True}, {**BEAT, "parts": {"weights": {"x" * 65: 1}}}, {**BEAT, "devices": [{"index": 1 << 20}]},
        {**BEAT, "moments": [{"at": 1, "phase": "forward", "step": 0, "device": 0}] * 1025},
    ],
    ids=lambda bad: str(bad)[:40],
)  # fmt: skip
def test_what_is_malformed_is_thrown_away_and_the_rest_is_kept(folder: Path, bad: Any) -> None:
    (job,), listener = told(folder, BEAT, bad, {**BEAT, "step": 8})
    assert listener.malformed == 1 or bad == b""
    assert job.beat.step == (7 if bad == b"" else 8)  # an empty message reads like the end of a connection


Sent = Callable[[Any], None]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
LIKELY = st.fixed_dictionaries(
    {"kind": st.sampled_from(["hello", "beat", "oom", "end", "?"]), "v": st.just(1) | JSON},
    optional=dict.fromkeys(
        ("pid", "at", "phase", "step", "devices", "parts", "moments", "run", "asked", "free", "message"), JSON
    ),
)


def listening_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "vramtui-probes"]


@pytest.fixture(scope="module")
def open_listener() -> Iterator[ProbeListener]:
    with tempfile.TemporaryDirectory(prefix="vt") as made:
        listener = ProbeListener("test", Path(made) / "vramtui")
        yield listener
        listener.close()
        assert not listening_threads()


@given(message=st.binary(max_size=2000) | LIKELY.map(lambda tree: json.dumps(tree).encode()))
def test_nothing_that_is_sent_stops_it(open_listener: ProbeListener, message: bytes) -> None:
    with connected(open_listener) as peer:
        peer.send(message)
    assert listening_threads()

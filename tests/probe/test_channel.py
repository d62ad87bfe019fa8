import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from vramtui.probe import channel as channels
from vramtui.probe import socket_dir
from vramtui.probe.channel import Channel
from vramtui.probe.socket_dir import SOCKET, listeners_folder, private


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.delenv(SOCKET, raising=False)
    with tempfile.TemporaryDirectory(prefix="vt") as runtime:
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        found = Path(listeners_folder())
        found.mkdir(mode=0o700)
        yield found


def listening(path: Path, backlog: int = 8) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made.bind(str(path))
    made.listen(backlog)
    return made


def heard(listener: socket.socket) -> bytes:
    listener.setblocking(False)
    try:
        peer, _ = listener.accept()
    except BlockingIOError:
        return b""
    with peer:
        return peer.recv(100)


def taken(listener: socket.socket, count: int) -> list[bytes]:
    peer, _ = listener.accept()
    with peer:
        return [peer.recv(2000) for _ in range(count)]


def greeting() -> bytes:
    return b"hello"


def test_everyone_who_listens_gets_the_greeting_and_then_the_message(folder: Path) -> None:
    with listening(folder / "a.sock") as one, listening(folder / "b.sock") as other:
        channel = Channel(greeting)
        channel.send(b"first")
        channel.greet_again()
        channel.send(b"second")
        for listener in (one, other):
            assert taken(listener, 4) == [b"hello", b"first", b"hello", b"second"]
        channel.close()
        channel.send(b"nobody is looked for again before the next second")


def test_the_latest_listeners_are_heard(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dashboard that is opened now is looked at; those left open in other terminals have the lower pids."""
    monkeypatch.setattr(channels, "LOOK_EVERY", 0.0)
    count = channels.MOST_LISTENERS
    listeners = []
    channel = Channel(greeting)
    for number in range(count + 1):
        path = folder / f"dashboard-{number}.sock"
        listeners.append(listening(path))
        os.utime(path, ns=(number, number))
        channel.send(b"%d" % number)
    oldest, *others = [listener.accept()[0] for listener in listeners]
    with oldest:
        assert [oldest.recv(100) for _ in range(count + 2)] == [b"hello", *(b"%d" % at for at in range(count)), b""]
    for number, peer in enumerate(others, 1):
        with peer:
            assert [peer.recv(100) for _ in range(2)] == [b"hello", b"%d" % number]
    channel.close()
    for listener in listeners:
        listener.close()


def test_a_reader_that_never_reads_costs_messages_and_no_time(folder: Path) -> None:
    with listening(folder / "slow.sock") as listener:
        channel = Channel(greeting)
        for _ in range(2000):
            channel.send(b"x" * 1000)
        assert channel.lost > 0
        peer, _ = listener.accept()
        with peer:
            taken = 2000 - channel.lost
            assert [peer.recv(2000) for _ in range(taken + 1)] == [b"hello"] + [b"x" * 1000] * taken
            channel.send(b"again")
            assert peer.recv(100) == b"again"
        lost = channel.lost
        channel.send(b"to nobody")
        assert channel.lost == lost
        channel.close()


def test_two_threads_speak_one_after_the_other(folder: Path) -> None:
    with listening(folder / "a.sock") as listener:
        channel = Channel(greeting)
        threads = [threading.Thread(target=channel.send, args=(b"%d" % n,), kwargs={"wait": 60.0}) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        first, *others = taken(listener, 17)
        assert first == b"hello"
        assert sorted(map(int, others)) == list(range(16))
        channel.close()


def test_what_comes_while_another_thread_speaks_is_lost(folder: Path) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def slow_greeting() -> bytes:
        asked.set()
        go_on.wait(60)
        return b"hello"

    with listening(folder / "a.sock") as listener:
        channel = Channel(slow_greeting)
        speaking = threading.Thread(target=channel.send, args=(b"first",))
        speaking.start()
        assert asked.wait(60)
        assert not channel.send(b"too much at once")
        assert channel.lost == 1
        go_on.set()
        speaking.join()
        assert taken(listener, 2) == [b"hello", b"first"]
        channel.close()


def test_a_reader_with_a_full_queue_is_no_reader(folder: Path) -> None:
    with listening(folder / "full.sock", backlog=0):
        waiting = []
        for _ in range(3):
            one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
            try:
                one.connect(str(folder / "full.sock"))
            except BlockingIOError:
                one.close()
                break
            waiting.append(one)
        channel = Channel(greeting)
        channel.send(b"to nobody")
        assert channel.lost == 0
        for one in waiting:
            one.close()


def test_a_message_too_long_for_the_socket_is_lost_and_no_other(folder: Path) -> None:
    with listening(folder / "a.sock") as listener:
        channel = Channel(greeting)
        channel.send(b"x" * (1 << 22))
        channel.send(b"short")
        assert taken(listener, 2) == [b"hello", b"short"]
        assert channel.lost == 1
        channel.close()


def test_the_run_that_started_it_hears_it_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SOCKET, str(folder / "own.run"))
    with listening(folder / "own.run") as own:
        channel = Channel(greeting)
        channel.send(b"first")
        assert taken(own, 1) == [b"hello"]
        channel.close()


def test_a_folder_that_others_can_enter_is_not_looked_into(folder: Path) -> None:
    with listening(folder / "a.sock") as listener:
        folder.chmod(0o750)
        assert not private(str(folder))
        channel = Channel(greeting)
        channel.send(b"to nobody")
        assert not heard(listener)


def test_a_folder_that_is_a_link_is_not_looked_into(folder: Path) -> None:
    link = folder.parent / "link"
    link.symlink_to(folder)
    assert private(str(folder))
    assert not private(str(link))


def test_anothers_folder_in_tmp_is_passed_over(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/people/anna")
    taken = tmp_path / "taken"
    monkeypatch.setattr(socket_dir, "shared_folder", lambda: str(taken))
    for runtime in ("", str(folder / "none"), f"/{'long/' * 20}"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert listeners_folder() == str(taken)
    taken.mkdir(mode=0o700)
    assert listeners_folder() == str(taken)
    taken.chmod(0o755)  # as one that another user made looks to `private`
    assert listeners_folder() == "/people/anna/.vramtui-probes"
    monkeypatch.setenv("HOME", f"/people/{'long/' * 20}")
    assert listeners_folder() == str(taken)


def test_a_listener_of_another_user_is_told_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with listening(folder / "a.sock") as listener:
        monkeypatch.setattr(channels, "own_uid", lambda: os.getuid() + 1)
        channel = Channel(greeting)
        channel.send(b"to nobody")
        assert not heard(listener)


def test_a_socket_that_nobody_has_open_is_passed_over(folder: Path) -> None:
    listening(folder / "dead.sock").close()
    (folder / "file.sock").write_text("no socket", encoding="utf-8")
    channel = Channel(greeting)
    assert channel.send(b"to nobody")
    assert channel.lost == 0


def sockets() -> set[int]:
    links = {path.name: os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()}
    return {int(name) for name, link in links.items() if "socket:" in link}


def test_a_descriptor_that_the_job_closed_and_took_is_neither_written_nor_closed(folder: Path) -> None:
    with listening(folder / "a.sock") as listener:
        channel, before = Channel(greeting), sockets()
        channel.send(b"first")
        (number,) = sockets() - before
        own, other = socket.socketpair()
        with own, other:
            os.dup2(own.fileno(), number)  # as a daemon that closes all and opens its own
            channel.send(b"second")
            channel.close()
            own.send(b"the job's")
            assert other.recv(100) == b"the job's"
            other.setblocking(False)
            with pytest.raises(BlockingIOError):
                other.recv(100)
            assert os.fstat(number).st_ino == os.fstat(own.fileno()).st_ino
            os.close(number)
        assert heard(listener) == heard(listener) == b"hello"  # a new connection was made at once

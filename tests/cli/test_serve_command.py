"""The dashboard in a browser: who gets in, what a tab may do, and that one collector serves all tabs.

`python benchmarks/serve_browser.py` types, clicks and resizes in a real Chromium.
"""

import asyncio
import importlib.util
import inspect
import io
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from tests.examples import a_run
from vramtui.app.app import Dashboard
from vramtui.app.history.run_window import RunWindow
from vramtui.app.history.screen import HistoryScreen
from vramtui.app.keys import REFUSED, is_refused
from vramtui.app.plan.screen import PlanScreen
from vramtui.app.timeline.screen import TimelineScreen
from vramtui.app.watch.screen import Watch
from vramtui.cli.dashboard.past_runs import DEMO_HOST, PastRuns, ViewedRuns, viewed_runs
from vramtui.cli.dashboard.services import SnapshotSaver
from vramtui.cli.serve.access import Access
from vramtui.core.observation.probe_messages import Hello, ObservedJob
from vramtui.core.observation.readings import Host, Sample
from vramtui.core.observation.snapshot import RecordedTick
from vramtui.core.schema.settings import SnapshotSettings
from vramtui.records.recording.growing_recording import LiveRecording
from vramtui.records.run_history import RunHistory

if importlib.util.find_spec("textual_serve") is None:
    pytest.skip("the extra `serve` is not installed (textual-serve)", allow_module_level=True)

import aiohttp

from vramtui.cli.serve import command
from vramtui.cli.serve.broadcast import Backlog, Broadcast
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.records.recording.recording import RecordingHeader
from vramtui.sources.feed.served import ServedFeed, ServedHeader

PATIENCE = 60.0


class Served:
    """A server of the demo that runs."""

    def __init__(self, process: "subprocess.Popen[str]", address: str) -> None:
        self.process = process
        self.base, _, self.token = address.partition("/?token=")

    @property
    def tabs(self) -> list[int]:
        """The pids of the dashboards that it has started."""
        children = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return [int(pid) for file in children for pid in file.read_text().split()]


def facts_of(pid: int) -> bytes:
    """Its command line and environment."""
    return b"".join(Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ"))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("home")
    arguments = [sys.executable, "-m", "vramtui", "serve", "--demo", "--listen", "127.0.0.1:0", "--tabs", "2"]
    env = {**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home), "XDG_DATA_HOME": str(home)}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=env, cwd=Path.cwd()) as process:
        assert process.stdout is not None
        yield Served(process, process.stdout.readline().strip())
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0


@asynccontextmanager
async def browser(served: Served, *, enters: bool = True) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        if enters:
            async with session.get(f"{served.base}/?token={served.token}") as answer:
                assert (answer.status, str(answer.url)) == (200, f"{served.base}/")
        yield session


async def drawn(socket: "aiohttp.ClientWebSocketResponse[bool]", *words: bytes) -> bytes:
    """What a tab draws until all of these words have come, in whichever order."""
    text = b""
    until = time.monotonic() + PATIENCE
    while missing := [word for word in words if word not in text]:
        try:
            message = await asyncio.wait_for(socket.receive(), until - time.monotonic())
        except asyncio.TimeoutError:
            pytest.fail(f"{missing} did not come; what came ends with {text[-2000:]!r}")
        assert message.type in (aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT), message
        text += message.data if isinstance(message.data, bytes) else b""
    return text


async def test_nobody_gets_in_without_the_token(served: Served) -> None:
    async with browser(served, enters=False) as session:
        for path in ("/", "/?token=", "/?token=wrong", f"/?token={served.token}x", "/ws", "/static/textual.js"):
            async with session.get(served.base + path) as answer:
                assert answer.status == 403, path
                assert not answer.cookies
                assert answer.headers["X-Frame-Options"] == "DENY"
        async with session.get(f"{served.base}/?token={served.token}", allow_redirects=False) as answer:
            (cookie,) = answer.cookies.values()
            assert (answer.status, answer.headers["Location"]) == (303, "/")
            assert (cookie["httponly"], cookie["samesite"]) == (True, "Strict")
            assert served.token not in cookie.value


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "evil@x", "[::1"])
async def test_another_name_for_this_server_gets_nothing(served: Served, host: str) -> None:
    """A page elsewhere whose name is made to mean 127.0.0.1 (DNS rebinding)."""
    async with browser(served) as session:
        for path in ("/", f"/?token={served.token}", "/ws"):
            async with session.get(served.base + path, headers={"Host": host}, allow_redirects=False) as answer:
                assert answer.status in (400, 421)
                assert not answer.cookies


@pytest.mark.parametrize("origin", [None, "null", "https://evil.example", "http://127.0.0.1:1", "http://localhost"])
async def test_a_websocket_is_for_this_servers_own_page(served: Served, origin: str | None) -> None:
    async with browser(served) as session:
        headers = {} if origin is None else {"Origin": origin}
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await session.ws_connect(f"{served.base}/ws", headers=headers)
        assert refused.value.status == 403
    assert not served.tabs


async def test_the_page_gives_its_terminal_the_focus(served: Served) -> None:
    """`benchmarks/serve_browser.py` types in Chromium without a click."""
    async with browser(served) as session:
        async with session.get(f"{served.base}/") as answer:
            assert 'src="static/page.js"' in await answer.text()
        async with session.get(f"{served.base}/static/page.js") as answer:
            assert (answer.status, answer.content_type) == (200, "text/javascript")
            assert ".focus()" in await answer.text()


async def test_huge_requests_and_other_paths_are_refused(served: Served) -> None:
    async with browser(served) as session:
        for path, status in (
            ("/static/..%2f..%2fserver.py", 404),
            ("/static/%2e%2e/server.py", 404),
            ("/etc/passwd", 404),
            ("/?token=" + "x" * 4000, 403),
            ("/" + "x" * 20_000, 400),
        ):
            async with session.get(served.base + path) as answer:
                assert answer.status == status, path[:40]
        with suppress(aiohttp.ClientError):  # the connection may be closed before all is sent
            async with session.post(served.base, data=io.BytesIO(b"x" * (1 << 22))) as answer:
                assert answer.status in (405, 413)
        async with session.get(served.base, headers={"X": "y" * 20_000}) as answer:
            assert answer.status == 400


async def test_tabs_are_view_only_dashboards_of_one_collector(served: Served) -> None:
    async with browser(served) as session:
        own = {"Origin": served.base}
        async with session.ws_connect(f"{served.base}/ws?width=100&height=30", headers=own) as first:
            await drawn(first, b"train.py", b"its GPUs are not real")
            async with session.ws_connect(f"{served.base}/ws?width=90&height=30", headers=own) as second:
                await drawn(second, b"train.py")
                assert len(served.tabs) == 2
                with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
                    await session.ws_connect(f"{served.base}/ws", headers=own)
                assert refused.value.status == 503
                for pid in served.tabs:
                    assert b"--view-only" in facts_of(pid)
                    assert served.token.encode() not in facts_of(pid)
                await first.send_json(["stdin", "e"])
                await drawn(first, b"view-only")
                await second.send_str('{"not": "a message"}')
                while (message := await asyncio.wait_for(second.receive(), PATIENCE)).type == aiohttp.WSMsgType.BINARY:
                    pass
                assert message.data == 1003
            await first.send_json(["resize", {"width": 10**9, "height": -3}])
            await first.send_json(["stdin", "q"])
            while (await asyncio.wait_for(first.receive(), PATIENCE)).type != aiohttp.WSMsgType.CLOSE:
                pass
    until = time.monotonic() + PATIENCE
    while served.tabs:
        assert time.monotonic() < until
        await asyncio.sleep(0.05)


HEADER = RecordingHeader(started_at=1.0, interval=1.0, versions={})


def _sample(at: float, name: str = "h") -> Sample:
    return Sample(taken_at=at, source="x", host=Host(name=name))


def test_a_reader_that_stands_still_holds_up_nobody_and_begins_with_the_latest() -> None:
    earlier = {*threading.enumerate()}
    broadcast = Broadcast(ServedHeader(hosts=("gpu01", "gpu02"), interval=1.0))
    with broadcast.host(0).begin(HEADER) as first, broadcast.host(1).begin(HEADER) as other:
        other.write(RecordedTick(_sample(1.0)))
        still, quick = broadcast.add_reader(), ServedFeed(broadcast.add_reader(), LiveRecording)
        assert quick.hosts[1].read().taken_at == 1.0
        for at in range(2, 60):  # far more than a pipe holds
            first.write(RecordedTick(_sample(float(at), "h" * 4000)))
            assert quick.hosts[0].read().taken_at == float(at)
    os.close(still)
    deadline = time.monotonic() + PATIENCE
    while sum(thread.name == "write to tab" for thread in {*threading.enumerate()} - earlier) > 1:
        first.write(RecordedTick(_sample(60.0)))
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_host_that_is_down_says_why_in_every_tab_and_comes_back() -> None:
    broadcast = Broadcast(ServedHeader(hosts=("gpu01", "gpu02"), interval=1.0, banner="not real"))
    with broadcast.host(0).begin(HEADER) as host:
        host.write(RecordedTick(_sample(1.0)))
        broadcast.host(1).trouble("gpu02: it refuses connections.")
        feed = ServedFeed(broadcast.add_reader(), LiveRecording)
        assert (feed.header.hosts, feed.header.banner) == (("gpu01", "gpu02"), "not real")
        assert feed.hosts[0].read().taken_at == 1.0
        with pytest.raises(SourceFailed, match="it refuses connections"):
            feed.hosts[1].read()
        with broadcast.host(1).begin(HEADER) as back:
            back.write(RecordedTick(_sample(7.0)))
            deadline = time.monotonic() + PATIENCE
            while True:
                with suppress(SourceFailed):
                    assert feed.hosts[1].read().taken_at == 7.0
                    break
                assert time.monotonic() < deadline
                time.sleep(0.01)


def test_a_tab_begins_with_what_was_seen_before_it_was_opened() -> None:
    job = ObservedJob(pid=7, hello=Hello(v=1, pid=7, at=1.0))
    names = ("gpu01", "gpu02")
    broadcast = Broadcast(ServedHeader(hosts=names, interval=1.0, runs_of=names))
    broadcast.earlier(1).fill(HEADER, [_sample(at, "gpu02") for at in (1.0, 5.0)])
    with broadcast.host(0).begin(HEADER) as host, broadcast.host(1).begin(HEADER) as other:
        for at in range(10, 40):
            host.write(RecordedTick(_sample(float(at)), (job,) if at > 20 else ()))
        other.write(RecordedTick(_sample(39.0, "gpu02")))
    feed = ServedFeed(broadcast.add_reader(), LiveRecording)
    first, second = feed.hosts
    assert [sample.taken_at for sample in first.past.samples()] == [float(at) for at in range(10, 39, 3)]
    assert [(at, jobs[0].pid) for at, jobs in first.past.jobs()] == [(float(at), 7) for at in range(22, 39, 3)]
    assert [sample.taken_at for sample in second.past.samples()] == [1.0, 5.0]
    assert (first.read().taken_at, second.read().taken_at) == (39.0, 39.0)
    assert feed.run_hosts() == ("gpu01", "gpu02", "h", "gpu02")


def test_of_many_hosts_less_is_kept_and_a_clock_set_back_begins_anew() -> None:
    kept = Backlog(256)
    for at in range(2000):
        kept.add(HEADER, RecordedTick(_sample(float(at))))
    times = [sample.taken_at for line in kept.lines() if (sample := LiveRecording().take(line)) is not None]
    assert (len(times), times[-1] - times[0]) == (8, 7 * 113.0)  # seconds: the first whole ones past 900 / 8
    kept.add(HEADER, RecordedTick(_sample(5.0)))
    assert len(kept.lines()) == 2  # a header and a sample


def test_past_runs_are_those_of_the_hosts_that_are_served_and_nothing_is_changed(tmp_path: Path) -> None:
    history = RunHistory(tmp_path / "runs.db")
    for host in ("gpu01.cluster.org", "gpu02", "elsewhere"):
        history.keep(a_run(key=host, host=host))
    saver = SnapshotSaver(SnapshotSettings(), tmp_path / "config.toml")
    seen = ViewedRuns(PastRuns(lambda: history, saver), lambda: ("me@gpu01", "gpu02.cluster.org"))
    assert {stored.run.host for stored in seen.runs()} == {"gpu01.cluster.org", "gpu02"}
    for refused in (lambda: seen.forget(1), lambda: seen.report(seen.runs()[0])):
        with pytest.raises(UserError, match="looked at"):
            refused()
    assert len(history.runs()) == 3
    assert viewed_runs(saver, lambda: (DEMO_HOST,)).host == DEMO_HOST


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"{}\n",
        b"\xff\n",
        b'{"hosts":["a"],"interval":1}\n9:{}\n',
        b'{"hosts":["a"],"interval":1}\nx\n',
        b'{"hosts":["a"],"interval":1,"earlier":1}\nx<{}\n',
        b'{"hosts":["a"],"interval":1,"earlier":1}\n9<{"vramtui_recording":1}\n',
        b'{"hosts":["a"],"interval":1,"earlier":2}\n0<{"vramtui_recording":1}\n',
    ],
)
def test_what_no_server_sends_is_a_sentence(sent: bytes) -> None:
    reading, writing = os.pipe()
    os.write(writing, sent)
    os.close(writing)
    with pytest.raises((UserError, SourceFailed), match=r"serve|served"):
        ServedFeed(reading, LiveRecording).hosts[0].read()


def test_the_network_is_for_tls() -> None:
    for listen in ("0.0.0.0:80", "192.0.2.1:80", "[::]:80", "gpu01:80"):
        with pytest.raises(UserError, match="give --certificate and --key"):
            command.place_of(listen, "", None, None)
    assert command.place_of("127.0.0.1:80", "", None, None).port == 80
    assert command.place_of("[::1]:80", "", None, None).address == "::1"


def test_a_token_of_bytes_that_are_no_text_is_a_wrong_one() -> None:
    access = Access((), 80)
    assert not access.is_token("\udcff" * 43)
    assert not access.is_session("ä" * 43)


def test_names_are_compared_whole_and_ports_may_be_forwarded() -> None:
    access = Access(("gpu01.example",), 80)
    for host in ("localhost", "LOCALHOST:8080", "127.0.0.1:1", "[::1]:9", "gpu01.example:443"):
        assert access.is_ours({"Host": host}), host
    for host in ("", "evil", "localhost.evil", "gpu01.example.evil", "localhost@evil", "::1"):
        assert not access.is_ours({"Host": host}), host


@pytest.mark.parametrize("action", ["app.edit", "screen.trace", "signal", "screen.save_variant", "app.snapshot()"])
def test_what_is_refused_goes_by_the_name_of_the_action(action: str) -> None:
    assert is_refused(action)
    assert not is_refused("app.step('batch size', 1)")


def test_every_action_that_writes_is_one_that_there_is() -> None:
    """A name that has changed would let something through."""
    places = (Dashboard, Watch, TimelineScreen, HistoryScreen, RunWindow, PlanScreen)
    known = {name.removeprefix("action_") for place in places for name in dir(place) if name.startswith("action_")}
    known |= set(re.findall(r"self\.action_(\w+)", inspect.getsource(Watch.__init__)))  # those that it is handed
    assert REFUSED - known <= {"deliver_screenshot", "save"}  # Textual's own, and the editor's

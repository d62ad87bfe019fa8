"""dcgm-exporter's series out of Prometheus: hosts, cards, pods, ages, the past, and where a token goes.

The server here answers as "HTTP API" of Prometheus' documentation has it; tried by hand with Debian's Prometheus 2.42
that scraped a page of dcgm-exporter's and this program's own exporter.
"""

import json
import socket
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.examples import Clock
from vramtui.cli.common.open_source import open_hosts, say_waiting
from vramtui.cli.common.option_groups import HostOptions
from vramtui.core.base.errors import SourceFailed, UserError
from vramtui.core.base.units import MIB
from vramtui.core.observation.readings import Absence
from vramtui.monitor.fleet import Fleet, RemoteHost
from vramtui.monitor.jobs import EarlierSamples
from vramtui.monitor.session import MonitorSession
from vramtui.sources.prometheus import (
    MOST_OBJECTS,
    PATIENCE,
    SILENT,
    PrometheusClient,
    PrometheusFleet,
    PrometheusSeries,
    PrometheusSource,
    past_samples,
    present,
    samples_of,
)

NOW = 1_763_800_000.0


def series(name: str, figure: object, **labels: str) -> PrometheusSeries:
    usual = {
        "__name__": f"DCGM_FI_DEV_{name}", "Hostname": "node7", "UUID": "GPU-1", "gpu": "1",
        "modelName": "NVIDIA H100 80GB HBM3",
    }  # fmt: skip
    return PrometheusSeries(metric={**usual, **labels}, value=(NOW, str(figure)))


def gpus(*found: PrometheusSeries) -> Any:
    (sample,) = samples_of(present(found), {"node7": NOW}).values()
    return sample.gpus


CARD = (series("FB_USED", 30000), series("FB_FREE", 50000), series("FB_RESERVED", 600), series("GPU_UTIL", 93))


def test_a_card_in_mebibytes_and_its_past() -> None:
    (gpu,) = gpus(*CARD, series("POWER_USAGE", "300.5"), series("SM_CLOCK", "NaN"))
    memory = gpu.memory
    assert (memory.used, memory.free, memory.reserved, memory.total) == tuple(
        n * MIB for n in (30000, 50000, 600, 80600)
    )
    assert (gpu.index, gpu.uuid, gpu.utilization, gpu.power_watts, gpu.sm_clock_mhz) == (1, "GPU-1", 93, 300.5, None)
    assert gpu.absent["sm_clock_mhz"] == gpu.absent["processes"] == Absence.NOT_SUPPORTED
    assert "utilization" not in gpu.absent
    for figure in ("NaN", "+Inf", "-1", "1e300", "x"):  # no card has them
        assert gpus(series("FB_USED", figure), series("GPU_TEMP", 50))[0].memory.used is None
    instance = {"GPU_I_ID": "3", "GPU_I_PROFILE": "1g.10gb"}
    small, whole = gpus(*CARD, series("FB_USED", 500, **instance), series("FB_FREE", 9000, **instance))[::-1]
    assert (small.mig_parent, small.mig_profile, small.uuid) == ("GPU-1", "1g.10gb", "GPU-1/3")
    assert whole.mig_parent is None
    ranges = [
        PrometheusSeries(metric=one.metric, values=((NOW, "10"), (NOW + 15, "20")))
        for one in (CARD[0], CARD[1], CARD[2], CARD[3])
    ]
    samples = past_samples(ranges)["node7"]
    assert [(sample.taken_at, sample.gpus[0].memory.used) for sample in samples] == [
        (NOW, 10 * MIB),
        (NOW + 15, 20 * MIB),
    ]
    pods = [PrometheusSeries(metric={**one.metric, "pod": pod}, value=one.value) for one in CARD for pod in ("a", "b")]
    (gpu,) = gpus(*pods)
    assert [(process.name, process.used_memory) for process in gpu.processes] == [("a", None), ("b", None)]
    assert gpu.memory.used == 30000 * MIB


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_the_pod_that_has_a_card_stands_for_its_processes(prefix: str) -> None:
    pod = {f"{prefix}namespace": "ml", f"{prefix}pod": "llama-0", f"{prefix}container": "train"}
    own = {"pod": "dcgm-exporter-x", "namespace": "monitoring"} if prefix else {}
    one, again = (
        gpus(*(PrometheusSeries(metric={**own, **pod, **one.metric}, value=one.value) for one in CARD)) for _ in "12"
    )
    (process,) = one[0].processes
    assert (process.user, process.command, process.used_memory) == ("ml", "ml/llama-0 container train", 30000 * MIB)
    assert process.pid < 0
    assert again == one
    assert "processes" not in one[0].absent


# --- a server ----------------------------------------------------------------------------------------------------


class Stub:
    def __init__(self, server: HTTPServer) -> None:
        self.url = f"http://127.0.0.1:{server.server_port}"
        self.scraped = {"node7": NOW, "node8": NOW}
        self.headers: list[str | None] = []
        self.answer: tuple[int, bytes] | None = None

    def result(self, fields: dict[str, list[str]]) -> list[dict[str, Any]]:
        hosts = [(host, at) for host, at in self.scraped.items()]
        if fields["query"][0].startswith("timestamp("):
            return [{"metric": {"Hostname": host}, "value": [NOW, str(at)]} for host, at in hosts]
        found = [{**one.metric, "Hostname": host} for host, _ in hosts for one in CARD]
        if "start" in fields:
            return [{"metric": metric, "values": [[NOW - 30, "7"], [NOW - 15, "8"]]} for metric in found]
        return [{"metric": metric, "value": [NOW, "9"]} for metric in found]


@pytest.fixture
def stub() -> Iterator[Stub]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.headers.append(self.headers["Authorization"])
            fields = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            document = {"status": "success", "data": {"resultType": "vector", "result": told.result(fields)}}
            code, body = told.answer or (200, json.dumps(document).encode())
            self.send_response(code)
            self.send_header("Location", "http://192.0.2.1/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
            del format, args

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        told = Stub(server)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        yield told
        server.shutdown()


def test_hosts_their_past_and_one_that_is_not_scraped_any_more(stub: Stub) -> None:
    clock = Clock(NOW + 5)
    fleet = PrometheusFleet(PrometheusClient(stub.url), 0.05, clock)
    assert fleet.begin() == ("node7", "node8")
    source = PrometheusSource(fleet, "node7")
    first = source.read()
    assert (first.taken_at, first.gpus[0].memory.used) == (NOW, 9 * MIB)
    assert source.read() == first  # nothing newer has come: it is the latest, with its own time
    clock.now = NOW + SILENT + 1
    with pytest.raises(SourceFailed, match="node7: Prometheus scraped it last 1 m 31 s ago"):
        source.read()
    hosts = ((name, PrometheusSource(fleet, name), EarlierSamples(fleet.past(name))) for name in ("node7", "node8"))
    watched = Fleet([RemoteHost(name, source, past=past) for name, source, past in hosts], 1)
    session = watched.begin(lambda _: MonitorSession())
    assert session.history.gauges["GPU-1"]["utilization"].times[0] == NOW - 30
    watched.close()


def test_a_server_that_refuses_or_is_another_is_a_sentence(stub: Stub) -> None:
    client = PrometheusClient(stub.url)
    for code, body, said in (
        (401, b"", "needs a token"),
        (302, b"", "status 302"),  # a redirect is not followed
        (400, b'{"status": "error", "error": "parse error"}', "parse error"),
        (200, b"<html>", "is not Prometheus'"),
        (200, b'{"status": "success"}', "the query failed"),
        (200, b'{"data": {"result": [' + b'{"metric":{}},' * (MOST_OBJECTS // 2) + b"]}}", "more series than"),
    ):
        stub.answer = (code, body)
        with pytest.raises(SourceFailed, match=said):
            client.query("up")
    stub.answer = (200, b'{"status": "success", "data": {"result": []}}')
    with pytest.raises(SourceFailed, match="no GPU") as failed:
        PrometheusFleet(client, 1.0).begin()
    assert "no dcgm-exporter" in failed.value.hint
    with pytest.raises(SourceFailed, match="no answer"):
        PrometheusClient("http://127.0.0.1:1").query("up")


@pytest.mark.parametrize("drip", [b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n", b""])
def test_a_server_that_drips_is_not_waited_for(drip: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PATIENCE, "query", 0.3)
    over = threading.Event()

    def serve(listening: socket.socket) -> None:
        client, _ = listening.accept()
        with client, suppress(OSError):  # who waits no longer closes
            client.sendall(drip)
            while not over.wait(0.05):
                client.sendall(b"x")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, args=(listening,), daemon=True).start()
        client = PrometheusClient(f"http://127.0.0.1:{listening.getsockname()[1]}")
        with pytest.raises(SourceFailed, match=r"no (whole )?answer"):
            client.query("up")
        with pytest.raises(SourceFailed, match=r"no (whole )?answer|still goes on"):
            client.query("up")
        over.set()


def test_a_token_is_read_anew_and_told_to_nobody_else(stub: Stub, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc\n")
    client = PrometheusClient(stub.url, file)
    client.query("up")
    file.write_text("def")
    client.query("up")
    assert stub.headers == ["Bearer abc", "Bearer def"]
    for wrong in ("", "a\nb", "a b"):
        file.write_text(wrong)
        with pytest.raises(SourceFailed, match="holds no token"):
            client.query("up")
    file.unlink()
    with pytest.raises(SourceFailed, match="cannot be read"):
        client.query("up")
    for url in ("http://prometheus.example", "http://192.0.2.1:9090", "http://localhost.example"):
        with pytest.raises(UserError, match="over https or to this machine only"):
            PrometheusClient(url, file)
    PrometheusClient("https://prometheus.example/path", file)


@pytest.mark.parametrize(
    "url", ["localhost:9090", "file:///etc/passwd", "http://a:b@localhost", "http://", "http://x/?y=1"]
)
def test_what_is_no_address_or_does_not_go_together(url: str) -> None:
    with pytest.raises(UserError, match="--prometheus"):
        PrometheusClient(url)
    with pytest.raises(UserError, match="--token-file is for --prometheus"):
        open_hosts(HostOptions(token_file=Path(url)), 1.0)
    with pytest.raises(UserError, match="not with --host"):
        open_hosts(HostOptions(host=["a"], prometheus=url), 1.0)
    assert open_hosts(HostOptions(), 1.0, other=True) == {}


def test_a_slow_server_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before there is a screen nothing else tells that the program lives."""
    answered = threading.Event()

    def say(name: str) -> None:
        say_waiting(name)
        answered.set()

    def begin(fleet: PrometheusFleet) -> tuple[str, ...]:
        del fleet
        answered.wait(60)
        return ()

    monkeypatch.setattr("vramtui.cli.common.open_source.OVERDUE", 0.01)
    monkeypatch.setattr("vramtui.cli.common.open_source.say_waiting", say)
    monkeypatch.setattr(PrometheusFleet, "begin", begin)
    assert open_hosts(HostOptions(prometheus="http://localhost:9"), 1.0) == {}
    assert capsys.readouterr().err == "vramtui: localhost:9 does not answer; still waiting\n"

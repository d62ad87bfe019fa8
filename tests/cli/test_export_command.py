import socket
import urllib.request
from pathlib import Path

import pytest

from tests.commands import invoke
from vramtui.cli.export import Tls, address_of, check_options, serve_metrics
from vramtui.core.base.errors import UserError
from vramtui.records.export.metrics import NAMES, MetricFamily, up_metric


@pytest.mark.parametrize(
    ("said", "found"), [("127.0.0.1:9845", ("127.0.0.1", 9845)), (":80", ("127.0.0.1", 80)), ("[::1]:9", ("::1", 9))]
)
def test_where_it_listens(said: str, found: tuple[str, int]) -> None:
    assert address_of(said) == found


@pytest.mark.parametrize("said", ["9845", "host:", "host:x", "host:70000", "host:-1"])
def test_what_is_no_address(said: str) -> None:
    with pytest.raises(UserError, match="--listen takes ADDRESS:PORT"):
        address_of(said)


def test_options_that_do_not_go_together() -> None:
    with pytest.raises(UserError, match="two ways"):
        check_options(":1", Path("x"), Tls(), once=False)
    with pytest.raises(UserError, match="takes the name of a file"):
        check_options(None, Path("-"), Tls(), once=True)
    with pytest.raises(UserError, match="--once writes a text file"):
        check_options(None, None, Tls(), once=True)
    with pytest.raises(UserError, match="both --certificate and --key"):
        check_options(None, None, Tls(certificate=Path("x")), once=False)
    with pytest.raises(UserError, match="--client-ca is for TLS"):
        check_options(None, None, Tls(client_ca=Path("x")), once=False)


def test_the_demo_as_a_file(tmp_path: Path) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="needs the extra `prometheus`")
    file = tmp_path / "vramtui.prom"
    ended = invoke("export", "--demo", "--textfile", str(file), "--once")
    assert ended.exit_code == 0, ended.output
    families = {family.name: family for family in parser.text_string_to_metric_families(file.read_text())}
    assert set(families) == set(NAMES)
    labels = families["vramtui_prediction_error_ratio"].samples[0].labels
    assert set(labels) == {"gpu", "uuid", "Hostname", "user", "preset", "kind"}


def test_what_is_served_is_the_newest_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra `prometheus`")
    from vramtui.cli.export import SampleCollector  # noqa: PLC0415 - of an extra

    collector = SampleCollector()
    serve_metrics("127.0.0.1:0", Tls(), collector)
    address = capsys.readouterr().err.split()[-1]
    assert address.startswith("http://127.0.0.1:")

    def scrape() -> str:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - loopback
            return str(answer.read().decode())

    assert "vramtui_up 0.0" in scrape()
    processes = MetricFamily("vramtui_processes", "Of a user.", ("user",), ((('an\n"na',), 2.0),))
    collector.families = (processes, up_metric(up=True))
    assert 'vramtui_processes{user="an\\n\\"na"} 2.0' in scrape()
    collector.families = (up_metric(up=False),)
    assert "vramtui_processes" not in scrape()
    with pytest.raises(UserError, match="address already in use"):
        serve_metrics(address.removeprefix("http://").removesuffix("/metrics"), Tls(), collector)


def test_clients_that_say_nothing_keep_nobody_out(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("prometheus_client", reason="needs the extra `prometheus`")
    from vramtui.cli.export import MOST_CLIENTS, SampleCollector  # noqa: PLC0415 - of an extra

    serve_metrics("127.0.0.1:0", Tls(), SampleCollector())
    address = capsys.readouterr().err.split()[-1]
    port = int(address.rpartition(":")[2].partition("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(4 * MOST_CLIENTS)]
    try:
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - loopback
            assert b"vramtui_up" in answer.read()
        silent[0].settimeout(10)
        assert silent[0].recv(1) == b""
    finally:
        for one in silent:
            one.close()

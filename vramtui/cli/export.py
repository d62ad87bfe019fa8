"""`vramtui export`: for Prometheus, as an endpoint or a file for node-exporter.

The endpoint has a thread for each client. A scrape takes milliseconds. A client that is silent or slow is closed after
`PATIENCE`, or when too many others come, the oldest first: held connections cannot keep the Prometheus server out.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import TYPE_CHECKING, Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, on_end_signals, require_open_files, say
from vramtui.cli.options import command_of
from vramtui.core.base.errors import SourceFailed, UserError, install_hint, os_reason
from vramtui.core.observation.readings import Sample
from vramtui.records.export.metrics import MetricFamily, metrics_of, up_metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LOOPBACK = "127.0.0.1:9845"


class Tls(NamedTuple):
    """Files for an endpoint over TLS; `client_ca` makes it ask for certificates."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


@command_of
def export(
    listen: str | None = None,
    textfile: Path | None = None,
    interval: float = 5.0,
    *,
    dcgm: bool = True,
    per_process: bool = False,
    once: bool = False,
    certificate: Path | None = None,
    key: Path | None = None,
    client_ca: Path | None = None,
    demo: bool = False,
) -> None:
    """Export memory, predictions and their errors for Prometheus; what DCGM knows as well has its names and units.

    Listens on localhost only; --listen changes it. A dashboard for Grafana, alert rules and a systemd unit
    are in the folder packaging/prometheus of the source.
    """
    require_open_files(RECORDER_ROOM)
    tls = Tls(certificate, key, client_ca)
    check_options(listen, textfile, tls, once=once)
    try:
        from prometheus_client import CollectorRegistry, write_to_textfile
    except ImportError:
        raise UserError(f"export needs prometheus-client: {install_hint('prometheus')}") from None
    from vramtui.cli.common.open_source import open_source, session_of
    from vramtui.monitor.poller import ReadQueue

    collector, registry = SampleCollector(), CollectorRegistry()
    registry.register(collector)
    if not textfile:
        serve_metrics(listen or LOOPBACK, tls, collector)
    over = threading.Event()
    opened = open_source(demo=demo)
    with closing(ReadQueue(opened.source, interval)) as reads:

        def end() -> None:
            over.set()
            reads.wake()

        on_end_signals(end)
        session = session_of(opened)
        while not over.is_set():
            result = reads.next(3 * interval + 3)
            if isinstance(result, Sample):
                session.ingest(result)
                # Of each process: train, infer or serve.
                kinds = {pid: str(one.preset.run.__struct_config__.tag) for pid, one in session.matched.items()}
                collector.families = metrics_of(session.snapshot(), kinds, per_process=per_process, with_dcgm=dcgm)
            else:  # none in time: nothing old is shown for new
                if isinstance(result, SourceFailed):
                    say(result.sentence)
                collector.families = (up_metric(up=False),)
            if textfile:
                try:
                    write_to_textfile(str(textfile), registry)
                except OSError as error:
                    raise UserError(f"{textfile} cannot be written: {os_reason(error)}") from None
            if once:
                return


def check_options(listen: str | None, textfile: Path | None, tls: Tls, *, once: bool) -> None:
    if listen and textfile:
        raise UserError("--listen and --textfile are two ways; give one of them")
    if textfile == Path("-"):
        raise UserError("--textfile takes the name of a file, and - is none")
    if once and not textfile:
        raise UserError("--once writes a text file; give --textfile FILE as well")
    if (tls.certificate is None) != (tls.key is None) or (tls.client_ca and not tls.certificate):
        raise UserError("TLS needs both --certificate and --key; --client-ca is for TLS")


def address_of(listen: str) -> tuple[str, int]:
    """Address and port of `127.0.0.1:9845`, `[::1]:9845` or `:9845`, which is loopback."""
    address, colon, port = listen.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and 0 <= int(port) < 1 << 16):
        raise UserError(f"--listen takes ADDRESS:PORT, as {LOOPBACK}; not {listen!r}")
    return address.strip("[]") or "127.0.0.1", int(port)


def serve_metrics(listen: str, tls: Tls, collector: "SampleCollector") -> None:
    """Serve at `listen` what the collector holds, on a thread of its own."""
    from prometheus_client import CollectorRegistry, make_wsgi_app

    registry = CollectorRegistry()
    registry.register(collector)
    collector.families = (up_metric(up=False),)
    address, port = address_of(listen)
    try:
        server = MetricsServer((address, port), tls_context(*tls))
    except OSError as error:
        raise UserError(f"--listen {listen}: {os_reason(error)}") from None
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, name="serve metrics", daemon=True).start()
    scheme = "http" if tls.certificate is None else "https"
    say(f"metrics at {scheme}://{address}:{server.server_port}/metrics")


PATIENCE = 5.0  # seconds of a whole exchange, and of each read within it
MOST_CLIENTS = 64


def tls_context(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class MetricsHandler(WSGIRequestHandler):
    """One exchange; it logs nothing."""

    timeout = PATIENCE

    def log_message(self, *_: object) -> None:
        """Write no line for a request."""


class MetricsServer(ThreadingMixIn, WSGIServer):
    """Serves each client on a thread of its own; `context` wraps connections there, because a handshake may hang."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = MOST_CLIENTS

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
        if ":" in address[0]:
            self.address_family = socket.AF_INET6
        self._context = context
        self._clients: dict[socket.socket, float] = {}
        self._lock = threading.Lock()
        super().__init__(address, MetricsHandler)

    def server_bind(self) -> None:
        """Bind the socket without asking a name server for this machine's name, as WSGIServer would."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as socketserver has them
        """Begin an exchange, for which the oldest others may have to end."""
        with self._lock:
            self._clients[request] = time.monotonic()
            late = time.monotonic() - PATIENCE
            ended = [connection for connection, since in self._clients.items() if since < late]
            ended += list(self._clients)[: max(0, len(self._clients) - MOST_CLIENTS)]
            for connection in ended:
                self._clients.pop(connection, None)
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def finish_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        """The exchange, within TLS where there is that."""
        request.settimeout(PATIENCE)
        if self._context is None:
            super().finish_request(request, client_address)
            return
        with self._context.wrap_socket(request, server_side=True, suppress_ragged_eofs=True) as wrapped:
            super().finish_request(wrapped, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401 - as above
        with self._lock:
            self._clients.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - as above
        """Ignore a client that went, was late or spoke no TLS."""


class SampleCollector:
    """A registry's collector: the `families` that were set last."""

    families: Sequence[MetricFamily] = ()

    def collect(self) -> "Iterable[Metric]":
        from prometheus_client.core import GaugeMetricFamily

        for family in self.families:
            gauge = GaugeMetricFamily(family.name, family.text, labels=family.labels)
            for labels, value in family.samples:
                gauge.add_metric(labels, value)
            yield gauge

    def describe(self) -> "Iterable[Metric]":
        return ()

"""The endpoint that Prometheus scrapes: a thread for each client.

A scrape takes milliseconds. A client that is silent or slow is closed after `PATIENCE`, or when too many others come,
the oldest first: held connections cannot keep the Prometheus server out.
"""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client.core import GaugeMetricFamily, Metric

from vramtui.records.export.metrics import MetricFamily

PATIENCE = 5.0  # seconds of a whole exchange, and of each read within it
MOST_CLIENTS = 64


def tls_context(certificate: Path | None, key: Path | None, client_ca: Path | None) -> ssl.SSLContext | None:
    """The TLS context of each client's connection; None without a certificate."""
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
    """Serves each client on a thread of its own.

    Args:
        address: host and port to listen at.
        context: wraps connections, in the client's own thread: a handshake may hang.
    """

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
    """A registry's collector: only the families that were put in last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: Sequence[MetricFamily] = ()

    def put(self, families: Sequence[MetricFamily]) -> None:
        """Let these be what is scraped from now on."""
        with self._lock:
            self._families = families

    def collect(self) -> Iterable[Metric]:
        with self._lock:
            families = self._families
        for family in families:
            gauge = GaugeMetricFamily(family.name, family.text, labels=family.labels)
            for labels, value in family.samples:
                gauge.add_metric(labels, value)
            yield gauge

    def describe(self) -> Iterable[Metric]:
        """Describe no metric before there is one."""
        return ()

"""`vramtui export`: for Prometheus, as an endpoint or a file for node-exporter."""

import sys
import threading
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from vramtui.cli.common.exit_codes import RECORDER_ROOM, exit_on_user_error, on_end_signals, require_open_files
from vramtui.cli.options import Demo, command_of
from vramtui.core.base.errors import SourceFailed, UserError, install_hint, os_reason

if TYPE_CHECKING:
    from vramtui.cli.export.server import SampleCollector

LOOPBACK = "127.0.0.1:9845"


class Tls(NamedTuple):
    """Files for an endpoint over TLS; `client_ca` makes it ask for certificates."""

    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """Options of `vramtui export`."""

    listen: Annotated[
        str | None, typer.Option(metavar="ADDRESS:PORT", help=f"Serve /metrics here; {LOOPBACK} by default.")
    ] = None
    textfile: Annotated[
        Path | None, typer.Option(help="Write a file for node-exporter's textfile collector at each interval.")
    ] = None
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between samples of the GPUs.")] = 5.0
    dcgm: Annotated[
        bool,
        typer.Option(
            "--dcgm/--no-dcgm", help="Also export DCGM's metrics under their names; turn off if dcgm-exporter runs."
        ),
    ] = True
    per_process: Annotated[bool, typer.Option("--per-process", help="Labels for each pid, pod and container.")] = False
    once: Annotated[bool, typer.Option("--once", help="Write the text file once and end.")] = False
    certificate: Annotated[Path | None, typer.Option(help="Serve over TLS with this certificate.")] = None
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None
    client_ca: Annotated[Path | None, typer.Option(help="Serve only clients with a certificate of this CA.")] = None
    demo: Demo = False


@command_of(ExportOptions)
def export(options: ExportOptions) -> None:
    """Export memory, predictions and their errors for Prometheus; what DCGM knows as well has its names and units.

    Listens on localhost only; --listen changes it. A dashboard for Grafana, alert rules and a systemd unit
    are in the folder packaging/prometheus of the source.
    """
    with exit_on_user_error():
        require_open_files(RECORDER_ROOM)
        tls = Tls(options.certificate, options.key, options.client_ca)
        check_options(options.listen, options.textfile, tls, once=options.once)
        _export(options, tls)


def check_options(listen: str | None, textfile: Path | None, tls: Tls, *, once: bool) -> None:
    """Hold the options to one another."""
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


def _export(options: ExportOptions, tls: Tls) -> None:
    try:
        from vramtui.cli.export.server import SampleCollector
    except ImportError:
        raise UserError(f"export needs prometheus-client: {install_hint('prometheus')}") from None
    from vramtui.cli.common.open_source import open_source, session_of
    from vramtui.core.observation.readings import Sample
    from vramtui.monitor.poller import ReadQueue
    from vramtui.records.export.metrics import metrics_of, up_metric

    collector = SampleCollector()
    publish = (
        _file_of(options.textfile, collector)
        if options.textfile
        else serve_metrics(options.listen or LOOPBACK, tls, collector)
    )
    over = threading.Event()
    opened = open_source(demo=options.demo)
    with closing(ReadQueue(opened.source, options.interval)) as reads:

        def end() -> None:
            over.set()
            reads.wake()

        on_end_signals(end)
        session = session_of(opened)
        while not over.is_set():
            result = reads.next(3 * options.interval + 3)
            if isinstance(result, Sample):
                session.ingest(result)
                kinds = {
                    key: str(one.preset.run.__struct_config__.tag)  # train, infer or serve
                    for key, one in session.matched.items()
                }
                metrics = metrics_of(session.snapshot(), kinds, per_process=options.per_process, with_dcgm=options.dcgm)
                collector.put(metrics)
            else:  # none in time: nothing old is shown for new
                if isinstance(result, SourceFailed):
                    sys.stderr.write(f"vramtui: {result.sentence}\n")
                collector.put((up_metric(up=False),))
            publish()
            if options.once:
                return


def _file_of(path: Path, collector: "SampleCollector") -> Callable[[], None]:
    from prometheus_client import write_to_textfile

    registry = _registry(collector)

    def write() -> None:
        try:
            write_to_textfile(str(path), registry)
        except OSError as error:
            raise UserError(f"{path} cannot be written: {os_reason(error)}") from None

    return write


def _registry(collector: "SampleCollector") -> Any:  # noqa: ANN401 - of an extra, which may be missing
    from prometheus_client import CollectorRegistry

    registry: Any = CollectorRegistry()
    registry.register(collector)
    return registry


def serve_metrics(listen: str, tls: Tls, collector: "SampleCollector") -> Callable[[], None]:
    """Serve at `listen` what the collector holds; what is returned has nothing left to do after a sample."""
    from prometheus_client import make_wsgi_app

    from vramtui.cli.export.server import MetricsServer, tls_context
    from vramtui.records.export.metrics import up_metric

    registry = _registry(collector)
    collector.put((up_metric(up=False),))
    address, port = address_of(listen)
    try:
        server = MetricsServer((address, port), tls_context(*tls))
    except OSError as error:
        raise UserError(f"--listen {listen}: {os_reason(error)}") from None
    server.set_app(make_wsgi_app(registry))
    threading.Thread(target=server.serve_forever, name="serve metrics", daemon=True).start()
    scheme = "http" if tls.certificate is None else "https"
    sys.stderr.write(f"vramtui: metrics at {scheme}://{address}:{server.server_port}/metrics\n")
    return lambda: None

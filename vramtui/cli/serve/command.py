"""`vramtui serve`: the dashboard in a browser."""

import asyncio
import platform
import signal
import socket
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from vramtui.cli.common.exit_codes import exit_on_user_error, require_open_files
from vramtui.cli.export.command import address_of
from vramtui.cli.options.command_options import command_of
from vramtui.cli.options.hosts import open_hosts
from vramtui.cli.options.shared_options import NO_HOSTS, Demo, HostOptions
from vramtui.core.base.errors import UserError, install_hint, os_reason

if TYPE_CHECKING:
    import ssl

    from vramtui.cli.common.open_source import OpenedSource
    from vramtui.cli.serve.broadcast import Broadcast, HostBroadcast
    from vramtui.core.observation.readings import Sample
    from vramtui.monitor.fast_sampler import FastTargets

LISTEN = "127.0.0.1:9846"
SHUTDOWN = 3.0  # seconds for tabs to end


class Place(NamedTuple):
    """Where it is served: address, port, the name that browsers use, and files for TLS."""

    address: str
    port: int
    name: str
    certificate: Path | None
    key: Path | None


@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """What `vramtui serve` takes."""

    listen: Annotated[str, typer.Option(metavar="ADDRESS:PORT", help="Where to serve; port 0 takes a free one.")] = (
        LISTEN
    )
    name: Annotated[str, typer.Option(help="The name that browsers call this server, where it is not loopback's.")] = ""
    certificate: Annotated[Path | None, typer.Option(help="Serve over TLS with this certificate.")] = None
    key: Annotated[Path | None, typer.Option(help="The certificate's key.")] = None
    tabs: Annotated[int, typer.Option(min=1, max=256, help="Tabs that may be open at once.")] = 8
    interval: Annotated[float, typer.Option(min=0.1, max=3600, help="Seconds between samples of the GPUs.")] = 1.0
    hosts: HostOptions = NO_HOSTS
    feed: Annotated[
        str | None, typer.Option(metavar="PATH|-", help="Show what `vramtui stream` sends; - is standard input.")
    ] = None
    demo: Demo = False


@command_of(ServeOptions)
def serve(options: ServeOptions) -> None:
    """Show the dashboard in a browser, to look at: nothing is signalled, traced, edited or written from there.

    The address that is printed has a token of this start, which the browser exchanges for a cookie. However many tabs
    are open, each host is read once. Beyond this machine it is served over TLS only; `ssh -L 9846:localhost:9846` needs
    none.
    """
    with exit_on_user_error():
        place = place_of(options.listen, options.name, options.certificate, options.key)
        require_open_files()
        try:
            import aiohttp  # noqa: F401 - of an extra

            from vramtui.cli.serve.server import static_folder

            static_folder()
        except ImportError:
            raise UserError(f"serve needs textual-serve: {install_hint('serve')}") from None
        hosts = open_hosts(
            options.hosts.elsewhere,
            options.interval,
            options.demo or options.feed,
        )
        _serve(place, options.tabs, options.interval, hosts or {"": _open_here(options.feed, demo=options.demo)})


def _open_here(feed: str | None, *, demo: bool) -> "OpenedSource":
    from vramtui.cli.common.open_source import open_source

    return open_source(demo=demo, replay=None, feed=feed)


def place_of(listen: str, name: str, certificate: Path | None, key: Path | None) -> Place:
    """Where to listen, as the options say.

    Raises:
        UserError: the network beyond this machine without TLS, or half of what TLS needs.
    """
    from vramtui.sources.prometheus.client import is_loopback

    address, port = address_of(listen)
    if (certificate is None) != (key is None):
        raise UserError("TLS needs both --certificate and --key")
    if certificate is None and not is_loopback(address):
        raise UserError(
            f"--listen {listen} is seen by others, who could read the token: give --certificate and --key as well, or"
            " stay on loopback and forward the port with `ssh -L`"
        )
    return Place(address, port, name, certificate, key)


def _serve(place: Place, tabs: int, interval: float, opened: "Mapping[str, OpenedSource]") -> None:
    from vramtui.cli.common.probe_client import ProbeClient
    from vramtui.cli.record.follow import FollowOptions, HostFollower, preset_matchers
    from vramtui.cli.serve.broadcast import Broadcast
    from vramtui.records.recording.recording import RecordingHeader
    from vramtui.sources.feed.served import ServedHeader

    banner = next((watch.banner for watch in opened.values() if watch.banner), None)
    header = ServedHeader(hosts=tuple(opened), interval=interval, banner=banner, runs_of=_recorded(opened))
    broadcast = Broadcast(header)
    for at, watch in enumerate(opened.values()):
        if watch.past is not None:
            broadcast.earlier(at).fill(RecordingHeader(interval=interval), watch.past.samples())
    presets = preset_matchers()
    with closing(ProbeClient("serve")) as probes:
        followers = []
        for at, watch in enumerate(opened.values()):
            host = broadcast.host(at)
            begin = partial(_begin, host, interval)
            targets: FastTargets = "none" if watch.elsewhere else "auto"
            options = FollowOptions(newest=True, targets=targets, probes=probes)
            followers.append(HostFollower(watch, interval, begin, host, presets, options))
        for follower in followers:
            follower.start()
        try:
            asyncio.run(_run(place, broadcast, tabs))
        finally:
            for follower in followers:
                follower.finish()
            for watch in opened.values():
                watch.source.close()
            followers[0].join(1.0)


def _recorded(opened: "Mapping[str, OpenedSource]") -> tuple[str, ...]:
    """The hosts of which the history may have runs: a feed's jobs are kept by whoever sends it."""
    from vramtui.cli.dashboard.past_runs import DEMO_HOST

    names = {"": platform.node()}
    if any(one.banner for one in opened.values()):
        return (DEMO_HOST,)
    return tuple(names.get(name, name) for name, one in opened.items() if one.elsewhere == bool(name))


def _begin(host: "HostBroadcast", interval: float, first: "Sample") -> AbstractContextManager["HostBroadcast"]:
    from vramtui.cli.common.versions import versions
    from vramtui.records.recording.recording import RecordingHeader

    return host.begin(RecordingHeader(started_at=first.taken_at, interval=interval, versions=versions(first)))


async def _run(place: Place, broadcast: "Broadcast", tabs: int) -> None:
    from aiohttp import web

    from vramtui.cli.serve.access import Access
    from vramtui.cli.serve.server import TabServer

    tls = _tls(place)
    try:
        listener = socket.create_server(
            (place.address, place.port), family=socket.AF_INET6 if ":" in place.address else socket.AF_INET
        )
    except OSError as error:
        raise UserError(f"--listen {place.address}:{place.port}: {os_reason(error)}") from None
    port, scheme = listener.getsockname()[1], "http" if tls is None else "https"
    access = Access((place.name, place.address), port)
    server = TabServer(access, broadcast.add_reader, tabs, scheme)
    runner = web.AppRunner(server.application(), access_log=None, logger=server.quiet_log())
    over = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    await runner.setup()
    try:
        await web.SockSite(runner, listener, ssl_context=tls, shutdown_timeout=SHUTDOWN).start()
        name = place.name or (f"[{place.address}]" if ":" in place.address else place.address)
        sys.stdout.write(f"{scheme}://{name}:{port}/?token={access.token}\n")
        sys.stdout.flush()
        sys.stderr.write("vramtui: open this address in a browser; Ctrl+C ends it\n")
        await over.wait()
    finally:
        await runner.cleanup()


def _tls(place: Place) -> "ssl.SSLContext | None":
    if place.certificate is None:
        return None
    import ssl

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(place.certificate, place.key)
    except OSError as error:  # an SSLError is one
        raise UserError(f"{place.certificate} and {place.key} are no certificate and key: {error}") from None
    return context

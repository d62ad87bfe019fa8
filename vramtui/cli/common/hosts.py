"""Other machines, by `--host`, `--slurm` or `--prometheus`: a source each."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from vramtui.core.base.errors import UserError

if TYPE_CHECKING:
    from vramtui.cli.common.open_source import OpenedSource
    from vramtui.core.observation.history import Peak
    from vramtui.core.observation.probe_messages import ObservedJob
    from vramtui.core.observation.readings import ProcessKey
    from vramtui.records.recording.decoder import LiveRecording

OVERDUE = 2.0  # seconds after which it is said that a server is waited for


class OtherHosts(NamedTuple):
    """Options that name other machines: hosts, a Slurm job, a Prometheus with its token's file."""

    hosts: Sequence[str] | None = None
    slurm: str | None = None
    prometheus: str | None = None
    token_file: Path | None = None


class HostRecording:
    """The recording of one host that is under way; a connection that is made anew begins another."""

    def __init__(self) -> None:
        self._current: LiveRecording | None = None

    def begin(self) -> "LiveRecording":
        """A connection begins."""
        from vramtui.records.recording.decoder import LiveRecording

        self._current = LiveRecording()
        return self._current

    def jobs(self) -> "tuple[ObservedJob, ...]":
        """The reports of the host's own probes."""
        return () if self._current is None else self._current.jobs()

    def peaks(self, when: float) -> "Sequence[tuple[ProcessKey, Peak]]":
        """Peaks that no sample shows, each once."""
        return () if self._current is None else self._current.peaks(when)


def open_hosts(asked: OtherHosts, interval: float, other: object = None) -> "dict[str, OpenedSource]":
    """A source for each host, by its name; all connect at once, a few handshakes at a time. Empty without options."""
    if asked.token_file is not None and not asked.prometheus:
        raise UserError("--token-file is for --prometheus")
    if not any(asked):
        return {}
    from vramtui.cli.common.open_source import use_one_heap

    use_one_heap()
    if other:
        raise UserError("--host and --demo, --replay or --feed show different things; give one of them")
    if asked.prometheus is not None:
        if asked.hosts or asked.slurm:
            raise UserError("--prometheus shows the hosts that it knows; not with --host or --slurm")
        return _open_prometheus(asked.prometheus, asked.token_file, interval)
    return _open_ssh(asked, interval)


def _open_prometheus(url: str, token_file: Path | None, interval: float) -> "dict[str, OpenedSource]":
    from vramtui.cli.common.open_source import OpenedSource, say_waiting
    from vramtui.sources.prometheus import PrometheusClient, PrometheusFleet, PrometheusSource

    client = PrometheusClient(url, token_file)
    fleet = PrometheusFleet(client, interval)
    overdue = threading.Timer(OVERDUE, say_waiting, (client.title,))
    overdue.daemon = True
    overdue.start()
    try:
        hosts = fleet.begin()
    finally:
        overdue.cancel()
    return {
        name: OpenedSource(PrometheusSource(fleet, name), jobs=tuple, elsewhere=True, past=fleet.past(name))
        for name in hosts
    }


def _open_ssh(asked: OtherHosts, interval: float) -> "dict[str, OpenedSource]":
    from vramtui.cli.common.open_source import OpenedSource
    from vramtui.cli.common.settings import settings_in_force
    from vramtui.sources.ssh import Handshakes, SshSource, host_names, ssh_arguments

    commands: dict[str, Callable[[str, float, int], Sequence[str]]]
    commands = dict.fromkeys(host_names(asked.hosts or (), settings_in_force().hosts), ssh_arguments)
    handshakes = Handshakes()
    if asked.slurm:
        from vramtui.sources.slurm import job_hosts, may_step, srun_arguments

        nodes, user = job_hosts(asked.slurm)
        if may_step(user):
            commands |= {node: partial(srun_arguments, number) for node, number in nodes.items()}
            handshakes = Handshakes(lambda host: host)  # none of sshd's
        else:
            commands |= dict.fromkeys(nodes, ssh_arguments)
    opened = {}
    for name, arguments in commands.items():
        recording = HostRecording()
        source = SshSource(name, interval, recording.begin, handshakes, arguments)
        opened[name] = OpenedSource(source, jobs=recording.jobs, peaks=recording.peaks, elsewhere=True)
    return opened

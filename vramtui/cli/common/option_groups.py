"""Options that commands take together, and hand on together."""

from pathlib import Path
from typing import NamedTuple


class HostOptions(NamedTuple):
    """The machines to watch instead of this one: hosts, a Slurm job, a Prometheus with its token's file."""

    host: list[str] | None = None
    slurm: str | None = None
    prometheus: str | None = None
    token_file: Path | None = None


NO_HOSTS = HostOptions()


class SourceOptions(NamedTuple):
    """The source of one sample; this machine by default."""

    demo: bool = False
    replay: Path | None = None
    hosts: HostOptions = NO_HOSTS


class DashboardOptions(NamedTuple):
    """Options of the dashboard.

    Attributes:
        interval: seconds between samples; what the settings say where it is None.
        preset: the one to show first.
        only: some of the GPUs.
        monitor: only what is seen.
    """

    demo: bool = False
    replay: Path | None = None
    hosts: HostOptions = NO_HOSTS
    feed: str | None = None
    interval: float | None = None
    preset: str | None = None
    no_signals: bool = False
    view_only: bool = False
    monitor: bool = False
    only: str | None = None

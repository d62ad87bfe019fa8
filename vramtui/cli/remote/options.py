"""The options that name other machines; apart from what opens them, which the dashboard loads without a parser."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from vramtui.cli.remote.hosts import OtherHosts


HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Another machine, over ssh: gpu01, user@gpu[02-16], @group; may be given again.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """Which machines are watched instead of this one."""

    host: HostOption = None
    slurm: Annotated[
        str | None,
        typer.Option(
            "--slurm", metavar="JOBID", help="The hosts of a running Slurm job: by srun --overlap, or else ssh."
        ),
    ] = None
    prometheus: Annotated[
        str | None,
        typer.Option("--prometheus", metavar="URL", help="The hosts of which this Prometheus scrapes dcgm-exporter."),
    ] = None
    token_file: Annotated[
        Path | None,
        typer.Option(
            "--token-file", help="With --prometheus: a file with its bearer token; over https or loopback only."
        ),
    ] = None

    @property
    def elsewhere(self) -> "OtherHosts":
        """The same, as it is opened."""
        from vramtui.cli.remote.hosts import OtherHosts

        return OtherHosts(self.host, self.slurm, self.prometheus, self.token_file)


NO_HOSTS = HostOptions()

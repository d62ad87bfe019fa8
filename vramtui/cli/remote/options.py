"""The options that name other machines; apart from what opens them, which the dashboard loads without a parser."""

from pathlib import Path
from typing import Annotated

import typer

HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Another machine, over ssh: gpu01, user@gpu[02-16], @group; may be given again.",
    ),
]

SlurmOption = Annotated[
    str | None,
    typer.Option("--slurm", metavar="JOBID", help="The hosts of a running Slurm job: by srun --overlap, or else ssh."),
]

PrometheusOption = Annotated[
    str | None,
    typer.Option("--prometheus", metavar="URL", help="The hosts of which this Prometheus scrapes dcgm-exporter."),
]
TokenOption = Annotated[
    Path | None,
    typer.Option("--token-file", help="With --prometheus: a file with its bearer token; over https or loopback only."),
]

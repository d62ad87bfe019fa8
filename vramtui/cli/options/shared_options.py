"""Options that several commands take: the preset or model and its changes, the card, and where to look.

The dashboard has those of where to look as well, and loads no parser: what opens other machines is loaded by itself.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vramtui.cli.completion import cards, presets
from vramtui.cli.completion import settings as known_settings

if TYPE_CHECKING:
    from vramtui.cli.options.hosts import OtherHosts

MODELS = "A preset, a model's name, or a path."
JobName = Annotated[str, typer.Argument(metavar="PRESET", help=MODELS, autocompletion=presets)]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change any value: run.max_grad_norm=1.", autocompletion=known_settings
    ),
]
Card = Annotated[
    str | None, typer.Option(metavar="CARD", help="The card to fit: 4090, H100, 24GB.", autocompletion=cards)
]
Memory = Annotated[str | None, typer.Option(metavar="SIZE", help="The memory to fit: 24GB.")]
JobFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Take the run's settings from a file of accelerate, DeepSpeed or the like."),
]
Hub = Annotated[bool, typer.Option("--hub", help="Ask huggingface.co for a model's config and headers.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON document, bytes as integers.")]


@dataclass(frozen=True, kw_only=True)
class CardOptions:
    """The card that a job has to fit."""

    gpu: Card = None
    memory: Memory = None
    gpus: Annotated[
        int | None,
        typer.Option(
            min=1, max=65536, help="Such cards to share the job: by FSDP or tensor parallel, whichever needs less."
        ),
    ] = None

    @property
    def asks(self) -> bool:
        """Whether a card or a size was named."""
        return self.gpu is not None or self.memory is not None


HostOption = Annotated[
    list[str] | None,
    typer.Option(
        "--host",
        metavar="NAME",
        help="Other machines, by ssh: gpu01, gpu[02-16], @group.",
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
        """The chosen hosts as what opens them."""
        from vramtui.cli.options.hosts import OtherHosts

        return OtherHosts(self.host, self.slurm, self.prometheus, self.token_file)


NO_HOSTS = HostOptions()


Demo = Annotated[bool, typer.Option("--demo", help="The built-in demo host.")]


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a command looks at once, where it is not this machine."""

    demo: Demo = False
    replay: Annotated[Path | None, typer.Option(help="A recording instead of this machine.")] = None
    hosts: HostOptions = NO_HOSTS


THIS_MACHINE = SourceOptions()

"""What every command takes that asks about a job: the preset or model, its changes, and the card."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from vramtui.cli.completion import cards, presets
from vramtui.cli.completion import settings as known_settings

MODELS = "A preset's name, a path, a downloaded model's name, or axolotl's YAML and the like."
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

"""`vramtui completion`: what a shell needs to complete commands, presets, cards and keys with Tab."""

import os
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import typer

VARIABLE = "_VRAMTUI_COMPLETE"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the script that lets a shell complete commands, presets, cards and keys.

    bash: vramtui completion bash > ~/.local/share/bash-completion/completions/vramtui

    zsh: vramtui completion zsh > a folder of your $fpath, as _vramtui

    fish: vramtui completion fish > ~/.config/fish/completions/vramtui.fish
    """
    from typer._completion_shared import get_completion_script  # noqa: PLC0415 - only here

    print(get_completion_script(prog_name="vramtui", complete_var=VARIABLE, shell=shell))


def asked_words() -> Sequence[str] | None:
    """The words of the command line that a shell wants completed; None where no shell asks."""
    if not os.environ.get(VARIABLE):
        return None
    typed = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return typed.split()[1:]


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin so; of downloaded models where none does."""
    from vramtui.presets import PresetLibrary  # noqa: PLC0415 - only while a shell asks

    found = _beginning(PresetLibrary().keys(), incomplete)
    if found:
        return found
    from vramtui.presets.model_stores.local_models import local_models  # noqa: PLC0415 - as above

    return _beginning(local_models(), incomplete)


def cards(incomplete: str) -> list[str]:
    """Names of cards that begin so."""
    from vramtui.core.estimate.devices import ALIASES, CARDS  # noqa: PLC0415 - only while a shell asks

    return _beginning((*CARDS, *ALIASES), incomplete)


def settings(incomplete: str) -> list[str]:
    """Keys of a training run, an inference run, a server and their sharing, ready for a value."""
    from vramtui.core.schema.parallel import Parallel  # noqa: PLC0415 - only while a shell asks
    from vramtui.core.schema.workload import InferRun, ServeRun, TrainRun  # noqa: PLC0415 - as above

    runs = dict.fromkeys(name for kind in (TrainRun, InferRun, ServeRun) for name in kind.__struct_fields__)
    keys = (*(f"run.{name}=" for name in runs), *(f"parallel.{name}=" for name in Parallel.__struct_fields__))
    return _beginning((*keys, *(key.partition(".")[2] for key in keys)), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

"""`vramtui completion`: what a shell needs to complete commands, presets, cards and keys with Tab."""

from collections.abc import Callable, Iterable
from typing import Annotated, Literal

import typer

VARIABLE = "_VRAMTUI_COMPLETE"
# What each shell runs at Tab. Bash: a key that ends in = is followed by its value, so by no space. Zsh: a file of
# $fpath is read at the first Tab, which that very reading has to answer.
SCRIPTS = {
    "bash": f"""
_vramtui_completion() {{
    local IFS=$'\\n'
    COMPREPLY=($(COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD {VARIABLE}=complete_bash "$1"))
    [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace
    return 0
}}
complete -o default -F _vramtui_completion vramtui
""",
    "zsh": f"""
#compdef vramtui
_vramtui() {{
    eval "$(_TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" {VARIABLE}=complete_zsh vramtui)"
}}
if [[ ${{funcstack[1]}} == _vramtui ]]; then
    _vramtui "$@"
else
    compdef _vramtui vramtui
fi
""",
    "fish": f"""
function _vramtui_completion
    env {VARIABLE}=complete_fish _TYPER_COMPLETE_FISH_ACTION=$argv[1] _TYPER_COMPLETE_ARGS=(commandline -cp) vramtui
end
complete --command vramtui --no-files --condition "_vramtui_completion is-args" \\
    --arguments "(_vramtui_completion get-args)"
""",
}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(metavar="bash|zsh|fish", help="The shell.")],
) -> None:
    """Print the script that lets a shell complete commands, presets, cards and keys.

    bash: vramtui completion bash > ~/.local/share/bash-completion/completions/vramtui

    zsh: vramtui completion zsh > a folder of your $fpath, as _vramtui

    fish: vramtui completion fish > ~/.config/fish/completions/vramtui.fish
    """
    print(SCRIPTS[shell].strip())


def presets(incomplete: str) -> list[str]:
    """Names of presets that begin so; of downloaded models where none does."""
    from vramtui.presets import PresetLibrary

    keys = _beginning(PresetLibrary().keys(), incomplete)
    if keys:
        return keys
    from vramtui.models.stores.local_models import local_models

    return _beginning(local_models(), incomplete)


def cards(incomplete: str) -> list[str]:
    """Names of cards that begin so."""
    from vramtui.core.estimate.devices import ALIASES, CARDS

    return _beginning((*CARDS, *ALIASES), incomplete)


def settings(incomplete: str) -> list[str]:
    """Keys of a training run, an inference run, a server and their sharing, ready for a value."""
    from vramtui.core.schema.workload import InferRun, Parallel, ServeRun, TrainRun

    runs = dict.fromkeys(name for kind in (TrainRun, InferRun, ServeRun) for name in kind.__struct_fields__)
    keys = (*(f"run.{name}=" for name in runs), *(f"parallel.{name}=" for name in Parallel.__struct_fields__))
    return _beginning((*keys, *(key.partition(".")[2] for key in keys)), incomplete)


def scripts(incomplete: str) -> list[str]:
    """Names of presets that begin so; nothing while nothing is typed, so that the shell offers files."""
    return presets(incomplete) if incomplete else []


def experiments(incomplete: str) -> list[str]:
    """Names of experiments that begin so."""
    from vramtui.estimators.lab.catalogue import EXPERIMENTS

    return _beginning((*EXPERIMENTS, "all"), incomplete)


def methods(incomplete: str) -> list[str]:
    """Ways to estimate that begin so."""
    from vramtui.estimators.methods import METHODS
    from vramtui.estimators.rules import RULES

    named = (method for method in METHODS if method != "rules:ID")
    return _beginning((*named, *(f"rules:{rule}" for rule in RULES)), incomplete)


def sort_keys(incomplete: str) -> list[str]:
    """Columns of processes that begin so."""
    from vramtui.app.state.row import SORT_KEYS

    return _beginning(SORT_KEYS, incomplete)


def beginning(names: Iterable[str]) -> Callable[[str], list[str]]:
    """Completes with those of `names` that begin so."""
    return lambda incomplete: _beginning(names, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]

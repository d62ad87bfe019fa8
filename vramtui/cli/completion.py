"""Values that Tab completes: presets, cards, keys of a run and the like."""

from collections.abc import Callable, Iterable

VARIABLE = "_VRAMTUI_COMPLETE"


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

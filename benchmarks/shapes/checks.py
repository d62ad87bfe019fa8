"""Shapes that were worked out, held against builds that they were not made of."""

import copy
import re
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from transformers import PreTrainedConfig

from benchmarks.shapes.built import build
from benchmarks.shapes.configs import Gathered, fresh, values_of, written
from benchmarks.shapes.places import HINTS

# Whose double no model wants: what must divide others, or is a table of pixels.
COUNTED = (
    "head",
    "group",
    "patch",
    "kernel",
    "stride",
    "image_size",
    "expert",
    "top",
    "token_id",
    "index",
    "num_channels",
)
MOST_KEYS = 70
DEPTHS = ("depth", "n_layer")
# Of lists, those of widths.
WIDTHS = ("hidden_sizes", "dims", "channels", "embed_dim", "widths", "neck")


def check(gathered: Gathered, name: str, config_class: Any, changes: Mapping[str, Any]) -> str:
    """Why the shapes of a class with these changes are not what transformers builds; empty where they are."""
    config = fresh(config_class, changes)
    built = build(getattr(transformers, name), copy.deepcopy(config), traced=False)
    want: dict[tuple[int, ...], int] = {}
    for shape in (one or (1,) for one in built.shapes.values() if 0 not in one):
        want[shape] = want.get(shape, 0) + 1
    have: dict[tuple[int, ...], int] = {}
    try:
        for tensor in gathered.table().tensors(name, written(config)):
            have[tensor.shape] = have.get(tensor.shape, 0) + tensor.count
    except Exception as error:  # noqa: BLE001 - of any kind
        return f"{type(error).__name__}: {error}"[:160]
    if want == have:
        return ""
    missing = {s: n - have.get(s, 0) for s, n in want.items() if n != have.get(s, 0)}
    more = {s: n for s, n in have.items() if s not in want}
    return f"not {str(dict(list(more.items())[:3]))[:60]} but {str(dict(list(missing.items())[:3]))[:80]}"


def verified(
    gathered: Gathered,
    name: str,
    config_class: Any,
    numbers: Mapping[str, int],
    lists: Mapping[str, list[int]],
) -> str:
    """What is wrong by the defaults, with many keys changed at once, or with each alone; empty where nothing is.

    Args:
        gathered: what is known.
        name: of the class.
        config_class: of its config.
        numbers: the keys to change, with their defaults.
        lists: the same of lists.
    """
    wrong = check(gathered, name, config_class, {})
    if wrong:
        return f"default: {wrong}"
    changes = {key: doubled(key, value) for key, value in numbers.items()}
    changes = {key: value for key, value in changes.items() if value != numbers[key]}
    depths = [key for key in numbers if "layers" in key or key in DEPTHS]
    deeper = {key: numbers[key] + at for at, key in enumerate(depths, 2)}
    counted = {key: 2 * value for key, value in numbers.items() if key not in changes}
    wider = {key: [2 * one for one in value] for key, value in lists.items() if any(one in key for one in WIDTHS)}
    longer = {key: [one + 1 for one in value] for key, value in lists.items() if "depth" in key}
    shuffled = {
        key: [value[0], *(value[-1] + one for one in value[1:])] for key, value in lists.items() if "depth" in key
    }
    for group in (changes, deeper, counted, wider, longer, shuffled):
        wrong = _wrong_with(gathered, name, config_class, group)
        if wrong:
            return wrong
    return ""


def _wrong_with(gathered: Gathered, name: str, config_class: Any, group: Mapping[str, Any]) -> str:
    """What is wrong with these changes together, or with each alone where transformers does not build them together."""
    if not group:
        return ""
    try:
        wrong = check(gathered, name, config_class, group)
    except Exception:  # noqa: BLE001 - a config that transformers does not build
        wrong = "each" if 1 < len(group) <= MOST_KEYS else ""
    if wrong != "each":
        return f"{', '.join(group)[:60]}: {wrong}" if wrong else ""
    for key, value in group.items():
        wrong = _wrong_with(gathered, name, config_class, {key: value})
        if wrong:
            return wrong
    return ""


def add_other_type(gathered: Gathered, name: str, config_class: Any) -> None:
    """Lets a class be read with a config of another type, where transformers builds it from that, or from a part of it,
    with the tensors that its lines give: by the defaults, and with other values of the keys that they name, as far as
    they hold with a config of its own type.
    """
    one, config = gathered.classes[name], fresh(config_class)
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    paths = ["", *(key for key, value in vars(config).items() if isinstance(value, PreTrainedConfig))]
    path = next((path for path in paths if model.config is (getattr(config, path) if path else config)), None)
    if path is None:  # a config that it makes itself
        return
    one["also"] = one.get("also", {}) | {config_class.model_type: path}
    named, start = set(re.findall(r"[\w.]+", str(one["loops"]))), f"{path}." if path else ""
    own = getattr(transformers, name).config_class
    numbers = {
        key: value
        for key, value in values_of(fresh(config_class)).items()
        if key.startswith(start) and key.removeprefix(start) in named and type(value) is int and value > 1
        if not _wrong_with(gathered, name, own, {key.removeprefix(start): value + 2})
    }
    if verified(gathered, name, config_class, numbers, {}):
        del one["also"][config_class.model_type]
        if not one["also"]:
            del one["also"]


def by_primes(gathered: Gathered, name: str, config_class: Any, numbers: Mapping[str, int]) -> str:
    """What is wrong where layers, and the keys that say which of them are of a kind, are primes: a condition that fits
    the defaults by chance does not fit these.

    Args:
        gathered: what is known.
        name: of the class.
        config_class: of its config.
        numbers: the keys of sizes and of conditions, with their defaults.
    """
    deep = {key: _prime_after(value + 2) for key, value in numbers.items() if "layers" in key or key in DEPTHS}
    hints = {key: _prime_after(value) for key, value in numbers.items() if any(hint in key for hint in HINTS)}
    for group in (deep | hints, deep, hints):
        wrong = _wrong_with(gathered, name, config_class, group)
        if wrong:
            return wrong
    return ""


def named_in_conditions(one: Mapping[str, Any]) -> set[str]:
    """The keys that the conditions of a class name, by their paths."""
    texts = (line[2] for lines in one["loops"].values() for line in lines)
    return {word for text in texts for word in re.findall(r"[A-Za-z_][\w.]*", text)}


def _prime_after(number: int) -> int:
    return next(one for one in range(number + 1, 2 * number + 3) if all(one % by for by in range(2, one)))


def doubled(key: str, value: int) -> int:
    """Another value that most models take."""
    if "layers" in key or key in DEPTHS:
        return value + 1
    if "vocab" in key or "position" in key:
        return value + 13
    return value if any(one in key for one in COUNTED) else 2 * value

"""The tensors of a config's model by the generated shapes: for each class of transformers, each size an expression."""

import re
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any

import msgspec

from vramtui.core.base.text import printable
from vramtui.models.families.keys import Keys, labels_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.expressions import MOST_ROUNDS, evaluate, names_in, whole_number
from vramtui.models.shapes.full_config import OLDER_NAMES, TypeDefaults, defaults_of

LOOPS = ("i", "j", "k", "l")
# How deep models stand within models.
DEEPEST = 8
# A part's key in an expression: `vision_config.` before one of its keys.
PART = re.compile(r"\b(\w+(?:\.\w+)*)\.[A-Za-z_]\w*\b")
# An expert for all tokens, by the keys of its width.
SHARED = re.compile(r"shared?_(?:expert|intermediate)")

Line = tuple[str, str, str, int]  # a name, its sizes, its condition, how many


class ClassShapes(msgspec.Struct, frozen=True):
    """The tensors of a class.

    Attributes:
        of: the type of its config.
        loops: lines of tensors by how often they repeat: expressions from the outermost, with `; ` between them. A line
            whose name begins with `@` is a model of its own, with the path of its config in place of sizes.
        known: of keys that name a net as a whole, or a stride that shapes it, the values whose tensors these are.
        also: other types whose configs it is built from, each with the path of the part that it takes of them, empty
            for the whole.
        why: the reason for which it is written by hand; empty if it is generated.
    """

    of: str
    loops: dict[str, list[Line]]
    known: dict[str, tuple[str | int, ...]] = {}
    also: dict[str, str] = {}
    why: str = ""


class Generated(msgspec.Struct, frozen=True):
    """All of it, each entry decoded when it is asked for."""

    classes: dict[str, msgspec.Raw]
    roles: dict[str, dict[str, str]]


class NamedShape(msgspec.Struct, frozen=True):
    """Tensors of one shape.

    Attributes:
        name: of their module, its last part.
        shape: of one of them.
        count: how many.
        repeats: whether they are in layers.
        path: where the config of their part stands; empty for the whole's.
    """

    name: str
    shape: tuple[int, ...]
    count: int
    repeats: bool
    path: str


class Config:
    """A table of a config, with the keys that it leaves out."""

    def __init__(self, values: Mapping[str, Any], kind: str, data: "ShapeTable") -> None:
        self.values = values
        self.kind = kind
        self._data = data
        self._known = data.defaults_of(kind)

    def value(self, name: str) -> Any:  # noqa: ANN401 - what JSON can hold
        """The value of a key; None if the config has none.

        Raises:
            DamagedError: nothing says it.
        """
        if name == "num_labels":
            return labels_of(Keys(dict(self.values)))
        value = self.values.get(name)
        if value is None:
            aliases = OLDER_NAMES | self._known.aliases
            names = (other for other, own in aliases.items() if own == name)
            value = next((self.values[other] for other in names if self.values.get(other) is not None), None)
        if name in self._known.parts or isinstance(value, dict):
            return self._part(name, value)
        if value is not None:
            return value
        usual = self._known.derived.get(name, self._known.keys.get(name))
        if isinstance(usual, str) and usual.startswith("="):
            return evaluate(usual[1:], self)
        if name in self.values or usual is not None or name in self._known.derived:
            return None if name in self.values else usual
        raise DamagedError(f"has no {name[:40]}, without which its tensors are not known")

    def _part(self, name: str, value: object) -> "Config | None":
        kind, different = self._known.parts.get(name, ("", None))
        if value is None and (not kind or different is None):
            return None
        values = value if isinstance(value, dict) else different or {}
        # A net of timm's that older files name beside its config (transformers 5.23, backbone_utils.py).
        own = self.values.get("backbone")
        if value is None and kind == "timm_backbone" and isinstance(own, str):
            values = values | {"backbone": own}
        named = values.get("model_type")
        return Config(values, named if isinstance(named, str) else kind, self._data)

    def leaves_out(self, path: str) -> bool:
        """Return whether it has no part of that name, on purpose: null, or a part that is there only where it is said.

        Raises:
            DamagedError: nothing says whether it has.
        """
        return self.value(path.partition(".")[0]) is None

    def at(self, path: str) -> "Config":
        """The part at a path with dots; itself where that is empty."""
        config = self
        for name in filter(None, path.split(".")):
            part = config.value(name)
            if not isinstance(part, Config):
                raise DamagedError(f"has no {name}, without which its tensors are not known")
            config = part
        return config


class _Round:
    """A config's keys and the numbers of the loops around a line."""

    def __init__(self, config: Config, numbers: Mapping[str, int]) -> None:
        self.config = config
        self._numbers = numbers

    def value(self, name: str) -> Any:  # noqa: ANN401 - as Config
        return self._numbers[name] if name in self._numbers else self.config.value(name)


class ShapeTable:
    """The shapes of classes by their names.

    Args:
        data: as generated.
        defaults_of: what transformers takes a key of a type for where a config does not say it.
    """

    def __init__(self, data: Generated, defaults_of: Callable[[str], TypeDefaults] = defaults_of) -> None:
        self._data = data
        self.defaults_of = defaults_of
        self._classes: dict[str, ClassShapes] = {}

    def knows(self, architecture: str, kind: object) -> bool:
        """Return whether it has the class, and the class a config of the type `kind`."""
        if architecture not in self._data.classes:
            return False
        shapes = self._shapes(architecture)
        return isinstance(kind, str) and (kind == shapes.of or kind in shapes.also)

    def type_of(self, architecture: str) -> str:
        """The type of a class; empty if it is not known."""
        return self._shapes(architecture).of if architecture in self._data.classes else ""

    def class_of(self, role: str, kind: object) -> str:
        """The class of a type for a role (`base`, `causal`, `masked` …); empty if it is not known."""
        name = self._data.roles.get(role, {}).get(str(kind), "")
        return name if name in self._data.classes else ""

    def names(self) -> list[str]:
        return list(self._data.classes)

    def tensors(self, architecture: str, values: Mapping[str, Any], without: Container[str] = ()) -> list[NamedShape]:
        """Every tensor of a class with the config `values`, but for those of the parts at the paths `without`.

        Raises:
            DamagedError: the class is not known, a key is missing or of the wrong kind, or there are too many layers.
        """
        shapes, kind = self._shapes(architecture), values.get("model_type")
        if not isinstance(kind, str) or kind not in shapes.also:
            return list(self._of(shapes, Config(values, shapes.of, self), "", without))
        path = shapes.also[kind]
        return list(self._of(shapes, Config(values, kind, self).at(path), path, without))

    def _shapes(self, name: str) -> ClassShapes:
        if name not in self._classes:
            if name not in self._data.classes:
                raise DamagedError(f"has a part {name[:40]!r}, which is not known", is_sound=True)
            self._classes[name] = msgspec.json.decode(self._data.classes[name], type=ClassShapes)
        return self._classes[name]

    def _of(
        self, shapes: ClassShapes, config: Config, path: str, without: Container[str], depth: int = 0
    ) -> Iterator[NamedShape]:
        if depth > DEEPEST:
            raise DamagedError("has models within models without end")
        for key, known in shapes.known.items():
            part, _, last = key.rpartition(".")
            if (named := config.at(part).value(last)) not in known:
                raise DamagedError(
                    f"has {key} = {printable(repr(named))[:40]}, whose tensors are not known", is_sound=True
                )
        for loops, lines in shapes.loops.items():
            counts = tuple(filter(None, loops.split("; ")))
            rounds = list(islice(_rounds(config, counts, {}), MOST_ROUNDS + 1))
            if len(rounds) > MOST_ROUNDS:
                raise DamagedError(f"has more than {MOST_ROUNDS} layers")
            for line in lines:
                own = f"{path}.{_part_of(loops, line[1], tuple(shapes.loops))}".strip(".")
                texts = filter(None, (f"({line[1]},)" if line[0][0] != "@" else "", line[2]))
                used = frozenset[str]().union(*map(names_in, texts))
                moving = [one for one in LOOPS[: len(counts)] if one in used]
                # Rounds alike in the loops that matter, with how many there are.
                alike: dict[tuple[int, ...], int] = {}
                for round_numbers in rounds:
                    place = tuple(round_numbers[one] for one in moving)
                    alike[place] = alike.get(place, 0) + 1
                for place, count in alike.items():
                    numbers = dict(zip(moving, place, strict=True))
                    names = _Round(config, numbers)
                    inner = self._part(line, names, path, without, depth) if line[0].startswith("@") else None
                    for shape in _tensor(line, names, own) if inner is None else inner:
                        repeats = shape.repeats or bool(counts)
                        yield msgspec.structs.replace(shape, count=shape.count * count, repeats=repeats)

    def _part(
        self, line: Line, names: "_Round", path: str, without: Container[str], depth: int
    ) -> Iterator[NamedShape]:
        name, inside, condition, count = line
        where = f"{path}.{inside}".strip(".")
        if where in without or (condition and not evaluate(condition, names)):
            return
        if inside and names.config.leaves_out(inside):
            return
        part = names.config.at(inside)
        roles = self._data.roles.get(name[1:])
        inner = self._shapes(name[1:] if roles is None else roles.get(part.kind, part.kind))
        for shape in self._of(inner, part, where, without, depth + 1):
            yield msgspec.structs.replace(shape, count=shape.count * count)


@cache
def _part_of(loops: str, sizes: str, others: tuple[str, ...]) -> str:
    """The part whose layers these are, or, where its layers stand in the class, by whose keys alone they are shaped."""
    parts = set(PART.findall(loops))
    if not parts:
        inside = set(PART.findall("; ".join(others)))
        parts = set(PART.findall(sizes))
        parts = parts if parts <= inside else set()
    return parts.pop() if len(parts) == 1 else ""


def _tensor(line: Line, names: _Round, path: str) -> Iterator[NamedShape]:
    name, sizes, condition, count = line
    if condition and not evaluate(condition, names):
        return
    if any(names.config.leaves_out(part) for part in PART.findall(sizes)):
        return
    shape = tuple(whole_number(size, f"the sizes of {name}") for size in evaluate(f"({sizes},)", names))
    if SHARED.search(sizes) and not name.startswith(("shared_", "experts_")):
        name = f"shared_{name}"
    if 0 not in shape:
        yield NamedShape(name, shape, count, repeats=False, path=path)


def _rounds(config: Config, counts: tuple[str, ...], numbers: dict[str, int]) -> Iterator[dict[str, int]]:
    """The numbers of the loops in each round."""
    if not counts:
        yield numbers
        return
    times = evaluate(counts[0], _Round(config, numbers))
    if " - " in counts[0] and isinstance(times, int):
        times = max(times, 0)  # such layers are a `range`, which is empty below nothing
    times = whole_number(times, f"how often `{counts[0][:40]}` is")
    name = LOOPS[len(numbers)]
    for number in range(times):
        yield from _rounds(config, counts[1:], {**numbers, name: number})


@cache
def shape_table() -> ShapeTable:
    """The shapes that come with the program: made by `python -m benchmarks.shapes`, and by hand what that cannot."""
    files = resources.files("vramtui.models.shapes")
    generated = msgspec.json.decode(files.joinpath("shapes.json").read_bytes(), type=Generated)
    by_hand = msgspec.json.decode(files.joinpath("by_hand.json").read_bytes(), type=dict[str, msgspec.Raw])
    return ShapeTable(msgspec.structs.replace(generated, classes=generated.classes | by_hand))

"""The tensors of a config's model by the generated shapes: for each class of transformers, each size an expression
over the config's keys (`num_attention_heads * head_dim`), with the keys that its file leaves out (5.23).
"""

import ast
import operator
import re
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib import resources
from itertools import islice
from math import ceil, floor
from typing import Any, Protocol

import msgspec

from vramtui.core.base.text import printable
from vramtui.models.families.keys import LISTS, Keys, labels_of, synonyms
from vramtui.models.readers.bounded import DamagedError

LARGEST = 2**40
# Layers, stages and blocks of a model together.
MOST_ROUNDS = 20_000
MOST_DOUBLINGS = 40
_OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.In: lambda one, many: one in many, ast.NotIn: lambda one, many: one not in many,
}  # fmt: skip


def first(*values: object) -> object:
    """The first value that is not None; raises LookupError if there is none."""
    for value in values:
        if value is not None:
            return value
    raise LookupError


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "ceil": ceil, "first": first, "floor": floor, "int": int, "len": len, "max": max, "min": min, "round": round,
    "sum": sum,
}  # fmt: skip


class Names(Protocol):
    def value(self, name: str) -> Any:  # noqa: ANN401 - what JSON can hold
        """The value of a key, None if the config says that it has none."""


def evaluate(text: str, names: Names) -> Any:  # noqa: ANN401 - a number, a text or a list
    """The value of an expression; raises DamagedError if a key is missing or of a kind that nothing can be made of."""
    try:
        return _value(parsed(text), names)
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError) as error:
        raise DamagedError(f"has keys from which `{text[:80]}` cannot be worked out") from error


def whole_number(value: object, what: str) -> int:
    """The value, a whole number from 0 to 2^40; raises DamagedError if it is something else; `what` names it."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST:
        raise DamagedError(f"has keys from which {what} cannot be worked out")
    return value


@cache
def parsed(text: str) -> ast.expr:
    return ast.parse(text.strip(), mode="eval").body


@cache
def names_in(text: str) -> frozenset[str]:
    return frozenset(node.id for node in ast.walk(parsed(text)) if isinstance(node, ast.Name))


def _value(node: ast.expr, names: Names) -> Any:  # noqa: ANN401 - one line a kind of node
    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names.value(node.id)
        case ast.Attribute():
            return _value(node.value, names).value(node.attr)
        case ast.BinOp():
            one, other = _value(node.left, names), _value(node.right, names)
            # With numbers only: a list times a number would be as long as a file says.
            if not isinstance(one, (int, float)) or not isinstance(other, (int, float)):
                raise TypeError(one)
            if isinstance(node.op, ast.Pow) and other > MOST_DOUBLINGS:
                raise OverflowError(other)
            return _bounded(_OPERATORS[type(node.op)](one, other))
        case ast.UnaryOp(op=ast.Not()):
            return not _value(node.operand, names)
        case ast.UnaryOp():
            return -_value(node.operand, names)
        case ast.BoolOp(op=ast.And()):
            return all(_value(one, names) for one in node.values)
        case ast.BoolOp():
            return any(_value(one, names) for one in node.values)
        case ast.Compare(ops=[op], comparators=[other]):
            return _OPERATORS[type(op)](_value(node.left, names), _value(other, names))
        case ast.IfExp():
            return _value(node.body if _value(node.test, names) else node.orelse, names)
        case ast.Tuple() | ast.List():
            return [_value(one, names) for one in node.elts]
        case ast.Subscript():
            return _value(node.value, names)[_value(node.slice, names)]
        case ast.ListComp(elt=one, generators=[ast.comprehension(target=ast.Name(id=name), iter=ast.Call(args=[end]))]):
            rounds = _value(end, names)
            if not isinstance(rounds, int) or rounds > MOST_ROUNDS:
                raise OverflowError(rounds)
            return [_value(one, _With(names, name, at)) for at in range(rounds)]
        case ast.Call(func=ast.Name(id="has"), args=[key]):
            with suppress(DamagedError):
                return _value(key, names) is not None
            return False
        case ast.Call(func=ast.Name(id=name)):
            return _bounded(_FUNCTIONS[name](*(_value(one, names) for one in node.args)))
    raise TypeError(ast.dump(node))


class _With:
    """Names, and one more that is a number."""

    def __init__(self, names: Names, name: str, number: int) -> None:
        self._names, self._name, self._number = names, name, number

    def value(self, name: str) -> Any:  # noqa: ANN401 - as Names
        """The number, or as before."""
        return self._number if name == self._name else self._names.value(name)


def _bounded(value: Any) -> Any:  # noqa: ANN401 - as evaluate
    if isinstance(value, (int, float)) and abs(value) > LARGEST:
        raise OverflowError(value)
    return value


# What else decides the kinds of layers, where a config has no list of them.
KINDS = (
    *LISTS, *synonyms("sliding_window_pattern"), "full_attention_interval", "block_types", "no_rope_layers",
    "attn_type_list", "hybrid_override_pattern", "compress_ratios", "linear_attn_config", "sparse_attention_config",
)  # fmt: skip
# Names in older public files that transformers reads without listing them as aliases (BLOOM, Falcon).
OLDER_NAMES = {"n_embed": "hidden_size"}
ALWAYS = ("vision_config",)  # parts that transformers makes of defaults where a config leaves them out


class TypeDefaults(msgspec.Struct, frozen=True):
    """Defaults of transformers for the keys of a type.

    Attributes:
        keys: the default of each key that can shape a tensor, as its class has it.
        derived: of keys that its class has no default for, or works out when it is made: a value, or an expression
            behind `=`. It goes before `keys` where tensors are asked for.
        aliases: other names of keys.
        parts: the type of each part, and the keys in which it differs from that type's defaults; None in place of those
            where it has the part only if a config says so.
        free: the parts whose type a config chooses.
        period: the kinds that its layers repeat where the config does not list them.
    """

    keys: dict[str, Any] = {}
    derived: dict[str, Any] = {}
    aliases: dict[str, str] = {}
    parts: dict[str, tuple[str, dict[str, Any] | None]] = {}
    free: tuple[str, ...] = ()
    period: tuple[str, ...] = ()


@cache
def _types() -> dict[str, msgspec.Raw]:
    """Every type, as `python -m benchmarks.shapes` writes them, each decoded when it is asked for."""
    text = resources.files("vramtui.models.shapes").joinpath("configs.json").read_bytes()
    return msgspec.json.decode(text, type=dict[str, msgspec.Raw])


@lru_cache(maxsize=1024)
def defaults_of(kind: str) -> TypeDefaults:
    """The defaults of a type; empty if transformers does not have it."""
    raw = _types().get(kind)
    return TypeDefaults() if raw is None else msgspec.json.decode(raw, type=TypeDefaults)


def filled_in(values: dict[str, Any], kind: str, *, every_part: bool = False) -> dict[str, Any]:
    """`values` of a config whose `model_type` is `kind`, and of its parts, each with its type and the keys that it
    leaves out; with `every_part` those that are left out are made of their defaults too.
    """
    known = defaults_of(kind)
    if kind not in _types():
        own = {key: part for key, part in values.items() if isinstance(part, dict)}
        types = {key: part["model_type"] for key, part in own.items() if isinstance(part.get("model_type"), str)}
        return values | {key: filled_in(own[key], named) for key, named in types.items()}
    given = {key: value for key, value in values.items() if value is not None}
    aliases = OLDER_NAMES | known.aliases
    renamed = {aliases[key]: value for key, value in given.items() if key in aliases}
    # A default goes by the name that transformers 4 wrote, where 5 writes another.
    renamed |= {key: given[aliases[key]] for key in known.keys if key not in given and aliases.get(key) in given}
    whole = known.keys | renamed | values | {key: renamed[key] for key in renamed if key not in given}
    for key, value in known.keys.items():
        if whole.get(key) is None and key not in values:
            whole[key] = value
    whole["model_type"] = kind
    layers = whole.get("num_hidden_layers")
    if (
        known.period
        and isinstance(layers, int)
        and 0 < layers <= len(known.period) * 1024
        and not any(values.get(name) is not None for name in KINDS)
    ):
        whole["layer_types"] = (list(known.period) * (layers // len(known.period) + 1))[:layers]
    for key, (usual, _) in known.parts.items():
        is_made = every_part or (key in ALWAYS and key not in known.free)
        part = values.get(key, {} if is_made else None)
        if usual and isinstance(part, dict):
            named = part.get("model_type")
            chosen = named if key in known.free and isinstance(named, str) else usual
            whole[key] = filled_in(part, chosen) | {"model_type": chosen}
    return whole


def parts_by_default(values: dict[str, Any]) -> list[str]:
    """The parts that `filled_in` makes only of defaults, as a config of `values` does not have them."""
    known = defaults_of(str(values.get("model_type")))
    return [
        key for key in ALWAYS if key in known.parts and key not in known.free and not isinstance(values.get(key), dict)
    ]


def text_type(kind: str) -> str:
    """The type of the part that reads words, of a type of model of several parts; dots.ocr's config is a Qwen 2's."""
    return defaults_of(kind).parts.get("text_config", ("qwen2" if kind == "dots_ocr" else kind,))[0]


LOOPS = ("i", "j", "k", "l")
DEEPEST = 8  # how deep models stand within models
# A part's key in an expression: `vision_config.` before one of its keys.
PART = re.compile(r"\b(\w+(?:\.\w+)*)\.[A-Za-z_]\w*\b")
SHARED = re.compile(r"shared?_(?:expert|intermediate)")  # an expert for all tokens, by the keys of its width

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
        """The value of a key; None if the config has none; raises DamagedError if nothing says it."""
        if name == "num_labels":
            return labels_of(Keys(dict(self.values)))
        value = self.values.get(name)
        if value is None:
            names = (other for other, own in (OLDER_NAMES | self._known.aliases).items() if own == name)
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
        # A net of timm's that older files name outside its config (transformers 5.23, backbone_utils.py).
        own = self.values.get("backbone")
        if value is None and kind == "timm_backbone" and isinstance(own, str):
            values = values | {"backbone": own}
        named = values.get("model_type")
        return Config(values, named if isinstance(named, str) else kind, self._data)

    def leaves_out(self, path: str) -> bool:
        """Return whether it has no part of that name, on purpose: null, or a part that is there only where it is said.
        Raises DamagedError if nothing says whether it has.
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
    """The shapes of classes by their names; `defaults_of` says what transformers takes keys for that a config lacks."""

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
        """Every tensor of a class with the config `values`, but for those of the parts at the paths `without`. Raises
        DamagedError if the class is not known, a key is missing or of the wrong kind, or there are too many layers.
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
                    names = _Round(config, dict(zip(moving, place, strict=True)))
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
    """The part whose layers these are, or, where its layers stand in the class, only by whose keys they are shaped."""
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

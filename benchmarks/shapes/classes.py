"""The shapes of one class: built several times, and its lines worked out."""

import contextlib
import copy
import dataclasses
from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

import transformers
from transformers import AutoConfig, PreTrainedConfig

from benchmarks.shapes.built import Built, build
from benchmarks.shapes.checks import COUNTED, by_primes, doubled, named_in_conditions, verified
from benchmarks.shapes.configs import STARTS, Gathered, add_config, fresh, values_of, written
from benchmarks.shapes.rules import Paths, lines, simpler
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import evaluate

IDLE = (
    "use_cache", "return_dict", "output_", "_attn", "torchscript", "is_encoder_decoder", "tf_legacy", "gradient",
    "dropout", "_from",
)  # fmt: skip
MOST_FLAGS = 60
# Of counts that are changed alone, and of layers in a stage.
MOST_COUNTS, MOST_IN_STAGE = 12, 64
IN_WORK = "in work"
# Texts that choose how layers are built, and what each may be.
CHOICES = {
    "layer_type": ("basic", "bottleneck", "preactivation", "x", "y"),
    "feat_extract_norm": ("group", "layer"),
    "readout_type": ("ignore", "project"),
    "feed_forward_proj": ("relu", "gated-gelu"),
    "backbone": ("resnet18", "resnet34", "resnet101", "resnet152"),
    "architecture": ("resnet18", "resnet34", "resnet101", "resnet152"),
}
# Keys of widths, of which those that differ from the model's own are projected to it.
WIDTHS = ("embed", "hidden_dimension", "in_channels")
# Of these, those of which others would be other tensors altogether: nets of timm by their names.
NAMED_NETS = ("backbone", "architecture")


class Described:
    """A class while it is worked out.

    Args:
        gathered: what is known.
        name: of the class.
        config_class: of its config.
    """

    def __init__(self, gathered: Gathered, name: str, config_class: Any) -> None:
        self.gathered = gathered
        self.name = name
        self.cls = getattr(transformers, name)
        self.config_class = config_class
        _start_with_head_dim(gathered, self.cls, config_class)
        self.base = build(self.cls, fresh(config_class))
        self.values = values_of(fresh(config_class))
        self.parts = dict(self._parts(self.base))
        # Other builds with their configs, by which expressions that were lost are known.
        self.others: list[tuple[Built, dict[str, Any]]] = list(self._others())
        # The sizes of each tensor by the defaults, those that were guessed too.
        self.guessed: dict[str, tuple[str, ...]] = {}

    def work_out(self) -> None:
        """Adds the class."""
        found = dict.fromkeys(self._lines(self.base, {}), "")
        for path, value, was, now in self._flags():
            values: dict[str, Any] = {path: value}
            if path.endswith("add_cross_attention"):
                values[f"{path.removesuffix('add_cross_attention')}is_decoder"] = True
            built = self._other(values)
            if built is None:  # a flag that does not stand alone
                continue
            other, values = built
            if other.shapes == self.base.shapes:
                continue
            variant = set(self._lines(other, values))
            for line in list(found):
                if line not in variant and not found[line].startswith("only "):
                    found[line] = _and(found[line], was)
            for line in variant - found.keys():
                found[line] = "only " + now
            for line in variant & {one for one, said in found.items() if said.startswith("only ") and now not in said}:
                found[line] += f" or {now}"
        self.gathered.classes[self.name] = {"of": self.config_class.model_type, "loops": _loops_of(found)}
        known = dict(self._named_nets(found.values()))
        if known:
            self.gathered.classes[self.name]["known"] = known

    def _named_nets(self, conditions: Collection[str]) -> Iterator[tuple[str, list[str]]]:
        """Keys that name a net of timm in what is no class of its own, and the names that were built."""
        inner = tuple(f"{path}." for _cls, path in self.parts.values() if path)
        for key, value in self.values.items():
            last = key.rpartition(".")[2]
            if last in NAMED_NETS and isinstance(value, str) and not key.startswith(inner):
                tried = any(f"{key} ==" in text for text in conditions)
                yield key, [value, *(CHOICES[last] if tried else ())]

    def _parts(self, built: Built) -> Iterator[tuple[str, tuple[str, str]]]:
        """Parts that are the same as their class alone, the outermost of each."""
        done: list[str] = []
        for name, (module, path) in built.parts.items():
            if any(name.startswith(f"{other}.") for other in done):
                continue
            cls = type(module)
            config_class = type(module.config)
            if cls.__name__ == self.name or not hasattr(transformers, cls.__name__):
                continue
            if cls.__name__ not in self.gathered.classes:
                add_class(self.gathered, cls.__name__, config_class)
            if (
                cls.__name__ not in self.gathered.classes
                or self.gathered.classes[cls.__name__]["of"] != config_class.model_type
            ):
                continue
            own = {n[len(name) + 1 :]: s for n, s in built.shapes.items() if n.startswith(f"{name}.")}
            try:
                alone = build(cls, _copied(module.config), traced=False)
            except Exception:  # noqa: BLE001, S112 - a part that does not stand alone
                continue
            if own and own == alone.shapes and self._is_read(cls.__name__, module.config):
                done.append(name)
                yield name, (self._role(cls.__name__, config_class.model_type, path), path.rstrip("."))

    def _is_read(self, name: str, config: PreTrainedConfig) -> bool:
        """Whether a part's class is read with this config: it may name another net of timm than was built."""
        try:
            self.gathered.table().tensors(name, written(config))
        except DamagedError as error:
            return "whose tensors are not known" not in str(error)
        return True

    def _role(self, name: str, kind: str, path: str) -> str:
        """The role of a class where its config may be of any type, else its name."""
        owner: Any = self.config_class
        for part in path.rstrip(".").split("."):
            owner = (owner.sub_configs or {}).get(part, owner) if owner is not AutoConfig else owner
        if path and owner is AutoConfig:
            for role, classes in self.gathered.roles.items():
                if classes.get(kind) == name:
                    return role
        return name

    def _others(self) -> Iterator[tuple[Built, dict[str, Any]]]:
        """Builds with other numbers, with longer lists, and, where a size has no expression, with one count each."""
        numbers = {k: v for k, v in self.values.items() if isinstance(v, int) and not isinstance(v, bool) and v > 1}
        used = {k: v for k, v in numbers.items() if self._is_used(k)}
        layers = [k for k in numbers if "layers" in k]
        deeper = {key: numbers[key] + at for at, key in enumerate(layers, 1)}
        for wanted in (
            {k: doubled(k, v) for k, v in used.items()} | deeper,
            {k: doubled(k, v) for k, v in used.items()},
            {k: 2 * v for k, v in used.items() if ("size" in k or "dim" in k) and not any(one in k for one in COUNTED)},
            deeper,
        ):
            found = self._other(wanted)
            if found is not None:
                yield found
                break
        lists = {k: v for k, v in self.values.items() if _are_counts(k, v)}
        longer = {key: [one + at for at, one in enumerate(value, 1)] for key, value in lists.items()}
        changes: list[dict[str, Any]] = [{key: value} for key, value in longer.items()]
        if self._is_lost():
            counts = {k: v for k, v in used.items() if any(one in k for one in COUNTED)}
            changes += [{key: 2 * value} for key, value in list(counts.items())[:MOST_COUNTS]]
        yield from filter(None, map(self._other, changes))

    def _other(self, wanted: Mapping[str, Any]) -> tuple[Built, dict[str, Any]] | None:
        try:
            return build(self.cls, fresh(self.config_class, wanted)), values_of(fresh(self.config_class, wanted))
        except Exception:  # noqa: BLE001 - a config that it does not take
            return None

    def _is_lost(self) -> bool:
        """Whether a size has no expression, or a list of modules no count."""
        outside = [name for name in self.base.dims if not any(name.startswith(f"{part}.") for part in self.parts)]
        return any(None in self.base.dims[name] for name in outside)

    def _is_used(self, path: str) -> bool:
        texts = self._texts
        return any(path in text for text in texts)

    def own_numbers(self) -> dict[str, int]:
        """The keys of which tensors outside its parts are made, with their defaults."""
        inner = {path for _cls, path in self.parts.values() if path}
        return {
            key: value
            for key, value in self.values.items()
            if isinstance(value, int)
            and not isinstance(value, bool)
            and value > 1
            and self._is_own(key)
            and not any(key.startswith(f"{one}.") for one in inner)
        }

    def numbers_of(self, keys: Container[str]) -> dict[str, int]:
        """The numbers among these keys, with their defaults."""
        return {
            key: value
            for key, value in self.values.items()
            if key in keys and isinstance(value, int) and not isinstance(value, bool) and value > 0
        }

    def own_lists(self) -> dict[str, list[int]]:
        """The lists of numbers of which tensors outside its parts are made, with their defaults."""
        return {
            key: list(value)
            for key, value in self.values.items()
            if isinstance(value, (list, tuple))
            and len(value) > 1
            and all(isinstance(one, int) and not isinstance(one, bool) for one in value)
            and self._is_own(key)
        }

    def _is_own(self, path: str) -> bool:
        names = {name for name in self.base.dims if not any(name.startswith(f"{part}.") for part in self.parts)}
        texts = {one for name in names for one in self.base.dims[name] if one}
        texts |= {
            t for p, t in self.base.counts.items() if not any(f"{p}.".startswith(f"{part}.") for part in self.parts)
        }
        return any(path in text for text in texts)

    @property
    def _texts(self) -> set[str]:
        sizes = {one for dims in self.base.dims.values() for one in dims if one}
        return sizes | set(self.base.counts.values())

    def _lines(self, built: Built, values: Mapping[str, Any]) -> list[Any]:
        known = dict(self.values) | dict(values)
        parts = self.parts if built is self.base else {n: p for n, p in self.parts.items() if self._same_part(built, n)}
        dims: dict[str, tuple[str, ...]] = {}
        for name, (cls, path) in parts.items():
            dims[f"{name}.@{cls}"] = (path,)
        table = {int(Size_value): text for text, Size_value in self._numbers(known).items()}
        for name, sizes in built.dims.items():
            if any(name.startswith(f"{part}.") for part in parts):
                continue
            shape = built.shapes[name]
            same = self.guessed.get(name) if self.base.shapes.get(name) == shape else None
            dims[name] = tuple(
                simpler(text) if text else same[at] if same else self._guess(built, name, at, table)
                for at, text in enumerate(sizes)
            )
        self.guessed = self.guessed or dims
        counts = {
            path: simpler(text) for path, text in built.counts.items() if _evaluated(text, known) == built.lengths[path]
        }
        for path, length in built.lengths.items():
            if path not in counts and length > 1:
                text = self._count(built, path, length, known)
                if text:
                    counts[path] = text
        return [_frozen(one) for one in lines(dims, counts, known)]

    def _same_part(self, built: Built, name: str) -> bool:
        return name in built.parts

    def _numbers(self, known: Mapping[str, Any]) -> dict[str, int]:
        texts = sorted(self._texts, key=len, reverse=True)
        return {text: number for text in texts if (number := _evaluated(text, known))}

    def _guess(self, built: Built, name: str, at: int, table: Mapping[int, str]) -> str:
        """The expression of a size that was lost: one that has its value in every build."""
        number = built.shapes[name][at]
        seen = [
            (other.shapes[name][at], values)
            for other, values in (self.others if built is self.base else ())
            if len(other.shapes.get(name, ())) == len(built.shapes[name])
        ]
        if seen and all(one == number for one, _values in seen):
            return str(number)
        texts = [*sorted(self._texts, key=len), *(key for key, value in self.values.items() if value == number)]
        for text in texts if seen else ():
            if _evaluated(text, self.values) == number and all(_evaluated(text, v) == one for one, v in seen):
                return simpler(text)
        return simpler(table[number]) if number in table and number > 4 else str(number)

    def _count(self, built: Built, path: str, length: int, known: Mapping[str, Any]) -> str:
        """How often a list of modules repeats, where no loop over symbols told it."""
        names: dict[str, set[str]] = {}
        for name in built.shapes:
            if name.startswith(f"{path}."):
                place, _, rest = name[len(path) + 1 :].partition(".")
                names.setdefault(place, set()).add(rest)
        if len(names) < 2:
            return ""
        alike = len({frozenset(one) for one in names.values()}) == 1
        seen = [(other.lengths[path], values) for other, values in self.others if path in other.lengths]
        for text, is_sure in _counts(length, known, "expert" if path.endswith("experts") else "layer"):
            moved = any(one != length for one, _values in seen)
            if all(_evaluated(text, values) == one for one, values in seen) and (moved or (is_sure and alike)):
                return simpler(text)
        return ""

    def _flags(self) -> Iterator[tuple[str, Any, str, str]]:
        """Keys that may switch tensors on and off, another value of each, what holds by default, and what holds then:
        its own keys, and those of parts that are not classes of their own.
        """
        inner = {path for _cls, path in self.parts.values() if path}
        count = 0
        types = types_of(self.config_class)
        for path, value in self.values.items():
            if any(path.startswith(f"{one}.") for one in inner) or any(one in path for one in IDLE):
                continue
            if path.endswith("id2label") or count > MOST_FLAGS:
                continue
            if isinstance(value, bool):
                count += 1
                yield path, not value, *_conditions(path, not value)
            elif isinstance(value, str):
                others = (one for one in CHOICES.get(path.rpartition(".")[2], ()) if one != value)
                yield from ((path, one, f"{path} != {one!r}", f"{path} == {one!r}") for one in others)
            elif value == -1:
                yield path, 32, f"{path} <= 0", f"{path} > 0"
            elif "." not in path and isinstance(value, int) and "None" in types.get(path, "") and value > 0:
                count += 1
                yield path, None, *_conditions(path, None)
            elif (
                "." not in path and value is None and "int" in types.get(path, "") and "list" not in types.get(path, "")
            ):
                count += 1
                yield path, 16, *_conditions(path, 16)
        yield from self._other_flags()

    def _other_flags(self) -> Iterator[tuple[str, Any, str, str]]:
        """Parts that a config may leave out, and widths that are projected where they differ."""
        for path, value in STARTS.get(self.config_class.model_type, {}).items():
            if value == {}:
                yield path, None, f"has({path})", f"not has({path})"
        width = next((key for key in ("hidden_size", "d_model") if isinstance(self.values.get(key), int)), "")
        for path, value in self.values.items() if width else ():
            hidden, first = self.values[width], value[0] if isinstance(value, (list, tuple)) and value else value
            is_number = isinstance(first, int) and not isinstance(first, bool) and first > 4
            named = any(one in path for one in WIDTHS) and not any(one in path for one in ("position", "vocab"))
            if (
                not is_number
                or not named
                or "." in path
                or path == width
                or (first is not value and set(value) != {first})
            ):
                continue
            signs = ("==", "!=") if first == hidden else ("!=", "==")
            other = 2 * first if first == hidden else hidden
            said, many = (path, other) if first is value else (f"{path}[0]", [other] * len(value))
            yield path, many, f"{said} {signs[0]} {width}", f"{said} {signs[1]} {width}"
        if "tie_word_embeddings" not in self.values and hasattr(self.config_class(), "tie_word_embeddings"):
            other = not self.config_class().tie_word_embeddings
            yield "tie_word_embeddings", other, *_conditions("tie_word_embeddings", other)


def _are_counts(key: str, value: object) -> bool:
    """Whether a key lists how many layers there are in each stage."""
    return (
        isinstance(value, (list, tuple))
        and len(value) > 1
        and all(isinstance(one, int) and not isinstance(one, bool) and 0 < one < MOST_IN_STAGE for one in value)
        and any(hint in key for hint in ("depth", "layers", "blocks", "repeats"))
    )


def _counts(length: int, known: Mapping[str, Any], hint: str) -> Iterator[tuple[str, bool]]:
    """Expressions with that value by the config, and whether each is sure where nothing shows that it moves."""
    for more in (0, 1, -1):
        for key, value in known.items():
            if isinstance(value, (list, tuple)):
                if len(value) + more == length and all(not isinstance(v, str) for v in value):
                    yield f"len({key}) + {more}", True
            elif isinstance(value, int) and not isinstance(value, bool) and value + more == length:
                yield f"{key} + {more}", hint in key
    for more in (0, 1, -1):
        for key, value in known.items():
            if isinstance(value, (list, tuple)):
                places = (at for at, one in enumerate(value) if isinstance(one, int) and one + more == length)
                yield from ((f"{key}[{at}] + {more}", False) for at in places)


# What a class may be known for one value of: how often a stride is taken is a logarithm, which no expression has.
FIXED = "stride"
# Types of which it is known whether their code looks for a `head_dim` that their configs need not have.
_TRIED: set[str] = set()


def _start_with_head_dim(gathered: Gathered, cls: type, config_class: Any) -> None:
    """Has every build of a type begin with a `head_dim` where its code looks for one that its defaults do not have."""
    kind, values = config_class.model_type, vars(fresh(config_class))
    hidden, heads = values.get("hidden_size"), values.get("num_attention_heads")
    if kind in _TRIED or "head_dim" in values or not (isinstance(hidden, int) and isinstance(heads, int) and heads):
        return
    _TRIED.add(kind)
    usual = hidden // heads
    with contextlib.suppress(Exception):  # of any kind: it does not take one
        several = [build(cls, fresh(config_class, {"head_dim": one}), traced=False) for one in (usual, 2 * usual)]
        if several[0].shapes != several[1].shapes:
            STARTS.setdefault(kind, {})["head_dim"] = usual
            gathered.configs[kind]["keys"]["head_dim"] = "= hidden_size // num_attention_heads"


def _frozen(line: Any) -> Any:
    loops, name, sizes, condition, full = line
    return tuple(loops), name, tuple(sizes), condition, full


def types_of(config_class: Any) -> dict[str, str]:
    """The types of its keys as text."""
    return {field.name: str(field.type) for field in dataclasses.fields(config_class)}


def _copied(config: PreTrainedConfig) -> PreTrainedConfig:
    return copy.deepcopy(config)


def _evaluated(text: str, values: Mapping[str, Any]) -> int | None:
    try:
        found = evaluate(text, Paths(values))
    except Exception:  # noqa: BLE001 - of any kind
        return None
    return int(found) if isinstance(found, (int, float)) and found == int(found) and found > 0 else None


def _conditions(key: str, value: object) -> tuple[str, str]:
    """What holds by default, and what holds where the key is `value`."""
    if value is True:
        return f"not {key}", key
    if value is False:
        return key, f"not {key}"
    return (f"has({key})", f"not has({key})") if value is None else (f"not has({key})", f"has({key})")


def _and(one: str, other: str) -> str:
    return " and ".join(filter(None, (one, other)))


def _loops_of(found: Mapping[Any, str]) -> dict[str, list[Any]]:
    out: dict[str, dict[Any, int]] = {}
    for (loops, name, sizes, condition, _full), switch in found.items():
        switch_text = switch.removeprefix("only ")
        if " or " in switch_text:
            switch_text = f"({switch_text})"
        scalar = "" if name.startswith("@") else "1"
        line = (name, ", ".join(sizes) or scalar, _and(switch_text, condition))
        rows = out.setdefault("; ".join(loops), {})
        rows[line] = rows.get(line, 0) + 1
    return {loops: [(*line, count) for line, count in rows.items()] for loops, rows in out.items()}


def add_class(gathered: Gathered, name: str, config_class: Any) -> None:
    """Works out a class and holds it against other configs; `gathered.reasons` says what is wrong, if it is."""
    add_config(gathered, config_class)
    if name in gathered.reasons:
        return
    gathered.reasons[name] = IN_WORK
    try:
        described = Described(gathered, name, config_class)
        described.work_out()
    except Exception as error:  # noqa: BLE001 - of any kind: it is listed
        gathered.reasons[name] = f"not built: {type(error).__name__} {error}"[:120].partition("\n")[0]
        return
    one = gathered.classes[name]
    numbers, named = described.own_numbers(), described.numbers_of(named_in_conditions(one))
    fixed = {key: number for key, number in numbers.items() if FIXED in key}
    wrong = verified(gathered, name, config_class, numbers, described.own_lists())
    if wrong and fixed:
        one["known"] = one.get("known", {}) | {key: [number] for key, number in fixed.items()}
        numbers = {key: number for key, number in numbers.items() if key not in fixed}
        wrong = verified(gathered, name, config_class, numbers, described.own_lists())
    gathered.reasons[name] = wrong or by_primes(gathered, name, config_class, numbers | named)

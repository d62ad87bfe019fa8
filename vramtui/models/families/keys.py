"""The keys of a config.json, by type and by all the names that model families give them, and the sizes that follow."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from vramtui.core.base.file_limits import MOST_LAYERS
from vramtui.core.base.text import printable
from vramtui.models.readers.bounded import DamagedError

Table = dict[str, Any]
# Other names of activations, as GPT-2's files have them.
SAME_ACTIVATIONS = {"gelu_fast": "gelu_new", "gelu_python": "gelu", "swish": "silu"}
_MISSING = object()
# Where models of several parts keep the one that reads words.
TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder", "language_model")
# Other names of the keys, as model families have them; a key is looked for by all of them, its own first.
_OTHER_NAMES = json.loads(Path(__file__).with_name("synonyms.json").read_bytes())
SYNONYMS = {name: (name, *others) for name, others in _OTHER_NAMES.items()}
# Where a config lists the kinds of its layers.
LISTS = ("layer_types", "layers_block_type", "attention_layers", "hybrid_layer_pattern")
# Ends of architectures that have other heads than one over words: classes, or none.
CLASSES, BARE = "ForSequenceClassification", "Model"


def synonyms(*names: str) -> list[str]:
    return [other for name in names for other in SYNONYMS.get(name, (name,))]


class Fields:
    """One table of a config, `inside` another for sentences. A null key counts as absent, as in transformers."""

    def __init__(self, values: Mapping[str, object], inside: str = "") -> None:
        self.values = values
        self._inside = inside

    def whole(self, key: str, default: object = _MISSING) -> Any:  # noqa: ANN401 - an int, or the default as given
        """A whole number; raises DamagedError if it is missing without a default or wrong. So do the others."""
        return self._of(int, key, default, "a whole number")

    def number(self, key: str, default: float | None) -> Any:  # noqa: ANN401 - as whole
        return self._of((int, float), key, default, "a number")

    def flag(self, key: str, default: bool) -> bool:
        return bool(self._of(bool, key, default, "true or false"))

    def text(self, key: str, default: str) -> str:
        return str(self._of(str, key, default, "text"))

    def texts(self, key: str) -> list[str]:
        value: list[str] = self._of(list, key, [], "a list of texts")
        if not all(isinstance(part, str) for part in value):
            raise self._wrong(key, "a list of texts")
        return value

    def table(self, key: str) -> "Fields":
        """Another table inside; empty if there is none."""
        return Fields(self._of(dict, key, {}, "a table"), f"{self._inside}{key}.")

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null, false, 0 or empty."""
        return bool(self.values.get(key))

    def _of(self, kind: type | tuple[type, ...], key: str, default: object, wanted: str) -> Any:  # noqa: ANN401 - of that kind
        value = self.values.get(key)
        if value is None:
            if default is _MISSING:
                raise DamagedError(f"has no {self._inside}{key}, which this architecture needs")
            return default
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise self._wrong(key, wanted)
        return value

    def _wrong(self, key: str, wanted: str) -> DamagedError:
        value = printable(repr(self.values.get(key)))
        return DamagedError(f"has {self._inside}{key} = {value[:40]}; {wanted} is needed")


class Keys:
    """One table of a config, whose keys go by the names that families give them; arguments as of `Fields`."""

    def __init__(self, values: Mapping[str, object], inside: str = "") -> None:
        self.values = values
        self.inside = inside
        self._fields = Fields(values, inside)

    def whole(self, *names: str, default: int | None = None) -> int:
        """The first of `names` that is there, a whole number. Raises DamagedError if it is missing without a default,
        or something else.
        """
        number = self.maybe(*names)
        if number is not None:
            return number
        if default is None:
            raise DamagedError(f"has no {self.inside}{names[0]}, without which its tensors are not known")
        return default

    def maybe(self, *names: str) -> int | None:
        """The first whole number among the names; None if none is there."""
        for name in synonyms(*names):
            value = self.values.get(name)
            if value is None or isinstance(value, (list, dict, str)):
                continue
            if isinstance(value, float) and value.is_integer():
                return int(value)
            number: int = self._fields.whole(name)
            if number < 0:
                continue
            return number
        return None

    def number(self, name: str, default: float) -> float:
        return float(self._fields.number(name, default))

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false; what is neither counts as the default."""
        value = self.values.get(name)
        return value if isinstance(value, bool) else default

    def text(self, name: str, default: str = "") -> str:
        value = self.values.get(name)
        return value if isinstance(value, str) else default

    def items(self, name: str) -> list[Any]:
        value = self.values.get(name)
        return value if isinstance(value, list) else []

    def table(self, name: str) -> "Keys":
        """Another table inside; empty if there is none."""
        value = self.values.get(name)
        return Keys(value if isinstance(value, dict) else {}, f"{self.inside}{name}.")

    def has(self, name: str) -> bool:
        """Return whether the key is there and not null, false, 0 or empty."""
        return bool(self.values.get(name))

    def changed(self, **values: object) -> "Keys":
        return Keys({**self.values, **values}, self.inside)


class LayerSizes(msgspec.Struct, frozen=True, kw_only=True):
    """Sizes that shape most tensors of a layer; `value_dim` is the width of a head of values."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    ffn: int
    vocab: int

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_dim

    @property
    def values(self) -> int:
        return self.kv_heads * self.value_dim


def layer_count(keys: Keys, *names: str) -> int:
    """Number of layers, by one of `names` or of the usual ones; where only their kinds are listed, of these. Raises
    DamagedError if there are none, or more than any model has.
    """
    listed = len(keys.items("layer_types") or keys.items("layers_block_type"))
    layers = keys.maybe(*names, "num_hidden_layers") or listed
    if not 0 < layers <= MOST_LAYERS:
        sentence = f"has {keys.inside}num_hidden_layers = {layers}; 1 to {MOST_LAYERS} are needed"
        raise DamagedError(sentence, is_sound=None)
    return layers


def sizes_of(keys: Keys) -> LayerSizes:
    hidden = keys.whole("hidden_size")
    heads = keys.maybe("num_attention_heads") or 1
    head_dim = keys.maybe("head_dim") or max(1, hidden // heads)
    multi = 1 if keys.flag("multi_query") else heads
    return LayerSizes(
        hidden=hidden,
        heads=heads,
        kv_heads=keys.maybe("num_key_value_heads") or multi,
        head_dim=head_dim,
        value_dim=keys.maybe("v_head_dim") or head_dim,
        ffn=ffn_of(keys, hidden),
        vocab=keys.whole("vocab_size", default=0),
    )


def ffn_of(keys: Keys, hidden: int) -> int:
    """Width of the MLP; the first layer's where each has its own."""
    listed = next((keys.items(name) for name in synonyms("intermediate_size") if keys.items(name)), [])
    if listed and isinstance(listed[0], int):
        return int(listed[0])
    return keys.maybe("intermediate_size") or 4 * hidden


def head_of(keys: Keys) -> str:
    """`CLASSES` or `BARE` where the architecture ends so; empty if its head is over words."""
    task = next(map(str, keys.items("architectures")), "")
    if task.endswith(("LMHeadModel", "ChatGLMModel")):  # so ChatGLM's own code names what has a head over words
        return ""
    return next((end for end in (CLASSES, BARE) if task.endswith(end)), "")


def dropout_of(keys: Keys, hidden: str, attention: str, usual: float) -> Table:
    """The two dropouts of `[model]`, by the keys that a config has for them, or none; `usual` where it says nothing."""
    names = {"hidden_dropout": hidden, "attention_dropout": attention}
    return {key: keys.number(name, usual) for key, name in names.items() if name}


def activation(name: str) -> str:
    return SAME_ACTIVATIONS.get(name, name)


def labels_of(keys: Keys) -> int:
    """Outputs of a classifier: transformers has two where a config lists none."""
    listed = keys.values.get("id2label")
    return len(listed) if isinstance(listed, dict) and listed else keys.whole("num_labels", default=2)

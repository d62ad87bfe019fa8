"""In what a family of decoders differs from Llama, and one layer of one of its models."""

from collections.abc import Callable

import msgspec

from vramtui.models.families.keys import Keys, LayerSizes
from vramtui.models.families.modelled import Operators
from vramtui.models.tensor_list import CacheList, TensorList

Truth = bool | str | tuple[str, bool]


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a model: its keys (its own first), number, kind (`full_attention` …) and whether it has experts."""

    keys: Keys
    sizes: LayerSizes
    number: int
    kind: str
    sparse: bool
    family: "Family"


Operator = Callable[[TensorList, CacheList, Layer], None]
More = Callable[[TensorList, Keys, LayerSizes], None]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """What is true of every model of a family. A truth is fixed, or a key of the config with what it is when absent.

    Attributes:
        norm: vectors that a norm has: 1 of an RMS norm, 2 of a layer norm, 0 of one without weights.
        norm_in_fp32: whether the norms' weight multiplies before their answer goes back to the model's type.
        norms: norms over the stream in each layer.
        last_norm: whether there is one after the last layer.
        qk_norm: norms on queries and keys: over a `head`, over all of them (`wide`), or a vector a head (`each`).
        qk_norm_if: a key that turns them on; `qk_norm_bias` gives them biases.
        bias: biases of the projections to queries, keys and values.
        output_bias: bias of the attention's output projection; as `bias` when None.
        mlp_bias: biases in the MLP.
        gated: a gate beside the up projection.
        gate: a gate, if `gate_if` is on, on what the attention puts out: as wide as the queries (`full`, `double`) or
            one a head (`head`).
        sinks: a learned number for each head beside the scores.
        tied: whether the output layer is the embedding where the config does not say.
        head_bias: bias of the output layer.
        positions: the key with the number of learned positions, and how many rows more there are.
        mla: keys and values compressed together.
        index_copies: how often the indexer's keys are kept.
        attention: how layers that attend are built, where they are not Llama's.
        mixers: how layers of other kinds are built.
        mlp: how the MLP is built, where it is not Llama's; `moe` that of layers with experts.
        sparse: layers with experts, where the usual keys do not say it.
        kinds: kinds of the layers, where the config does not list them.
        prepare: the config as it is to be read, where some keys mean something else.
        router_bias: a bias for each expert on the router; `correction_bias` one that balances their load.
        expert_width: the keys with an expert's width, where they are not the usual ones.
        expert_bias: biases in the experts.
        shared_gate: a gate of the stream's width on the expert for all tokens, which `shared` says is looked for.
        layer: what else each layer has.
        more: what else there is.
        whole: how all of the model is built, where none of this holds.
        operators: what its `[model]` table says beside these, where every operator is followed.
    """

    norm: int = 1
    norm_in_fp32: bool = False
    norms: int = 2
    last_norm: bool = True
    qk_norm: str = ""
    qk_norm_if: str = ""
    qk_norm_bias: bool = False
    bias: Truth = ("attention_bias", False)
    output_bias: Truth | None = None
    mlp_bias: Truth = ("mlp_bias", False)
    gated: bool = True
    gate: str = ""
    gate_if: str = ""
    sinks: Truth = False
    tied: bool = False
    head_bias: Truth = False
    positions: tuple[str, int] | None = None
    mla: bool = False
    index_copies: int = 1
    attention: Operator | None = None
    mixers: dict[str, Operator] = {}
    mlp: Operator | None = None
    moe: Operator | None = None
    sparse: Callable[[Keys, int], bool] | None = None
    kinds: Callable[[Keys, int], list[str]] | None = None
    prepare: Callable[[Keys], Keys] | None = None
    expert_width: tuple[str, ...] = ()
    router_bias: Truth = False
    correction_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    shared: bool = True
    layer: Operator | None = None
    more: More | None = None
    whole: Callable[[TensorList, CacheList, Keys, "Family"], None] | None = None
    operators: Operators | None = None


def truth(keys: Keys, what: Truth) -> bool:
    """Whether `what` is so in a config."""
    if isinstance(what, bool):
        return what
    name, default = (what, False) if isinstance(what, str) else what
    return keys.flag(name, default)

"""The tensors and caches of a decoder, and the `[model]` table with its operators or the nearest ones."""

from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import ENCODER_TENSORS, LayerCache, TensorGroup, TransformerModel
from vramtui.models.families.caches import LISTS, NAMES, SLIDING, WINDOWS, Layer, attention, mla, own_keys
from vramtui.models.families.families import FAMILIES, Family, truth
from vramtui.models.families.keys import (
    BARE,
    CHOSEN,
    CLASSES,
    DENSE_FIRST,
    EXPERT_WIDTH,
    EXPERTS,
    HEAD_DIM,
    KV_HEADS,
    POSITIONS,
    SHARED,
    SHARED_WIDTH,
    Keys,
    head_of,
    labels_of,
    layer_count,
    sizes_of,
)
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import shape_table
from vramtui.models.shapes.listed import named_class, shape_name
from vramtui.models.specs.decoder import decoder_spec
from vramtui.models.tensor_list import CacheList, TensorList

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new", "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip
ACTS = ("hidden_act", "hidden_activation", "activation_function", "activation", "afn", "mlp_hidden_act")
# Names of linear layers, by those that families give them.
STANDARD_NAMES = {
    **dict.fromkeys(("fc1", "c_fc", "fc_in", "dense_h_to_4h", "gate_up_proj", "w3", "up"), "up_proj"),
    **dict.fromkeys(("fc2", "fc_out", "dense_4h_to_h", "w2", "down"), "down_proj"),
    **dict.fromkeys(("gate", "wg", "classifier"), "router"),
    **{name: f"indexer_{name}" for name in ("wq_b", "wk", "weights_proj")},
    "w1": "gate_proj",
    "shared_gate_up_proj": "shared_up_proj",
}
LATENT = ("kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")


def read_decoder(given: Keys, keys: Keys, family: Family) -> tuple[TensorList, CacheList]:
    """Every tensor of the class that the config names, else of its type's, or of the nearest decoder if neither is
    known; and what each layer keeps.

    Args:
        given: the config as its file has it.
        keys: the same with what the file leaves out.
        family: its own, or the nearest.
    """
    prepared = family.prepare(keys) if family.prepare else keys
    widened = family.widths(prepared) if family.widths else prepared
    caches = CacheList()
    if family.keeps is not None:
        family.keeps(caches, widened)
    else:
        sizes, count = sizes_of(widened), layer_count(widened)
        kinds = family.kinds(widened, count)
        for number, kind in enumerate(kinds[: count - widened.whole("num_kv_shared_layers", default=0)]):
            own = own_keys(widened, number, count)
            keeps = family.mixers.get(kind) or family.attention or (mla if family.mla else attention)
            own_sizes = sizes if own is widened else sizes_of(own)
            keeps(caches, Layer(keys=own, sizes=own_sizes, number=number, kind=kind))

    changed = {name: value for name, value in prepared.values.items() if value != keys.values.get(name)}
    for name in LISTS:
        if listed := prepared.items(name):
            changed[name] = [NAMES.get(kind, kind) if isinstance(kind, (str, int)) else kind for kind in listed]
    table, tensors, kind = shape_table(), TensorList(), prepared.text("model_type")
    name, head = named_class(prepared.values), head_of(prepared)
    if table.knows(kind, kind):
        name = ""
    elif FAMILIES.get(table.type_of(name)) is not family:
        name = "" if head else table.class_of("causal", kind)
    base = name or (kind if table.knows(kind, kind) else table.class_of("base", kind))
    if base and (kind in FAMILIES or base == kind):
        for shape in table.tensors(base, given.changed(**changed).values):
            tensors.place = "layers" if shape.repeats else "outside"
            named = shape_name(shape, stem=False)
            named = STANDARD_NAMES.get(named, named) if shape.repeats else named
            if named == "out_proj" and not family.mixers and family.attention is None:
                named = "o_proj"
            tensors.add(named, *shape.shape, count=shape.count)
        tensors.place = "layers"
        if family.has_expert_biases:
            for group in tensors.groups():
                if group.name in {"experts_gate_up_proj", "experts_up_proj"}:
                    tensors.add("router", group.shape[0], count=group.count)
    else:
        nearest = nearest_decoder(prepared, family) | {"tie_word_embeddings": True, "basis": "generic"}
        try:
            model = msgspec.convert(nearest, TransformerModel)
        except msgspec.ValidationError as error:
            raise DamagedError(f"sizes that a decoder cannot have: {error}") from None
        for tensor in decoder_spec(model).tensors():
            tensors.place = "layers" if tensor.layer else "outside"
            tensors.add(tensor.module, *tensor.shape, count=tensor.count)
    sizes = sizes_of(prepared)
    tensors.place = "outside"
    if not name and head == CLASSES:
        tensors.add("score", labels_of(prepared), sizes.hidden)
    elif not name and head != BARE and not prepared.flag("tie_word_embeddings", family.tied):
        tensors.add("lm_head", sizes.vocab, sizes.hidden)
    return tensors, caches


def nearest_decoder(keys: Keys, family: Family) -> dict[str, Any]:
    """The `[model]` table of a decoder with the same sizes."""
    keys = family.prepare(keys) if family.prepare else keys
    keys = family.widths(keys) if family.widths else keys
    sizes, layers = sizes_of(keys), layer_count(keys)
    heads, kv_heads = max(1, sizes.heads), sizes.kv_heads
    bias = truth(keys, family.bias)
    act = next((keys.text(name) for name in ACTS if keys.text(name)), "silu")
    table: dict[str, Any] = {
        "kind": "transformer",
        "hidden_size": sizes.hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads if kv_heads and heads % kv_heads == 0 else None,
        "head_dim": sizes.head_dim,
        "intermediate_size": sizes.ffn,
        "vocab_size": max(1, sizes.vocab),
        "max_position_embeddings": keys.maybe(*POSITIONS) or None,
        "hidden_act": ACTIVATIONS.get(act, "gelu" if "gelu" in act else "silu"),
        "gated_mlp": family.gated,
        "norm": family.norm,
        "norms_per_layer": max(1, family.norms),
        "qk_norm": truth(keys, family.qk_norm),
        "attention_bias": bias,
        "output_bias": bias if family.output_bias is None else truth(keys, family.output_bias),
        "mlp_bias": truth(keys, family.mlp_bias),
        "lm_head_bias": truth(keys, family.head_bias),
        "tie_word_embeddings": keys.flag("tie_word_embeddings", family.tied),
    }
    count, sparse = keys.maybe(*EXPERTS), family.sparse or has_experts
    first = next((number for number in range(layers) if sparse(keys, number)), None)
    if first is not None and count:
        width = keys.maybe(*(family.expert_width or EXPERT_WIDTH)) or sizes.ffn
        own, alike = keys.maybe(*SHARED_WIDTH), keys.maybe(*SHARED)
        shared = (alike or 0) * width if own is None else own if alike is None else own * alike
        table |= {
            "num_experts": count,
            "num_experts_per_tok": min(count, max(1, keys.maybe(*CHOSEN) or 2)),
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": (shared if family.shared else 0) or None,
            "first_k_dense_replace": first,
        }
    if family.mla and all(keys.maybe(name) for name in LATENT):
        table |= {name: keys.maybe(name) for name in (*LATENT, "q_lora_rank")}
        table |= {"head_dim": table["v_head_dim"], "num_key_value_heads": None}
    return {key: value for key, value in table.items() if value is not None}


def has_experts(keys: Keys, number: int) -> bool:
    """Return whether a layer (from 0) has experts, by the keys that most families use."""
    if not keys.maybe(*EXPERTS):
        return False
    for name in ("mlp_layer_types", "moe_layer_freq"):
        listed = keys.items(name)
        if number < len(listed):
            return listed[number] not in ("dense", "mlp", 0)
    last = keys.whole("moe_layer_end_index", default=number)
    among = keys.whole(*DENSE_FIRST, default=0) <= number <= last
    if not among or number in keys.items("mlp_only_layers"):
        return False
    if keys.items("moe_layers"):
        return number in keys.items("moe_layers")
    if keys.maybe("expert_layer_period"):
        return number % keys.whole("expert_layer_period") == keys.whole("expert_layer_offset", default=0)
    step = keys.maybe("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_freq")
    return not step or (number + 1) % step == 0


def modelled_decoder(
    given: Keys, keys: Keys, family: Family, numbers: int, caches: tuple[LayerCache, ...]
) -> dict[str, Any] | None:
    """The `[model]` table of a decoder whose every operator is followed; None if one of this config's is not, or if the
    table does not come to its tensors and caches.

    Args:
        given: the config as its file has it.
        keys: the same with what the file leaves out.
        family: its own.
        numbers: in all of its tensors.
        caches: what its layers keep.
    """
    own = family.operators(keys) if family.operators is not None else None
    if own is None:
        return None
    table = nearest_decoder(keys, family)
    hidden, heads = table["hidden_size"], table["num_attention_heads"]
    usual = (
        (POSITIONS, "max_position_embeddings", table.get("max_position_embeddings")),
        (KV_HEADS, "num_key_value_heads", heads),
        (HEAD_DIM, "head_dim", hidden // heads),
        (EXPERT_WIDTH, "moe_intermediate_size", table["intermediate_size"]),
    )
    for names, key, value in usual:
        if given.maybe(*names) is None and table.get(key) == value:
            table.pop(key, None)
    if family.positions is not None:
        rows, more = family.positions
        table |= {"position": "learned", "max_position_embeddings": keys.whole(rows) + more}
    # The window, and every how many layers look back all the way, if these come at equal steps.
    kinds = family.kinds(keys, layer_count(keys))
    full = [number for number, kind in enumerate(kinds, 1) if kind not in SLIDING]
    if len(full) < len(kinds):
        table |= {"sliding_window": keys.maybe(*WINDOWS), "sliding_window_pattern": full[0] if full else None}
    table = {key: value for key, value in (table | own).items() if value is not None}
    try:
        spec = decoder_spec(msgspec.convert(table, TransformerModel))
    except (msgspec.ValidationError, UserError):
        return table  # the reader of the table says what is wrong with it
    return table if spec.parameters() == numbers and _sorted(spec.caches()) == _sorted(caches) else None


def _sorted(caches: tuple[LayerCache, ...]) -> list[tuple[int, int, int]]:
    return sorted((kind.window or 0, kind.per_token, kind.layers) for kind in caches)


def window_table(caches: tuple[LayerCache, ...], layers: int) -> dict[str, Any]:
    """The window that most layers slide over, and every how many look back all the way."""
    slides = [kind for kind in caches if kind.window is not None]
    if not slides:
        return {}
    window = max(slides, key=lambda kind: kind.layers).window
    full = sum(kind.layers for kind in caches if kind.window is None and kind.per_token)
    return {"sliding_window": window, "sliding_window_pattern": max(1, round(layers / full)) if full else None}


def dropouts(keys: Keys, tensors: tuple[TensorGroup, ...]) -> dict[str, Any]:
    """An encoder's, as its config says or as BERT's config has them; ALBERT and ModernBERT have none."""
    names = {group.name for group in tensors}
    if not names & ENCODER_TENSORS or "norm" in names or keys.text("model_type") == "albert":
        return {}
    return {
        "hidden_dropout": keys.number("hidden_dropout_prob", keys.number("dropout", 0.1)),
        "attention_dropout": keys.number("attention_probs_dropout_prob", keys.number("attention_dropout", 0.1)),
    }


def list_tables(tensors: tuple[TensorGroup, ...], caches: tuple[LayerCache, ...]) -> dict[str, Any]:
    """Tensors and caches as a `[model]` table has them; values as usual are left out."""
    usual = {"count": 1, "place": "layers", "bits": None, "per_token": 0, "window": None, "state": 0, "state_fp32": 0}
    tables = ([msgspec.to_builtins(one) for one in listed] for listed in (tensors, caches))
    unusual = [
        [{k: v for k, v in one.items() if k not in usual or v != usual[k]} for one in listed] for listed in tables
    ]
    return dict(zip(("tensors", "caches"), unusual, strict=True))

"""A decoder layer by layer, from its config and the facts of its family."""

from vramtui.models.families.attention import attention, mla
from vramtui.models.families.family import Family, Layer, truth
from vramtui.models.families.feed_forward import experts, has_experts, mlp
from vramtui.models.families.keys import (
    BARE,
    CLASSES,
    Keys,
    LayerSizes,
    head_of,
    labels_of,
    layer_count,
    sizes_of,
)
from vramtui.models.tensor_list import CacheList, TensorList

PATTERNS = ("sliding_window_pattern", "_sliding_window_pattern", "global_attn_every_n_layers")
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"
LISTS = ("layer_types", "layers_block_type", "attention_layers", "hybrid_layer_pattern")
# What other families call the same kinds.
NAMES: dict[str | int, str] = {
    "attention": FULL, "global": FULL, "mamba": LINEAR, "mamba2": LINEAR, "recurrent": LINEAR, "local": SLIDING,
    0: FULL, 1: SLIDING,
}  # fmt: skip


def read_decoder(keys: Keys, family: Family) -> tuple[TensorList, CacheList]:
    """Every tensor, and what each layer keeps.

    Raises:
        DamagedError: a key that is needed is missing or wrong.
    """
    tensors, caches = TensorList(), CacheList()
    add_decoder(tensors, caches, keys, family)
    return tensors, caches


def add_decoder(tensors: TensorList, caches: CacheList, keys: Keys, family: Family) -> None:
    """Add a decoder's tensors and caches to lists that others add to as well."""
    if family.whole is not None:
        family.whole(tensors, caches, keys, family)
        return
    if family.prepare is not None:
        keys = family.prepare(keys)
    sizes = sizes_of(keys)
    tensors.place = "outside"
    tensors.add("embed_tokens", sizes.vocab, sizes.hidden)
    if family.positions is not None:
        name, more = family.positions
        tensors.add("embed_positions", keys.whole(name) + more, sizes.hidden)
    tensors.place = "layers"
    add_layers(tensors, caches, keys, family)
    tensors.place = "outside"
    _head(tensors, keys, sizes, family)


def _head(tensors: TensorList, keys: Keys, sizes: LayerSizes, family: Family) -> None:
    if family.last_norm and family.norm:
        tensors.add("norm", sizes.hidden, count=family.norm)
    if head_of(keys) == CLASSES:
        tensors.add("score", labels_of(keys), sizes.hidden)
    elif head_of(keys) != BARE:
        if not keys.flag("tie_word_embeddings", family.tied):
            tensors.add("lm_head", sizes.vocab, sizes.hidden)
        if truth(keys, family.head_bias):
            tensors.add("lm_head", sizes.vocab)
    if family.more is not None:
        family.more(tensors, keys, sizes)


def add_layers(tensors: TensorList, caches: CacheList, keys: Keys, family: Family) -> None:
    """Every layer with the keys of its own, where it has some."""
    count = layer_count(keys)
    kinds = kinds_of(keys, count, family)
    shared = count - keys.whole("num_kv_shared_layers", default=0)
    for number, kind in enumerate(kinds):
        own = _own_keys(keys, number, count)
        sparse = (family.sparse or has_experts)(own, number)
        layer = Layer(keys=own, sizes=sizes_of(own), number=number, kind=kind, sparse=sparse, family=family)
        own_caches = caches if number < shared else CacheList()
        add_layer(tensors, own_caches, layer)


def add_layer(tensors: TensorList, caches: CacheList, layer: Layer) -> None:
    """One layer: what mixes its tokens, its MLP, its norms."""
    family = layer.family
    mixer = family.mixers.get(layer.kind) or family.attention or (mla if family.mla else attention)
    mixer(tensors, caches, layer)
    if layer.sparse and family.moe is not None:
        family.moe(tensors, caches, layer)
    elif layer.sparse:
        experts(tensors, layer)
    else:
        (family.mlp or mlp)(tensors, caches, layer)
    if family.norm:
        tensors.add("layer_norm", layer.sizes.hidden, count=family.norms * family.norm)
    if family.layer is not None:
        family.layer(tensors, caches, layer)


def _own_keys(keys: Keys, number: int, count: int) -> Keys:
    own = keys.values.get("per_layer_config")
    changed = {}
    if isinstance(own, dict):
        width = max(len(str(count - 1)), 1)
        layer = own.get(str(number).zfill(width), own.get(str(number)))
        changed = dict(layer) if isinstance(layer, dict) else {}
    heads = keys.items("num_attention_heads_per_layer")
    if number < len(heads):
        changed["num_attention_heads"] = heads[number]
    return keys.changed(**changed) if changed else keys


def kinds_of(keys: Keys, count: int, family: Family) -> list[str]:
    """What kind each layer is of."""
    if family.kinds is not None:
        return family.kinds(keys, count)
    for name in LISTS:
        listed = keys.items(name)
        # More are listed where layers that predict a second token are listed with the rest.
        if len(listed) >= count and all(isinstance(kind, (str, int)) for kind in listed):
            return [NAMES.get(kind, str(kind)) for kind in listed[:count]]
    listed = keys.items("block_types")
    if listed:
        return [NAMES.get(str(listed[number % len(listed)]), FULL) for number in range(count)]
    step = keys.maybe("full_attention_interval")
    if step:
        return [FULL if (number + 1) % step == 0 else LINEAR for number in range(count)]
    # LLLG, as EXAONE 4 has it: three that slide, one that looks back all the way.
    pattern = keys.maybe(*PATTERNS) or keys.text(PATTERNS[0]).find("G") + 1
    if pattern:
        return [FULL if (number + 1) % pattern == 0 else SLIDING for number in range(count)]
    slides = keys.maybe("sliding_window") and keys.flag("use_sliding_window", default=True)
    return [SLIDING if slides else FULL] * count

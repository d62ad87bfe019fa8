"""The tensors and caches of a decoder, and the `[model]` table with its operators or the nearest ones."""

import re
from typing import Any

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import ENCODER_TENSORS, LayerCache, TensorGroup, TransformerModel
from vramtui.models.families import keys as config_keys
from vramtui.models.families.encoders import FOLLOWED, followed_encoder
from vramtui.models.families.families import FAMILIES, NAMES, SLIDING, Family, Layer, guess_family, opt, own_keys, truth
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes import nets
from vramtui.models.shapes.known import filled_in, shape_table, text_type
from vramtui.models.specs.decoder import decoder_spec
from vramtui.models.tensor_list import CacheList, TensorList, numbers_in

ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_new", "gelu_fast": "gelu_new", "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "relu2": "relu2", "silu": "silu", "swish": "silu",
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


def read_decoder(given: config_keys.Keys, keys: config_keys.Keys, family: Family) -> tuple[TensorList, CacheList]:
    """Every tensor of the class that the config names, else of its type's, or of the nearest decoder if neither is
    known; and what each layer keeps. `keys` are those of `given`, the config as its file has it, with what that leaves
    out; `family` is its own, or the nearest.
    """
    prepared = family.prepare(keys) if family.prepare else keys
    widened = family.widths(prepared) if family.widths else prepared
    caches = CacheList()
    if family.keeps is not None:
        family.keeps(caches, widened)
    else:
        sizes, count = config_keys.sizes_of(widened), config_keys.layer_count(widened)
        kinds = family.kinds(widened, count)
        for number, kind in enumerate(kinds[: count - widened.whole("num_kv_shared_layers", default=0)]):
            own = own_keys(widened, number, count)
            keeps = family.mixers.get(kind, family.attention)
            own_sizes = sizes if own is widened else config_keys.sizes_of(own)
            keeps(caches, Layer(keys=own, sizes=own_sizes, number=number, kind=kind))

    changed = {name: value for name, value in prepared.values.items() if value != keys.values.get(name)}
    for name in config_keys.LISTS:
        if listed := prepared.items(name):
            changed[name] = [NAMES.get(kind, kind) if isinstance(kind, (str, int)) else kind for kind in listed]
    table, tensors, kind = shape_table(), TensorList(), prepared.text("model_type")
    name, head = nets.named_class(prepared.values), config_keys.head_of(prepared)
    if table.knows(kind, kind):
        name = ""
    elif FAMILIES.get(table.type_of(name)) is not family:
        name = "" if head else table.class_of("causal", kind)
    base = name or (kind if table.knows(kind, kind) else table.class_of("base", kind))
    if base and (kind in FAMILIES or base == kind):
        for shape in table.tensors(base, given.changed(**changed).values):
            tensors.place = "layers" if shape.repeats else "outside"
            named = nets.shape_name(shape, stem=False)
            named = STANDARD_NAMES.get(named, named) if shape.repeats else named
            if named == "out_proj" and not family.mixers:
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
    sizes = config_keys.sizes_of(prepared)
    tensors.place = "outside"
    if not name and head == config_keys.CLASSES:
        tensors.add("score", config_keys.labels_of(prepared), sizes.hidden)
    elif not name and head != config_keys.BARE and not prepared.flag("tie_word_embeddings", family.tied):
        tensors.add("lm_head", sizes.vocab, sizes.hidden)
    return tensors, caches


def nearest_decoder(keys: config_keys.Keys, family: Family) -> dict[str, Any]:
    """The `[model]` table of a decoder with the same sizes."""
    keys = family.prepare(keys) if family.prepare else keys
    keys = family.widths(keys) if family.widths else keys
    sizes, layers = config_keys.sizes_of(keys), config_keys.layer_count(keys)
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
        "max_position_embeddings": keys.maybe("max_position_embeddings") or None,
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
    count, sparse = keys.maybe("num_experts"), family.sparse or has_experts
    first = next((number for number in range(layers) if sparse(keys, number)), None)
    if first is not None and count:
        width = keys.maybe(family.expert_width or "moe_intermediate_size") or sizes.ffn
        own, alike = keys.maybe("shared_expert_intermediate_size"), keys.maybe("n_shared_experts")
        shared = (alike or 0) * width if own is None else own if alike is None else own * alike
        table |= {
            "num_experts": count,
            "num_experts_per_tok": min(count, max(1, keys.maybe("num_experts_per_tok") or 2)),
            "moe_intermediate_size": width,
            "shared_expert_intermediate_size": (shared if family.shared else 0) or None,
            "first_k_dense_replace": first,
        }
    if family.mla and all(keys.maybe(name) for name in LATENT):
        table |= {name: keys.maybe(name) for name in (*LATENT, "q_lora_rank")}
        table |= {"head_dim": table["v_head_dim"], "num_key_value_heads": None}
    return {key: value for key, value in table.items() if value is not None}


def has_experts(keys: config_keys.Keys, number: int) -> bool:
    """Return whether a layer (from 0) has experts, by the keys that most families use."""
    if not keys.maybe("num_experts"):
        return False
    for name in ("mlp_layer_types", "moe_layer_freq"):
        listed = keys.items(name)
        if number < len(listed):
            return listed[number] not in ("dense", "mlp", 0)
    last = keys.whole("moe_layer_end_index", default=number)
    among = keys.whole("first_k_dense_replace", default=0) <= number <= last
    if not among or number in keys.items("mlp_only_layers"):
        return False
    if keys.items("moe_layers"):
        return number in keys.items("moe_layers")
    if keys.maybe("expert_layer_period"):
        return number % keys.whole("expert_layer_period") == keys.whole("expert_layer_offset", default=0)
    step = keys.maybe("decoder_sparse_step", "interleave_moe_layer_step", "moe_layer_interval", "moe_layer_freq")
    return not step or (number + 1) % step == 0


def list_tables(tensors: tuple[TensorGroup, ...], caches: tuple[LayerCache, ...]) -> dict[str, Any]:
    """Tensors and caches as a `[model]` table has them; values as usual are left out."""
    usual = {"count": 1, "place": "layers", "bits": None, "per_token": 0, "window": None, "state": 0, "state_fp32": 0}
    tables = ([msgspec.to_builtins(one) for one in listed] for listed in (tensors, caches))
    unusual = [
        [{k: v for k, v in one.items() if k not in usual or v != usual[k]} for one in listed] for listed in tables
    ]
    return dict(zip(("tensors", "caches"), unusual, strict=True))


# Whose words are read by a translator with its encoder, or by layers that are no part of their own.
OWN_TEXT = {"florence2", "idefics", "phi4_multimodal", "voxtral_realtime"}
# Whose words are read by another model than the type of its text says.
OTHER_TEXT = {"idefics": "llama", "phi4_multimodal": "phi3"}

# Of types whose tensors are read by their generated shapes: the family whose operators are followed.
OF_TEXTS = {"opt": msgspec.structs.replace(nets.PLAIN, operators=opt)}
# Ends of the classes whose output layer is over words, as the operators that are followed have it.
OVER_WORDS = ("ForCausalLM", "LMHeadModel")

# An encoder of images and a decoder: all their tensors together are no stream of either.
TWO_MODELS = {"vision-encoder-decoder"}
ENCODER_LAYERS = ("encoder_layers", "speech_encoder_layers")

# Architectures without the output layer over words that a family has.
OTHER_HEADS = re.compile(
    r"Classification|QuestionAnswering|MultipleChoice|PreTraining|Reward|Retrieval|(?<!LMHead)(?<!ChatGLM)Model$"
)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    table: dict[str, Any]  # a `[model]` table
    basis: str  # `family` where its tensors and caches are exact, else `generic`
    tensors: tuple[TensorGroup, ...] = ()  # every tensor
    caches: tuple[LayerCache, ...] = ()  # what its layers keep
    partial: bool = False  # whether it is only the part that reads words, of a model of several
    architecture: str = ""  # its class, where its type is one of encoders whose operators are followed
    counted: bool = False  # whether every tensor is written down all the same where it is `generic`


def text_part(keys: config_keys.Keys) -> config_keys.Keys:
    """The table of the part that reads words: the config itself in most."""
    for name in config_keys.TEXT_PARTS:
        if keys.has(name) and isinstance(keys.values[name], dict):
            inner = keys.table(name)
            shared = {
                key: keys.values[key]
                for key in ("tie_word_embeddings", "vocab_size")
                if key in keys.values and key not in inner.values
            }
            return text_part(inner.changed(**shared))
    return keys


def read_any(values: dict[str, object], *, is_listed: bool = False) -> Found:
    """The tensors and caches of any config, and the decoder that it is, or is nearest to.

    What no family describes whole has its tensors from the generated shapes, where those have its class; if the table
    `is_listed` it has every tensor, also where its sizes say them all.

    Raises:
        DamagedError: it has not even a width and a number of layers, or not the sizes of a family that has to say them.
    """
    if not values.get("model_type"):
        # The type of the class that it names, or of that class without a head, if its operators are followed.
        name, table = nets.named_class(values), shape_table()
        kind = table.type_of(name) or table.type_of(f"{name.partition('For')[0]}Model")
        if _is_followed(kind) or kind in FOLLOWED:
            values = values | {"model_type": kind}
    kind = str(values.get("model_type"))
    encoder = None if is_listed or kind in FAMILIES or nets.joins(kind) else followed_encoder(values)
    if encoder is not None:
        return Found(table=encoder.table, basis="shapes", architecture=encoder.architecture, counted=True)
    if _is_followed(kind):
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"):  # without: another model
            config_keys.Keys(values).whole(name)
    try:
        model = _by_family(values, is_listed=is_listed)
    except DamagedError:
        tensors = nets.generated_tensors(values)
        if tensors is None:
            raise
        keys = nets.stream_of(config_keys.Keys(values), tensors.groups())
        net = _result(keys, nets.PLAIN, "generic", tensors, CacheList(), partial=False)
        return msgspec.structs.replace(net, counted=True)
    if model.basis != "generic" or (model.counted and not model.partial):
        return model
    tensors = nets.generated_tensors(
        values, (next((name for name in config_keys.TEXT_PARTS if isinstance(values.get(name), dict)), ""))
    )
    if tensors is None or values.get("model_type") in TWO_MODELS:
        return model
    groups = tensors.groups()
    if any(group.name in ENCODER_TENSORS for group in model.tensors):
        groups = nets.as_encoder(groups)
    listed = model.table | {"parameters": numbers_in(groups)} | list_tables(groups, model.caches)
    return msgspec.structs.replace(model, table=listed, tensors=groups, partial=False, counted=True)


def _is_followed(kind: str) -> bool:
    family = FAMILIES.get(kind, OF_TEXTS.get(kind))
    return family is not None and family.operators is not None


def _by_family(values: dict[str, object], *, is_listed: bool) -> Found:
    kind = values.get("model_type")
    full = filled_in(values, kind, every_part=nets.is_net(kind)) if isinstance(kind, str) else values
    keys = _with_thinkers_parts(config_keys.Keys(full))
    if nets.joins(keys.text("model_type")):
        outer = keys.values if "thinker_config" in values else values
        return _of_parts(values, keys, full, outer.get("tie_word_embeddings"))
    if nets.is_net(keys.text("model_type")):
        net = nets.read_net(keys)
        basis = "family" if net.exact and not net.staged else "generic"
        model = _result(net.keys, nets.PLAIN, basis, net.tensors, net.caches, partial=False)
        model = msgspec.structs.replace(model, counted=net.exact)
        twin = nets.twin_of(net, numbers_in(model.tensors)) if net.exact else None
        return model if twin is None else msgspec.structs.replace(model, table=twin, basis="shapes")
    kind = keys.text("model_type")
    if kind in nets.TEXTS:
        tensors, caches, exact = nets.read_text(keys)
        model = _result(keys, nets.PLAIN, "family" if exact else "generic", tensors, caches, partial=False)
        return _modelled(config_keys.Keys(values), keys, OF_TEXTS.get(kind), model, is_listed=is_listed)
    family = FAMILIES.get(kind)
    if family is not None:
        named = " ".join(map(str, keys.items("architectures")))
        exact = "ConditionalGeneration" not in named and not OTHER_HEADS.search(named)
        exact = exact or bool(config_keys.head_of(keys) and family.keeps is None)
        # A config of a family that is followed, with operators of its own (Falcon's ALiBi), is not like its family's.
        exact = exact and (family.operators is None or family.operators(keys) is not None)
        read = read_decoder(config_keys.Keys(values), keys, family)
        model = _result(keys, family, "family" if exact else "generic", *read, partial=False)
        return _modelled(config_keys.Keys(values), keys, family, model, is_listed=is_listed)
    part = text_part(keys)
    if part.text("model_type") in nets.TEXTS:
        tensors, caches, _ = nets.read_text(part)
        return _result(part, nets.PLAIN, "generic", tensors, caches, partial=True)
    family = FAMILIES.get(part.text("model_type")) or guess_family(part)
    partial = part.inside != keys.inside or (
        keys.has("decoder_layers") and any(keys.has(name) for name in ENCODER_LAYERS)
    )
    return _result(part, family, "generic", *read_decoder(part, part, family), partial=partial)


def _modelled(
    given: config_keys.Keys, keys: config_keys.Keys, family: Family | None, reading: Found, *, is_listed: bool
) -> Found:
    """Drop the lists where every operator of the family is followed and its sizes say every tensor and cache."""
    named = nets.named_class(keys.values)
    own = family.operators(keys) if family is not None and family.operators is not None else None
    if family is None or own is None or is_listed or (named and not named.endswith(OVER_WORDS)):
        return reading
    table = nearest_decoder(keys, family)
    hidden, heads = table["hidden_size"], table["num_attention_heads"]
    usual = {
        "max_position_embeddings": table.get("max_position_embeddings"),
        "num_key_value_heads": heads,
        "head_dim": hidden // heads,
        "moe_intermediate_size": table["intermediate_size"],
    }
    for key, value in usual.items():
        if given.maybe(key) is None and table.get(key) == value:
            table.pop(key, None)
    if family.positions is not None:
        rows, more = family.positions
        table |= {"position": "learned", "max_position_embeddings": keys.whole(rows) + more}
    # The window, and every how many layers look back all the way, if these come at equal steps.
    kinds = family.kinds(keys, config_keys.layer_count(keys))
    full = [number for number, kind in enumerate(kinds, 1) if kind not in SLIDING]
    if len(full) < len(kinds):
        table |= {"sliding_window": keys.maybe("sliding_window"), "sliding_window_pattern": full[0] if full else None}
    table = {key: value for key, value in (table | own).items() if value is not None}
    try:
        spec = decoder_spec(msgspec.convert(table, TransformerModel))
        same = spec.parameters() == numbers_in(reading.tensors)
        same = same and sorted(map(_cache_key, spec.caches())) == sorted(map(_cache_key, reading.caches))
    except (msgspec.ValidationError, UserError):
        same = True  # the reader of the table says what is wrong with it
    return msgspec.structs.replace(reading, table=table, basis="shapes", counted=True) if same else reading


def _cache_key(kind: LayerCache) -> tuple[int, int, int]:
    return kind.window or 0, kind.per_token, kind.layers


def _with_thinkers_parts(keys: config_keys.Keys) -> config_keys.Keys:
    """Models that speak as well keep the one that reads, hears and sees in a table of its own: its parts are theirs."""
    thinker = keys.values.get("thinker_config")
    if not isinstance(thinker, dict) or not nets.joins(keys.text("model_type")):
        return keys
    spoken = ("talker_config", "token2wav_config", "code2wav_config")
    silent = dict.fromkeys(spoken) if not keys.flag("enable_audio_output", default=True) else {}
    own = {key: value for key, value in keys.values.items() if key != "thinker_config"}
    return config_keys.Keys({**thinker, **own, **silent})


def _of_parts(values: dict[str, object], keys: config_keys.Keys, full: dict[str, Any], tied: object) -> Found:
    """A model of several parts whose towers and what nets.joins them are counted: its config as the file has it, filled
    in with the parts of a thinker at its top, and as its class has it; and whether the file says at its top that the
    output layer is the embedding, else the part that reads words does, as for transformers 4, which wrote these files.
    """
    name = next((name for name in config_keys.TEXT_PARTS if isinstance(keys.values.get(name), dict)), "")
    part = keys.table(name) if name else keys.changed(model_type=text_type(keys.text("model_type")))
    given = _with_thinkers_parts(config_keys.Keys(values))
    given = (given.table(name) if name else given).changed(model_type=part.values.get("model_type"))
    if isinstance(tied, bool):
        part = part.changed(tie_word_embeddings=tied)
    kind = OTHER_TEXT.get(keys.text("model_type"), part.text("model_type"))
    family = FAMILIES.get(kind)
    nearest = family or (nets.PLAIN if kind in nets.TEXTS else guess_family(part))
    if kind in nets.TEXTS:
        tensors, caches = TensorList(), nets.text_caches(part)
        whole = keys.text("model_type")
        if shape_table().knows(f"{whole}{nets.WITHOUT_WORDS}", whole):  # towers without the part that reads words
            tensors, _, _ = nets.read_text(part)
    else:
        tensors, caches = read_decoder(
            given.changed(tie_word_embeddings=part.flag("tie_word_embeddings", nearest.tied)), part, nearest
        )
        tensors = TensorList() if keys.text("model_type") in OWN_TEXT else tensors
    joined = nets.add_towers(tensors, keys, full)
    named = " ".join(map(str, keys.items("architectures")))
    exact = (family is not None or kind in nets.TEXTS) and joined.complete and not OTHER_HEADS.search(named)
    basis = "family" if exact else "generic"
    model = _result(part, nearest, basis, tensors, caches, partial=not joined.complete)
    towers = {"image_tokens": joined.images, "tower": joined.tower, "audio_tower": joined.audio_tower}
    seen = {name: table for name, table in towers.items() if table is not None}
    return msgspec.structs.replace(model, table=model.table | seen)


def _result(
    keys: config_keys.Keys, family: Family, basis: str, tensors: TensorList, caches: CacheList, *, partial: bool
) -> Found:
    groups, cache_groups = tensors.groups(), caches.groups()
    table = nearest_decoder(keys, family)
    # The window that most layers slide over, and every how many look back all the way.
    if slides := [kind for kind in cache_groups if kind.window is not None]:
        full = sum(kind.layers for kind in cache_groups if kind.window is None and kind.per_token)
        table["sliding_window"] = max(slides, key=lambda kind: kind.layers).window
        table["sliding_window_pattern"] = max(1, round(config_keys.layer_count(keys) / full)) if full else None
    table = {key: value for key, value in table.items() if value is not None}
    names = {group.name for group in groups}
    if names & ENCODER_TENSORS and "norm" not in names and keys.text("model_type") != "albert":
        # As the config of an encoder says, or as BERT's has them; ALBERT and ModernBERT have none.
        table["hidden_dropout"] = keys.number("hidden_dropout_prob", keys.number("dropout", 0.1))
        own = keys.number("attention_probs_dropout_prob", keys.number("attention_dropout", 0.1))
        table["attention_dropout"] = own
    table |= {"parameters": numbers_in(groups), "basis": basis} | list_tables(groups, cache_groups)
    return Found(table=table, basis=basis, tensors=groups, caches=cache_groups, partial=partial)

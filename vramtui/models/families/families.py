"""Families of decoders, and in what each differs from Llama. Their tensors are the generated shapes' (`shapes/`).

`operators` of a family add to `[model]` what its sizes do not say, with the defaults of transformers 5.23; they return
None for a config with operators that are not followed. Caches of each layer are those of transformers 5.23:
convolutions' inputs in the model's type, recurrent states in fp32 where its code says so (cache_utils.py,
LinearAttentionLayer). A sliding layer keeps one token less than its window (DynamicSlidingWindowLayer).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from vramtui.models.families.keys import LISTS, Keys, LayerSizes, Table, activation, dropout_of, layer_count, sizes_of
from vramtui.models.readers.bounded import DamagedError
from vramtui.models.shapes.known import evaluate
from vramtui.models.tensor_list import CacheList

FULL, SLIDES, LINEAR = "full_attention", "sliding_attention", "linear_attention"
SPARSE = "minimax_m3_sparse"
SLIDING = frozenset({SLIDES, "local", "hybrid_sliding", "sliding"})
# What other families call the same kinds.
NAMES: dict[str | int, str] = {
    "attention": FULL, "global": FULL, "mamba": LINEAR, "mamba2": LINEAR, "recurrent": LINEAR, "local": SLIDES,
    0: FULL, 1: SLIDES,
}  # fmt: skip
# Tokens that one compressed key stands for, if the config does not say it (configuration_deepseek_v4.py).
COMPRESSED = {"compressed_sparse_attention": 4, "heavily_compressed_attention": 128}


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer of a model: its keys (its own first), sizes, number and kind (`full_attention` …)."""

    keys: Keys
    sizes: LayerSizes
    number: int
    kind: str


def kinds_of(keys: Keys, count: int) -> list[str]:
    """The kind of each layer, by the keys that most families use."""
    for name in LISTS:
        listed = keys.items(name)
        # Layers that predict a second token may be listed with the rest.
        if len(listed) >= count and all(isinstance(kind, (str, int)) for kind in listed):
            return [NAMES.get(kind, str(kind)) for kind in listed[:count]]
    listed = keys.items("block_types")
    if listed:
        return [NAMES.get(str(listed[number % len(listed)]), FULL) for number in range(count)]
    step, other = keys.maybe("full_attention_interval"), LINEAR
    if not step:
        # EXAONE 4 says LLLG: three that slide, one that looks back all the way.
        step, other = keys.maybe("sliding_window_pattern") or keys.text("sliding_window_pattern").find("G") + 1, SLIDES
    if step:
        return [FULL if (number + 1) % step == 0 else other for number in range(count)]
    slides = keys.has("sliding_window") and keys.flag("use_sliding_window", default=True)
    return [SLIDES if slides else FULL] * count


def minimax_kinds(keys: Keys, count: int) -> list[str]:
    """Return MiniMax's layers as listed, else every second attends. Older files give numbers."""
    listed = keys.items("layer_types") or keys.items("attn_type_list")
    if len(listed) == count:
        return [FULL if kind in (FULL, 1) else LINEAR for kind in listed]
    return [LINEAR if number % 2 else FULL for number in range(count)]


def own_keys(keys: Keys, number: int, count: int) -> Keys:
    """The keys of one layer, which may have some of its own."""
    own, changed = keys.values.get("per_layer_config"), {}
    if isinstance(own, dict):
        layer = own.get(str(number).zfill(len(str(count - 1))), own.get(str(number)))
        changed = dict(layer) if isinstance(layer, dict) else {}
    if number < len(heads := keys.items("num_attention_heads_per_layer")):
        changed["num_attention_heads"] = heads[number]
    return keys.changed(**changed) if changed else keys


def window_of(layer: Layer) -> int | None:
    """The tokens that a layer keeps; None if it keeps all."""
    if layer.kind == "chunked_attention":
        return layer.keys.maybe("attention_chunk_size")
    return layer.keys.maybe("sliding_window") if layer.kind in SLIDING else None


def attention(caches: CacheList, layer: Layer) -> None:
    caches.add(per_token=layer.sizes.keys + layer.sizes.values, window=window_of(layer))


def mla(caches: CacheList, layer: Layer, *, copies: int = 1) -> None:
    """The latent and its rotary part (DeepSeek-V2, arXiv 2405.04434); `copies` of V3.2's small keys that choose which
    tokens are looked at.
    """
    keys, types = layer.keys, layer.keys.items("indexer_types")
    per_token = keys.whole("kv_lora_rank") + keys.whole("qk_rope_head_dim", default=0)
    is_shared = layer.number < len(types) and types[layer.number] != "full"
    if keys.maybe("index_n_heads") and layer.kind not in SLIDING and not is_shared:
        per_token += copies * (keys.maybe("index_head_dim") or 0)
    caches.add(per_token=per_token, window=window_of(layer))


def by_keys(caches: CacheList, layer: Layer) -> None:
    """The state of a layer of an unknown family, by the sizes that its config has, or keys and values."""
    keys, state = layer.keys, "attention"
    if keys.maybe("linear_num_key_heads", "linear_num_heads") or (
        keys.maybe("short_conv_kernel_size") and keys.maybe("linear_head_dim")
    ):
        state = "delta"
    elif keys.maybe("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"):
        state = "mamba2"
    elif keys.maybe("mamba_d_state", "state_size"):
        state = "mamba1"
    elif keys.maybe("lru_width"):
        state = "rg_lru"
    elif keys.maybe("conv_L_cache"):
        state = "short_conv"
    try:
        keep(caches, layer, state)
    except DamagedError:
        attention(caches, layer)


def longcat(caches: CacheList, keys: Keys) -> None:
    """LongCat-Flash (arXiv 2509.01322): two attentions a layer."""
    layer = Layer(keys=keys, sizes=sizes_of(keys), number=0, kind=FULL)
    for number in range(2 * layer_count(keys, "num_layers")):
        mla(caches, msgspec.structs.replace(layer, number=number))


twice_mla = partial(mla, copies=2)


class _Names:
    """A config's keys by any of their names, for expressions (`shapes.known.evaluate`), after what is worked out."""

    def __init__(self, keys: Keys, **own: Any) -> None:  # noqa: ANN401 - what expressions hold
        self.keys, self.own = keys, own

    def value(self, name: str) -> Any:  # noqa: ANN401 - as above
        if name in self.own:
            return self.own[name]
        if name == "count":
            return layer_count(self.keys)
        value = self.keys.values.get(name)
        odd = isinstance(value, (bool, list)) or (isinstance(value, float) and not value.is_integer())
        return value if odd else self.keys.maybe(name)


def keep(caches: CacheList, layer: Layer, name: str) -> None:
    """Add what a layer keeps, by its name in `caches.json`: one set of expressions, or several; later ones know
    the values of those before.
    """
    keys, sizes, kind = layer.keys, layer.sizes, layer.kind
    names = _Names(
        keys, hidden=sizes.hidden, heads=sizes.heads, kv_heads=sizes.kv_heads, width=sizes.head_dim, kind=kind,
        value_dim=sizes.value_dim, number=layer.number, window=window_of(layer), slides=kind in SLIDING,
    )  # fmt: skip
    todo: list[Any] = [name]
    while todo:
        formulas = todo.pop(0)
        if formulas == "attention":
            attention(caches, layer)
        elif isinstance(formulas, str):
            known = CACHES[formulas]
            todo = [*(known if isinstance(known, list) else [known]), *todo]
        else:
            texts = {key: text for key, text in formulas.items() if key != "about"}
            for key, text in texts.items():
                names.own[key] = evaluate(text, names)
            caches.add(**{key: names.own[key] for key in texts if key in KEPT})


def work_out(keys: Keys, formulas: dict[str, str]) -> Keys:
    names = _Names(keys)
    return keys.changed(**{key: evaluate(text, names) for key, text in formulas.items()})


# Of a head in Gemma 4's layers that look back all the way, where a config does not say it.
GEMMA4_HEAD = 512
NEMOTRON_KINDS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def falcon_is_parallel(keys: Keys) -> bool:
    """Return whether attention and MLP read the same input."""
    return keys.flag("new_decoder_architecture") or keys.flag("parallel_attn", default=True)


def falcon_norms(keys: Keys) -> int:
    usual = 2 if keys.flag("new_decoder_architecture") else 1
    return keys.whole("num_ln_in_parallel_attn", default=usual) if falcon_is_parallel(keys) else 2


def falcon_keys(keys: Keys) -> Keys:
    """One head of keys and values for all, unless the config says otherwise; later ones say how many."""
    heads = keys.whole("num_attention_heads")
    shared = keys.flag("multi_query", default=True) and not keys.flag("new_decoder_architecture")
    own = 1 if shared else heads
    if keys.flag("new_decoder_architecture"):
        own = keys.whole("num_kv_heads", default=heads)
    width = keys.whole("ffn_hidden_size", default=4 * keys.whole("hidden_size"))
    return keys.changed(
        num_key_value_heads=own, multi_query=False, intermediate_size=width, norms_in_layer=falcon_norms(keys)
    )


def step_keys(keys: Keys) -> Keys:
    """One expert for all tokens, of a width of its own, and experts under another name; heads of sliding layers and
    layers with experts as its first files have them.
    """
    changed: dict[str, object] = {
        "num_experts": keys.whole("n_routed_experts", "num_experts"),
        "shared_expert_intermediate_size": keys.maybe("share_expert_dim"),
    }
    sparse = keys.values.get("moe_layers_enum")
    count = layer_count(keys)
    if isinstance(sparse, str) and not keys.items("mlp_layer_types"):
        numbers = {one.strip() for one in sparse.split(",")}
        changed["mlp_layer_types"] = ["sparse" if str(number) in numbers else "dense" for number in range(count)]
    other = keys.table("attention_other_setting").maybe("num_attention_heads")
    if other and not keys.has("per_layer_config"):
        kinds = keys.items("layer_types")[:count]
        slides = {str(number): {"num_attention_heads": other} for number, kind in enumerate(kinds) if kind in SLIDING}
        changed["per_layer_config"] = slides
    return _by_layer(keys.changed(**changed), "num_attention_heads")


def _by_layer(keys: Keys, *names: str) -> Keys:
    """Sizes that a layer may have its own of, as lists."""
    count = layer_count(keys)
    layers = [own_keys(keys, number, count) for number in range(count)]
    return keys.changed(**{f"{name}_of_layers": [layer.maybe(name) for layer in layers] for name in names})


def dots3_keys(keys: Keys) -> Keys:
    return _by_layer(keys, "num_attention_heads", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "v_head_dim")


def lfm2_keys(keys: Keys) -> Keys:
    """The MLP's width under its older name, and the layers that attend by number."""
    changed: dict[str, object] = {"intermediate_size": keys.whole("block_ff_dim", "intermediate_size")}
    attends = keys.items("full_attn_idxs")
    if attends and not keys.items("layer_types"):
        changed["layer_types"] = [FULL if number in attends else "conv" for number in range(layer_count(keys))]
    return keys.changed(**changed)


def hunyuan_keys(keys: Keys) -> Keys:
    """Numbers of experts as a list, one for each layer, all alike; one expert is for all tokens."""
    changed: dict[str, object] = {"n_shared_experts": 1}
    for name, listed in (("num_experts", "num_experts"), ("num_experts_per_tok", "moe_topk")):
        items = keys.items(listed)
        if items:
            changed[name] = items[0]
    return keys.changed(**changed)


def laguna_keys(keys: Keys) -> Keys:
    """Read the gate as there or not: public files name it by text too."""
    return keys.changed(gating=keys.has("gating"))


def llama4_keys(keys: Keys) -> Keys:
    """One expert for all tokens; every fourth layer looks back all the way where nothing is listed."""
    count = layer_count(keys)
    changed: dict[str, object] = {"n_shared_experts": 1}
    if len(keys.items("layer_types")) != count:
        rope = keys.items("no_rope_layers") or [int((number + 1) % 4 != 0) for number in range(count)]
        changed["layer_types"] = ["chunked_attention" if turned else FULL for turned in rope]
    return keys.changed(**changed)


def nemotron_keys(keys: Keys) -> Keys:
    """Kinds of layers by a letter each, as its public files have them."""
    letters = keys.text("hybrid_override_pattern")
    if not letters or keys.items("layers_block_type"):
        return keys
    return keys.changed(
        layers_block_type=[NEMOTRON_KINDS.get(letter, FULL) for letter in letters], num_hidden_layers=len(letters)
    )


def gemma4_keys(keys: Keys) -> Keys:
    """The sizes of layers that look back all the way, which public files name by keys of their own.

    `Gemma4TextConfig.__post_init__` makes `per_layer_config` of them (transformers 5.23), which it then writes.
    """
    kinds = keys.items("layer_types")
    if kinds and not keys.has("per_layer_config"):
        own: dict[str, object] = {"head_dim": keys.whole("global_head_dim", default=GEMMA4_HEAD)}
        heads = keys.maybe("num_global_key_value_heads")
        if heads and keys.flag("attention_k_eq_v", default=True):
            own["num_key_value_heads"] = heads
        kinds = [*kinds[:-1], FULL]
        full = {str(number): own for number, kind in enumerate(kinds) if kind == FULL}
        keys = keys.changed(per_layer_config=full, layer_types=kinds)
    return _by_layer(keys, "head_dim", "num_key_value_heads")


def kimi_keys(keys: Keys) -> Keys:
    """Sizes and kinds of layers in a table of their own, counted from 1, as its public files have them."""
    own, count = keys.table("linear_attn_config"), layer_count(keys)
    sizes = {"linear_head_dim": "head_dim", "linear_num_heads": "num_heads"}
    sizes["linear_conv_kernel_dim"] = "short_conv_kernel_size"
    changed: dict[str, object] = {name: size for name, key in sizes.items() if (size := own.maybe(key))}
    if not keys.items("layer_types"):
        attends = own.items("full_attn_layers") or list(range(5, count + 1, 4))
        changed["layer_types"] = [FULL if number in attends else LINEAR for number in range(1, count + 1)]
    if not keys.items("mlp_layer_types"):
        changed["first_k_dense_replace"] = keys.whole("first_k_dense_replace", default=1)
    return keys.changed(**changed)


def minimax_m3_keys(keys: Keys) -> Keys:
    """Layers that choose which blocks of tokens they look at are marked in a table of their own in its public files."""
    own, changed = keys.table("sparse_attention_config"), dict[str, object]()
    if (marks := own.items("sparse_attention_freq")) and not keys.items("layer_types"):
        changed["layer_types"] = [SPARSE if mark else FULL for mark in marks]
    if (sparse := keys.items("moe_layer_freq")) and not keys.items("mlp_layer_types"):
        changed["mlp_layer_types"] = ["sparse" if has_experts else "dense" for has_experts in sparse]
    sizes = {"index_head_dim": own.maybe("sparse_index_dim"), "index_n_heads": own.maybe("sparse_num_index_heads")}
    return keys.changed(**changed, **{name: size for name, size in sizes.items() if size})


def deepseek_v4_keys(keys: Keys) -> Keys:
    """Kinds of layers by how much they compress; the first layers choose experts only by the word."""
    count, ratios = layer_count(keys), keys.items("compress_ratios")
    changed: dict[str, object] = {}
    if not keys.items("layer_types"):
        names = {rate: name for name, rate in COMPRESSED.items()}
        heavy, sparse = names[128], names[4]
        usual = [sparse if number > 2 and number % 2 else heavy for number in range(count)]
        listed = [names.get(ratio, SLIDES) for ratio in ratios]
        changed["layer_types"] = listed[:count] if len(listed) >= count else usual
    first, listed = keys.whole("num_hash_layers", default=3), keys.items("mlp_layer_types")
    usual = [] if listed else ["hash_moe"] * min(first, count)
    changed["mlp_layer_types"] = [*listed, *usual, *["moe"] * count][:count]
    rates = keys.table("compress_rates")
    for key, name in (("sparse_rate", "compressed_sparse_attention"), ("heavy_rate", "heavily_compressed_attention")):
        changed[key] = rates.whole(name, default=COMPRESSED[name])
    return keys.changed(**changed)


def deci_keys(keys: Keys) -> Keys:
    """Blocks of Llamas whose layers were searched one by one, as lists: heads of keys and values (0: the block does not
    attend, -1: it has a linear layer instead) and the MLP's width (two thirds of a multiple, rounded up to 256). The
    sizes of the model are those of most blocks.
    """
    heads, hidden = keys.whole("num_attention_heads"), keys.whole("hidden_size")
    kv_heads, widths, norms, linear = [], [], [], []
    for listed in keys.items("block_configs")[: layer_count(keys)]:
        block = Keys(listed if isinstance(listed, dict) else {})
        attends, ffn = block.table("attention"), block.table("ffn")
        shared = attends.maybe("n_heads_in_group")
        kv_heads.append(heads // shared if shared else 0)
        is_linear, width = ffn.flag("replace_with_linear"), int(2 * ffn.number("ffn_mult", 0) * hidden / 3)
        widths.append(0 if ffn.flag("no_op") or is_linear else -(-width // 256) * 256)
        linear.append((not shared and attends.flag("replace_with_linear")) + is_linear)
        norms.append((not attends.flag("no_op")) + (not ffn.flag("no_op")))
    missing = [0] * (layer_count(keys) - len(widths))
    return keys.changed(
        kv_heads_of_blocks=kv_heads + missing, widths_of_blocks=widths + missing, norms_of_blocks=norms + missing,
        linear_of_blocks=linear + missing, num_key_value_heads=max(kv_heads, default=0) or heads,
        intermediate_size=max(widths, default=0) or None,
    )  # fmt: skip


Truth = bool | str | tuple[str, bool]
Keeps = Callable[[CacheList, Layer], None]
Operators = Callable[[Keys], Table | None]


class Family(msgspec.Struct, frozen=True, kw_only=True):
    """Facts of every model of a family. A truth is fixed, or a key of the config with its value if it is absent.

    Attributes:
        norm: style of its norms, as `[model]` has it; `norms` of them over the stream in each layer.
        qk_norm: norms on queries and keys.
        bias: biases of the projections to queries, keys and values.
        output_bias: bias of the attention's output projection; as `bias` when None.
        mlp_bias: biases in the MLP; `gated` for a gate and an up projection.
        tied: the output layer is the embedding if the config does not say; `head_bias` for its bias.
        positions: the key with the number of learned positions, and how many rows more there are.
        mla: keys and values are compressed together.
        expert_width: the key with an expert's width, if it is not the usual one; `sparse` for the layers with
            experts, and `shared` for experts for all tokens.
        prepare: the config with the keys that transformers reads, made of those that public files have.
        widths: the config with sizes that its code works out, which the generated shapes know.
        kinds: kinds of the layers, if the usual keys do not list them.
        attention: the caches of layers that attend; `mixers` those of layers of other kinds.
        keeps: the caches of all layers, if they are not layer by layer.
        has_expert_biases: numbers that balance the load of experts, which are no parameters but in the file.
        operators: adds to `[model]`, if every operator is followed.
    """

    norm: str = "rmsnorm"
    norms: int = 2
    qk_norm: Truth = False
    bias: Truth = ("attention_bias", False)
    output_bias: Truth | None = None
    mlp_bias: Truth = ("mlp_bias", False)
    gated: bool = True
    tied: bool = False
    head_bias: Truth = False
    positions: tuple[str, int] | None = None
    mla: bool = False
    expert_width: str = ""
    sparse: Callable[[Keys, int], bool] | None = None
    shared: bool = True
    prepare: Callable[[Keys], Keys] | None = None
    widths: Callable[[Keys], Keys] | None = None
    kinds: Callable[[Keys, int], list[str]] = kinds_of
    attention: Keeps = attention
    mixers: dict[str, Keeps] = {}
    keeps: Callable[[CacheList, Keys], None] | None = None
    has_expert_biases: bool = False
    operators: Operators | None = None


def truth(keys: Keys, what: Truth) -> bool:
    if isinstance(what, bool):
        return what
    name, default = (what, False) if isinstance(what, str) else what
    return keys.flag(name, default)


def guess_family(keys: Keys) -> Family:
    """The family that the config's own keys speak for."""
    names = keys.values.keys()
    layer_norm = not any("rms" in name for name in names) and any("layer_norm" in name for name in names)
    old = layer_norm or any(name in names for name in ("n_embd", "n_layer", "ffn_dim", "dff"))
    acts = " ".join(str(keys.values.get(name, "")) for name in ("hidden_act", "hidden_activation", "activation"))
    bias = next((name for name in ("attention_bias", "qkv_bias", "use_qkv_bias", "use_bias") if name in names), None)
    latent = all(keys.maybe(name) for name in ("kv_lora_rank", "qk_nope_head_dim", "v_head_dim"))
    return Family(
        norm="layernorm" if old else "rmsnorm",
        gated=not old or any(act in acts for act in ("silu", "swish", "swiglu", "geglu", "gelu_pytorch_tanh")),
        bias=(bias, False) if bias else old,
        output_bias=None if bias in {None, "attention_bias", "use_bias"} else False,
        mlp_bias=old,
        qk_norm=any(keys.flag(name) for name in ("use_qk_norm", "qk_norm", "qk_layernorm")),
        tied=keys.flag("tie_word_embeddings"),
        mla=latent,
        attention=mla if latent else attention,
        mixers=dict.fromkeys((LINEAR, "conv", "hybrid_linear"), by_keys),
    )


def qwen_kinds(keys: Keys, count: int) -> list[str]:
    """Return the layers as listed, else those from `max_window_layers` on slide, if any do."""
    listed = keys.items("layer_types")
    if len(listed) >= count:
        return list(map(str, listed[:count]))
    first = keys.whole("max_window_layers", default=28) if keys.flag("use_sliding_window") else count
    return [FULL if number < first else SLIDES for number in range(count)]


def operators_of(
    act: str = "silu",
    key: str = "hidden_act",
    *,
    hidden: str = "",
    attention: str = "attention_dropout",
    dropout: float = 0.0,
    **fixed: object,
) -> Callable[[Keys], Table]:
    """Operators with an activation and dropouts, by a config's keys and their defaults, and with fixed values."""
    return lambda keys: {
        "hidden_act": activation(keys.text(key, act)),
        **dropout_of(keys, hidden, attention, dropout),
        **fixed,
    }


def gemma(keys: Keys) -> Table:
    """The older key of its activation meant the approximate one."""
    act = keys.text("hidden_activation") or keys.text("hidden_act", "gelu_pytorch_tanh")
    return LLAMA(keys) | {"hidden_act": "gelu_pytorch_tanh" if act == "gelu" else activation(act)}


def gemma2(keys: Keys) -> Table:
    """Logits and scores are capped."""
    caps = (("final_logit_softcapping", 30.0), ("attn_logit_softcapping", 50.0))
    return gemma(keys) | {name: keys.number(name, usual) for name, usual in caps}


def deepseek(keys: Keys) -> Table:
    """Experts for all tokens are counted by their number."""
    counts = {name: keys.maybe(name) for name in ("num_key_value_heads", "n_shared_experts")}
    return LLAMA(keys) | {"head_dim": None, "shared_expert_intermediate_size": None, **counts}


def deepseek_v3(keys: Keys) -> Table:
    return deepseek(keys) | {"router_bias": True}


def gpt_neox(keys: Keys) -> Table:
    own = operators_of("gelu", hidden="hidden_dropout", fused_qkv=True)(keys)
    return own | {"parallel_residual": keys.flag("use_parallel_residual", default=True)}


def falcon(keys: Keys) -> Table | None:
    """Falcon: shared heads are repeated for torch only in the later architecture."""
    if keys.flag("alibi"):
        return None
    later, shared = keys.flag("new_decoder_architecture"), keys.flag("multi_query", default=True)
    return operators_of("gelu", "activation", hidden="hidden_dropout", fused_qkv=True)(keys) | {
        "enable_gqa": later or not shared,
        "norms_per_layer": falcon_norms(keys),
        "parallel_residual": falcon_is_parallel(keys),
    }


def opt(keys: Keys) -> Table | None:
    """OPT has two rows of positions more than there are positions. OPT-350m norms after each part."""
    hidden = keys.whole("hidden_size")
    if keys.whole("word_embed_proj_dim", default=hidden) != hidden or not keys.flag("do_layer_norm_before", True):
        return None
    rows, dropout = keys.whole("max_position_embeddings") + 2, keys.number("dropout", 0.1)
    return operators_of("relu", "activation_function")(keys) | {
        "max_position_embeddings": rows, "position": "learned", "hidden_dropout": dropout,
    }  # fmt: skip


LLAMA = operators_of()
CACHES: dict[str, Any] = msgspec.json.decode(Path(__file__).with_name("caches.json").read_bytes())
KEPT = {"per_token", "window", "state", "state_fp32", "layers"}


def _mixer(name: str) -> Callable[..., None]:
    """A function here by its name, or one that adds an entry of `caches.json`."""
    return globals()[name] if name in globals() else partial(keep, name=name)


def _read() -> dict[str, Family]:
    """The families of `families.json` by type, one a line: facts by the names of fields, `types` that share them, and
    functions by their names. Text that begins with `=` is an expression; operators without a function of their own are
    the arguments of `operators_of`.
    """
    named, families = globals(), dict[str, Family]()
    for row in msgspec.json.decode(Path(__file__).with_name("families.json").read_bytes()):
        types, facts = row.pop("types").split(), dict[str, Any]()
        facts["attention"] = _mixer(row.pop("attention", "mla" if row.get("mla") else "attention"))
        for key, value in row.items():
            text = value[1:] if isinstance(value, str) and value.startswith("=") else ""
            if key == "mixers":
                facts[key] = {kind: _mixer(name) for kind, name in value.items()}
            elif key == "operators":
                facts[key] = named[value] if isinstance(value, str) else operators_of(**value)
            elif key == "keeps":
                facts[key] = named[value] if value in named else partial(_of_model, name=value)
            elif key == "kinds" and text:
                facts[key] = lambda keys, count, text=text: evaluate(text, _Names(keys, count=count))
            elif key == "sparse":
                facts[key] = lambda keys, _number, text=text: bool(evaluate(text, _Names(keys)))
            elif key in {"prepare", "widths"} and isinstance(value, dict):
                facts[key] = partial(work_out, formulas=value)
            elif key in {"prepare", "widths", "kinds"}:
                facts[key] = named[value]
            else:
                facts[key] = tuple(value) if isinstance(value, list) else value
        families |= dict.fromkeys(types, Family(**facts))
    return families


def _of_model(caches: CacheList, keys: Keys, name: str) -> None:
    keep(caches, Layer(keys=keys, sizes=sizes_of(keys), number=0, kind=FULL), name)


FAMILIES = _read()

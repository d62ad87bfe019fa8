"""Keys as public files of a family have them, put as its code reads them: what transformers changes while it reads."""

from vramtui.models.families.caches import COMPRESSED, FULL, LINEAR, SLIDES, SLIDING, SPARSE, own_keys
from vramtui.models.families.keys import FFN, Keys, layer_count

# Of a head in Gemma 4's layers that look back all the way, where a config does not say it.
GEMMA4_HEAD = 512
NEMOTRON_KINDS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def half_ffn(keys: Keys) -> Keys:
    """Gate and up are half of the width that the config gives."""
    return keys.changed(intermediate_size=keys.whole(*FFN) // 2)


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


def mamba_keys(keys: Keys) -> Keys:
    """The inner width, a multiple if the config does not say it."""
    inner = keys.maybe("intermediate_size") or keys.whole("expand", default=2) * keys.whole("hidden_size")
    return keys.changed(inner_size=inner)


def zamba2_keys(keys: Keys) -> Keys:
    hidden, heads = keys.whole("hidden_size"), max(1, keys.whole("num_attention_heads", default=1))
    inner = keys.whole("mamba_expand", default=2) * hidden
    return keys.changed(
        mamba_headdim=keys.maybe("mamba_headdim") or inner // max(1, keys.whole("n_mamba_heads", default=1)),
        shared_head_dim=keys.maybe("attention_head_dim") or 2 * hidden // heads,
    )


def lfm2_keys(keys: Keys) -> Keys:
    """The MLP's width under its older name, and the layers that attend by number."""
    changed: dict[str, object] = {"intermediate_size": keys.whole("block_ff_dim", "intermediate_size")}
    attends = keys.items("full_attn_idxs")
    if attends and not keys.items("layer_types"):
        changed["layer_types"] = [FULL if number in attends else "conv" for number in range(layer_count(keys))]
    return keys.changed(**changed)


def lfm2_width(keys: Keys) -> Keys:
    """Two thirds of the MLP's width, rounded up to a multiple."""
    if not keys.flag("block_auto_adjust_ff_dim", default=True):
        return keys
    width = int(2 * keys.whole("intermediate_size") / 3 * keys.number("block_ffn_dim_multiplier", 1.0))
    step = keys.whole("block_multiple_of", default=256)
    return keys.changed(intermediate_size=-(-width // step) * step)


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


def mpt_width(keys: Keys) -> Keys:
    return keys.changed(intermediate_size=keys.whole("expansion_ratio", default=4) * keys.whole("d_model"))


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

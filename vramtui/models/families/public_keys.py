"""Keys as public files of a family have them, put as its code reads them: what transformers changes while it reads."""

from vramtui.models.families.attention import COMPRESSED, SLIDING
from vramtui.models.families.keys import FFN, Keys, layer_count

FULL, LINEAR, SLIDES, SPARSE = "full_attention", "linear_attention", "sliding_attention", "minimax_m3_sparse"
# Of a head in Gemma 4's layers that look back all the way, where a config does not say it.
GEMMA4_HEAD = 512
NEMOTRON_KINDS = {"M": LINEAR, "E": "moe", "*": FULL, "-": "mlp"}


def half_ffn(keys: Keys) -> Keys:
    """Gate and up are half of the width that the config gives."""
    return keys.changed(intermediate_size=keys.whole(*FFN) // 2)


def falcon_keys(keys: Keys) -> Keys:
    """One head of keys and values for all, unless the config says otherwise; later ones say how many."""
    heads = keys.whole("num_attention_heads")
    shared = keys.flag("multi_query", default=True) and not keys.flag("new_decoder_architecture")
    own = 1 if shared else heads
    if keys.flag("new_decoder_architecture"):
        own = keys.whole("num_kv_heads", default=heads)
    width = keys.whole("ffn_hidden_size", default=4 * keys.whole("hidden_size"))
    return keys.changed(num_key_value_heads=own, multi_query=False, intermediate_size=width)


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
        own = {"num_attention_heads": other}
        slides = (number for number, kind in enumerate(keys.items("layer_types")[:count]) if kind in SLIDING)
        changed["per_layer_config"] = {str(number): own for number in slides}
    return keys.changed(**changed)


def lfm2_width(keys: Keys) -> Keys:
    """Two thirds of the width, rounded up to a multiple."""
    width = keys.whole("block_ff_dim", "intermediate_size")
    if keys.flag("block_auto_adjust_ff_dim", default=True):
        width = int(2 * width / 3 * keys.number("block_ffn_dim_multiplier", 1.0))
        step = keys.whole("block_multiple_of", default=256)
        width = -(-width // step) * step
    changed = keys.changed(intermediate_size=width)
    if keys.items("layer_types") or not keys.items("full_attn_idxs"):
        return changed
    attends = keys.items("full_attn_idxs")
    return changed.changed(layer_types=[FULL if n in attends else "conv" for n in range(layer_count(keys))])


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


def mpt_keys(keys: Keys) -> Keys:
    """The MLP's width as a multiple."""
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
    if keys.has("per_layer_config") or not kinds:
        return keys
    own: dict[str, object] = {"head_dim": keys.whole("global_head_dim", default=GEMMA4_HEAD)}
    heads = keys.maybe("num_global_key_value_heads")
    if heads and keys.flag("attention_k_eq_v", default=True):
        own["num_key_value_heads"] = heads
    last = len(kinds) - 1
    full = [number for number, kind in enumerate(kinds) if kind == FULL or number == last]
    listed = [FULL if number == last else kind for number, kind in enumerate(kinds)]
    return keys.changed(per_layer_config={str(number): own for number in full}, layer_types=listed)


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
    marks = keys.table("sparse_attention_config").items("sparse_attention_freq")
    if keys.items("layer_types") or not marks:
        return keys
    return keys.changed(layer_types=[SPARSE if mark else FULL for mark in marks])


def deepseek_v4_keys(keys: Keys) -> Keys:
    """Kinds of layers by how much they compress; the first layers choose experts by the word alone."""
    count, ratios = layer_count(keys), keys.items("compress_ratios")
    changed: dict[str, object] = {}
    if not keys.items("layer_types"):
        names = {rate: name for name, rate in COMPRESSED.items()}
        heavy, sparse = names[128], names[4]
        usual = [sparse if number > 2 and number % 2 else heavy for number in range(count)]
        listed = [names.get(ratio, SLIDES) for ratio in ratios]
        changed["layer_types"] = listed[:count] if len(listed) >= count else usual
    if not keys.items("mlp_layer_types"):
        first = keys.whole("num_hash_layers", default=3)
        changed["mlp_layer_types"] = ["hash_moe" if number < first else "moe" for number in range(count)]
    return keys.changed(**changed)


def deci_keys(keys: Keys) -> Keys:
    """Sizes as most of its blocks have them, of Llamas whose layers were searched one by one."""
    heads, hidden = keys.whole("num_attention_heads"), keys.whole("hidden_size")
    blocks = [Keys(block) for block in keys.items("block_configs") if isinstance(block, dict)]
    shared = [groups for block in blocks if (groups := block.table("attention").maybe("n_heads_in_group"))]
    widths = [deci_width(block, hidden) for block in blocks]
    return keys.changed(
        num_key_value_heads=heads // max(1, min(shared, default=1)), intermediate_size=max(widths, default=0) or None
    )


def deci_width(block: Keys, hidden: int) -> int:
    """Width of a block's MLP: two thirds of a multiple, rounded up to 256; 0 where there is none."""
    width = int(2 * block.table("ffn").number("ffn_mult", 0) * hidden / 3)
    return -(-width // 256) * 256

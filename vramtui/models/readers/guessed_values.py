"""What a config says that cannot be taken at its word, and what is taken instead: told where its figures are."""

from collections.abc import Iterator

from vramtui.core.base.late import late
from vramtui.core.base.text import printable, shortened
from vramtui.models.readers.fields import Fields

parts_by_default = late("vramtui.models.shapes.full_config:parts_by_default")  # most configs need none of the defaults

# transformers 5.23, configuration_utils.py: ALLOWED_LAYER_TYPES and _LEGACY_LAYER_TYPE_REMAP; then what public configs
# with code of their own say.
KINDS_OF_LAYERS = frozenset(
    {
        "full_attention", "sliding_attention", "chunked_attention", "window_attention", "indexed_attention",
        "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse", "conv", "moe", "hybrid",
        "hybrid_sliding", "reference_sliding_attention", "linear_attention", "sparse", "dense", "mamba", "attention",
        "deepseek_sparse_attention", "qwen_sparse_attention",
        "global", "local", "sliding", "mamba2", "recurrent", "mlp", "hash_moe",
    }
)  # fmt: skip
LARGEST_GROUP = 1 << 16


def guessed_values(config: Fields, how: Fields, precision: str | None, layers: int) -> Iterator[str]:
    """A sentence's part for each: `torch_dtype 'float3' is no type of numbers: bf16 is taken`.

    Args:
        config: the whole of it.
        how: its quantization_config.
        precision: what its type of numbers was read as.
        layers: of the model that was read.
    """
    stored = next((config.values[key] for key in ("dtype", "torch_dtype") if config.values.get(key) is not None), None)
    if stored is not None and stored != "auto" and precision is None:
        yield f"torch_dtype {_short_text(stored)} is no type of numbers that is known: bf16 is taken"
    group = how.values.get("group_size")
    if group is not None and not (group == -1 or (isinstance(group, int) and 0 < group <= LARGEST_GROUP)):
        yield f"group_size {_short_text(group)} is no size of a group: 128 is taken"
    blocks = how.values.get("weight_block_size")
    if isinstance(blocks, list) and not all(isinstance(size, int) and size > 0 for size in blocks):
        yield f"weight_block_size {_short_text(blocks)} is no block: [128, 128] is taken"
    if how.has("load_in_4bit") and how.has("load_in_8bit"):
        yield "load_in_4bit and load_in_8bit are both set: 4 bits are taken"
    kinds = config.values.get("layer_types")
    if isinstance(kinds, list) and kinds:
        if layers and len(kinds) != layers:
            yield f"layer_types has {len(kinds):,} names for {layers:,} layers"
        odd = next((kind for kind in kinds if not isinstance(kind, str) or kind not in KINDS_OF_LAYERS), None)
        if odd is not None:
            yield f"layer_types names {_short_text(odd)}, which is not known: full attention is taken"
    for part in parts_by_default(config.values):
        yield f"it has no {part}: that of transformers' defaults is counted"


def _short_text(value: object) -> str:
    return printable(shortened(repr(value), 60))

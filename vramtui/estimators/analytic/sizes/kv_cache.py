"""What one token leaves in a KV cache: by kind of layer, and in the type that the cache is kept in."""

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.stored_tensors import LayerCache
from vramtui.core.schema.workload import CacheType, Precision
from vramtui.estimators.analytic.sizes.precision import DTYPE_BYTES
from vramtui.models.specs.decoder import attention_of, decoder_spec

# Bits of one number. Caches in whole numbers keep a 16-bit scale for each 32 (llama.cpp's q8_0 and q4_0), or scale and
# shift for each 64 (transformers' quanto caches): half a bit either way.
CACHE_BITS: dict[str, float] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8.5, "int4": 4.5}


def cache_bits(cache: CacheType | None, precision: Precision) -> float:
    """Bits of one number in the cache: of its own type, or else of the precision's."""
    return CACHE_BITS[cache] if cache else 8 * DTYPE_BYTES[precision]


def bytes_per_token(model: TransformerModel, bits: float) -> int:
    """Bytes that every layer together keeps of one token, before any window closes."""
    return int(sum(kind.layers * kind.per_token for kind in decoder_spec(model).caches()) * bits / 8)


def cache_bytes(kinds: tuple[LayerCache, ...], tokens: int, bits: float) -> int:
    """Bytes of one sequence of `tokens` tokens in all of these layers."""
    return sum(
        kind.layers * (int(kind.cached(tokens) * kind.per_token * bits / 8) + state_bytes(kind, 2)) for kind in kinds
    )


def state_bytes(kind: LayerCache, itemsize: int) -> int:
    """Bytes of what one layer keeps of a whole sequence, at `itemsize` bytes a number."""
    return kind.state * itemsize + kind.state_fp32 * 4


def shape_words(model: TransformerModel, kind: LayerCache | None = None) -> str:
    """What one layer (of `kind`) keeps of a token, as one would write it down."""
    if model.caches and kind is not None:
        return f"{kind.per_token:,}"
    return attention_of(model).cache_words()


def cache_source(model: TransformerModel) -> str:
    """Where the formula comes from."""
    return attention_of(model).cache_source

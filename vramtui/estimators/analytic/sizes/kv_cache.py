"""What one token leaves in a KV cache: by kind of layer, and in the type that the cache is kept in."""

import msgspec

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import CacheType, Precision
from vramtui.estimators.analytic.sizes.precision import DTYPE_BYTES

SOURCE = "Shazeer 2019 (arXiv 1911.02150); Ainslie et al. 2023 (arXiv 2305.13245)"
LATENT_SOURCE = "DeepSeek-V2 (arXiv 2405.04434), section 2.1: keys and values compressed together"
# Bits of one number. Caches in whole numbers keep a 16-bit scale for each 32 (llama.cpp's q8_0 and q4_0), or scale and
# shift for each 64 (transformers' quanto caches): half a bit either way.
CACHE_BITS: dict[str, float] = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8, "int8": 8.5, "int4": 4.5}


class CacheLayers(msgspec.Struct, frozen=True):
    """`count` layers alike, each keeping `numbers` for a token, of the last `window` tokens or of all.

    Beside them a layer may keep `state` numbers of a whole sequence, and `state_fp32` in fp32.
    """

    count: int
    numbers: int
    window: int | None = None
    state: int = 0
    state_fp32: int = 0

    def cached(self, tokens: int) -> int:
        """Of `tokens` tokens those that stay in the cache."""
        return tokens if self.window is None else min(tokens, self.window)


def cache_bits(cache: CacheType | None, precision: Precision) -> float:
    """Bits of one number in the cache: of its own type, or else of the precision's."""
    return CACHE_BITS[cache] if cache else 8 * DTYPE_BYTES[precision]


def numbers_per_token(model: TransformerModel) -> int:
    """Numbers that one layer keeps of a token: a key and a value for each head, or MLA's latent and rotary part."""
    if model.kv_lora_rank is not None:
        return model.kv_lora_rank + (model.qk_rope_head_dim or 0)
    return 2 * model.kv_heads * model.head_size


def cache_layers(model: TransformerModel, first: int = 0, stop: int | None = None) -> tuple[CacheLayers, ...]:
    """The layers from `first` to before `stop` by what they keep, those that look back all the way first."""
    stop = model.num_hidden_layers if stop is None else stop
    if model.caches:
        return _listed(model, stop - first)
    pattern = model.sliding_window_pattern
    straight = stop - first if model.sliding_window is None else 0
    if model.sliding_window is not None and pattern is not None:
        straight = stop // pattern - first // pattern
    numbers = numbers_per_token(model)
    kinds = (CacheLayers(straight, numbers), CacheLayers(stop - first - straight, numbers, model.sliding_window))
    return tuple(kind for kind in kinds if kind.count)


def _listed(model: TransformerModel, layers: int) -> tuple[CacheLayers, ...]:
    """What so many layers keep, by the model's own list: of each kind their part, rounded up."""
    found = [
        CacheLayers(
            -(-kind.layers * layers // model.num_hidden_layers),
            kind.per_token,
            kind.window,
            kind.state,
            kind.state_fp32,
        )
        for kind in model.caches
    ]
    return tuple(sorted((kind for kind in found if kind.count), key=lambda kind: kind.window is not None))


def bytes_per_token(model: TransformerModel, bits: float) -> int:
    """Bytes that every layer together keeps of one token, before any window closes."""
    return int(sum(kind.count * kind.numbers for kind in cache_layers(model)) * bits / 8)


def cache_bytes(kinds: tuple[CacheLayers, ...], tokens: int, bits: float) -> int:
    """Bytes of one sequence of `tokens` tokens in all of these layers."""
    return sum(
        kind.count * (int(kind.cached(tokens) * kind.numbers * bits / 8) + state_bytes(kind, 2)) for kind in kinds
    )


def state_bytes(kind: CacheLayers, itemsize: int) -> int:
    """Bytes of what one layer keeps of a whole sequence, at `itemsize` bytes a number."""
    return kind.state * itemsize + kind.state_fp32 * 4


def shape_words(model: TransformerModel, kind: CacheLayers | None = None) -> str:
    """What one layer (of `kind`) keeps of a token, as one would write it down."""
    if model.caches and kind is not None:
        return f"{kind.numbers:,}"
    if model.kv_lora_rank is not None:
        return f"({model.kv_lora_rank} latent + {model.qk_rope_head_dim} rotary)"
    return f"2 x {model.kv_heads} heads x {model.head_size}"


def cache_source(model: TransformerModel) -> str:
    """Where the formula comes from."""
    return SOURCE if model.kv_lora_rank is None else LATENT_SOURCE

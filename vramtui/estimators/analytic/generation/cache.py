"""How generate() keeps keys and values: growing, made whole at once, or quantised."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.models import LayerCache, TransformerModel
from vramtui.core.schema.workload import InferRun
from vramtui.estimators.analytic.ops.decoder_builder import Cache
from vramtui.estimators.analytic.sizes.precision import CACHE_BITS, DTYPE_BYTES, state_bytes
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.models.specs.decoder import attention_of, shape_words

# The newest tokens of a quantised cache, which stay as they are until there are so many (transformers, QuantizedLayer).
RESIDUAL = 128


class GenerationCache(msgspec.Struct, frozen=True, kw_only=True):
    """A cache for `batch` sequences of `length` tokens in the end.

    Attributes:
        itemsize: bytes of a number, and of the newest where the others are quantised.
        bits: of a quantised number.
        fixed: whether the whole length is allocated at once.
        new: tokens after the prompt.
    """

    batch: int
    length: int
    itemsize: int
    bits: float | None = None
    fixed: bool = False
    new: int = 0

    def before(self, past: int, window: int | None) -> Cache:
        """The cache of one layer with `past` tokens behind it."""
        if self.fixed:
            whole = self.length if window is None else min(self.length, window)
            return Cache(past=past, itemsize=self.itemsize, fixed=whole)
        seen = past if window is None else min(past, window - 1)
        return Cache(past=seen, itemsize=self.itemsize, bits=self.bits)

    def layer(self, model: TransformerModel, kind: LayerCache, length: int) -> int:
        """Bytes that one layer of `kind` keeps of `length` tokens: keys and values, or MLA's latent and rotary part."""
        tokens, total = kind.cached(self.length if self.fixed else length), 0
        pair = (kind.per_token - kind.per_token // 2, kind.per_token // 2)
        for numbers in pair if model.caches else attention_of(model).cache_parts():
            numel = self.batch * numbers * tokens
            if self.bits is None:
                total += rounded(numel * self.itemsize)
                continue
            newest = self.batch * numbers * min(self.new, RESIDUAL - 1, tokens)
            total += rounded(-(-int((numel - newest) * self.bits) // 8)) + rounded(newest * self.itemsize)
        return total + rounded(self.batch * kind.state * self.itemsize) + rounded(self.batch * kind.state_fp32 * 4)

    def formula(self, model: TransformerModel, kinds: tuple[LayerCache, ...], prompt: int) -> str:
        """The arithmetic of the largest size: at the end, or right after the prompt if layers slide."""
        itemsize = f"{self.itemsize if self.bits is None else self.bits / 8:g} B"
        after_prompt = (
            not self.fixed
            and not model.caches
            and sum(kind.layers * kind.per_token * (prompt - kind.cached(self.length)) for kind in kinds) > 0
        )
        terms = [
            f"{kind.layers} layers x {self.batch} x {prompt if after_prompt else kind.cached(self.length):,} tokens x "
            f"{shape_words(model, kind)} x {itemsize}"
            for kind in kinds
            if kind.per_token
        ]
        terms += [
            f"{kind.layers} layers x {self.batch} x {state_bytes(kind, self.itemsize):,} B of state"
            for kind in kinds
            if kind.state or kind.state_fp32
        ]
        end = ", after the prompt: sliding layers drop older tokens with the next one" if after_prompt else ""
        return " + ".join(terms) + (", allocated for the whole length at once" if self.fixed else end)

    @property
    def growth(self) -> str:
        if self.bits is not None:
            return "one layer's keys or values unpacked, and once more with the new ones"
        return "one layer's keys or values again: torch.cat makes the longer ones before the old ones go"


def generation_cache(run: InferRun, compute: int, length: int, kinds: tuple[LayerCache, ...]) -> GenerationCache:
    """The cache that `run` asks for: `compute` bytes of a number, `length` tokens of a sequence in the end.

    Raises:
        UserError: a cache allocated at once cannot be quantised, nor can layers with a window or a state.
    """
    fixed = run.cache_implementation == "static"
    kind = run.kv_cache
    packed = kind is not None and kind not in DTYPE_BYTES
    if fixed and packed:
        raise UserError(f"run.kv_cache = {kind!r} is a cache that grows; leave run.cache_implementation = 'dynamic'")
    if packed and not can_be_quantized(kinds):
        raise UserError(
            f"run.kv_cache = {kind!r}: transformers quantises caches of full attention only, and this model has layers "
            "with a window or a state"
        )
    return GenerationCache(
        batch=run.batch_size,
        length=length,
        itemsize=compute if kind is None or packed else DTYPE_BYTES[kind],
        bits=CACHE_BITS[kind] if kind is not None and packed else None,
        fixed=fixed,
        new=max(run.new_tokens - 1, 0),
    )


def can_be_quantized(kinds: tuple[LayerCache, ...]) -> bool:
    """Return whether `QuantizedCache` takes such layers: full attention only (transformers 5.23, cache_utils.py)."""
    return not any(one.window is not None or one.state or one.state_fp32 for one in kinds)

"""A pool of keys and values that is cut by tokens, as SGLang has it."""

from typing import NamedTuple

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.serving.vllm_profiling import Profiled
from vramtui.estimators.analytic.serving.weights import ServedWeights
from vramtui.estimators.analytic.sizes.partition import Share, place_of
from vramtui.models.specs.decoder import decoder_spec

# Tokens that sliding layers have room for, of those that others have, and states of whole sequences beside keys and
# values: SGLang's own defaults (server_args.py, swa_full_tokens_ratio and mamba_full_memory_ratio).
SLIDING_TOKENS, STATES = 0.8, 0.9


class TokenPool(msgspec.Struct, frozen=True, kw_only=True):
    """What fits into `bytes`.

    Attributes:
        bytes: all of it, states of whole sequences with it.
        token: bytes of a token over all layers.
        tokens: that have room; 0 or less where nothing has.
        words: the arithmetic.
        notes: what else is to be said.
    """

    bytes: int
    token: int
    tokens: int
    words: str
    notes: tuple[str, ...] = ()

    def room(self, length: int, end: str) -> str:
        """How many sequences of `length` tokens it holds, as a sentence that ends with `end`."""
        return (
            f"room for {self.tokens:,} tokens of keys and values: {self.tokens / length:.2f} sequences of {length:,} "
            f"tokens {end}"
        )


class PooledRank(NamedTuple):
    """One rank's pieces; `left` bytes are free beside all but keys and values, where its engine looks at that."""

    share: Share
    weights: ServedWeights
    profiled: Profiled
    pool: TokenPool
    left: int = 0

    def place(self, ranks: int) -> tuple[str, ...]:
        """Which of several ranks it is, as a sentence."""
        if ranks == 1:
            return ()
        return (f"bytes of one card of {ranks}; the tightest: {place_of(self.share)}",)


def pool_of(share: Share, bits: float, room: int, page: int, *, part: float = SLIDING_TOKENS) -> TokenPool:
    """The pool of `share`'s layers in `room` bytes.

    Args:
        share: the layers of one rank.
        bits: to a number.
        room: bytes.
        page: tokens in a page.
        part: of the tokens that other layers have room for, those of layers that slide.
    """
    kinds = decoder_spec(share.model).caches(share.first, share.stop)
    straight = int(sum(kind.layers * kind.per_token for kind in kinds if kind.window is None) * bits / 8)
    sliding = int(sum(kind.layers * kind.per_token for kind in kinds if kind.window is not None) * bits / 8)
    state = int(sum(kind.layers * (kind.state * bits / 8 + 4 * kind.state_fp32) for kind in kinds))
    if not straight + sliding:
        raise UserError(
            "run.kind = 'serve': a model whose layers keep states alone has no pool of tokens; take run.kind = 'infer'"
        )
    notes: list[str] = []
    inside = room
    if state:
        inside = int(room / (1 + STATES))
        notes.append(f"states of whole sequences: {max(0, room - inside) // state:,} of {state:,} B each in the pool")
    each = straight + int(part * sliding) if straight and sliding else straight + sliding
    if straight and sliding and part < 1:
        notes.append(f"layers that slide have room for {part:g} of the tokens that the others have room for")
    tokens = inside // each // page * page
    words = f"{max(0, tokens):,} tokens x {each:,} B"
    return TokenPool(bytes=max(0, room), token=each, tokens=tokens, words=words, notes=tuple(notes))


def refuse_others(run: ServeRun, engine: str) -> None:
    """Refuse settings of other engines."""
    if run.gpu_layers is not None:
        raise UserError(f"run.gpu_layers is llama.cpp's; {engine} holds every layer on the card (run.engine)")
    if run.kv_cache in {"int8", "int4"}:
        raise UserError(f"run.kv_cache = {run.kv_cache!r}: {engine} keeps its cache in 16 bits or in fp8")

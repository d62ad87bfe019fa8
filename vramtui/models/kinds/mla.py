"""Multi-head latent attention: queries, keys and values through low ranks (DeepSeek-V2, arXiv 2405.04434).

Shapes: compressed queries (q, h) and back (n·(p+r), q), keys and values (c+r, h) and back (n·(p+v), c), output
(h, n·v); h hidden, n heads, q and c ranks, p and r a head's width without positions and with rotary ones, v of values.
"""

from typing import ClassVar

from vramtui.core.schema.bounds import Norm as NormStyle
from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.norm import NormModule
from vramtui.models.spec import Kind, Module


class MlaModule(Module, frozen=True, kw_only=True):
    """Latent attention; queries are not compressed where `q_rank` is None."""

    kind: ClassVar[Kind] = "mla"
    cache_source: ClassVar[str] = "DeepSeek-V2 (arXiv 2405.04434), section 2.1: keys and values compressed together"
    hidden: int
    heads: int
    q_rank: int | None
    kv_rank: int
    plain_dim: int
    rotary_dim: int
    value_dim: int
    bias: bool = False
    output_bias: bool = False
    norm: NormStyle = "rmsnorm"

    def parts(self) -> tuple[Module, ...]:
        """Projections down and up, and the norms between."""
        d, queries = self.hidden, self.heads * (self.plain_dim + self.rotary_dim)
        unpacked = self.heads * (self.plain_dim + self.value_dim)
        sizes = [("q_proj", queries, d, self.bias)]
        if self.q_rank:
            sizes = [("q_a_proj", self.q_rank, d, self.bias), ("q_b_proj", queries, self.q_rank, False)]
        sizes += [
            ("kv_a_proj_with_mqa", self.kv_rank + self.rotary_dim, d, self.bias),
            ("kv_b_proj", unpacked, self.kv_rank, False),
            ("o_proj", d, self.heads * self.value_dim, self.output_bias),
        ]
        ranks = (self.q_rank, self.kv_rank)
        return (
            *(
                LinearModule(name=name, out_features=rows, in_features=inner, bias=bias)
                for name, rows, inner, bias in sizes
            ),
            *(NormModule(name="a_norm", size=rank, style=self.norm) for rank in ranks if rank),
        )

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values once they are unpacked: as many as heads."""
        return self.heads

    @property
    def key_dim(self) -> int:
        """Width of a head of queries and keys."""
        return self.plain_dim + self.rotary_dim

    def cache_parts(self) -> tuple[int, int]:
        """The latent, and the keys' rotary part, which all heads share."""
        return self.kv_rank, self.rotary_dim

    def cache_words(self) -> str:
        """What a token takes in the cache, as one would write it down."""
        return f"({self.kv_rank} latent + {self.rotary_dim} rotary)"

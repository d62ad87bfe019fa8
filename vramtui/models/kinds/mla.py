"""Multi-head latent attention: queries, keys and values through low ranks (DeepSeek-V2, arXiv 2405.04434).

Shapes: compressed queries (q, h) and back (n·(p+r), q), keys and values (c+r, h) and back (n·(p+v), c), output
(h, n·v); h hidden, n heads, q and c ranks, p and r a head's width without positions and with rotary ones, v of values.
"""

from typing import ClassVar

from vramtui.core.schema.common_types import Norm as NormStyle
from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.norm import NormModule
from vramtui.models.spec import Kind, Module


class MlaModule(Module, frozen=True, kw_only=True):
    """Latent attention; queries are not compressed where `q_rank` is None."""

    kind: ClassVar[Kind] = "mla"
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

    def cache_per_token(self) -> int:
        """The latent and the keys' shared rotary part (section 2.1)."""
        return self.kv_rank + self.rotary_dim

"""Multi-head attention, with as many key/value heads as heads (MHA), fewer (GQA) or one (MQA).

Shapes: projections of queries (n·d, h), of keys and values (kv·d, h), of the output (h, n·d); h hidden, n heads,
kv key/value heads, d width of a head.
"""

from typing import ClassVar

from vramtui.models.kinds.linear import LinearModule
from vramtui.models.kinds.norm import NormModule
from vramtui.models.spec import Kind, Module


class AttentionModule(Module, frozen=True, kw_only=True):
    """Multi-head attention; `name` stands before its layers' names, as of one that looks at an encoder.

    Attributes:
        fused: queries, keys and values are made in one product.
        key_bias: of the keys' projection, where it is not as `bias`.
        qk_norm: norms over heads of queries and keys.
    """

    kind: ClassVar[Kind] = "attention"
    cache_source: ClassVar[str] = "Shazeer 2019 (arXiv 1911.02150); Ainslie et al. 2023 (arXiv 2305.13245)"
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    fused: bool = False
    bias: bool = False
    key_bias: bool | None = None
    output_bias: bool = False
    qk_norm: bool = False

    def parts(self) -> tuple[Module, ...]:
        """Projections, and norms of queries and keys."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
        if self.fused:
            rows = {"qkv_proj": queries + 2 * keys}
        of_keys = self.bias if self.key_bias is None else self.key_bias
        return (
            *(
                LinearModule(
                    name=self.name + name,
                    out_features=n,
                    in_features=self.hidden,
                    bias=of_keys if name == "k_proj" else self.bias,
                )
                for name, n in rows.items()
            ),
            LinearModule(
                name=f"{self.name}o_proj", out_features=self.hidden, in_features=queries, bias=self.output_bias
            ),
            *((NormModule(name="qk_norm", size=self.head_dim, repeat=2),) if self.qk_norm else ()),
        )

    @property
    def key_dim(self) -> int:
        """Width of a head of queries and keys."""
        return self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of a head of values."""
        return self.head_dim

    @property
    def rotary_dim(self) -> int:
        """Width of what is turned by its place."""
        return self.head_dim

    def cache_parts(self) -> tuple[int, int]:
        """A key and a value for each head."""
        return self.kv_heads * self.head_dim, self.kv_heads * self.head_dim

    def cache_words(self) -> str:
        """What a token takes in the cache, as one would write it down."""
        return f"2 x {self.kv_heads} heads x {self.head_dim}"

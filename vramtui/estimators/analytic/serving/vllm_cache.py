"""vLLM's pages of keys and values: layers of one kind form groups that share the pool."""

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.largest import largest, search_largest
from vramtui.core.schema.stored_tensors import LayerCache
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.models.specs.decoder import decoder_spec


class Pages(msgspec.Struct, frozen=True, kw_only=True):
    """How the pool is cut.

    Attributes:
        page: bytes of one page, over the layers of one group.
        block: tokens in it.
        layers: layers that have a cache.
        groups: (tokens after which a group's pages are used again, or None; how many groups of that kind).
        per_sequence: pages that one sequence of `length` tokens holds.
        ahead: tokens that one pass may write before older ones are let go.
    """

    page: int
    block: int
    layers: int
    groups: tuple[tuple[int | None, int], ...]
    length: int
    ahead: int

    @property
    def per_sequence(self) -> int:
        """Pages that one sequence of the longest length holds."""
        return self._pages(self.length)

    def tokens(self, blocks: int) -> int:
        """Tokens that the pool holds, as vLLM reports them."""
        return blocks // sum(count for _, count in self.groups) * self.block

    def longest(self, blocks: int) -> int:
        """The longest sequence for which `blocks` pages are enough."""
        return largest(self._pages, search_largest(blocks, self.length, most=max(self.length - 1, 1)))

    def _pages(self, length: int) -> int:
        """Pages of a sequence; a sliding group keeps its window, what one pass writes, and one page half used."""
        total = 0
        for window, count in self.groups:
            tokens = length if window is None else min(length, window - 1 + self.ahead)
            pages = -(-tokens // self.block)
            total += count * (pages if window is None else min(pages + 1, -(-length // self.block)))
        return total


def pages_of(share: Share, bits: float, block: int, length: int, ahead: int) -> Pages:
    """Pages for the layers of `share`, `bits` to a number and `block` tokens to a page.

    Where some layers slide and others do not, groups are as large as the smaller kind, and the last group is padded.

    Raises:
        UserError: no layer has keys and values.
    """
    kinds = tuple(kind for kind in decoder_spec(share.model).caches(share.first, share.stop) if kind.per_token)
    if not kinds:
        raise UserError(
            "run.kind = 'serve': a model whose layers keep states alone has no pages; take run.kind = 'infer'"
        )
    size = min(kind.layers for kind in kinds)
    numbers = max(kind.per_token for kind in kinds)
    return Pages(
        page=int(size * block * numbers * bits / 8),
        block=block,
        layers=share.layers,
        groups=tuple(_group(kind, size) for kind in kinds),
        length=length,
        ahead=ahead,
    )


def _group(kind: LayerCache, size: int) -> tuple[int | None, int]:
    return kind.window, -(-kind.layers // size)

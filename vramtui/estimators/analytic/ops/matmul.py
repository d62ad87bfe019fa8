"""Matrix products as they stand on a tape: under autocast, in fp8, with adapters or quantised weights."""

from typing import TYPE_CHECKING

from vramtui.estimators.analytic.sizes.quantization import product_scratch
from vramtui.estimators.analytic.tape.tape import Tape, Tensor
from vramtui.estimators.torch_facts.allocator_sizes import rounded
from vramtui.estimators.torch_facts.cards import CardLimits
from vramtui.estimators.torch_facts.reduction import column_sum_scratch

if TYPE_CHECKING:
    from typing_extensions import Self

CASTS = "autocast weight copies"


class Products:
    """Writes matrix products, and the casts that they ask for, on one tape.

    Args:
        tape: where they go.
        autocast: bytes of the type autocast casts matrix products to; None outside autocast.
        parameter: bytes of one trained parameter.
        frozen: bytes of one frozen parameter.
        card: what kernels ask of it while they run.
        fp8: whether linear layers multiply in fp8, as Transformer Engine's do.
    """

    def __init__(
        self,
        tape: Tape,
        *,
        autocast: int | None,
        parameter: int,
        frozen: int,
        card: CardLimits,
        fp8: bool = False,
    ) -> None:
        self.tape = tape
        self.autocast = autocast
        self.parameter = parameter
        self.frozen = frozen
        self.card = card
        self.fp8 = fp8

    def on(self, tape: Tape) -> "Self":
        """The same operators writing on another tape."""
        return type(self)(
            tape,
            autocast=self.autocast,
            parameter=self.parameter,
            frozen=self.frozen,
            card=self.card,
            fp8=self.fp8,
        )

    def cast(self, x: Tensor, width: int, label: str, *, group: str | None = None) -> Tensor:
        """`x` in another type; itself when it already is of that width."""
        if x.width == width:
            return x
        out = self.tape.new(x.numel, width, label, tracked=x.tracked, group=group)
        self.tape.op([x], [out], flows=[(x, True)])
        return out

    def lowered(self, x: Tensor, label: str) -> Tensor:
        """`x` as a matrix product takes it: cast under autocast."""
        return x if self.autocast is None else self.cast(x, self.autocast, label)

    def linear(
        self,
        x: Tensor,
        inner: int,
        outer: int,
        label: str,
        *,
        bias: bool = False,
        trained: bool = True,
        copies: int = 1,
        packed: str | None = None,
    ) -> Tensor:
        """Multiply x (rows, inner) by a weight (outer, inner) and add a bias. Saves x for the weight's gradient.

        The weight is `trained` or gets no gradient and may be `packed`, quantised so; it may be `copies` weights that
        share the rows out among them, as experts do.
        """
        rows = x.numel // inner
        x = self.lowered(x, f"{label} input, cast")
        kept = self._in_fp8(x, label) if self.fp8 else x
        weight = self._weight(inner * outer * copies, label, trained=trained)
        added = self._weight(outer, f"{label} bias", trained=trained) if bias else None
        out = self.tape.new(rows * outer, x.width, label, tracked=x.tracked or trained)
        own = [
            numel for numel, cast in ((inner * outer * copies, weight), (outer if bias else 0, added)) if cast is None
        ]
        unpacked = product_scratch(packed, rows, inner, outer, x.width) if packed and not trained else 0
        casts = [tensor for tensor in (weight, added) if tensor is not None]
        self.tape.op(
            [x, kept, *casts],
            [out],
            saves=([kept] if trained else []) + ([weight] if weight is not None and x.tracked else []),
            flows=[(x, True), *((tensor, True) for tensor in casts)],
            into=sum(rounded(numel * self.parameter) for numel in own) if trained else 0,
            scratch=unpacked,
            back_scratch=unpacked,
            sum_scratch=column_sum_scratch(rows, outer, self.card) if bias and trained else 0,
            gemm=True,
        )
        return out

    def _in_fp8(self, x: Tensor, label: str) -> Tensor:
        """Transformer Engine's input: cast to fp8, which is what the backward pass keeps."""
        out = self.tape.new(x.numel, 1, f"{label} input in fp8", tracked=False)
        self.tape.op([x], [out])
        return out

    def _weight(self, numel: int, label: str, *, trained: bool) -> Tensor | None:
        """Autocast's copy of an fp32 weight, kept in its cache to the end of the forward pass if it is trained.

        In fp8 it is two copies of one byte, one of them transposed for the backward pass.
        """
        width = self.parameter if trained else self.frozen
        if self.autocast is None or width == self.autocast:
            return None
        copy = self.tape.new(numel, self.autocast, f"{label} weight, cast", tracked=trained, group=CASTS)
        if trained:
            self.tape.hold(copy)
        self.tape.op([], [copy], into=rounded(numel * width) if trained else 0)
        return copy

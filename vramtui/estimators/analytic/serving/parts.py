"""From a server's pieces to an Estimate: the pieces as parts, what the allocator keeps beside them, the totals."""

from collections.abc import Sequence

import msgspec

from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Moment, Part, Phase
from vramtui.core.estimate.ledger import CATEGORIES, Category, Ledger, ledger_from_parts
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes, nccl_part
from vramtui.estimators.torch_facts.allocator_sizes import SEGMENT_ROUNDING
from vramtui.estimators.torch_facts.cards import cuda_context_bytes, cuda_context_spread

ALWAYS = "from start to end"
# Of engines whose own layers no run was measured of.
UNMEASURED = "activations are those of vLLM's layers of the same shapes; how far off they are here was never measured"


class TooLargeError(UserError):
    """A server that does not start on the card; `needed` bytes of the process would be the least."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


class ServingPart(msgspec.Struct, frozen=True, kw_only=True):
    """One part inside the allocator; `passing` when it is there only while a batch is worked on."""

    name: str
    line: Category
    bytes: int
    formula: str
    source: str
    lifetime: str = ALWAYS
    count: int = 0
    transient: bool = False


def context_length(model: TransformerModel, run: ServeRun) -> int:
    """The longest sequence.

    Raises:
        UserError: neither the run nor the model gives one.
    """
    length = run.max_model_len or model.max_position_embeddings
    if length is None:
        raise UserError("run.max_model_len is missing, and the model gives no max_position_embeddings to take instead")
    if model.position == "learned" and length > (model.max_position_embeddings or 0):
        raise UserError(
            f"run.max_model_len = {length} is longer than model.max_position_embeddings = "
            f"{model.max_position_embeddings}, and learned positions cannot be stretched"
        )
    return length


def served(
    alive: Sequence[ServingPart],
    device: Device,
    assumptions: tuple[str, ...],
    *,
    reserved: int = 0,
    ranks: int = 1,
    links: int = 0,
) -> Estimate:
    """The estimate: every piece at once is the peak. `reserved` is at least what the pieces take in segments.

    `links` bytes are what `ranks` ranks need to talk beside NCCL's own.
    """
    leaves: dict[Category, int] = dict.fromkeys(CATEGORIES, 0)
    for piece in alive:
        leaves[piece.line] += piece.bytes
    allocated = sum(leaves.values())
    reserved = max(reserved, -(-allocated // SEGMENT_ROUNDING) * SEGMENT_ROUNDING)
    context, nccl = cuda_context_bytes(device.capability), nccl_bytes(ranks) + links
    ledger = ledger_from_parts(leaves, reserved=reserved, context=context, other=nccl)
    parts = [_part(piece) for piece in alive if piece.bytes]
    parts += [_cached(reserved - allocated), _context(context, device)]
    if nccl:
        parts.append(nccl_part(ranks, links))
    return Estimate(
        method="analytic",
        parts=tuple(parts),
        ledger=ledger,
        peak_phase="serve",
        timeline=_timeline(alive, ledger),
        assumptions=assumptions,
    )


def _part(piece: ServingPart) -> Part:
    return Part(
        name=piece.name,
        line=piece.line,
        bytes=piece.bytes,
        at_peak=piece.bytes,
        formula=piece.formula,
        source=piece.source,
        lifetime=piece.lifetime,
        count=piece.count,
    )


def _cached(size: int) -> Part:
    return Part(
        name="cached",
        line="cached",
        bytes=size,
        at_peak=size,
        formula="what the allocator or the server holds beyond these parts",
        source="the caching allocator keeps freed blocks",
        lifetime=ALWAYS,
    )


def _context(size: int, device: Device) -> Part:
    major, minor = device.capability
    return Part(
        name="cuda context",
        line="context",
        bytes=size,
        at_peak=size,
        formula=f"{format_bytes(size, 0)} on capability {major}.{minor}, give or take "
        f"{format_bytes(cuda_context_spread(device.capability), 0)}",
        source="NVML's process memory less torch's reserved, public measurements",
        lifetime=ALWAYS,
    )


def _timeline(parts: Sequence[ServingPart], ledger: Ledger) -> tuple[Moment, ...]:
    """Weights alone, then everything that waits for requests, and while a batch is worked on."""
    loaded = [piece for piece in parts if piece.line == "weights"]
    waiting = [piece for piece in parts if not piece.transient]
    moments: list[tuple[Phase, list[ServingPart], int]] = [
        ("build", loaded, sum(piece.bytes for piece in loaded)),
        ("serve", waiting, ledger.allocated or 0),
    ]
    return tuple(
        Moment(
            phase=phase,
            step=0,
            allocated=sum(piece.bytes for piece in alive),
            reserved=None if phase == "build" else ledger.reserved,
            peak_allocated=peak,
            peak_reserved=None if phase == "build" else ledger.reserved,
            categories={
                line: size for line in CATEGORIES if (size := sum(piece.bytes for piece in alive if piece.line == line))
            },
        )
        for phase, alive, peak in moments
    )

"""From a server's pieces to an Estimate: the pieces as parts, what the allocator keeps beside them, the totals."""

from collections.abc import Collection

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import Device
from vramtui.core.estimate.estimate import Estimate, Moment, Phase
from vramtui.core.estimate.ledger import CATEGORIES, Category, Ledger, ledger_from_parts
from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import ServeRun
from vramtui.estimators.analytic.assemble import ALWAYS, LASTING, Fact, context_part
from vramtui.estimators.analytic.sizes.nccl import nccl_bytes, nccl_part
from vramtui.estimators.torch_facts.allocator_sizes import SEGMENT_ROUNDING
from vramtui.estimators.torch_facts.cards import cuda_context_bytes

CACHED = Fact(
    "cached", "what the allocator or the server holds beyond these parts", "the caching allocator keeps freed blocks"
)
# Of engines whose own layers no run was measured of.
UNMEASURED = "activations are those of vLLM's layers of the same shapes; how far off they are here was never measured"


class TooLargeError(UserError):
    """A server that does not start on the card; `needed` bytes of the process would be the least."""

    def __init__(self, message: str, needed: int) -> None:
        super().__init__(message)
        self.needed = needed


def context_length(model: TransformerModel, run: ServeRun) -> int:
    """The longest sequence."""
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
    facts: dict[str, Fact],
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
    for fact in facts.values():
        leaves[fact.line] += fact.bytes  # type: ignore[index] # of a server's facts none is outside the allocator
    allocated = sum(leaves.values())
    reserved = max(reserved, -(-allocated // SEGMENT_ROUNDING) * SEGMENT_ROUNDING)
    context, nccl = cuda_context_bytes(device.capability), nccl_bytes(ranks) + links
    ledger = ledger_from_parts(leaves, reserved=reserved, context=context, other=nccl)
    parts = [fact.part(name, fact.bytes) for name, fact in facts.items() if fact.bytes]
    parts += [CACHED.part("cached", reserved - allocated), context_part(device, ALWAYS)]
    if nccl:
        parts.append(nccl_part(ranks, links))
    return Estimate(
        method="analytic",
        parts=tuple(parts),
        ledger=ledger,
        peak_phase="serve",
        timeline=_timeline(facts.values(), ledger),
        assumptions=assumptions,
    )


def _timeline(facts: Collection[Fact], ledger: Ledger) -> tuple[Moment, ...]:
    """Weights alone, then everything that waits for requests, and while a batch is worked on."""
    loaded = [fact for fact in facts if fact.line == "weights"]
    waiting = [fact for fact in facts if fact.line in LASTING]
    moments: list[tuple[Phase, list[Fact], int]] = [
        ("build", loaded, sum(fact.bytes for fact in loaded)),
        ("serve", waiting, ledger.allocated or 0),
    ]
    return tuple(
        Moment(
            phase=phase,
            step=0,
            allocated=sum(fact.bytes for fact in alive),
            reserved=None if phase == "build" else ledger.reserved,
            peak_allocated=peak,
            peak_reserved=None if phase == "build" else ledger.reserved,
            categories={
                line: size for line in CATEGORIES if (size := sum(fact.bytes for fact in alive if fact.line == line))
            },
        )
        for phase, alive, peak in moments
    )

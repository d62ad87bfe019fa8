"""What travels between the ranks that work on one model: between stages, along the sequence, among experts."""

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.workload import Parallel
from vramtui.estimators.analytic.parallel.buffers import Buffer
from vramtui.estimators.analytic.sizes.partition import Share
from vramtui.estimators.torch_facts.allocator_sizes import rounded

MEGATRON = "Korthikanti et al. 2022 (arXiv 2205.05198), section 4.2.2"


def link_buffers(share: Share, parallel: Parallel, tokens: int, itemsize: int) -> list[Buffer]:
    """The buffers of one rank; `tokens` tokens of its own part of the sequence, `itemsize` bytes a number."""
    stream = tokens * share.model.hidden_size * itemsize
    buffers = []
    if parallel.pipeline > 1:
        buffers.append(_between_stages(stream // (parallel.tensor if parallel.sequence_parallel else 1)))
    if parallel.sequence_parallel:
        buffers.append(_gathered(stream, parallel.tensor))
    if parallel.context > 1:
        buffers.append(_ring(share.model, tokens, itemsize))
    if parallel.expert > 1:
        buffers.append(_exchange(share.model, tokens, itemsize))
    return buffers


def _between_stages(stream: int) -> Buffer:
    size = 2 * rounded(stream)
    return Buffer(
        name="pipeline buffers",
        forward=size,
        between=size,
        backward=size,
        formula=f"2 x {stream:,} B: activations and gradients on their way between ranks",
        source="Narayanan et al. 2021 (arXiv 2104.04473)",
        lifetime="forward and backward",
    )


def _gathered(stream: int, ranks: int) -> Buffer:
    return Buffer(
        name="gathered sequence",
        forward=rounded(stream),
        backward=2 * rounded(stream),
        formula=f"{stream:,} B: what {ranks} ranks hold of the sequence, together before a product, with its gradient",
        source=MEGATRON,
        lifetime="within one product",
    )


def _ring(model: TransformerModel, tokens: int, itemsize: int) -> Buffer:
    keys = 2 * model.kv_heads * model.head_size
    buffer = rounded(tokens * keys * itemsize)
    return Buffer(
        name="ring buffers",
        forward=2 * buffer,
        backward=4 * buffer,
        formula=(
            f"keys and values of {tokens:,} tokens x {keys} x {itemsize} B, at hand and arriving; then gradients too"
        ),
        source="Liu et al. 2023, Ring Attention (arXiv 2310.01889)",
        lifetime="within one attention",
    )


def _exchange(model: TransformerModel, tokens: int, itemsize: int) -> Buffer:
    copies = tokens * (model.num_experts_per_tok or 1)
    buffer = rounded(copies * model.hidden_size * itemsize)
    return Buffer(
        name="all-to-all buffers",
        forward=2 * buffer,
        backward=2 * buffer,
        formula=f"2 x {copies:,} copies x {model.hidden_size} x {itemsize} B: sent to experts elsewhere and come back",
        source="Lepikhin et al. 2020, GShard (arXiv 2006.16668)",
        lifetime="within one layer",
    )

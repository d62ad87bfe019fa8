"""What several cards can share of one job, and what each way of sharing costs."""

from collections.abc import Iterator
from typing import Any

from vramtui.core.models import TransformerModel
from vramtui.core.parallel import Parallel
from vramtui.core.workload import TrainRun, Workload
from vramtui.estimators.lever import FREE, SLOWER, Lever, lever

# Fast links are within one machine, which rarely has more cards.
ONE_MACHINE = 8


def sharding_levers(workload: Workload, gpus: int) -> Iterator[Lever]:
    """The ways to share `workload` over at most `gpus` cards; none where it is shared already."""
    shared = workload.parallel or Parallel()
    if isinstance(workload.run, TrainRun):
        yield from _offloaded(shared, gpus)
    if gpus == 1 or shared.ranks > 1:
        return
    if isinstance(workload.run, TrainRun):
        yield from _states(gpus)
    if isinstance(workload.model, TransformerModel):
        yield from _model(workload.model, workload.run, gpus)


def _data(gpus: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any key
    return {"parallel.data": gpus} | {f"parallel.{key}": value for key, value in more.items()}


def _states(gpus: int) -> Iterator[Lever]:
    """What data ranks can share of the states."""
    for stage, weight, cost in (
        (1, FREE + 1, "updated weights travel once a step"),
        (2, FREE + 2, "as stage 1, and gradients are reduced while the backward pass runs"),
        (3, SLOWER + 2, "every layer's weights travel three times a step"),
    ):
        changes = _data(gpus, strategy="zero", zero_stage=stage)
        yield lever(f"ZeRO-{stage} over {gpus} cards", weight, cost, changes)
    cost = "every block's weights travel three times a step, mostly behind the work"
    yield lever(f"FSDP over {gpus} cards", SLOWER + 1, cost, _data(gpus, strategy="fsdp", zero_stage=3))


def _offloaded(shared: Parallel, gpus: int) -> Iterator[Lever]:
    if shared.cpu_offload:
        return
    cost = "gradients and weights cross the bus each step, and the host updates them: much slower"
    if shared.ranks > 1 or gpus == 1:
        yield lever("optimizer in host memory", SLOWER + 8, cost, {"parallel.cpu_offload": True})
        return
    changes = _data(gpus, strategy="fsdp", zero_stage=3, cpu_offload=True)
    yield lever(f"FSDP over {gpus} cards, optimizer in host memory", SLOWER + 9, cost, changes)


def _model(model: TransformerModel, run: object, gpus: int) -> Iterator[Lever]:
    """What ranks can share of the model itself: as many as divide it."""
    tensor = max((n for n in range(1, min(gpus, 4 * ONE_MACHINE) + 1) if _divides(model, n)), default=1)
    if tensor > 1:
        cost = "activations travel twice a layer: the cards need fast links"
        yield lever(f"tensor parallel over {tensor} cards", SLOWER + 1, cost, {"parallel.tensor": tensor})
    if tensor > 1 and isinstance(run, TrainRun):
        cost += "; norms and dropouts are split as well"
        changes = {"parallel.tensor": tensor, "parallel.sequence_parallel": True}
        yield lever(f"tensor and sequence parallel over {tensor} cards", SLOWER + 2, cost, changes)
    stages = min(gpus, model.num_hidden_layers)
    if stages > 1:
        cost = "cards wait for one another at the start and the end of each step"
        if not isinstance(run, TrainRun):
            cost = "one sequence is no faster than on one card: the stages work one after another"
        yield lever(f"pipeline over {stages} cards", SLOWER + 3, cost, {"parallel.pipeline": stages})
    if isinstance(run, TrainRun) and run.attention != "eager":
        cost = "keys and values travel round the cards in every layer; weights and states stay whole"
        yield lever(f"context parallel over {gpus} cards", SLOWER + 2, cost, {"parallel.context": gpus})


def _divides(model: TransformerModel, ranks: int) -> bool:
    widths = [model.num_attention_heads, model.ffn_size, model.shared_size]
    widths += [model.expert_size] if model.num_experts else []
    keys = model.kv_lora_rank is not None or model.kv_heads % ranks == 0 or ranks % model.kv_heads == 0
    return keys and all(width % ranks == 0 for width in widths)

"""What several cards can share of one job, and what each way of sharing costs."""

from collections.abc import Iterator
from typing import Any

from vramtui.core.schema.decoder_models import TransformerModel
from vramtui.core.schema.diffusion_models import PipelineModel
from vramtui.core.schema.parallel import Parallel
from vramtui.core.schema.workload import ServeRun, TrainRun, Workload
from vramtui.estimators.planner.mitigation import FREE, SLOWER, Mitigation, make_mitigation

# Fast links are within one machine, which rarely has more cards.
ONE_MACHINE = 8


def sharding_mitigations_for(workload: Workload, gpus: int) -> Iterator[Mitigation]:
    """The ways to share `workload` over at most `gpus` cards; none where it is shared already, or is a pipeline.

    A pipeline's estimate is that of one card (`run.parallel` is refused): its parts are placed by `run.offload`.
    """
    if isinstance(workload.model, PipelineModel):
        return
    shared = workload.parallel or Parallel()
    if isinstance(workload.run, ServeRun) and workload.run.engine == "llama.cpp":
        return  # it shares a model in its own way, which is described by run.gpu_layers
    if isinstance(workload.run, TrainRun):
        yield from _offloaded(shared, gpus)
    if shared.ranks > 1 and gpus > shared.ranks:
        yield from _more_of_the_same(workload, shared, gpus)
    if gpus == 1 or shared.ranks > 1:
        return
    if isinstance(workload.run, TrainRun):
        yield from _states(gpus)
    if isinstance(workload.model, TransformerModel):
        yield from _model(workload.model, workload.run, gpus)
        if isinstance(workload.run, TrainRun):
            yield from _experts(workload.model, gpus)


def _data(gpus: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - values of any key
    return {"parallel.data": gpus} | {f"parallel.{key}": value for key, value in more.items()}


def _states(gpus: int) -> Iterator[Mitigation]:
    """What data ranks can share of the states."""
    for stage, weight, cost in (
        (1, FREE + 1, "updated weights travel once a step"),
        (2, FREE + 2, "as stage 1, and gradients are reduced while the backward pass runs"),
        (3, SLOWER + 2, "every layer's weights travel three times a step"),
    ):
        changes = _data(gpus, strategy="zero", zero_stage=stage)
        yield make_mitigation(f"ZeRO-{stage} over {gpus} cards", weight, cost, changes)
    cost = "every block's weights travel three times a step, mostly behind the work"
    yield make_mitigation(f"FSDP over {gpus} cards", SLOWER + 1, cost, _data(gpus, strategy="fsdp", zero_stage=3))


def _offloaded(shared: Parallel, gpus: int) -> Iterator[Mitigation]:
    if shared.cpu_offload:
        return
    cost = "gradients and weights cross the bus each step, and the host updates them: much slower"
    if shared.ranks > 1 or gpus == 1:
        yield make_mitigation("optimizer in host memory", SLOWER + 8, cost, {"parallel.cpu_offload": True})
        return
    changes = _data(gpus, strategy="fsdp", zero_stage=3, cpu_offload=True)
    yield make_mitigation(f"FSDP over {gpus} cards, optimizer in host memory", SLOWER + 9, cost, changes)


def _more_of_the_same(workload: Workload, shared: Parallel, gpus: int) -> Iterator[Mitigation]:
    """More ranks along a dimension that is there already."""
    model = workload.model
    most = {name: gpus * getattr(shared, name) // shared.ranks for name in ("data", "tensor", "pipeline")}
    if shared.data > 1 and (shared.zero_stage or shared.strategy == "fsdp") and most["data"] > shared.data:
        cost = "more cards to wait for at every exchange"
        yield make_mitigation(f"{most['data']} data ranks", FREE + 1, cost, {"parallel.data": most["data"]})
    if not isinstance(model, TransformerModel):
        return
    tensor = max((n for n in range(1, most["tensor"] + 1) if _divides(model, n)), default=1)
    if shared.tensor > 1 and tensor > shared.tensor:
        cost = "activations travel twice a layer among more cards"
        yield make_mitigation(f"tensor parallel over {tensor} cards", SLOWER, cost, {"parallel.tensor": tensor})
    stages = min(most["pipeline"], model.num_hidden_layers)
    if shared.pipeline > 1 and stages > shared.pipeline:
        cost = "more cards that wait for one another"
        yield make_mitigation(f"pipeline over {stages} cards", SLOWER + 1, cost, {"parallel.pipeline": stages})


def _experts(model: TransformerModel, gpus: int) -> Iterator[Mitigation]:
    """Experts dealt out among the data ranks."""
    ranks = max((n for n in range(1, gpus + 1) if gpus % n == 0 and (model.num_experts or 1) % n == 0), default=1)
    if model.num_experts is not None and ranks > 1:
        cost = "every token travels to its experts and back in every layer, and the fullest expert is waited for"
        changes = _data(gpus, strategy="zero", zero_stage=1, expert=ranks)
        yield make_mitigation(f"experts over {ranks} cards, ZeRO-1", SLOWER + 3, cost, changes)


def _model(model: TransformerModel, run: object, gpus: int) -> Iterator[Mitigation]:
    """What ranks can share of the model itself: as many as divide it."""
    tensor = max((n for n in range(1, min(gpus, 4 * ONE_MACHINE) + 1) if _divides(model, n)), default=1)
    if tensor > 1:
        cost = "activations travel twice a layer: the cards need fast links"
        yield make_mitigation(f"tensor parallel over {tensor} cards", SLOWER + 1, cost, {"parallel.tensor": tensor})
    if tensor > 1 and isinstance(run, TrainRun):
        cost += "; norms and dropouts are split as well"
        changes = {"parallel.tensor": tensor, "parallel.sequence_parallel": True}
        yield make_mitigation(f"tensor and sequence parallel over {tensor} cards", SLOWER + 2, cost, changes)
    stages = min(gpus, model.num_hidden_layers)
    if stages > 1:
        cost = "cards wait for one another at the start and the end of each step"
        if not isinstance(run, TrainRun):
            cost = "one sequence is no faster than on one card: the stages work one after another"
        yield make_mitigation(f"pipeline over {stages} cards", SLOWER + 3, cost, {"parallel.pipeline": stages})
    if isinstance(run, TrainRun) and run.attention != "eager":
        cost = "keys and values travel round the cards in every layer; weights and states stay whole"
        yield make_mitigation(f"context parallel over {gpus} cards", SLOWER + 2, cost, {"parallel.context": gpus})


def _divides(model: TransformerModel, ranks: int) -> bool:
    widths = [model.num_attention_heads, model.ffn_size, model.shared_size]
    widths += [model.expert_size] if model.num_experts else []
    keys = model.kv_lora_rank is not None or model.kv_heads % ranks == 0 or ranks % model.kv_heads == 0
    return keys and all(width % ranks == 0 for width in widths)

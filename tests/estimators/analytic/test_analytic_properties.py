from typing import get_args

import msgspec
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import CATEGORIES, Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import (
    Attention,
    Checkpointing,
    CrossEntropy,
    InferRun,
    Lora,
    Optimizer,
    OptimizerImplementation,
    Precision,
    TrainRun,
    Workload,
)
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.models.registry import parameter_count

CARDS = ("A100-80GB", "H200")
models = st.builds(
    TransformerModel, hidden_size=st.sampled_from([64, 128, 256]), num_hidden_layers=st.integers(1, 6),
    num_attention_heads=st.just(4), num_key_value_heads=st.sampled_from([None, 1, 2]),
    intermediate_size=st.sampled_from([None, 192, 512]), vocab_size=st.sampled_from([97, 1000, 4096]),
    gated_mlp=st.booleans(), norm=st.sampled_from(["rmsnorm", "layernorm"]), attention_bias=st.booleans(),
    tie_word_embeddings=st.booleans(), implementation=st.sampled_from(["huggingface", "plain"]),
)  # fmt: skip
adapters = st.builds(Lora, rank=st.integers(1, 32), target_modules=st.just(("q_proj", "v_proj")))
trainings = st.builds(
    TrainRun, batch_size=st.integers(1, 8), sequence_length=st.sampled_from([16, 100, 512]),
    precision=st.sampled_from(get_args(Precision)), optimizer=st.sampled_from(get_args(Optimizer)),
    optimizer_implementation=st.sampled_from(get_args(OptimizerImplementation)),
    attention=st.sampled_from(get_args(Attention)), checkpointing=st.sampled_from(get_args(Checkpointing)),
    cross_entropy=st.sampled_from(get_args(CrossEntropy)), gradient_accumulation_steps=st.integers(1, 3),
    max_grad_norm=st.none() | st.just(1.0), lora=st.none() | adapters,
)  # fmt: skip
generations = st.builds(
    InferRun, batch_size=st.integers(1, 8), sequence_length=st.sampled_from([16, 100, 512]),
    new_tokens=st.integers(0, 64), precision=st.sampled_from(["fp32", "bf16", "fp16"]),
)  # fmt: skip
workloads = st.builds(Workload, model=models, run=trainings | generations)


def estimate(workload: Workload, name: str) -> Estimate:
    try:
        return ANALYTIC.estimate(workload, card(name))
    except UserError as error:
        assert str(error)  # noqa: PT017 - what is refused has to be said
        assume(False)
        raise


def of_run(workload: Workload, **changes: object) -> Workload:
    return msgspec.structs.replace(workload, run=msgspec.structs.replace(workload.run, **changes))


@given(workloads, st.sampled_from(CARDS))
@settings(deadline=None)
def test_parts_sum_to_totals(workload: Workload, name: str) -> None:
    found = estimate(workload, name)
    ledger = found.ledger
    assert sum(part.at_peak for part in found.parts) == found.process
    assert sum(ledger.bytes_of(line) or 0 for line in CATEGORIES) == found.allocated
    assert found.allocated <= (found.reserved or 0) <= found.process
    for part in found.parts:
        assert 0 <= part.at_peak <= max(part.bytes, part.at_peak)
        assert part.bytes >= 0
    for line in CATEGORIES:
        assert sum(part.at_peak for part in found.parts if part.line == line) == (ledger.bytes_of(line) or 0)


@given(workloads, st.sampled_from(CARDS), st.sampled_from(["batch_size", "sequence_length", "num_hidden_layers"]))
@settings(deadline=None)
def test_more_is_never_less(workload: Workload, name: str, what: str) -> None:
    before = estimate(workload, name)
    if what == "num_hidden_layers":
        model = workload.model
        assert isinstance(model, TransformerModel)
        grown = msgspec.structs.replace(model, num_hidden_layers=model.num_hidden_layers + 1)
        more = msgspec.structs.replace(workload, model=grown)
    else:
        more = of_run(workload, **{what: getattr(workload.run, what) + 1})
    assert estimate(more, name).allocated >= before.allocated


@given(models, trainings, st.sampled_from(CARDS))
@settings(deadline=None)
def test_accumulating_gradients_never_takes_less(model: TransformerModel, run: TrainRun, name: str) -> None:
    workload = Workload(model=model, run=run)
    once = estimate(of_run(workload, gradient_accumulation_steps=1), name)
    assert estimate(of_run(workload, gradient_accumulation_steps=4), name).allocated >= once.allocated


@given(models, st.integers(1, 64))
@settings(deadline=None)
def test_adapters_train_two_thin_matrices_for_each_target(model: TransformerModel, rank: int) -> None:
    run = TrainRun(sequence_length=16, precision="bf16", lora=Lora(rank=rank, target_modules=("q_proj",)))
    found = estimate(Workload(model=model, run=run), "H200")
    trained = model.num_hidden_layers * rank * (model.hidden_size + model.num_attention_heads * model.head_size)
    told = next(part for part in found.parts if part.line == "gradients")
    assert f"{trained:,}" in told.formula


@given(models)
@settings(deadline=None)
def test_blocks_round_up_by_less_than_one_a_tensor(model: TransformerModel) -> None:
    run = TrainRun(sequence_length=16, precision="fp32", optimizer="adamw")
    found = estimate(Workload(model=model, run=run), "H200")
    weights = next(part for part in found.parts if part.name == "weights")
    exact = 4 * parameter_count(model)
    assert exact <= weights.bytes < exact + 512 * weights.count
    assert weights.bytes % 512 == 0


@pytest.mark.parametrize("precision", get_args(Precision))
def test_every_precision_names_what_it_keeps(precision: Precision) -> None:
    model = TransformerModel(hidden_size=64, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)
    found = ANALYTIC.estimate(
        Workload(model=model, run=TrainRun(sequence_length=16, precision=precision)), card("H200")
    )
    kept = {line: found.ledger.bytes_of(line) for line in ("weights", "optimizer", "master_weights")}
    numbers = parameter_count(model)
    wide = {"bf16": 2, "fp16": 2, "bf16-master": 2, "fp16-master": 2}.get(precision, 4)
    assert kept["weights"] is not None
    assert kept["weights"] >= wide * numbers
    assert bool(kept["master_weights"]) == precision.endswith("-master")

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.estimators.serving.models import DEEPSEEK_V3, LLAMA_8B
from tests.models.specs.models import known_decoders
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Category, Estimate
from vramtui.core.schema.models import ConvNetModel, Stage, TransformerModel
from vramtui.core.schema.workload import Lora, Parallel, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC, parameter_count
from vramtui.estimators.analytic.parallel import buckets
from vramtui.models.spec import Parameter

H100 = card("H100")
MIB = 1 << 20
RUN = TrainRun(batch_size=1, sequence_length=2048, precision="bf16-master")
SMALL = TransformerModel(
    hidden_size=256, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, intermediate_size=512,
    vocab_size=1000, tie_word_embeddings=True,
)  # fmt: skip
EXPERTS = msgspec.structs.replace(SMALL, num_experts=8, num_experts_per_tok=2, first_k_dense_replace=2)


def train(model: TransformerModel, parallel: Parallel | None, run: TrainRun = RUN) -> Estimate:
    return ANALYTIC.estimate(Workload(model=model, run=run, parallel=parallel), H100)


def states(estimate: Estimate) -> dict[str, int]:
    names = ("weights", "gradients", "optimizer", "master weights")
    return {part.name: part.bytes for part in estimate.parts if part.name in names}


def part(estimate: Estimate, name: str) -> int:
    return next((part.bytes for part in estimate.parts if part.name == name), 0)


parallels = st.builds(
    Parallel,
    data=st.sampled_from([1, 2, 4, 8]),
    strategy=st.sampled_from(["ddp", "zero", "fsdp"]),
    tensor=st.sampled_from([1, 2, 4, 8]),
    pipeline=st.sampled_from([1, 2, 3, 8]),
    context=st.sampled_from([1, 2, 4]),
    zero_stage=st.sampled_from([0, 3]),
    reshard_after_forward=st.booleans(),
    cpu_offload=st.booleans(),
).map(lambda parallel: msgspec.structs.replace(parallel, sequence_parallel=parallel.tensor == 4))
runs = st.builds(
    TrainRun, batch_size=st.integers(1, 4), sequence_length=st.sampled_from([64, 100, 512]),
    precision=st.sampled_from(["bf16", "bf16-mixed", "bf16-master", "fp32"]),
    checkpointing=st.sampled_from(["none", "full"]), gradient_accumulation_steps=st.sampled_from([1, 4]),
    frozen_layers=st.sampled_from([0, 3]), max_grad_norm=st.sampled_from([None, 1.0]),
)  # fmt: skip


@settings(deadline=None)
@given(parallel=parallels, run=runs, model=st.sampled_from([SMALL, EXPERTS]))
def test_a_rank_holds_at_least_its_share(parallel: Parallel, run: TrainRun, model: TransformerModel) -> None:
    alone, shared = train(model, None, run), train(model, parallel, run)
    if parallel.pipeline == 1:  # otherwise ranks differ, and the fullest need not be so in every part
        for name, size in states(alone).items():
            if parallel.cpu_offload and name in {"optimizer", "master weights"}:
                continue
            assert states(shared)[name] * parallel.ranks >= size, name
    if not parallel.cpu_offload:
        assert shared.process * parallel.ranks >= alone.process
    assert sum(one.at_peak for one in shared.parts) == shared.process
    assert all(one.at_peak >= 0 and one.bytes >= one.at_peak for one in shared.parts)


@given(
    run=runs, stage=st.sampled_from([0, 3]), reshard=st.booleans(), strategy=st.sampled_from(["ddp", "zero", "fsdp"])
)
def test_one_rank_alone_shares_nothing(run: TrainRun, stage: int, reshard: bool, strategy: str) -> None:
    alone = Parallel(zero_stage=stage, strategy=strategy, reshard_after_forward=reshard)  # type: ignore[arg-type] # drawn
    shared = train(SMALL, alone, run)
    assert shared == train(SMALL, None, run)


@given(run=runs, data=st.sampled_from([2, 8, 64]))
def test_a_higher_stage_never_holds_more_states(run: TrainRun, data: int) -> None:
    every = [states(train(SMALL, Parallel(data=data, strategy="zero", zero_stage=stage), run)) for stage in range(4)]
    for lower, higher in pairwise(every):
        assert all(higher[name] <= size for name, size in lower.items())
        assert sum(higher.values()) < sum(lower.values())


@for_each([(0, 120), (1, 31.4), (2, 16.6), (3, 1.88)])
def test_states_of_the_zero_papers_example(stage: int, published: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters over 64 ranks, 16 bytes each, in GB."""
    model = TransformerModel(
        hidden_size=4096, num_hidden_layers=37, num_attention_heads=32, gated_mlp=False, vocab_size=50257
    )
    each = sum(states(train(model, Parallel(data=64, strategy="zero", zero_stage=stage))).values())
    assert each * (7.5e9 / parameter_count(model)) / 1e9 == pytest.approx(published, rel=0.01)


def test_what_ranks_hold_under_each_way_of_sharing() -> None:
    shared = train(LLAMA_8B, Parallel(data=8))
    assert part(shared, "gradient buckets") == part(shared, "gradients") == 2 * parameter_count(LLAMA_8B)
    tensors = [Parameter("a", (MIB,), 40), Parameter("b", (100 * MIB,))]
    assert buckets(tensors, 1, 25 * MIB) == [(100 * MIB, 1), (25 * MIB, 1), (15 * MIB, 1)]
    assert buckets(tensors[:1], 1, 25 * MIB) == [(MIB, 1), (25 * MIB, 1), (14 * MIB, 1)]
    many = [Parameter("a", (10 * MIB,), 10**12)]
    assert buckets(many, 1, 25 * MIB) == [(10 * MIB, 1), (30 * MIB, (10**12 - 1) // 3)]
    shared = train(LLAMA_8B, Parallel(data=8, strategy="fsdp"))
    block, outside = 218_112_000, 2 * 128256 * 4096 + 4096
    assert part(shared, "gathered weights") == 2 * (2 * block + outside)
    assert part(shared, "unsharded gradients") == 2 * 2 * (outside)
    kept = train(LLAMA_8B, Parallel(data=8, strategy="fsdp", reshard_after_forward=False))
    assert part(kept, "gathered weights") == 2 * (32 * block + outside) == 2 * parameter_count(LLAMA_8B)
    # MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32): fp32 in shards, bf16 where weights are whole.
    mixed = train(LLAMA_8B, Parallel(data=8, strategy="fsdp"), msgspec.structs.replace(RUN, precision="bf16-mixed"))
    half = train(LLAMA_8B, Parallel(data=8, strategy="fsdp"), msgspec.structs.replace(RUN, precision="bf16"))
    assert {name: size for name, size in states(mixed).items() if name != "optimizer"} == {
        "weights": 4 * parameter_count(LLAMA_8B) // 8,
        "gradients": 4 * parameter_count(LLAMA_8B) // 8,
    }
    assert states(mixed)["optimizer"] == pytest.approx(parameter_count(LLAMA_8B), rel=0.001)
    for same in ("gathered weights", "activations: MLP", "activations: residual stream"):
        assert part(mixed, same) == part(half, same)
    outside = 2 * 128256 * 4096 + 4096
    assert part(mixed, "unsharded gradients") == (2 + 4) * outside
    assert any("MixedPrecisionPolicy" in note for note in mixed.assumptions)
    shared = train(LLAMA_8B, Parallel(data=8, zero_stage=2, cpu_offload=True))
    assert (part(shared, "optimizer"), part(shared, "master weights")) == (0, 0)
    assert part(shared, "weights") == part(train(LLAMA_8B, None), "weights")
    # Korthikanti et al. 2022, table 2: of 10 + 24 / t a part of 10 is left whole without it, and none with it.
    eight, also = (
        train(LLAMA_8B, Parallel(tensor=8, sequence_parallel=split), msgspec.structs.replace(RUN, precision="bf16"))
        for split in (False, True)
    )
    norms, stream = "activations: norms", "activations: residual stream"
    assert part(also, norms) == pytest.approx(part(eight, norms) / 8, rel=0.001)
    assert part(also, stream) == pytest.approx(part(eight, stream) / 8, rel=0.001)
    assert part(also, "activations: MLP") == part(eight, "activations: MLP")


@for_each([
    (None, 34 + 5 * 96 * 2048 / 12288),
    (Parallel(tensor=8), 10 + 24 / 8 + 5 * 96 * 2048 / 12288 / 8),
    (Parallel(tensor=8, sequence_parallel=True), (34 + 5 * 96 * 2048 / 12288) / 8),
])  # fmt: skip
def test_activations_of_a_layer_as_korthikanti_counts_them(parallel: Parallel | None, published: float) -> None:
    """Table 2 of arXiv 2205.05198 for GPT-3's layers: bytes for each number of the stream, with eager attention."""
    run = TrainRun(sequence_length=2048, precision="bf16", attention="eager")

    def kept(layers: int) -> int:
        model = TransformerModel(
            hidden_size=12288, num_hidden_layers=layers, num_attention_heads=96, vocab_size=51200, position="learned",
            max_position_embeddings=2048, gated_mlp=False, norm="layernorm", hidden_act="gelu", attention_bias=True,
            output_bias=True, mlp_bias=True, hidden_dropout=0.1, attention_dropout=0.1, implementation="plain",
        )  # fmt: skip
        forward = next(moment for moment in train(model, parallel, run).timeline if moment.phase == "forward")
        return forward.categories["activations"]

    assert (kept(4) - kept(2)) / 2 / (2048 * 12288) == pytest.approx(published, rel=0.02)


def test_first_stages_experts_and_adapters_of_a_pipeline() -> None:
    run = msgspec.structs.replace(RUN, gradient_accumulation_steps=8)
    four = train(LLAMA_8B, Parallel(pipeline=4), run)
    assert "worst rank: pipeline rank 0 of 4 (layers 0–7, embeddings)" in four.assumptions[2]
    short = msgspec.structs.replace(RUN, gradient_accumulation_steps=1, precision="bf16", sequence_length=8192)
    once = train(LLAMA_8B, Parallel(pipeline=4), short)
    assert "worst rank: pipeline rank 3 of 4 (layers 24–31, output layer)" in once.assumptions[2]
    # By 1 + (p - 1) / (p v) (Narayanan et al. 2021): 11 / 8 for 4 ranks with 2 stretches each.
    run = msgspec.structs.replace(RUN, gradient_accumulation_steps=16, precision="bf16")
    kept = [
        train(LLAMA_8B, Parallel(pipeline=4, virtual_pipeline=chunks), run).ledger.activations or 0 for chunks in (1, 2)
    ]
    assert kept[1] / kept[0] == pytest.approx(11 / 8, rel=0.01)
    run = msgspec.structs.replace(RUN, checkpointing="full", sequence_length=512)
    one, eight = (
        train(DEEPSEEK_V3, Parallel(data=64, pipeline=16, strategy="zero", zero_stage=1, expert=ranks), run)
        for ranks in (1, 64)
    )
    assert part(eight, "weights") < part(one, "weights") / 8
    assert part(eight, "weights") * 64 > part(one, "weights")
    run = msgspec.structs.replace(RUN, precision="bf16", lora=Lora(rank=16, target_modules=("q_proj", "v_proj")))
    alone, half = train(LLAMA_8B, None, run), train(LLAMA_8B, Parallel(pipeline=2), run)
    assert 2 * part(half, "gradients") == part(alone, "gradients")
    assert 2 * part(half, "weights") > part(alone, "weights")
    net = ConvNetModel(block="basic", stages=(Stage(channels=64, blocks=2), Stage(channels=128, blocks=2, stride=2)))
    run = TrainRun(batch_size=8, precision="fp32")
    alone = ANALYTIC.estimate(Workload(model=net, run=run), H100)
    shared = ANALYTIC.estimate(Workload(model=net, run=run, parallel=Parallel(data=4)), H100)
    line: Category = "gradients"
    assert part(shared, "gradient buckets") > 0
    assert (shared.ledger.bytes_of(line) or 0) > (alone.ledger.bytes_of(line) or 0)
    with pytest.raises(UserError, match="models of kind 'convnet' are not split so"):
        ANALYTIC.estimate(Workload(model=net, run=run, parallel=Parallel(tensor=2)), H100)


@for_each([(8, False, 2_995_142_656), (8, True, 2_854_962_176), (12, False, 4_184_850_432), (12, True, 3_827_598_336)])
def test_a_sharded_stage_keeps_whole_gradients(layers: int, reshard: bool, allocated: int) -> None:
    """The first of two stages of a Llama over 8 ranks of FSDP2, four micro-batches in the order of 1F1B, on the CUDA
    build with the calls of torch's pipelining; with a block's gradients alone it was 29 to 36 % too low. Now it is
    0.8 to 3.0 % too high: the sharded gradients, which are there only once all are reduced, are counted beside.
    """
    model = TransformerModel(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers, num_attention_heads=16, vocab_size=32000,
        max_position_embeddings=2048, tie_word_embeddings=False,
    )  # fmt: skip
    run = TrainRun(
        precision="bf16-mixed", sequence_length=1024, gradient_accumulation_steps=4, optimizer="adamw",
        attention="flash",
    )  # fmt: skip
    parallel = Parallel(data=8, pipeline=2, strategy="fsdp", zero_stage=3, reshard_after_forward=reshard)
    assert train(model, parallel, run).allocated == pytest.approx(allocated * 1.02, rel=0.015)


@pytest.mark.slow
def test_frozen_layers_leave_nothing_out_of_a_tower() -> None:
    run = msgspec.structs.replace(RUN, sequence_length=64, frozen_layers=1)
    places = {name: {group.place for group in model.tensors} for name, model in known_decoders().items()}
    towers = {name: model for name, model in known_decoders().items() if "tower" in places[name]}
    assert len(towers) > 30
    for name, model in towers.items():
        assert states(train(model, None, run)) == states(train(model, Parallel(data=2, strategy="ddp"), run)), name

"""What must hold of every rule for any sizes: sums, growth, and the arithmetic done again in another way."""

from itertools import pairwise
from math import ceil, prod
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.estimate.ledger import CATEGORIES
from vramtui.core.schema.decoder_models import RuleModel, TransformerModel
from vramtui.core.schema.rule_inputs import RuleInputs
from vramtui.core.schema.rule_inputs.formulas import (
    ActivationsRule,
    BatchPoint,
    BytesPerParameterRule,
    EleutherRule,
    EncoderDecoderRule,
    Gpt2ResidualRule,
    KvCacheRule,
    LinearInBatchRule,
    LoraCalculatorRule,
    MegatronRule,
    Resnet50Rule,
)
from vramtui.core.schema.rule_inputs.steps import (
    AccelerateRule,
    BlocksRule,
    DeepspeedRule,
    LinearRule,
    MlpRule,
    OptimizerTimelineRule,
    ZeroRule,
)
from vramtui.core.schema.workload import InferRun, Lora, TrainRun, Workload
from vramtui.estimators.rules import RULES, estimate_rules
from vramtui.estimators.rules.resnet50 import network
from vramtui.estimators.rules.transformers import eleuther_parameters
from vramtui.presets import parse_preset

H100 = card("H100")
size = st.integers(1, 5000)
small = st.integers(1, 64)
few = st.integers(1, 16)
heads = st.sampled_from((1, 2, 4, 8))
wide = st.sampled_from((64, 128, 768, 1024))
count = st.integers(1, 10**12)


def build(kind: type[RuleInputs], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[RuleInputs]:
    return st.builds(kind, **fields)


# The sizes that may grow, by rule; what is left out is drawn from its own choices.
GROWING: dict[type[RuleInputs], dict[str, st.SearchStrategy[Any]]] = {
    LinearRule: {"in_features": size, "out_features": size, "batch_size": size},
    MlpRule: {"in_features": size, "hidden_features": size, "out_features": size, "batch_size": small},
    OptimizerTimelineRule: {"in_features": size, "out_features": size, "batch_size": size, "steps": few},
    BytesPerParameterRule: {"parameters": count},
    Gpt2ResidualRule: {
        "parameters": count,
        "hidden_size": size,
        "num_hidden_layers": small,
        "batch_size": small,
        "sequence_length": size,
    },
    Resnet50Rule: {"parameters": count, "responses": count, "batch_size": small},
    EncoderDecoderRule: {
        "d_ff": size,
        "encoder_layers": few,
        "decoder_layers": few,
        "source_vocab_size": size,
        "target_vocab_size": size,
        "batch_size": small,
        "source_length": small,
        "target_length": small,
    },
    LoraCalculatorRule: {
        "parameters": count,
        "num_hidden_layers": small,
        "hidden_size": size,
        "vocab_size": size,
        "sequence_length": size,
        "batch_size": small,
    },
    KvCacheRule: {
        "num_hidden_layers": small,
        "head_dim": small,
        "batch_size": small,
        "sequence_length": size,
    },
    AccelerateRule: {"parameters": count, "buffer_bytes": size},
    EleutherRule: {
        "num_hidden_layers": small,
        "hidden_size": size,
        "num_attention_heads": few,
        "sequence_length": size,
        "batch_size": small,
        "vocab_size": size,
    },
    ActivationsRule: {
        "hidden_size": size,
        "num_hidden_layers": small,
        "num_attention_heads": few,
        "sequence_length": size,
        "batch_size": small,
    },
    MegatronRule: {
        "num_hidden_layers": small,
        "ffn_hidden_size": size,
        "padded_vocab_size": size,
        "sequence_length": size,
        "batch_size": small,
    },
    ZeroRule: {"parameters": count},
    DeepspeedRule: {"parameters": count, "largest_layer_parameters": size},
}
CHOICES: dict[type[RuleInputs], dict[str, st.SearchStrategy[Any]]] = {
    OptimizerTimelineRule: {"optimizer": st.sampled_from(("sgd", "momentum", "adam", "adamw"))},
    MlpRule: {"mode": st.sampled_from(("train", "inference"))},
    BytesPerParameterRule: {
        "phase": st.sampled_from(("inference", "full-fp16", "mixed", "lora", "qlora")),
        "dtype": st.sampled_from(("fp32", "tf32", "bf16", "fp16", "int8", "int4")),
    },
    Gpt2ResidualRule: {
        "checkpointing": st.sampled_from(("none", "full")),
        "fragmentation": st.sampled_from((0.0, 0.25, 0.3)),
    },
    EncoderDecoderRule: {
        "d_model": wide,
        "num_heads": heads,
        "bias": st.booleans(),
        "position": st.sampled_from(("learned", "sinusoidal", "none")),
        "tie_word_embeddings": st.booleans(),
    },
    LoraCalculatorRule: {
        "ratio": st.sampled_from((0.0, 0.02, 0.37, 1.0)),
        "phase": st.sampled_from(("train", "infer")),
    },
    KvCacheRule: {"num_attention_heads": st.just(8), "num_key_value_heads": heads},
    AccelerateRule: {
        "dtype": st.sampled_from(("fp32", "bf16", "fp16", "int8", "int4")),
        "phase": st.sampled_from(("train", "infer")),
    },
    EleutherRule: {
        "phase": st.sampled_from(("train", "infer")),
        "checkpointing": st.booleans(),
        "partition_activations": st.booleans(),
        "zero_stage": st.integers(0, 3),
        "gpus": few,
        "tensor_parallel": few,
    },
    ActivationsRule: {
        "tensor_parallel": few,
        "sequence_parallel": st.booleans(),
        "recompute": st.sampled_from(("none", "selective", "full")),
    },
    MegatronRule: {
        "hidden_size": wide,
        "num_attention_heads": heads,
        "swiglu": st.booleans(),
        "tie_word_embeddings": st.booleans(),
        "tensor_parallel": few,
        "pipeline_parallel": few,
        "data_parallel": few,
        "distributed_optimizer": st.booleans(),
        "sequence_parallel": st.booleans(),
    },
    ZeroRule: {"ranks": few, "stage": st.integers(0, 3)},
    DeepspeedRule: {
        "ranks": few,
        "stage": st.sampled_from((2, 3)),
        "offload_optimizer": st.booleans(),
        "formula": st.sampled_from(("documented", "current")),
    },
}


def ask(inputs: RuleInputs) -> Estimate:
    workload = Workload(model=RuleModel(), run=TrainRun(), rule=inputs)
    (estimate,) = estimate_rules(workload, H100)
    return estimate


@pytest.mark.parametrize("kind", list(GROWING), ids=lambda kind: kind.__name__)
@settings(deadline=None)
@given(data=st.data())
def test_parts_sum_to_the_total_and_no_size_shrinks_it(kind: type[RuleInputs], data: st.DataObject) -> None:
    growing = GROWING[kind]
    inputs = data.draw(build(kind, **growing, **CHOICES.get(kind, {})))
    found = ask(inputs)
    assert sum(part.at_peak for part in found.parts) == found.process
    assert sum(found.ledger.bytes_of(line) or 0 for line in CATEGORIES) == found.ledger.allocated
    assert all(0 <= part.at_peak <= part.bytes for part in found.parts)
    assert len({part.name for part in found.parts}) == len(found.parts)
    for moment in found.timeline:
        assert sum(moment.categories.values()) == moment.allocated <= moment.peak_allocated
    field = data.draw(st.sampled_from(sorted(growing)))
    more = data.draw(st.integers(1, 40))
    assert ask(msgspec.structs.replace(inputs, **{field: getattr(inputs, field) + more})).process >= found.process


@settings(deadline=None)
@given(shapes=st.lists(st.lists(size, max_size=3).map(tuple), min_size=1, max_size=5).map(tuple))
def test_blocks_are_whole_and_the_fewest(shapes: tuple[tuple[int, ...], ...]) -> None:
    for shape, part in zip(shapes, ask(BlocksRule(shapes=shapes)).parts, strict=True):
        assert part.bytes == 512 * ceil(4 * prod(shape) / 512) == 512 * part.count


@settings(deadline=None)
@given(
    constant=st.integers(0, 10**10),
    slope=st.integers(0, 10**9),
    batches=st.lists(st.integers(1, 1000), min_size=3, max_size=3, unique=True),
)
def test_two_points_give_any_third(constant: int, slope: int, batches: list[int]) -> None:
    first, second, third = (BatchPoint(batch_size=n, bytes=constant + n * slope + 1) for n in batches)
    asked = LinearInBatchRule(first=first, second=second, batch_size=third.batch_size)
    assert ask(asked).process == third.bytes


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
def test_activations_of_a_layer(recompute: Any) -> None:
    """Korthikanti et al. 2022, Table 2, on MT-NLG 530B: 34 s·b·h and 64 s·b·h, so that 65 % are saved."""
    one = 2048 * 20480 * 105
    found = ask(
        ActivationsRule(
            hidden_size=20480,
            num_hidden_layers=105,
            num_attention_heads=128,
            sequence_length=2048,
            batch_size=1,
            recompute=recompute,
        )
    )
    assert found.process == one * {"none": 34 + 64, "selective": 34, "full": 2}[recompute]
    assert round(100 * 64 / (34 + 64)) == 65


@settings(deadline=None)
@given(ranks=few)
def test_sharding_leaves_at_least_an_equal_share(ranks: int) -> None:
    whole = ask(ZeroRule(parameters=10**9, ranks=1)).process
    sharded = [ask(ZeroRule(parameters=10**9, ranks=ranks, stage=stage)).process for stage in range(4)]
    assert sharded[0] == whole
    assert all(a >= b >= whole // ranks for a, b in pairwise(sharded))


def test_eleutherai_counts_gpt3() -> None:
    """GPT-3's shapes, by the script's parameter formula written out."""
    h, n = 12288, 96
    inputs = EleutherRule(num_hidden_layers=n, hidden_size=h, num_attention_heads=96)
    assert eleuther_parameters(inputs) == 2 * 51200 * h + 2048 * h + 8 * h * n + 2 * h + 12 * n * h * h
    found = ask(msgspec.structs.replace(inputs, checkpointing=True))
    assert found.ledger.activations == 34 * 2048 * h * n
    assert found.ledger.optimizer == 12 * eleuther_parameters(inputs)


@pytest.mark.parametrize(
    ("blocks", "parameters_of"), [((3, 4, 6, 3), 25557032), ((3, 4, 23, 3), 44549160), ((3, 8, 36, 3), 60192808)]
)
def test_resnets_count_what_their_cards_say(blocks: tuple[int, ...], parameters_of: int) -> None:
    assert network(blocks, 224).parameters == parameters_of


def test_transformer_base_counts_what_the_paper_says() -> None:
    """Vaswani et al. 2017, Table 3: 65 million, with the one vocabulary shared by both sides and the output."""
    found = ask(
        EncoderDecoderRule(
            d_model=512,
            d_ff=2048,
            num_heads=8,
            encoder_layers=6,
            decoder_layers=6,
            source_vocab_size=37000,
            target_vocab_size=37000,
            batch_size=1,
            source_length=64,
            target_length=64,
            tie_word_embeddings=True,
        )
    )
    counts = {part.name: part.bytes // 4 for part in found.parts}
    assert (counts["parameters"] - counts["source embedding"]) / 10**6 == pytest.approx(65, rel=0.03)


LLAMA = TransformerModel(
    hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, vocab_size=32000, intermediate_size=11008
)


def by_id(workload: Workload) -> dict[str, Estimate]:
    return {found.method.removeprefix("rules:"): found for found in estimate_rules(workload, H100)}


def test_an_ordinary_training_gets_every_rule_that_fits() -> None:
    found = by_id(Workload(model=LLAMA, run=TrainRun(batch_size=2, sequence_length=2048)))
    assert set(found) == {
        "bytes-per-parameter",
        "gpt2-residual",
        "accelerate",
        "eleutherai",
        "activation-recomputation",
        "megatron",
        "zero",
    }
    seven = 6_738_415_616
    assert found["zero"].process == 16 * seven
    assert found["bytes-per-parameter"].process == 16 * seven
    assert found["accelerate"].process == 16 * seven
    assert found["megatron"].ledger.weights == 2 * seven
    assert found["gpt2-residual"].ledger.activations == 12 * 4096 * 2 * 2048 * 32 * 2


def test_adapters_bring_the_lora_rules() -> None:
    lora = Lora(rank=16, target_modules=("q_proj",))
    found = by_id(Workload(model=LLAMA, run=TrainRun(sequence_length=2048, lora=lora)))
    assert found["bytes-per-parameter"].process == 2 * 6_738_415_616
    assert set(found) == {"bytes-per-parameter", "lora-calculator", "accelerate", "activation-recomputation"}


def test_generation_gets_the_cache() -> None:
    run = InferRun(batch_size=32, sequence_length=2000, new_tokens=48, precision="fp32")
    found = by_id(Workload(model=LLAMA, run=run))
    assert found["kv-cache"].process == 64 << 30
    assert found["bytes-per-parameter"].process == 4 * 6_738_415_616
    assert {"accelerate", "eleutherai", "lora-calculator"} <= set(found)


def test_grouped_queries_shrink_the_cache() -> None:
    run = InferRun(batch_size=1, sequence_length=1024)
    whole = by_id(Workload(model=LLAMA, run=run))["kv-cache"].process
    grouped = msgspec.structs.replace(LLAMA, num_key_value_heads=8)
    assert by_id(Workload(model=grouped, run=run))["kv-cache"].process == whole // 4


def test_one_rule_by_its_id() -> None:
    workload = Workload(model=LLAMA, run=TrainRun(sequence_length=128))
    assert [found.method for found in estimate_rules(workload, H100, "zero")] == ["rules:zero"]


def test_sentences_for_what_cannot_be() -> None:
    workload = Workload(model=LLAMA, run=TrainRun(sequence_length=128))
    with pytest.raises(UserError, match=r"no rule is called 'zer' \(did you mean zero\?\)"):
        estimate_rules(workload, H100, "zer")
    with pytest.raises(UserError, match="'kv-cache' does not fit this workload; these do: bytes-per-parameter"):
        estimate_rules(workload, H100, "kv-cache")
    with pytest.raises(UserError, match=r"goes with a \[rule\] table"):
        estimate_rules(Workload(model=RuleModel(), run=TrainRun()), H100)


def test_impossible_inputs_are_refused() -> None:
    point = BatchPoint(batch_size=1, bytes=100)
    with pytest.raises(UserError, match="fix no line"):
        LinearInBatchRule(first=point, second=point, batch_size=2)
    with pytest.raises(UserError, match="less memory"):
        LinearInBatchRule(first=point, second=BatchPoint(batch_size=2, bytes=50), batch_size=2)
    with pytest.raises(UserError, match="less than no memory"):
        LinearInBatchRule(first=point, second=BatchPoint(batch_size=2, bytes=500), batch_size=2)
    with pytest.raises(UserError, match="largest_layer_parameters is needed"):
        DeepspeedRule(parameters=1, ranks=1, stage=3)
    with pytest.raises(UserError, match="goes with"):
        DeepspeedRule(parameters=1, ranks=1, stage=2, offload_parameters=True)
    with pytest.raises(UserError, match="does not divide"):
        KvCacheRule(
            num_hidden_layers=1,
            num_attention_heads=8,
            head_dim=1,
            batch_size=1,
            sequence_length=1,
            num_key_value_heads=3,
        )


def test_every_rule_says_where_it_is_from() -> None:
    assert all(rule.source and rule.title and rule.id == name for name, rule in RULES.items())


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ('id = "kv-cach"', r"a.toml:8: rule.id is 'kv-cach' \(did you mean kv-cache\?\)"),
        ('id = "zero"\nparameters = 10\nranks = 2\nstage = 4', "a.toml:11: rule.stage is 4; it must be at most 3"),
        ('id = "blocks"\nshapes = [[0]]', "rule.shapes"),
        ('id = "deepspeed"\nparameters = 1\nranks = 1\nstage = 3', "a.toml:7: rule.largest_layer_parameters is needed"),
        (
            'id = "deepspeed"\nparameters = 1\nranks = 1\nstage = 2\noffload_parameters = true',
            "a.toml:12: rule.offload",
        ),
    ],
)
def test_a_presets_fault_is_one_sentence_with_its_line(rule: str, sentence: str) -> None:
    text = f'name = "x"\n[model]\nkind = "rule"\n[run]\nkind = "train"\n\n[rule]\n{rule}\n'
    with pytest.raises(UserError, match=sentence):
        parse_preset(text, "a.toml")


def test_a_model_of_kind_rule_needs_a_rule() -> None:
    text = 'name = "x"\n[model]\nkind = "rule"\n[run]\nkind = "train"\n'
    with pytest.raises(UserError, match=r"a.toml:3: model.kind = .rule. goes with a \[rule\] table, and there is none"):
        parse_preset(text, "a.toml")

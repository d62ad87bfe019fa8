"""Published figures of the rules, as `vramtui estimate NAME --set … --method rules:ID` gives them."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaded_once import bundled_presets
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import CATEGORIES, Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel, TrainRun, Workload
from vramtui.estimators.methods import estimates_by
from vramtui.estimators.rules import RULES, estimate_rules
from vramtui.presets.library import PresetLibrary
from vramtui.presets.overrides import apply_overrides

H100 = card("H100")
GB, GIB, MIB = 10**9, 1 << 30, 1 << 20
LIBRARY = PresetLibrary()

GPT2 = ("gpt2-1.5b-batch32", "model.parameters=1500000000")
MIXED = ("llama-3.1-8b-full", "run.precision=bf16-mixed", "model.parameters=8000000000")
LORA = ("llama-3.1-8b-lora", "model.parameters=7000000000")
SHAPES = ("model.hidden_size=4068", "model.vocab_size=256128", "run.sequence_length=8192", "run.batch_size=1")
GEMMA = ("gemma-2-27b-lora", *SHAPES, "model.parameters=27000000000")
GEMMA_INFER = ("gemma-2-27b-infer", *SHAPES, "run.new_tokens=1", "model.parameters=27000000000")
CACHE = (
    "llama-3.1-8b-infer", "model.num_key_value_heads=32", "run.batch_size=32", "run.sequence_length=2048",
    "run.new_tokens=0", "run.precision=fp32",
)  # fmt: skip
ZERO = (
    "gpt2-1.5b",
    "parallel.strategy=zero",
    "parallel.zero_stage=3",
    "parallel.data=64",
    "model.parameters=7500000000",
)
T5 = ("gpt2-1.5b", "parallel.strategy=zero", "parallel.data=8", "model.vocab_size=31250", "model.hidden_size=1024",
      "model.num_attention_heads=16", "model.parameters=2851000000")  # fmt: skip
# 8,192 B of buffers count as 2,048 parameters more.
BERT = ("gpt2-124m", "run.precision=fp32", "model.vocab_size=28996", "model.parameters=108312320")
GPT3 = (
    "gpt2-1.5b", "model.hidden_size=12288", "model.num_hidden_layers=96", "model.num_attention_heads=96",
    "run.sequence_length=2048", "run.batch_size=1", "parallel.tensor=8", "parallel.sequence_parallel=true",
    "run.attention=flash", "run.checkpointing=none",
)  # fmt: skip
PYTHIA = (
    "gpt2-1.5b", "model.hidden_size=4096", "model.num_hidden_layers=32", "model.num_attention_heads=32",
    "run.sequence_length=2048", "run.batch_size=8", "run.checkpointing=full", "parallel.strategy=zero",
    "parallel.zero_stage=1", "parallel.data=64", "parallel.tensor=2", "parallel.sequence_parallel=true",
)  # fmt: skip

PUBLISHED: dict[str, tuple[tuple[str, ...], Mapping[str, tuple[float, int, int]]]] = {
    # part: (figure, unit in bytes, decimals); "" is the total
    "bytes-per-parameter": (
        MIXED,
        {"weights": (48, GB, 0), "gradients": (16, GB, 0), "optimizer": (64, GB, 0), "": (128, GB, 0)}
        | {"all, full fp16": (64, GB, 0), "all, LoRA": (16, GB, 0), "all, QLoRA": (4, GB, 0)}
        | {"weights in fp32": (32, GB, 0), "weights in tf32": (32, GB, 0), "weights in fp16": (16, GB, 0)}
        | {"weights in bf16": (16, GB, 0), "weights in int8": (8, GB, 0), "weights in int4": (4, GB, 0)},
    ),
    "bytes-per-parameter LoRA": (LORA, {"": (14, GB, 0)}),
    "gpt2-residual": (
        GPT2,
        {"weights, fp16": (3, GB, 0), "model states": (24, GB, 0), "activations": (60, GB, 0)}
        | {"activations, checkpointed as published": (8, GB, 0), "fused fp32 buffer": (6, GB, 0)},
    ),
    "lora-calculator": (
        GEMMA,
        {"CUDA kernels": (2.0, GIB, 3), "weights": (50.291, GIB, 3), "gradients": (1.006, GIB, 3)}
        | {"moments": (2.012, GIB, 3), "activations": (2.855, GIB, 3), "logits": (7.816, GIB, 3)}
        | {"": (65.981, GIB, 3), "all, inference": (59.055, GIB, 3)},
    ),
    "lora-calculator inference": (
        GEMMA_INFER,
        {"": (59.055, GIB, 3), "all, training": (65.981, GIB, 3), "logits": (3.908, GIB, 3)},
    ),
    "kv-cache": (CACHE, {"": (64, GIB, 3), "keys and values as MQA": (2, GIB, 3)}),
    "accelerate": (
        BERT,
        {"model": (413.18, MIB, 2), "largest layer": (84.95, MIB, 2), "model in fp16": (206.59, MIB, 2)}
        | {"model in int8": (103.29, MIB, 2), "model in int4": (51.65, MIB, 2)}
        | {"training in mixed precision": (826.36, MIB, 2), "training using Adam": (1.61, GIB, 2)},
    ),
    "zero": (
        ZERO,
        {"all, baseline": (120.0, GB, 1), "all, ZeRO-1 (optimizer)": (31.4, GB, 1)}
        | {"all, ZeRO-2 (and gradients)": (16.6, GB, 1), "all, ZeRO-3 (and parameters)": (1.9, GB, 1)}
        | {"": (1.9, GB, 1)},
    ),
    "deepspeed 2": ((*T5, "parallel.zero_stage=2"), {"": (15.93, GIB, 2), "all, optimizer offloaded": (5.31, GIB, 2)}),
    "deepspeed 3": (
        (*T5, "parallel.zero_stage=3"),
        {"": (6.09, GIB, 2), "all, optimizer offloaded": (0.78, GIB, 2)}
        | {"all, parameters and optimizer offloaded": (0.12, GIB, 2)},
    ),
    "eleutherai": (PYTHIA, {"activations": (36_507_222_016, 1, 0)}),
}


def workload_of(job: tuple[str, ...]) -> Workload:
    return apply_overrides(LIBRARY.get(job[0]).preset, job[1:]).workload


def estimate(key: str, job: tuple[str, ...]) -> Estimate:
    (answer,) = estimates_by(f"rules:{key.partition(' ')[0]}", workload_of(job), H100)
    return answer


def figure(answer: Estimate, name: str) -> int:
    return next(part.bytes for part in answer.parts if part.name == name) if name else answer.process


@for_each(PUBLISHED)
def test_published_figures(key: str) -> None:
    job, figures = PUBLISHED[key]
    answer = estimate(key, job)
    found = {name: round(figure(answer, name) / unit, digits) for name, (_, unit, digits) in figures.items()}
    assert found == {name: published for name, (published, _, _) in figures.items()}


def test_at_least_29_figures_are_published() -> None:
    assert sum(len(figures) for _, figures in PUBLISHED.values()) >= 29


def test_residual_states_keep_one_input_per_layer_and_lose_30_percent() -> None:
    answer = estimate("gpt2-residual", GPT2)
    assert figure(answer, "activations, one input stored per layer") == 1600 * 32 * 1024 * 48 * 2
    assert answer.ledger.allocated == 24 * GB + figure(answer, "activations") + 6 * GB
    lost = figure(answer, "fragmentation when memory runs out")
    assert lost / (answer.process + lost) == pytest.approx(0.3)


def test_selective_recomputation_saves_what_the_paper_says() -> None:
    answer = estimate("activation-recomputation", GPT3)
    core = figure(answer, "attention core")
    assert core / answer.process * 34 == pytest.approx(80)
    assert round(100 * core / (answer.process + core)) == 70


def test_four_bits_and_adapters_are_qlora() -> None:
    answer = estimate("bytes-per-parameter", ("llama-3.1-8b-qlora",))
    assert answer.process == 8_030_261_248 // 2


def test_gpt3_by_the_formulas_of_eleutherai() -> None:
    h, n = 12288, 96
    job = (
        *GPT3[:6],
        "model.vocab_size=51200",
        "run.attention=flash",
        "run.checkpointing=full",
        "run.precision=bf16-mixed",
    )
    answer = estimate("eleutherai", job)
    assert answer.ledger.activations == 34 * 2048 * h * n
    assert answer.ledger.optimizer == 12 * (2 * 51200 * h + 2048 * h + 8 * h * n + 2 * h + 12 * n * h * h)


@for_each([("none", "eager", 98), ("none", "flash", 34), ("full", "eager", 2)])
def test_activations_of_a_layer(checkpointing: str, attention: str, each: int) -> None:
    """Korthikanti et al. 2022, Table 2, on MT-NLG 530B: 34 s·b·h and 64 s·b·h, so that 65 % are saved."""
    job: tuple[str, ...] = (
        "gpt2-1.5b",
        "model.hidden_size=20480",
        "model.num_hidden_layers=105",
        "model.num_attention_heads=128",
    )
    job += ("run.sequence_length=2048", "run.batch_size=1", f"run.checkpointing={checkpointing}")
    answer = estimate("activation-recomputation", (*job, f"run.attention={attention}"))
    assert answer.process == 2048 * 20480 * 105 * each


def test_errata_say_by_how_much() -> None:
    words = {
        "bytes-per-parameter": ("TF32", "2 GB more"),
        "kv-cache": ("MQA",),
        "lora-calculator": ("4,608", "0.977 GiB"),
        "gpt2-residual": ("67.1 GB",),
    }
    for key, wanted in words.items():
        said = " ".join(line for line in estimate(key, PUBLISHED[key][0]).assumptions if line.startswith("Erratum: "))
        assert all(word in said for word in wanted), key


def check_sums(answer: Estimate) -> None:
    assert len({part.name for part in answer.parts}) == len(answer.parts)
    assert sum(part.at_peak for part in answer.parts) == answer.process
    assert answer.ledger.allocated == sum(answer.ledger.bytes_of(line) or 0 for line in CATEGORIES)
    for line in CATEGORIES:
        assert (answer.ledger.bytes_of(line) or 0) == sum(p.at_peak for p in answer.parts if p.line == line)
    assert all(part.formula and part.source and part.lifetime for part in answer.parts)


def test_parts_and_ledger_agree() -> None:
    seen = set()
    jobs = [found.preset.workload for found in bundled_presets() if isinstance(found.preset.model, TransformerModel)]
    jobs += [workload_of(job) for job, _ in PUBLISHED.values()]
    for workload in jobs:
        if isinstance(workload.run, TrainRun | InferRun):
            for answer in estimate_rules(workload, H100):
                seen.add(answer.method)
                check_sums(answer)
    assert seen == {f"rules:{key}" for key in RULES}


small = st.integers(1, 64)
MODELS = st.builds(
    TransformerModel, hidden_size=st.sampled_from((64, 128, 768)), num_hidden_layers=small,
    num_attention_heads=st.just(8), num_key_value_heads=st.sampled_from((None, 1, 4)),
    vocab_size=st.integers(1, 5000), intermediate_size=st.integers(1, 5000),
)  # fmt: skip
RUNS = st.one_of(
    st.builds(TrainRun, batch_size=small, sequence_length=small, checkpointing=st.sampled_from(("none", "full"))),
    st.builds(InferRun, batch_size=small, sequence_length=small, new_tokens=small),
)
PARALLEL = st.builds(Parallel, data=small, tensor=small, strategy=st.just("zero"), zero_stage=st.integers(0, 3))


@settings(deadline=None)
@given(model=MODELS, run=RUNS, parallel=PARALLEL, more=st.integers(1, 40))
def test_a_larger_batch_never_takes_less(
    model: TransformerModel, run: TrainRun | InferRun, parallel: Parallel, more: int
) -> None:
    workload = Workload(model=model, run=run, parallel=parallel)
    larger = estimate_rules(workload.with_run(batch_size=run.batch_size + more), H100)
    for one, other in zip(estimate_rules(workload, H100), larger, strict=True):
        check_sums(one)
        assert other.process >= one.process


def sized(job: tuple[str, ...]) -> Mapping[str, int]:
    return {answer.method: answer.process for answer in estimate_rules(workload_of(job), H100)}


def test_rules_that_fit() -> None:
    assert "rules:zero" in sized(("gpt2-124m",))
    assert "rules:kv-cache" not in sized(("gpt2-124m",))
    whole = sized(CACHE)["rules:kv-cache"]
    assert sized((*CACHE, "model.num_key_value_heads=8"))["rules:kv-cache"] == whole // 4


def test_sentences_for_what_cannot_be() -> None:
    workload = LIBRARY.get("gpt2-124m").preset.workload
    with pytest.raises(UserError, match=r"no rule is called 'zer' \(did you mean zero\?\)"):
        estimate_rules(workload, H100, "zer")
    with pytest.raises(UserError, match="'kv-cache' does not fit this workload; these do: bytes-per-parameter"):
        estimate_rules(workload, H100, "kv-cache")
    with pytest.raises(UserError, match="no rule fits this workload"):
        estimate_rules(LIBRARY.get("resnet-50-train").preset.workload, H100)

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.loaded_once import bundled_presets
from tests.tables import for_each, rows
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
GB = 10**9
LIBRARY = PresetLibrary()
PUBLISHED: list[dict[str, Any]] = rows(__file__, "published")
GPT3 = (
    "gpt2-1.5b", "model.hidden_size=12288", "model.num_hidden_layers=96", "model.num_attention_heads=96",
    "run.sequence_length=2048", "run.batch_size=1",
)  # fmt: skip
Job = Sequence[str]


def workload_of(job: Job) -> Workload:
    return apply_overrides(LIBRARY.get(job[0]).preset, job[1:]).workload


def estimate(rule: str, job: Job) -> Estimate:
    (answer,) = estimates_by(f"rules:{rule}", workload_of(job), H100)
    return answer


def figure(answer: Estimate, name: str) -> int:
    return next(part.bytes for part in answer.parts if part.name == name) if name else answer.process


@for_each(PUBLISHED)
def test_published_figures_and_errata(row: dict[str, Any]) -> None:
    answer, figures = estimate(row["rule"], row["job"]), row["figures"]
    found = {name: round(figure(answer, name) / row["unit"], row["decimals"]) for name in figures}
    assert found == figures
    errata = " ".join(line for line in answer.assumptions if line.startswith("Erratum: "))
    assert all(word in errata for word in row.get("errata", ()))


def test_what_recomputation_saves_is_what_the_papers_say() -> None:
    answer = estimate("gpt2-residual", ("gpt2-1.5b-batch32", "model.parameters=1500000000"))
    assert figure(answer, "activations, one input stored per layer") == 1600 * 32 * 1024 * 48 * 2
    assert answer.ledger.allocated == 24 * GB + figure(answer, "activations") + 6 * GB
    lost = figure(answer, "fragmentation when memory runs out")
    assert lost / (answer.process + lost) == pytest.approx(0.3)
    ranks = ("parallel.tensor=8", "parallel.sequence_parallel=true", "run.attention=flash", "run.checkpointing=none")
    answer = estimate("activation-recomputation", (*GPT3, *ranks))
    core = figure(answer, "attention core")
    assert core / answer.process * 34 == pytest.approx(80)
    assert round(100 * core / (answer.process + core)) == 70
    assert estimate("bytes-per-parameter", ("llama-3.1-8b-qlora",)).process == 8_030_261_248 // 2
    h, n = 12288, 96
    how = ("model.vocab_size=51200", "run.attention=flash", "run.checkpointing=full", "run.precision=bf16-mixed")
    answer = estimate("eleutherai", (*GPT3[:6], *how))
    assert answer.ledger.activations == 34 * 2048 * h * n
    assert answer.ledger.optimizer == 12 * (2 * 51200 * h + 2048 * h + 8 * h * n + 2 * h + 12 * n * h * h)


@for_each([("none", "eager", 98), ("none", "flash", 34), ("full", "eager", 2)])
def test_activations_of_a_layer(checkpointing: str, attention: str, each: int) -> None:
    """Korthikanti et al. 2022, Table 2, on MT-NLG 530B: 34 s·b·h and 64 s·b·h, so that 65 % are saved."""
    sizes = ("model.hidden_size=20480", "model.num_hidden_layers=105", "model.num_attention_heads=128")
    how = (f"run.checkpointing={checkpointing}", f"run.attention={attention}")
    answer = estimate("activation-recomputation", (GPT3[0], *sizes, *GPT3[4:], *how))
    assert answer.process == 2048 * 20480 * 105 * each


def check_sums(answer: Estimate) -> None:
    assert len({part.name for part in answer.parts}) == len(answer.parts)
    assert sum(part.at_peak for part in answer.parts) == answer.process
    assert answer.ledger.allocated == sum(answer.ledger.bytes_of(line) or 0 for line in CATEGORIES)
    for line in CATEGORIES:
        assert (answer.ledger.bytes_of(line) or 0) == sum(p.at_peak for p in answer.parts if p.line == line)
    assert all(part.formula and part.source and part.lifetime for part in answer.parts)


def test_rules_that_fit_add_up_and_what_cannot_be_is_a_sentence() -> None:
    seen = set()
    assert sum(len(row["figures"]) for row in PUBLISHED) >= 29
    jobs = [found.preset.workload for found in bundled_presets() if isinstance(found.preset.model, TransformerModel)]
    jobs += [workload_of(job) for job in (*(row["job"] for row in PUBLISHED), GPT3)]
    for workload in jobs:
        if isinstance(workload.run, TrainRun | InferRun):
            for answer in estimate_rules(workload, H100):
                seen.add(answer.method)
                check_sums(answer)
    assert seen == {f"rules:{key}" for key in RULES}

    def sized(job: Job) -> dict[str, int]:
        return {answer.method: answer.process for answer in estimate_rules(workload_of(job), H100)}

    (cache,) = (row["job"] for row in PUBLISHED if row["rule"] == "kv-cache")
    assert "rules:zero" in sized(("gpt2-124m",))
    assert "rules:kv-cache" not in sized(("gpt2-124m",))
    whole = sized(cache)["rules:kv-cache"]
    assert sized((*cache, "model.num_key_value_heads=8"))["rules:kv-cache"] == whole // 4
    workload = LIBRARY.get("gpt2-124m").preset.workload
    with pytest.raises(UserError, match=r"no rule is called 'zer' \(did you mean zero\?\)"):
        estimate_rules(workload, H100, "zer")
    with pytest.raises(UserError, match="'kv-cache' does not fit this workload; these do: bytes-per-parameter"):
        estimate_rules(workload, H100, "kv-cache")
    with pytest.raises(UserError, match="no rule fits this workload"):
        estimate_rules(LIBRARY.get("resnet-50-train").preset.workload, H100)


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
def test_more_takes_more(model: TransformerModel, run: TrainRun | InferRun, parallel: Parallel, more: int) -> None:
    workload = Workload(model=model, run=run, parallel=parallel)
    larger = estimate_rules(workload.with_run(batch_size=run.batch_size + more), H100)
    for one, other in zip(estimate_rules(workload, H100), larger, strict=True):
        check_sums(one)
        assert other.process >= one.process

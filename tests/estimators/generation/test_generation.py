from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.estimators.serving.models import DEEPSEEK_V3, GEMMA_3_27B, H100, LLAMA_1B, LLAMA_8B, LLAMA_70B, serve, size
from tests.golden_workloads import model as named
from tests.tables import for_each, rows
from vramtui.core.base.units import GIB
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel
from vramtui.estimators.analytic import parameter_count

RUN = InferRun(batch_size=1, sequence_length=1024, new_tokens=513)
SLIDING = msgspec.structs.replace(LLAMA_1B, sliding_window=256, sliding_window_pattern=4)
EXPERTS = msgspec.structs.replace(LLAMA_1B, num_experts=8, num_experts_per_tok=2)


def infer(model: TransformerModel, run: InferRun = RUN, parallel: Parallel | None = None) -> Estimate:
    return serve(model, run, H100, parallel)


def with_run(**changes: object) -> InferRun:
    return msgspec.structs.replace(RUN, **changes)


def test_caches_that_grow_stand_slide_or_keep_the_latent() -> None:
    estimate = infer(LLAMA_8B)
    assert size(estimate, "kv cache") == (1024 + 512) * 128 * 1024
    one_layer = (1024 + 512) * 8 * 128 * 2
    assert one_layer <= size(estimate, "cache growth") <= 2 * one_layer
    static = infer(LLAMA_8B, with_run(cache_implementation="static"))
    assert (size(static, "kv cache"), size(static, "cache growth")) == ((1024 + 512) * 128 * 1024, 0)
    after_prompt = {
        moment.phase: moment.categories["kv_cache"] for moment in static.timeline if moment.phase != "build"
    }
    assert after_prompt["prefill"] == after_prompt["decode"]
    assert static.allocated > infer(LLAMA_8B).allocated
    packed = infer(LLAMA_8B, with_run(kv_cache="int4"))
    each = 8 * 128 * 2 * 32
    assert size(packed, "kv cache") == pytest.approx(each * ((1536 - 127) * 4.5 / 8 + 127 * 2), rel=0.001)
    assert size(packed, "cache growth") > 0
    phases = {moment.phase: moment.categories for moment in infer(SLIDING).timeline}
    each = 2 * 8 * 64 * 2
    assert phases["prefill"]["kv_cache"] == 16 * each * 1024
    assert phases["decode"]["kv_cache"] == each * (4 * 1536 + 12 * 256)
    static = infer(SLIDING, with_run(cache_implementation="static"))
    assert size(static, "kv cache") == each * (4 * 1536 + 12 * 256)
    run = with_run(sequence_length=32768, cache_implementation="static")
    full = msgspec.structs.replace(GEMMA_3_27B, sliding_window=None, sliding_window_pattern=None)
    assert size(infer(GEMMA_3_27B, run), "kv cache") < size(infer(full, run), "kv cache") / 5
    estimate = infer(DEEPSEEK_V3, with_run(quantization="fp8"))
    assert size(estimate, "kv cache") == 70_272 * 1536
    assert "(512 latent + 64 rotary)" in next(one.formula for one in estimate.parts if one.name == "kv cache")


@for_each([("fp32", 2.0), ("fp16", 1.0), ("fp8", 0.5), ("int8", 8.5 / 16), ("int4", 4.5 / 16)])
def test_types_of_the_cache(kind: str, share: float) -> None:
    """llama.cpp's q8_0 and q4_0 keep a scale for each 32 numbers: 34 and 18 bytes instead of 64."""
    plain, packed = (size(infer(LLAMA_8B, with_run(kv_cache=kv, new_tokens=0)), "kv cache") for kv in (None, kind))
    assert packed == pytest.approx(plain * share, rel=0.001)


BITS = {
    "int8": 8, "fp8": 8, "int4": 4.15625, "nvfp4": 4.5, "nf4": 4.5, "nf4-double": 4.127, "q4_k": 4.5, "q6_k": 6.5625,
}  # fmt: skip


@for_each(BITS.items())
def test_weights_in_fewer_bits(quantization: str, bits: float) -> None:
    """The linear layers' bits; embedding and output layer stay in bf16, but for llama.cpp's types."""
    outside = 2 * 128256 * 4096
    inside = parameter_count(LLAMA_8B) - outside
    expected = inside * bits / 8 + outside * (bits / 8 if quantization.startswith("q") else 2)
    assert size(infer(LLAMA_8B, with_run(quantization=quantization)), "weights") == pytest.approx(expected, rel=0.002)


@for_each(rows(__file__, "files"))
def test_files_that_people_download(model: str, quantization: str, published: int) -> None:
    """Sizes of GGUF files of Llama 3.x, which hold 7.8 MB of words beside the tensors."""
    weights = size(infer(named(model), with_run(quantization=quantization)), "weights")
    assert 7.7e6 < published - weights < 7.9e6


def test_a_draft_model_and_other_cards() -> None:
    plain, drafted = infer(LLAMA_8B), infer(LLAMA_8B, with_run(draft=LLAMA_1B))
    assert size(drafted, "draft weights") >= 2 * parameter_count(LLAMA_1B)
    assert size(drafted, "draft kv cache") == 16 * 2 * 8 * 64 * 2 * 1536
    assert drafted.allocated - plain.allocated == size(drafted, "draft weights") + size(drafted, "draft kv cache")
    alone, four = infer(LLAMA_70B), infer(LLAMA_70B, RUN, Parallel(tensor=4))
    assert size(four, "weights") == pytest.approx(size(alone, "weights") / 4, rel=0.001)
    assert (size(four, "kv cache"), size(four, "nccl")) == (size(alone, "kv cache") // 4, GIB)
    assert "one card of 4" in four.assumptions[0]
    two = infer(LLAMA_70B, RUN, Parallel(pipeline=2))
    assert "worst rank: pipeline rank 0 of 2 (layers 0–39, embeddings); the others" in two.assumptions[0]
    assert size(two, "kv cache") == size(infer(LLAMA_70B), "kv cache") // 2
    assert size(infer(EXPERTS), "weights") == pytest.approx(2 * parameter_count(EXPERTS), rel=0.001)
    said = " ".join(infer(EXPERTS, with_run(quantization="nf4")).assumptions)
    assert "not in nf4: embed_tokens, layer_norm, norm, router" in said


models = st.sampled_from([LLAMA_1B, SLIDING, EXPERTS])
runs = st.builds(
    InferRun, batch_size=st.integers(1, 8), sequence_length=st.sampled_from([16, 300, 1000]),
    new_tokens=st.sampled_from([0, 1, 2, 300]), precision=st.sampled_from(["fp32", "bf16"]),
    quantization=st.sampled_from([None, "int8", "nf4"]), kv_cache=st.sampled_from([None, "fp32", "fp16"]),
    cache_implementation=st.sampled_from(["dynamic", "static"]), attention=st.sampled_from(["eager", "flash"]),
)  # fmt: skip


@given(model=models, run=runs, tensor=st.sampled_from([1, 2, 8]), pipeline=st.sampled_from([1, 2, 5]))
def test_ranks_hold_their_share(model: TransformerModel, run: InferRun, tensor: int, pipeline: int) -> None:
    alone = infer(model, run)
    shared = infer(model, run, Parallel(tensor=tensor, pipeline=pipeline))
    for estimate in (alone, shared):
        assert sum(one.at_peak for one in estimate.parts) == estimate.process
        assert all(0 <= one.at_peak <= one.bytes for one in estimate.parts)
    assert shared.process * tensor * pipeline >= alone.process
    if tensor * pipeline == 1:
        assert shared == alone


@given(model=models, run=runs)
def test_more_is_never_less(model: TransformerModel, run: InferRun) -> None:
    least = infer(model, run).process
    for changes in (
        {"batch_size": run.batch_size + 1},
        {"sequence_length": (run.sequence_length or 0) + 64},
        {"new_tokens": run.new_tokens + 64},
    ):
        assert infer(model, msgspec.structs.replace(run, **changes)).process >= least


@for_each(rows(__file__, "prefills"))
def test_prefill(model: str, changes: dict[str, Any], run: dict[str, Any], gpu: str, peak: int, within: float) -> None:
    changed = msgspec.structs.replace(named(model), **changes)
    found = serve(changed, InferRun(batch_size=2, **({"attention": "flash"} | run)), card(gpu))
    assert found.allocated == pytest.approx(peak, rel=within)

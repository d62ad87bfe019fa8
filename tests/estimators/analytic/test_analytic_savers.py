"""Liger's kernels, quantised weights, small optimizers and selective checkpointing beside the CUDA build.

`benchmarks/saver_jobs.py` runs the recorded jobs again: public decoders cut to six blocks.
"""

import json
from functools import lru_cache
from statistics import median

import msgspec
import pytest

from tests.recorded.accuracy import SAVER_JOBS, saver_errors
from tests.recorded.stated_errors import workload_of
from tests.tables import for_each
from vramtui.core.estimate.devices import card
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import Lora, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC

NAMES = [job["name"] for job in json.loads(SAVER_JOBS.read_text(encoding="utf-8"))]
# Blocks of up to 1 MiB that fill a gap keep what is left of it, which shows in the smallest models alone.
WORST_ALLOCATED = 0.016
WORST_RESERVED = 0.05
MODEL = TransformerModel(
    hidden_size=512, num_hidden_layers=4, num_attention_heads=8, vocab_size=4096, intermediate_size=2048,
    norm="rmsnorm", gated_mlp=True, position="rope",
)  # fmt: skip


@lru_cache
def errors() -> dict[str, tuple[float, float]]:
    return {name: (allocated, reserved) for name, allocated, reserved in saver_errors()}


@pytest.mark.slow
@for_each(NAMES)
def test_the_peak_is_that_of_the_cuda_build(name: str) -> None:
    allocated, reserved = errors()[name]
    assert abs(allocated) <= WORST_ALLOCATED
    assert abs(reserved) <= WORST_RESERVED


def test_every_kind_of_saving_is_held_and_most_are_far_nearer() -> None:
    kinds = {name.split(":", 1)[0].split()[0] for name in NAMES}
    assert kinds == {
        "liger", "kbit", "int8", "qlora", "adafactor", "adamw_8bit", "paged_adamw_8bit", "paged_adamw_32bit",
        "selective",
    }  # fmt: skip
    assert median(abs(allocated) for allocated, _ in errors().values()) <= 0.003
    sizes = sorted(abs(reserved) for _, reserved in errors().values())
    assert median(sizes) <= 0.005
    assert sizes[len(sizes) * 9 // 10] <= 0.03
    assert peak(use_liger_kernel=True) < peak(cross_entropy="fused") < peak()
    assert peak(checkpointing="full") < peak(checkpointing="selective-ops") < peak()
    # LLM.int8's context keeps its inputs where checkpointing does not see them, unless that is reentrant.
    eight = {"lora": Lora(rank=8, target_modules=("q_proj",)), "quantization": "int8", "checkpointing": "full"}
    assert peak(**eight, use_reentrant=True) < peak(**eight)
    # Liger takes its own loss whatever else is asked for.
    assert peak(use_liger_kernel=True) == peak(use_liger_kernel=True, cross_entropy="chunked")


def peak(**run: object) -> int:
    training = TrainRun(sequence_length=512, batch_size=4, precision="bf16", **run)  # type: ignore[arg-type]  # by test
    return ANALYTIC.estimate(Workload(model=MODEL, run=training), card("H200")).allocated


def test_peft_raises_what_is_not_quantised_and_falcon_has_its_scores_spelt_out() -> None:
    """Embeddings and output layer of 4,096 words grow by two bytes a number, and what stands between blocks as well."""
    plain = Lora(rank=8, target_modules=("q_proj",))
    raised = msgspec.structs.replace(plain, prepare_for_kbit_training=True)
    more = peak(lora=raised, quantization="nf4") - peak(lora=plain, quantization="nf4")
    assert more > 2 * 4096 * 512 * 2
    # No fused kernel takes heads that its caller broadcasts; 20 % were missing of this run of the CUDA build.
    jobs = json.loads(SAVER_JOBS.with_name("stated.json").read_text(encoding="utf-8"))
    job = next(job for job in jobs if job["name"] == "lora: falcon-mqa 54")
    workload = workload_of(job)
    assert isinstance(workload.model, TransformerModel)
    assert not workload.model.enable_gqa
    estimate = ANALYTIC.estimate(workload, card(job["device"]))
    assert estimate.allocated == pytest.approx(job["allocated"], rel=0.001)
    assert any("broadcasts its shared key/value heads" in note for note in estimate.assumptions)

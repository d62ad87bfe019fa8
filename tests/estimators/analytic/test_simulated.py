"""What the caching allocator keeps, beside recorded runs and traces, and its defaults beside the whole one."""

import json
import statistics
from functools import lru_cache
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.golden_workloads import DECODERS, WORKLOADS
from tests.properties import examples
from tests.recorded.accuracy import CARDS
from tests.tables import for_each
from vramtui.core.base.errors import UserError
from vramtui.core.estimate.devices import card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.schema.models import TransformerModel
from vramtui.core.schema.workload import InferRun, Lora, Parallel, ServeRun, TrainRun, Workload
from vramtui.estimators.allocator.caching import CachingAllocator
from vramtui.estimators.allocator.config import AllocatorConfig
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.analytic.simulated import MOST_LAYERS, SIMULATED
from vramtui.estimators.analytic.tape.simulated_job import (
    Allocate,
    AllocationTrace,
    ConfiguredHeap,
    DefaultHeap,
    Held,
    JobHeap,
    MatrixProduct,
    Move,
    Release,
    SimulatedJob,
    Transient,
)
from vramtui.estimators.analytic.tape.tape import BACKWARD
from vramtui.estimators.methods import estimates_by
from vramtui.estimators.torch_facts.cublas import NO_WORKSPACE

GOLDEN = Path(__file__).parents[2] / "golden"
MODEL = TransformerModel(hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000)


@lru_cache
def recorded() -> dict[str, tuple[Estimate, int]]:
    return {
        f"{name} on {folder}": (
            SIMULATED.estimate(WORKLOADS[name], card(CARDS[folder])),
            json.loads(path.read_text())["peak_reserved"],
        )
        for folder in CARDS
        for name in WORKLOADS
        if (path := GOLDEN / "training" / folder / f"{name}.json").is_file()
    }


@lru_cache
def traced() -> dict[str, tuple[Estimate, int]]:
    records = json.loads((GOLDEN / "decoders.json").read_text())
    return {
        name: (SIMULATED.estimate(DECODERS[name].workload, card(DECODERS[name].device)), record["peak_reserved"])
        for name, record in records.items()
        if isinstance(DECODERS[name].workload.run, TrainRun)
    }


def off(pair: tuple[Estimate, int]) -> float:
    estimate, true = pair
    return (estimate.reserved or 0) / true - 1


def holds(pair: tuple[Estimate, int]) -> bool:
    estimate, true = pair
    return abs((estimate.reserved or 0) - true) <= (estimate.error or 0) * estimate.process


@for_each([recorded, traced])
def test_nine_in_ten_lie_in_the_range_that_is_told(known: object) -> None:
    pairs = list(known().values())  # type: ignore[operator] # one of the two functions above
    assert sum(map(holds, pairs)) >= 0.9 * len(pairs)
    assert statistics.median(abs(off(pair)) for pair in pairs) <= 0.01
    errors = sorted(abs(off(pair)) for pair in pairs)
    assert errors[len(errors) * 9 // 10] <= 0.05
    assert errors[-1] <= 0.12


@examples(100)
@given(st.lists(st.one_of(st.integers(1, 40 << 20), st.integers(1, 4096), st.floats(0, 1, exclude_max=True))))
def test_a_job_is_served_as_by_the_whole_allocator(requests: list[int | float]) -> None:
    """A size is asked for; a share says which of the blocks that are held goes."""
    job, allocator, others = SimulatedJob([], NO_WORKSPACE), CachingAllocator(1 << 60), list[int]()
    blocks: list[Held] = []
    for request in requests:
        if isinstance(request, int):
            job.play([Allocate(blocks, -(-request // 512), object())])
            others.append(allocator.malloc(request))
        elif others:
            job.release([blocks.pop(int(request * len(others)))])
            allocator.free(others.pop(int(request * len(others))))
        stats = allocator.stats
        assert (job.peaks.allocated, job.peaks.reserved) == (stats.peak_allocated, stats.peak_reserved)


def test_everything_but_what_is_cached_is_analytic_and_incoming_gradients_are_freed() -> None:
    shares = [
        (ANALYTIC.estimate(WORKLOADS[name], card(CARDS[folder])).reserved or 0) / true - 1
        for (name, folder), (_, true) in ((key.split(" on "), pair) for key, pair in recorded().items())
    ]
    assert statistics.median(map(abs, shares)) > 5 * statistics.median(abs(off(pair)) for pair in recorded().values())
    workload = Workload(model=MODEL, run=TrainRun(batch_size=8, sequence_length=128))
    found, plain = SIMULATED.estimate(workload, card("H200")), ANALYTIC.estimate(workload, card("H200"))
    assert found.allocated == plain.allocated
    assert [part for part in found.parts if part.line != "cached"] == [p for p in plain.parts if p.line != "cached"]
    assert sum(part.at_peak for part in found.parts) == found.process
    assert found.reserved == found.allocated + next(part.bytes for part in found.parts if part.line == "cached")
    assert "give or take 20.0 MiB" in next(part.formula for part in found.parts if part.line == "cached")
    # Both are of one size: GPT-2 and RoBERTa under autocast were 13 to 14 % under for the block that stayed.
    trace, old, new = AllocationTrace(SimulatedJob([], NO_WORKSPACE), "main"), [2048, 1], [2048, 1]
    for buffer in (old, new):
        trace.take(BACKWARD, 2048, buffer)
    trace.free(BACKWARD, 2048, 1, old)
    owned = [(type(step), step.owner is old) for step in trace.steps if isinstance(step, Allocate | Release)]
    assert owned == [(Allocate, True), (Allocate, False), (Release, True)]


@for_each([
    *({"optimizer": name} for name in ("sgd", "adamw", "adamw-8bit", "lion", "adafactor")),
    {"gradient_accumulation_steps": 4},
    {"precision": "bf16-master"},
    {"checkpointing": "full"},
])  # fmt: skip
def test_every_way_to_train_is_followed(changes: dict[str, object]) -> None:
    run = TrainRun(batch_size=8, sequence_length=128, **changes)  # type: ignore[arg-type] # keys of the struct
    found = SIMULATED.estimate(Workload(model=MODEL, run=run), card("H200"))
    assert found.allocated <= (found.reserved or 0) < 2 * found.allocated + (64 << 20)


def test_what_it_does_not_follow_is_said_and_generation_grows_its_cache() -> None:
    for workload in (
        Workload(model=MODEL, run=ServeRun(max_model_len=16)),
        Workload(model=MODEL, run=TrainRun(sequence_length=16), parallel=Parallel(data=2)),
    ):
        with pytest.raises(UserError, match="simulated follows training and inference on one card"):
            estimates_by("simulated", workload, card("H200"))
    # Each request is played, so that a mistyped number of layers would take half a minute.
    run = TrainRun(sequence_length=16)
    deep, deeper = (msgspec.structs.replace(MODEL, num_hidden_layers=layers) for layers in (MOST_LAYERS, 4096))
    (found,) = estimates_by("simulated", Workload(model=deep, run=run), card("H200"))
    assert (found.method, [found]) == ("simulated", estimates_by(None, Workload(model=deep, run=run), card("H200")))
    (usual,) = estimates_by(None, Workload(model=deeper, run=run), card("H200"))
    assert usual == ANALYTIC.estimate(Workload(model=deeper, run=run), card("H200"))
    with pytest.raises(UserError, match="simulated follows 512 layers at most, not 4,096"):
        estimates_by("simulated", Workload(model=deeper, run=run), card("H200"))
    # What a generation keeps is a multiple of segments, and grows with the tokens.
    runs = [InferRun(batch_size=4, sequence_length=512, new_tokens=new) for new in (0, 8, 200)]
    grown = [SIMULATED.estimate(Workload(model=MODEL, run=run), card("H200")) for run in runs]
    sizes = [one.reserved or 0 for one in grown]
    assert sizes == sorted(sizes)
    assert all((one.reserved or 0) >= one.allocated for one in grown)


def test_a_layer_may_have_its_familys_name() -> None:
    names = [("qkv_proj", "o_proj", "up_proj"), ("query_key_value", "dense", "dense_h_to_4h")]
    model = TransformerModel(
        hidden_size=256, num_hidden_layers=2, num_attention_heads=4, vocab_size=1000, fused_qkv=True
    )
    found = [
        ANALYTIC.estimate(
            Workload(model=model, run=TrainRun(sequence_length=16, lora=Lora(rank=8, target_modules=target))),
            card("H200"),
        ).ledger
        for target in names
    ]
    assert found[0] == found[1]


@for_each([TrainRun, InferRun])
def test_a_job_beyond_an_eib_is_answered_by_analytic_alone(kind: type[TrainRun | InferRun]) -> None:
    workload = Workload(model=MODEL, run=kind(batch_size=1 << 30, sequence_length=1 << 32))
    assert SIMULATED.estimate(workload, card("H100")) == ANALYTIC.estimate(workload, card("H100"))


# Units of 512 bytes: of the small pool, of one segment, and of a segment of their own.
UNITS = st.one_of(st.integers(1, 2048), st.integers(2049, 20_480), st.integers(20_481, 200_000))
STEPS = st.lists(st.tuples(st.sampled_from(("take", "free", "borrow")), UNITS), max_size=120)


def _play(heap: JobHeap, steps: list[tuple[str, int]]) -> tuple[int, int]:
    blocks: list[Held] = []
    for step, units in steps:
        if step == "take":
            heap.play([Allocate(blocks, units, object())])
        elif step == "borrow":
            heap.play([Transient(units)])
        elif blocks:
            heap.play([Release(blocks, blocks[units % len(blocks)][2])])
    return heap.peak_allocated, heap.peak_reserved


@examples(200)
@given(STEPS)
def test_any_requests_take_what_they_take_of_the_whole_allocator(steps: list[tuple[str, int]]) -> None:
    assert _play(DefaultHeap(), steps) == _play(ConfiguredHeap(AllocatorConfig()), steps)


def test_blocks_that_are_borrowed_moved_or_held_by_a_thread() -> None:
    blocks = list[Held]()
    default = DefaultHeap()
    default.play([Allocate(blocks, 4096, None), Release(blocks, None), Transient(3000)])
    assert default.peak_allocated == 4096 * 512
    default.play([Allocate(blocks, 4096, None)])
    assert default.peak_reserved == 20 << 20
    for heap in (DefaultHeap(), ConfiguredHeap(AllocatorConfig())):
        blocks = []
        heap.play([MatrixProduct(blocks, 4096)] * 3)
        assert (len(blocks), heap.peak_allocated) == (1, 4096 * 512)
    for heap in (DefaultHeap(), ConfiguredHeap(AllocatorConfig())):
        old, new = list[Held](), list[Held]()
        heap.play([Allocate(old, 8, "a"), Allocate(old, 8, "b"), Move(old, "a", new, "c"), Release(new, "c")])
        assert ([held[2] for held in old], new) == (["b"], [])
        heap.play([Allocate(old, 8, "d")])
        assert heap.peak_allocated == 16 * 512

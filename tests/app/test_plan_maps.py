import gc
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.app.driver import known
from tests.app.fakes import MODEL, PRESETS, RoundEstimator
from vramtui.app.plan import model as plans
from vramtui.app.plan.controller import GridWorker
from vramtui.app.plan.screen import edge_before, edge_below, figure
from vramtui.app.state.dashboard_state import DashboardState
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import GIB, TIB
from vramtui.core.estimate.devices import CARDS, COMPARED, card
from vramtui.core.estimate.estimate import Estimate, Estimator
from vramtui.core.schema.models import TorchModel, TransformerModel
from vramtui.core.schema.workload import InferRun, Parallel, ServeRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.estimators.methods import DEFAULT
from vramtui.estimators.planner.card_table import spread
from vramtui.estimators.planner.planner import FitResult, Planner, answer_for
from vramtui.monitor.predictor import Predictor, Refiner
from vramtui.monitor.session import MonitorSession
from vramtui.presets import PresetLibrary
from vramtui.presets.draft import differences, proposed_name, save_variant
from vramtui.presets.reader import load_preset

JOB = PRESETS[0].preset.workload
TRAIN = Workload(model=MODEL, run=TrainRun(batch_size=4, sequence_length=4096))


@given(st.integers(1, 1 << 30), st.integers(1, 30), st.sampled_from([2, 4]))
def test_a_ladder_rises_around_its_value(value: int, count: int, steps: int) -> None:
    rungs = plans.ladder(value, count, steps)
    assert value in rungs
    assert (list(rungs), len(rungs)) == (sorted(set(rungs)), count)
    assert rungs[0] >= 1
    assert rungs.index(value) <= count // 3


def test_ladders_by_hand_and_names_of_saved_variants() -> None:
    assert plans.ladder(4, 12, 4) == (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16)
    assert plans.ladder(4096, 6, 2) == (2048, 3072, 4096, 6144, 8192, 12288)
    assert plans.ladder(1000, 6, 2) == (512, 768, 1000, 1024, 1536, 2048)
    assert (plans.with_present((1, 2, 4), 3), plans.with_present((1, 2, 4), 9)) == ((1, 2, 3), (2, 4, 9))
    assert plans.with_present((1, 2, 4), 2) == (1, 2, 4)
    assert [plans.short(number) for number in (7, 9999, 16384, 24576, 1 << 20, 3 << 19, 10_001)] == [
        "7", "9999", "16k", "24k", "1M", "1.5M", "10001",
    ]  # fmt: skip
    sizes = (61 * GIB + GIB // 4, 112 * GIB, 12 * TIB, 0)
    assert [figure(count, 4) for count in sizes] == ["61.2", "112", "12T", "0.0"]
    made = plans.variant(TRAIN, {"batch": 2, "LoRA": 8, "sharding": "FSDP"}, 8)
    assert differences(TRAIN, made) == {
        "run.batch_size": 2,
        "run.lora.rank": 8,
        "run.lora.target_modules": ("q_proj", "k_proj", "v_proj", "o_proj"),
        "parallel.data": 8,
        "parallel.strategy": "fsdp",
        "parallel.zero_stage": 3,
    }
    assert differences(made, TRAIN) == {"run.batch_size": 4, "run.lora": None, "parallel": None}
    assert differences(made, made) == {}
    assert proposed_name(PRESETS[0], "batch 8 · seq 4,096") == "llama-3.1-8b-lora-batch8-seq4096"
    assert proposed_name(PRESETS[0], "GPUs 8 · sharding tensor+seq") == "llama-3.1-8b-lora-GPUs8-sharding-tensor-seq"


@given(st.integers(0, 1 << 60), st.integers(4, 10))
def test_a_figure_fits_its_cell(count: int, width: int) -> None:
    assert 0 < len(figure(count, width)) <= width


@pytest.mark.parametrize("name", PresetLibrary().keys())
def test_setting_what_is_there_changes_nothing(name: str) -> None:
    workload = PresetLibrary().get(name).preset.workload
    axes = plans.axes_of(workload, workload, 8)
    assert bool(axes) == (not isinstance(workload.model, TorchModel))
    for axis in axes:
        assert len(axis.amounts) == len(axis.labels) == len(set(axis.amounts)) <= 24
        assert axis.present is not None or axis.name in {"seq", "context"}
        if axis.present is not None:
            assert plans.variant(workload, {axis.name: axis.amounts[axis.present]}, 8) == workload
    if axes:
        x, y = plans.usual_axes(axes)
        assert x != y


def test_axes_stay_put_set_their_keys_and_are_those_of_the_model() -> None:
    changed = plans.variant(TRAIN, {"batch": 8}, 8)
    before, after = (plans.axes_of(workload, TRAIN, 8)[0] for workload in (TRAIN, changed))
    assert before.amounts == after.amounts
    assert before.present is not None
    assert after.present is not None
    assert (before.amounts[before.present], after.amounts[after.present]) == (4, 8)
    odd = plans.axes_of(plans.variant(TRAIN, {"batch": 9}, 8), TRAIN, 8)[0]
    assert 9 in odd.amounts
    assert odd.present == odd.amounts.index(9)
    made = plans.variant(
        TRAIN, {"batch": 2, "seq": 512, "precision": "bf16", "checkpoint": "full", "optimizer": "sgd", "LoRA": 8}, 8
    )
    run = made.run
    assert isinstance(run, TrainRun)
    assert (run.batch_size, run.sequence_length, run.precision, run.checkpointing, run.optimizer) == (
        2, 512, "bf16", "full", "sgd",
    )  # fmt: skip
    assert (known(run.lora).rank, known(run.lora).target_modules) == (8, ("q_proj", "k_proj", "v_proj", "o_proj"))
    assert isinstance(JOB.run, TrainRun)
    assert JOB.run.lora is not None
    more = plans.variant(JOB, {"LoRA": 64}, 8).run
    assert isinstance(more, TrainRun)
    assert more.lora == msgspec.structs.replace(JOB.run.lora, rank=64)
    assert plans.variant(JOB, {"LoRA": None}, 8).run.lora is None
    serve = Workload(model=MODEL, run=ServeRun(max_model_len=8192))
    assert plans.usual_axes(plans.axes_of(serve, serve, 8)) == ("share", "context")
    local = Workload(model=MODEL, run=ServeRun(engine="llama.cpp", max_model_len=8192))
    assert plans.usual_axes(plans.axes_of(local, local, 8)) == ("quantized", "context")
    resnet = PresetLibrary().get("resnet-50-train").preset.workload
    assert plans.usual_axes(plans.axes_of(resnet, resnet, 8)) == ("batch", "image")
    small = plans.variant(resnet, {"image": 112}, 8)
    assert answer_for(ANALYTIC, small, card("H100")).process < answer_for(ANALYTIC, resnet, card("H100")).process  # type: ignore[operator]  # both can be
    with pytest.raises(UserError, match="no optimizer to vary"):
        plans.variant(serve, {"optimizer": "sgd"}, 8)
    gpt = PresetLibrary().get("llama-3.1-8b-llama-server").preset.workload
    assert not {"GPUs", "sharding"} & {axis.name for axis in plans.axes_of(gpt, gpt, 8)}
    learned = PresetLibrary().get("gpt2-124m").preset.workload
    axis = next(axis for axis in plans.axes_of(learned, learned, 8) if axis.name == "seq")
    assert axis.amounts[-2:] == (1024, 1536)
    turned = PresetLibrary().get("llama-3.1-8b-full").preset.workload
    axis = next(axis for axis in plans.axes_of(turned, turned, 8) if axis.name == "seq")
    assert (axis.amounts[-2:], axis.own) == ((131072, 196608), 131072)
    axis = next(axis for axis in plans.axes_of(TRAIN, TRAIN, 8) if axis.name == "FSDP")
    assert (axis.amounts, axis.present) == ((1, 2, 4, 8, 16), 0)
    assert plans.variant(TRAIN, {"FSDP": 1}, 8).parallel is None
    shared_four = known(plans.variant(TRAIN, {"FSDP": 4}, 8).parallel)
    assert (shared_four.data, shared_four.strategy, shared_four.zero_stage) == (4, "fsdp", 3)


def test_ways_of_sharing() -> None:
    assert plans.shared(TRAIN, plans.AS_IS, None, 8) is None
    assert plans.shared(TRAIN, "ZeRO-3", None, 8) == Parallel(data=8, strategy="zero", zero_stage=3)
    assert plans.shared(TRAIN, "FSDP", 16, 8) == Parallel(data=16, strategy="fsdp", zero_stage=3)
    assert plans.shared(TRAIN, "tensor+seq", 4, 8) == Parallel(tensor=4, sequence_parallel=True)
    assert plans.shared(TRAIN, "tensor+ZeRO-1", 32, 8) == Parallel(tensor=8, data=4, strategy="zero", zero_stage=1)
    assert plans.shared(TRAIN, "pipeline", 2, 8) == Parallel(pipeline=2)
    assert plans.shared(TRAIN, "context", 2, 8) == Parallel(context=2)
    assert plans.shared(TRAIN, "FSDP", 1, 8) is None
    assert plans.shared(TRAIN, plans.AS_IS, 4, 8) == Parallel(data=4)
    with pytest.raises(UserError, match="groups of 8"):
        plans.shared(TRAIN, "tensor+ZeRO-1", 12, 8)
    spread_out = msgspec.structs.replace(TRAIN, parallel=Parallel(data=4, tensor=2, strategy="zero", zero_stage=1))
    assert spread_out.parallel is not None
    assert plans.shared(spread_out, plans.AS_IS, 16, 8) == msgspec.structs.replace(spread_out.parallel, data=8)
    with pytest.raises(UserError, match="groups of 2"):
        plans.shared(spread_out, plans.AS_IS, 3, 8)
    answers = Workload(model=MODEL, run=InferRun())
    assert plans.shared(answers, plans.AS_IS, 4, 8) == Parallel(tensor=4)
    assert plans.schemes_for(answers) == (plans.AS_IS, "tensor", "pipeline")


def test_a_map_says_what_its_estimator_says_and_few_are_kept() -> None:
    device = card("H100")
    axes = {axis.name: axis for axis in plans.axes_of(TRAIN, TRAIN, 8)}
    heatmap = plans.GridCells(plans.GridQuestion(TRAIN, device, axes["GPUs"], axes["sharding"], 8), (2, 3))
    assert [heatmap.done for _ in heatmap.fill(ANALYTIC)] == list(range(1, heatmap.total + 1))
    assert heatmap.is_whole
    for y, row in enumerate(heatmap.cells()):
        for x, answer in enumerate(row):
            try:
                expected = answer_for(ANALYTIC, heatmap.workload_at(x, y), device)
            except UserError as error:
                expected = FitResult(None, fits=False, reason=str(error))
            assert answer == expected
    refused = [answer.reason for row in heatmap.cells() for answer in row if answer and answer.process is None]
    assert any("does not divide" in reason for reason in refused)
    state, plan = DashboardState(MonitorSession(predictor=Predictor(RoundEstimator()))), plans.PlanModel()
    state.take_presets(PRESETS)
    state.panel_key = PRESETS[0].key
    plan.view(state)
    for axis in plan.axes[1:]:
        plan.choose_axis(axis.name, across=False)
        for _ in range(12):
            plan.view(state)
            plan.go(*(at + 1 for at in plan.cursor))
    assert 1 < len(plan.maps) <= plans.MAX_MAPS
    assert 1 < len(plan.advice) <= plans.ADVICE


@given(st.integers(1, 30), st.integers(1, 30), st.integers(0, 40), st.integers(0, 40))
def test_every_cell_comes_once_and_the_wanted_one_first(columns: int, rows: int, x: int, y: int) -> None:
    cells = list(spread(columns, rows, (x, y)))
    assert sorted(cells) == [(a, b) for a in range(columns) for b in range(rows)]
    if x < columns and y < rows:
        assert cells[0] == (x, y)


@given(st.lists(st.lists(st.sampled_from([None, 5, 15, -1]), min_size=4, max_size=4), min_size=1, max_size=5))
def test_the_edge_runs_between_what_fits_and_what_does_not(sizes: list[list[int | None]]) -> None:
    def answer(size: int | None) -> FitResult | None:
        return None if size is None else FitResult(None, False, "no") if size < 0 else FitResult(size, size <= 10)

    cells = tuple(tuple(answer(size) for size in row) for row in sizes)
    for y, row in enumerate(sizes):
        for x, size in enumerate(row):
            left = row[x - 1] if x else None
            below = sizes[y + 1][x] if y + 1 < len(sizes) else None
            assert edge_before(cells, x, y) == ({left, size} == {5, 15})
            assert edge_below(cells, x, y) == ({size, below} == {5, 15})


def advised(workload: Workload, name: str, gpus: int = 1) -> plans.Advice:
    advice = plans.Advice(workload, card(name), gpus)
    for _ in advice.find(ANALYTIC):
        pass
    assert advice.is_whole
    return advice


def test_advice_is_the_planners_and_goes_by_what_is_simulated() -> None:
    small = advised(TRAIN, "RTX4090", 8)
    planner = Planner(ANALYTIC, TRAIN, card("RTX4090"), 8)
    assert small.fits is False
    assert small.edges == (planner.edge("run.batch_size"), planner.edge("run.sequence_length"))
    assert tuple(name for name, _ in small.mitigations or ()) == tuple(
        mitigation.name for mitigation in planner.cheapest() or ()
    )
    assert small.with_them is not None
    assert small.with_them <= card("RTX4090").total_memory
    names = [one.name for one in small.cards]
    assert names == [
        name
        for name, device in sorted(CARDS.items(), key=lambda item: (item[1].total_memory, item[0]))
        if answer_for(ANALYTIC, TRAIN, device).fits
    ]
    assert advised(plans.variant(TRAIN, {"batch": 1, "seq": 512, "LoRA": 8}, 8), "B200").mitigations is None
    advice = plans.Advice(TRAIN, card("RTX4090"), 1)
    for _ in zip(range(3), advice.find(ANALYTIC), strict=False):
        pass  # another cell is looked at meanwhile
    for _ in advice.find(ANALYTIC):
        pass
    assert [edge.key for edge in advice.edges] == ["run.batch_size", "run.sequence_length"]
    advice = plans.Advice(TRAIN_OF_NEARER, CARD, 1, DEFAULT)
    for _ in advice.find(ANALYTIC):
        pass
    planner = Planner(ANALYTIC, TRAIN_OF_NEARER, CARD, 1, DEFAULT)
    assert advice.edges == (planner.edge("run.batch_size"), planner.edge("run.sequence_length"))
    assert (
        advice.edges[0].process
        == answer_for(DEFAULT, TRAIN_OF_NEARER.with_run(batch_size=advice.edges[0].largest), CARD).process
    )
    assert advice.fits == answer_for(DEFAULT, TRAIN_OF_NEARER, CARD).fits
    assert set(advice.cards) == {one for one in COMPARED if answer_for(DEFAULT, TRAIN_OF_NEARER, one).fits}


@pytest.mark.parametrize(("name", "amounts"), [
    ("llama-3.1-8b-lora", {"batch": 2, "LoRA": 64}),
    ("llama-3.1-8b-lora", {"LoRA": None, "sharding": "ZeRO-3"}),
    ("llama-3.1-8b-full", {"LoRA": 8, "GPUs": 4}),
    ("llama-3.1-70b-fsdp", {"sharding": "tensor", "seq": 4096}),
    ("resnet-50-train", {"image": 256, "precision": "fp32"}),
    ("llama-3.1-8b-serve", {"context": 8192, "quantized": "fp8"}),
    ("gpt2-1.5b", {"batch": 8}),
])  # fmt: skip
def test_a_saved_variant_is_the_variant(name: str, amounts: dict[str, int | str | None]) -> None:
    found = PresetLibrary().get(name)
    made = plans.variant(found.preset.workload, amounts, 8)
    saved = save_variant(found, made, "mine", "batch 2")
    assert saved.preset.workload == made
    assert not saved.bundled
    assert load_preset(Path(saved.path)) == saved.preset
    assert saved.preset.measured is None
    assert saved.preset.match is None
    assert saved.preset.name == f"{found.preset.name} · batch 2"
    kept = [line for line in Path(found.path).read_text().splitlines() if line.startswith("#")]
    assert set(kept) <= set(Path(saved.path).read_text().splitlines())
    with pytest.raises(UserError, match="exists already"):
        save_variant(found, made, "mine", "batch 2")


class Slow:
    name = "slow"

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Semaphore(0), threading.Semaphore(0)

    def estimate(self, workload: Workload, device: object) -> Estimate:
        del device
        self.asked.release()
        assert self.go_on.acquire(timeout=60)
        return RoundEstimator().estimate(workload, card("H100"))


def test_a_job_that_is_not_wanted_any_more_ends_within_an_estimate() -> None:
    told, estimator = threading.Event(), Slow()
    worker = GridWorker(told.set, lambda error: pytest.fail(str(error)))
    steps: list[str] = []

    def job(name: str, count: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - a helper of this test
        def run(asked: Estimator) -> Iterator[None]:
            for _ in range(count):
                asked.estimate(JOB, card("H100"))
                steps.append(name)
                yield

        return run

    worker.want({"first": job("first", 100)}, estimator)
    assert estimator.asked.acquire(timeout=60)
    worker.want({"second": job("second", 2)}, estimator)
    estimator.go_on.release(3)
    while worker.is_busy:
        assert told.wait(timeout=60)
        told.clear()
    worker.join(timeout=60)
    assert steps == ["first", "second", "second"]


def test_a_fault_of_ours_is_said_and_the_others_go_on() -> None:
    faults: list[Exception] = []
    told = threading.Event()
    worker = GridWorker(told.set, faults.append)
    done = threading.Event()

    def broken(_: Estimator) -> Iterator[None]:
        raise ZeroDivisionError("of ours")
        yield

    def well(_: Estimator) -> Iterator[None]:
        yield
        done.set()

    worker.want({"broken": broken, "well": well}, RoundEstimator())
    assert done.wait(timeout=60)
    assert [str(fault) for fault in faults] == ["of ours"]


def test_a_job_of_long_steps_leaves_one_of_short_steps_its_half() -> None:
    steps: list[str] = []
    done = threading.Event()

    def job(name: str, seconds: float, count: int):  # type: ignore[no-untyped-def]  # noqa: ANN202 - as above
        def run(_: Estimator) -> Iterator[None]:
            for _step in range(count):
                until = time.thread_time() + seconds
                while time.thread_time() < until:
                    pass
                steps.append(name)
                yield
            if name == "long":
                done.set()

        return run

    worker = GridWorker(lambda: None, lambda error: pytest.fail(str(error)))
    worker.want({"long": job("long", 0.1, 4), "short": job("short", 0.001, 8)}, RoundEstimator())
    assert done.wait(timeout=60)
    assert steps[:9].count("short") == 8


def test_while_it_works_others_get_their_turn_sooner_and_estimates_set_off_no_search_for_garbage() -> None:
    for thread in threading.enumerate():
        if thread.name == "plan":  # of a test before this one: it holds the same two settings
            thread.join(timeout=60)
    before = (sys.getswitchinterval(), gc.get_threshold())
    seen: list[tuple[float, int]] = []
    worker = GridWorker(lambda: None, lambda error: pytest.fail(str(error)))

    def job(_: Estimator) -> Iterator[None]:
        seen.append((sys.getswitchinterval(), gc.get_threshold()[0]))
        yield

    other = GridWorker(lambda: None, lambda error: pytest.fail(str(error)))
    goes_on = threading.Event()

    def long_job(_: Estimator) -> Iterator[None]:
        goes_on.wait(timeout=60)
        yield

    other.want({"long": long_job}, RoundEstimator())
    worker.want({"one": job}, RoundEstimator())
    worker.join(timeout=60)
    ((turn, young),) = seen
    assert turn < before[0]
    assert young > before[1][0]
    assert (sys.getswitchinterval(), gc.get_threshold()) == (turn, (young, *before[1][1:]))
    goes_on.set()
    other.join(timeout=60)
    assert (sys.getswitchinterval(), gc.get_threshold()) == before


def test_axes_begin_where_something_fits_and_end_soon_after_the_last_size_that_does() -> None:
    large = Workload(model=MODEL, run=TrainRun(batch_size=512, sequence_length=65536, precision="bf16"))
    axes = {axis.name: axis for axis in plans.axes_of(large, large, 8)}
    h200 = card("H200")

    def fits(workload: Workload) -> bool:
        return ANALYTIC.estimate(workload, h200).process <= h200.total_memory

    begun = plans.begin_where_it_fits((axes["batch"], axes["seq"]), large, 8, fits)
    first = {axis.name: axis.amounts[0] for axis in begun}
    assert fits(plans.variant(large, first, 8)), first
    for axis, value in zip(begun, (512, 65536), strict=True):
        assert axis.present is not None
        assert axis.amounts[axis.present] == value
        assert list(axis.amounts) == sorted(axis.amounts)  # type: ignore[type-var]  # sizes alone
    # Where it fits from the start, and where nothing does, the axes begin as they did.
    again = plans.begin_where_it_fits(begun, large, 8, fits)
    assert [axis.amounts[0] for axis in again] == [axis.amounts[0] for axis in begun]
    both = (axes["batch"], axes["seq"])
    assert plans.begin_where_it_fits(both, large, 8, lambda _: False) == both
    precision = (axes["precision"], axes["optimizer"])
    assert plans.begin_where_it_fits(precision, large, 8, lambda _: False) == precision
    axes = {axis.name: axis for axis in plans.axes_of(TRAIN, TRAIN, 8)}

    def has_few_tokens(workload: Workload) -> bool:
        run = workload.run
        assert isinstance(run, TrainRun)
        return run.batch_size * (run.sequence_length or 0) <= 16 * 2048

    x, y = plans.begin_where_it_fits((axes["batch"], axes["seq"]), TRAIN, 8, has_few_tokens)
    smallest = y.amounts[0], x.amounts[0]
    for axis, other in zip((x, y), smallest, strict=True):
        assert isinstance(other, int)
        over = [amount for amount in axis.amounts if isinstance(amount, int) and amount * other > 16 * 2048]
        assert len(over) <= 3 or len(axis.amounts) == 8
        assert axis.present is not None
    assert len(x.labels) == len(x.amounts)


def test_what_fits_in_no_size_is_varied_by_what_shares_its_weights() -> None:
    full = PresetLibrary().get("llama-3.1-8b-full").preset.workload
    axes = plans.axes_of(full, full, 8)

    def fits(workload: Workload) -> bool:
        return answer_for(ANALYTIC, workload, card("A100-40GB")).fits

    assert (plans.rows_that_fit(axes, full, 8, fits), plans.rows_that_fit(axes, full, 8, lambda _: True)) == (
        "FSDP",
        "",
    )
    assert plans.rows_that_fit(axes, full, 8, lambda _: False) == ""
    named = {axis.name: axis for axis in axes}
    x, y = plans.begin_where_it_fits((named["batch"], named["FSDP"]), full, 8, fits)
    assert any(fits(plans.variant(full, {"batch": x.amounts[0], "FSDP": cards}, 8)) for cards in y.amounts)


@pytest.mark.parametrize(
    ("name", "device"),
    [("gpt2-1.5b", "RTX4090"), ("llama-3.1-8b-full", "A100-40GB"), ("llama-3.1-8b-serve", "RTX4090")],
)
def test_map_limit_and_words_agree_at_all_times(name: str, device: str) -> None:
    refiner = Refiner(lambda: DEFAULT, settled=0.0)
    desk = DashboardState(MonitorSession(predictor=Predictor(refiner=refiner)))
    desk.take_presets((PresetLibrary().get(name),))
    desk.panel_key = name
    model = plans.PlanModel()
    model.card = card(device)
    begun: dict[object, Iterator[None]] = {}
    for step in range(4000):
        view = model.view(desk)
        _agree(view)
        if not step:
            assert any(answer is None or answer.fits for row in view.maps[0].cells for answer in row)
        if not model.jobs:
            break
        for job, steps in dict(model.jobs).items():
            for _ in zip(range(8), begun.setdefault(job, steps(ANALYTIC)), strict=False):
                pass
        assert refiner.wait(60)
    assert not model.jobs
    assert any(answer and answer.fits for row in model.view(desk).maps[0].cells for answer in row)
    _agree(model.view(desk))


def _agree(view: plans.PlanView) -> None:
    shown, (x, y) = view.maps[0], view.cursor
    side, here = view.side, shown.cells[y][x]
    if here is not None and here.process is not None and known(side).process is not None:
        assert here.process == known(side).process
    largest = {edge.key: edge.largest or 0 for edge in view.advice.edges}
    column = tuple(row[x] for row in shown.cells)
    for axis, answers in ((shown.x, shown.cells[y]), (shown.y, column)):
        most = largest.get(plans.SIZE_KEYS.get(axis.name, ""))
        for amount, answer in zip(axis.amounts, answers, strict=True):
            if most is not None and answer is not None and answer.process is not None and isinstance(amount, int):
                assert answer.fits == (amount <= most), (axis.name, amount, most)


MODEL_OF_NEARER = TransformerModel(hidden_size=1024, num_hidden_layers=8, num_attention_heads=16, vocab_size=32000)
TRAIN_OF_NEARER = Workload(model=MODEL_OF_NEARER, run=TrainRun(batch_size=4, sequence_length=1024))
CARD = card("RTX4090")


@pytest.mark.slow
def test_what_may_fit_is_simulated_and_the_limit_goes_first() -> None:
    axes = {axis.name: axis for axis in plans.axes_of(TRAIN_OF_NEARER, TRAIN_OF_NEARER, 8)}
    heatmap = plans.GridCells(
        plans.GridQuestion(TRAIN_OF_NEARER, CARD, axes["batch"], axes["precision"], 8), (0, 0), DEFAULT
    )
    steps = heatmap.fill(ANALYTIC)
    quick = {(x, y): answer_for(ANALYTIC, heatmap.workload_at(x, y), CARD) for y in range(2) for x in range(3)}
    next(steps)
    next(steps)
    assert heatmap.exact_cells == {(0, 0)}, "the start is simulated first: all other cells are moved as it is"
    for _ in zip(range(heatmap.total - 1), steps, strict=False):
        pass
    assert heatmap.done == heatmap.total
    assert not heatmap.is_whole
    start, plain = heatmap.cells()[0][0], quick[0, 0]
    assert start.process is not None
    assert plain.process is not None
    for (x, y), answer in quick.items():
        here = heatmap.cells()[y][x]
        if (x, y) not in heatmap.exact_cells and answer.process is not None:
            assert known(here).process == answer.process * start.process // plain.process
    for _ in steps:
        pass
    assert heatmap.is_whole
    refined = 0
    for y, row in enumerate(heatmap.cells()):
        for x, answer in enumerate(row):
            if (x, y) in heatmap.exact_cells:
                refined += 1
                assert answer == answer_for(DEFAULT, heatmap.workload_at(x, y), CARD)
        sizes = [answer.process for answer in row if answer is not None and answer.process is not None]
        assert sizes == sorted(sizes), "no cliff where the simulation ends"
    assert 10 < refined < heatmap.total

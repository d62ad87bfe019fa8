"""One figure for one preset and card, whoever asks: `estimate`, `fit`, `fit --sbatch`, `pick`, `card`, a table of
cards, Plan, the picker and the panel, live and in a replay. What a screen shows before it has that figure is marked as
quick.
"""

import re
from functools import cache

import pytest
from textual.pilot import Pilot

from tests.app import scenes
from tests.app.driver import dashboard, give, lines_with_totals, screen_text
from tests.app.fakes import FixedPresets
from tests.loaded_once import bundled_presets
from tests.tables import for_each
from vramtui.app.app import Dashboard
from vramtui.app.plan.model import GridCells, GridQuestion, axes_of, usual_axes
from vramtui.cli.estimate import fit_of
from vramtui.cli.fit import print_sbatch
from vramtui.cli.run.placement import need_of
from vramtui.core.base.errors import UserError
from vramtui.core.base.units import format_bytes, format_gib
from vramtui.core.estimate.devices import Device, card
from vramtui.core.estimate.estimate import Estimate
from vramtui.core.observation.readings import Gpu, Memory, ProcessKey
from vramtui.core.schema.preset import PresetFile
from vramtui.core.schema.workload import Parallel
from vramtui.estimators.analytic import ANALYTIC, simulated
from vramtui.estimators.methods import DEFAULT, estimates_by
from vramtui.estimators.planner.card_table import card_fits
from vramtui.estimators.planner.planner import Planner, answer_for, with_values
from vramtui.monitor.predictor import LazyAnalytic, LazyDefault, Predictor, Refiner
from vramtui.monitor.session import MonitorSession

CARDS = tuple(map(card, ("T4", "RTX4090", "A100-40GB", "L40S", "H100", "H200")))
PRESETS = list(bundled_presets())
MANY = PRESETS[:: len(PRESETS) // 30][:30]
WORKLOADS = {str(found.key): found.preset.workload for found in MANY}
LONG = 120.0
IN_SIGHT = 10  # lines of the list of presets, at least
PER_NODE = 8


def gpus_of(cards: tuple[Device, ...]) -> tuple[Gpu, ...]:
    return tuple(
        scenes.gpu(
            at,
            scenes.process(100 + at, 1 << 20, f"python train.py --seed {at}"),
            name=device.name,
            memory=Memory(total=device.total_memory, used=0, reserved=0, free=device.total_memory),
            compute_capability=device.capability,
        )
        for at, device in enumerate(cards)
    )


@cache
def exact_of(key: str) -> dict[Device, Estimate]:
    workload = WORKLOADS[key]
    answers = {device: Predictor(LazyDefault()).ask(workload, device) for device in CARDS}
    for device, answer in answers.items():
        if answer.estimate is None:
            with pytest.raises(UserError):
                estimates_by(None, workload, device)
        else:
            assert [answer.estimate] == estimates_by(None, workload, device)
    return {device: answer.estimate for device, answer in answers.items() if answer.estimate is not None}


@pytest.mark.slow
@for_each(MANY)
def test_one_figure_for_many_presets(found: PresetFile) -> None:
    workload = found.preset.workload
    exact = exact_of(str(found.key))
    table = {there.card: there.fit for there in card_fits(ANALYTIC, workload, exact, DEFAULT)}
    predictor = Predictor(LazyDefault())
    for gpu, device in zip(gpus_of(tuple(exact)), exact, strict=True):
        needs = exact[device].process
        picked = need_of(None, found, 1).fit(gpu)
        assert (picked.needs, predictor.total(workload, device)) == (needs, needs)
        assert Planner(ANALYTIC, workload, device, exact=DEFAULT).now.process == needs
        fit = table[device]
        assert (fit.needs, fit.error) == (needs, exact[device].error)


@pytest.mark.parametrize("is_replay", [False, True], ids=["live", "replay"])
@pytest.mark.parametrize("found", MANY, ids=lambda found: str(found.key))
def test_a_screen_has_the_figure_or_marks_a_quick_one(found: PresetFile, *, is_replay: bool) -> None:
    workload = found.preset.workload
    exact = exact_of(str(found.key))
    sample = scenes.sample(*gpus_of(tuple(exact)))
    keys = [
        ProcessKey(scenes.HOST.name, gpu.uuid, process.pid, process.started_at)
        for gpu in sample.gpus
        for process in gpu.processes
    ]
    refiner = Refiner(lambda: DEFAULT, settled=0.0)
    session = MonitorSession(predictor=Predictor(refiner=refiner))
    session.take_presets([found])
    if is_replay:
        session.recorded = dict.fromkeys(keys, found.key)
    else:
        session.by_hand.update(dict.fromkeys(keys, found.key))
    session.ingest(sample)
    # At each look the refiner turns to one more of them.
    for _ in (*keys, None):
        shown = session.estimates()
        for key, device in zip(keys, exact, strict=True):
            first = shown[key]
            is_quick = session.is_quick(found, device)
            assert is_quick == (first.method == LazyAnalytic.name != exact[device].method)
            assert is_quick or first == exact[device]
        assert refiner.wait(LONG)
    shown = session.estimates()
    assert [shown[key] for key in keys] == list(exact.values())
    assert [session.predictor.total(workload, device) for device in exact] == [one.process for one in exact.values()]


@pytest.mark.parametrize("found", MANY, ids=lambda found: str(found.key))
def test_lines_for_slurm_have_the_same_figure(found: PresetFile, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the job fits as its preset shares it; elsewhere `fit --sbatch` does not take it to fit so."""
    workload = found.preset.workload
    ranks = (workload.parallel or Parallel()).ranks
    for device, estimate in exact_of(str(found.key)).items():
        fits = fit_of(found, estimate, device).is_enough
        answer = answer_for(DEFAULT, workload, device)
        assert (answer.process, answer.fits) == (estimate.process, fits)
        if fits and ranks <= PER_NODE:
            print_sbatch(found, device, PER_NODE, None)
            first, *lines = capsys.readouterr().out.splitlines()
            sizes = f"{format_bytes(estimate.process)} of {format_bytes(device.total_memory)}"
            assert first == f"# {found.key} on {device.name}: {sizes} on each GPU predicted"
            assert lines[-1] == f"#SBATCH --gres=gpu:{ranks}"


@pytest.mark.slow
@for_each(MANY)
def test_a_map_has_the_same_figure(found: PresetFile) -> None:
    workload = found.preset.workload
    axes = {axis.name: axis for axis in axes_of(workload, workload, 8)}
    if not axes:
        return
    x, y = (axes[name] for name in usual_axes(tuple(axes.values())))
    for device, estimate in exact_of(str(found.key)).items():
        start = (x.present or 0, y.present or 0)
        sheet = GridCells(GridQuestion(workload, device, x, y, 8), start, DEFAULT)
        steps = sheet.fill(ANALYTIC)
        next(steps)
        next(steps, None)
        answer = sheet.cells()[start[1]][start[0]]
        assert answer.process == estimate.process or (start not in sheet.exact_cells and not answer.fits)


async def totals_on(app: Dashboard, pilot: Pilot[None]) -> dict[str, str]:
    await pilot.press("p")
    for _ in range(0, len(MANY), IN_SIGHT):
        lines = await lines_with_totals(app, pilot)
        await pilot.press(*["down"] * IN_SIGHT)
    lines = await lines_with_totals(app, pilot)
    await pilot.press("escape")
    return {line.split()[0]: line.split()[1] for line in lines if len(line.split()) > 1}


@pytest.mark.slow
@pytest.mark.parametrize("device", [CARDS[0], CARDS[2], CARDS[-1]], ids=lambda device: str(device.name))
async def test_the_list_on_the_screen_has_the_figure_or_marks_a_quick_one(device: Device) -> None:
    exact: dict[str, str] = {}
    for found in MANY:
        estimate = exact_of(str(found.key)).get(device)
        exact[found.key] = "no" if estimate is None else format_gib(estimate.process)
    refiner = Refiner(lambda: DEFAULT, settled=0.0)
    sample, presets = scenes.sample(*gpus_of((device,))), FixedPresets(tuple(MANY))
    async with dashboard([sample], (160, 60), presets=presets, estimator=LazyAnalytic(), refiner=refiner) as driver:
        app = driver[0]
        shown = await totals_on(*driver)
        assert {key: total for key, total in shown.items() if not total.startswith("≈")}.items() <= exact.items()
        assert shown.keys() == exact.keys()
        predictor = app.state.session.predictor
        for found in MANY:
            predictor.ask(found.preset.workload, app.state.device())
            assert refiner.wait(LONG)
            predictor.ask(found.preset.workload, app.state.device())
        assert await totals_on(*driver) == exact


@pytest.mark.parametrize("size", [(80, 24), (120, 35), (200, 50)])
async def test_a_quick_figure_is_marked_wherever_it_stands_on_the_screen(size: tuple[int, int]) -> None:
    found = next(found for found in PRESETS if str(found.key) == "llama-3.1-8b-lora")
    memory = Memory(total=card("H200").total_memory, used=70 << 30, free=card("H200").total_memory - (70 << 30))
    job = scenes.process(100, 70 << 30, "python train.py")
    sample = scenes.sample(scenes.gpu(0, job, name="NVIDIA H200", memory=memory, compute_capability=(9, 0)))
    presets = FixedPresets((found,))
    never = Refiner(lambda: DEFAULT, settled=LONG)
    async with dashboard([sample], size, presets=presets, estimator=LazyAnalytic(), refiner=never) as (app, pilot):
        process = ProcessKey(scenes.HOST.name, sample.gpus[0].uuid, 100, sample.gpus[0].processes[0].started_at)
        app.state.assign(process, found.key, automatic=False)
        quick = ANALYTIC.estimate(found.preset.workload, card("H200")).process
        more = found.preset.workload.with_run(batch_size=5)
        figures = [format_gib(quick), format_gib(ANALYTIC.estimate(more, card("H200")).process)]
        found_marks = set()
        for keys in ("", "right_square_bracket", "b", "v", "v"):
            await pilot.press(*filter(None, [keys]))
            await give(app, pilot, sample)
            text = screen_text(app)
            for figure in figures:
                # A column of parts has its mark in its heading, a verdict before its sign.
                marks = re.findall(rf"(≈ ?|≈ [^│≈]*needs )?\b{re.escape(figure)}(?!\d)", text)
                assert all(marks), text
                found_marks |= {(figure, mark) for mark in marks}
            assert ("≈predicted" in text) == ("── process" in text)
        assert {figure for figure, _ in found_marks} == set(figures)


@pytest.mark.parametrize("name", ["bart-large-train", "sdxl-train", "gemma-2-27b-lora"])
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
def test_cards_share_a_simulation(name: str, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cards of one compute capability with more and fewer multiprocessors, whose sums over rows take other blocks."""
    workload = next(found for found in PRESETS if str(found.key) == name).preset.workload
    workload = with_values(workload, {"run.optimizer": optimizer, "run.batch_size": 3})
    cards = tuple(map(card, ("RTX3060", "RTX3090", "A40")))
    with monkeypatch.context() as alone:
        alone.setattr(simulated, "KEPT", 0)
        each = [DEFAULT.estimate(workload, device) for device in cards]
    assert [DEFAULT.estimate(workload, device) for device in cards] == each

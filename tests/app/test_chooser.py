import re

import pytest
from textual.containers import VerticalScroll
from textual.widgets import OptionList

from tests.app import scenes
from tests.app.driver import climbing, dashboard, known, lines_with_totals, press, screen_text, settle
from tests.app.fakes import MODEL, FixedPresets, RoundEstimator
from vramtui.app.app import Dashboard
from vramtui.app.ui.chooser import rank, ranked
from vramtui.app.watch.estimate_panel import pool_share
from vramtui.core.base.units import GIB, format_gib
from vramtui.core.estimate.devices import CARDS
from vramtui.core.observation.readings import Memory
from vramtui.core.schema.preset import Preset, PresetFile
from vramtui.core.schema.workload import ServeRun, TrainRun, Workload
from vramtui.estimators.analytic import ANALYTIC
from vramtui.presets.library import PresetLibrary

MANY = 60


def presets() -> FixedPresets:
    many = tuple(
        PresetFile(
            key=f"preset-{at:03}",
            path=f"preset-{at:03}.toml",
            preset=Preset(name=f"Preset {at}", model=MODEL, run=TrainRun(batch_size=at + 1, sequence_length=4096)),
            bundled=True,
        )
        for at in range(MANY)
    )
    return FixedPresets(many)


def lines(app: Dashboard) -> list[str]:
    return [str(option.prompt) for option in app.screen.query_one(OptionList).options]


async def test_only_what_is_seen_is_estimated() -> None:
    async with dashboard(climbing(), presets=presets()) as (app, pilot):
        estimator = app.state.session.predictor.estimator
        assert isinstance(estimator, RoundEstimator)
        before = estimator.asked
        await pilot.press("p")
        shown = await lines_with_totals(app, pilot)
        height = app.screen.query_one(OptionList).size.height
        assert 0 < height < MANY
        assert [("GiB" in line, "…" in line) for line in shown[:height]] == [(True, False)] * height
        assert all("…" in line for line in shown[height:])
        assert estimator.asked - before <= height + 1

        await pilot.press(*["down"] * (MANY - 1))
        assert "GiB" in (await lines_with_totals(app, pilot))[-1]
        kept = estimator.asked
        await pilot.press("escape", "p")
        assert "GiB" in (await lines_with_totals(app, pilot))[0]
        assert estimator.asked == kept


async def test_the_filter_shows_totals_of_what_is_left_and_what_was_chosen_lately_comes_first() -> None:
    async with dashboard(climbing(), presets=presets()) as (app, pilot):
        await pilot.press("p", *"preset-05")
        shown = await lines_with_totals(app, pilot)
        assert len(shown) == 10
        assert all("GiB" in line for line in shown)
    async with dashboard(climbing(), presets=presets()) as (app, pilot):
        for at in (7, 3):
            await pilot.press("p", *f"preset-{at:03}", "enter")
            await pilot.pause()
        await pilot.press("p")
        await pilot.pause()
        shown = lines(app)
        assert shown[0] == "recent"
        assert [line.split()[0] for line in shown[1:3]] == ["preset-003", "preset-007"]
        assert len(shown) == MANY + 2


async def test_whether_each_fits_stands_beside_it() -> None:
    async with dashboard(climbing(), presets=presets()) as (app, pilot):
        await pilot.press("p")
        shown = await lines_with_totals(app, pilot)
        await pilot.press(*["down"] * (MANY - 1))
        last = (await lines_with_totals(app, pilot))[-1]
        assert "✓ fits" in shown[0]
        assert "✗ no" in last
    small = scenes.gpu(1, name="NVIDIA GeForce RTX 3070", memory=Memory(total=8 * GIB, used=0, free=8 * GIB))
    async with dashboard([scenes.sample(scenes.gpu(0), small)], size=(160, 40), presets=presets()) as (app, pilot):
        app.state.planned = CARDS["B200"]
        await pilot.press("p")
        shown = await lines_with_totals(app, pilot)
        assert "✓ A100-SXM4" in shown[0]
        assert "✓ B200" in shown[0]
        assert "✗ RTX 3070" in shown[10]
        assert "✓ fits · ! tight · ✗ does not fit" in screen_text(app)


OLLAMA = "/usr/local/bin/ollama runner --model /srv/models/blobs/sha256-667b0c --port 33017"


@pytest.mark.parametrize(("command", "held", "first"), [
    (OLLAMA, 6.7, "llama-3.1-8b-llama-server"),
    ("vllm serve Qwen/Qwen2.5-7B-Instruct", 60, "serve"),
    ("torchrun tune.py --model_name_or_path meta-llama/Llama-3.1-8B --fsdp full_shard", 40, "llama-3.1-8b-fsdp"),
])  # fmt: skip
async def test_a_preset_is_found_by_engine_and_memory(command: str, held: float, first: str) -> None:
    sample = scenes.sample(scenes.gpu(0, scenes.process(7, int(held * GIB), command)))
    async with dashboard([sample], presets=PresetLibrary(), estimator=ANALYTIC) as driver:
        await driver[1].press("m")
        while "nearest to what the process holds" not in screen_text(driver[0]):
            await driver[1].pause(0.01)
        options = driver[0].screen.query_one(OptionList)
        assert first in (options.options[3].id or "")
        while "…" in (line := str(options.options[3].prompt)):  # the line has the size that the panel has then
            await driver[1].pause(0.01)
        options.highlighted = 3
        await press(*driver, "enter")
        assert f" {format_gib(known(known(driver[0].state.view().panel).estimate).process)} GiB" in line
        is_pool = command.startswith("vllm")
        assert ("holds its pool of 90 %" in screen_text(driver[0])) is is_pool
        assert ("fits GPU 0" in screen_text(driver[0])) is not is_pool


def test_a_server_without_an_option_takes_its_releases_share() -> None:
    runs = (ServeRun(), ServeRun(engine_version="0.19.1"), ServeRun(engine="sglang"))
    shares = [pool_share(Workload(model=MODEL, run=run), run, CARDS["H100"]) for run in runs]
    assert shares == [0.92, 0.9, 0.834]


async def test_the_table_of_what_fits_is_whole_in_a_narrow_terminal() -> None:
    async with dashboard([scenes.usual()], (80, 24)) as driver:
        await driver[1].press("w")
        while not re.search(r"\d+k  ", screen_text(driver[0])):
            await driver[1].pause(0.01)
        await settle(*driver)
        text = screen_text(driver[0])
        assert all(title in text for title in ("llama.cpp", "NEEDS GiB", "Q4_K_M", "Q6_K", "Q8_0", "F16"))


PRESETS = (
    ("qwen-2.5-32b-infer", "Qwen 2.5 32B, 8 sequences, 3 of them long"),
    ("qwen-3-32b-infer", "Qwen 3 32B, 8 bit"),
    ("qwen-3-8b-lora", "Qwen 3 8B"),
    ("gpt2-1.5b", "GPT-2 XL"),
    ("flux-dev-infer", "FLUX with its VAE"),
)
AXES = (("GPUs", "that share the job"), ("sharding", "none, ZeRO, FSDP"))


def found(wanted: str, items: tuple[tuple[str, str], ...] = PRESETS) -> list[str]:
    return [name for name, _ in ranked(wanted, items, lambda item: item, lambda item: item[0])]


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        ("qwen 3 8", "qwen-3-8b-lora"), ("qwen38", "qwen-3-8b-lora"), ("3 8b", "qwen-3-8b-lora"),
        ("gpt2", "gpt2-1.5b"), ("xl", "gpt2-1.5b"), ("vae", "flux-dev-infer"), ("flxdev", "flux-dev-infer"),
        ("qwen-3-32b-infer", "qwen-3-32b-infer"),
    ],
)  # fmt: skip
def test_the_name_that_is_meant_comes_first(wanted: str, first: str) -> None:
    assert found(wanted)[0] == first


def test_a_name_comes_before_a_description_and_nothing_typed_keeps_all() -> None:
    assert (found("shar", AXES), found("")) == (["sharding", "GPUs"], sorted(name for name, _ in PRESETS))
    assert (found("  "), found("zzz")) == (sorted(name for name, _ in PRESETS), [])
    assert rank("x q", "qwen") is None


@pytest.mark.parametrize("size", [(80, 24), (60, 16), (200, 50)])
@pytest.mark.parametrize("key", ["i", "question_mark", "x"])
async def test_the_end_of_a_long_text_is_a_key_away(key: str, size: tuple[int, int]) -> None:
    async with dashboard(climbing(), size=size) as (app, pilot):
        await press(app, pilot, key)
        scroll = app.screen.query_one(VerticalScroll)
        assert app.screen.query_one("#window").content_region.contains_region(scroll.region)
        await pilot.press("end")
        await pilot.wait_for_animation()
        await settle(app, pilot)
        assert scroll.scroll_y == scroll.max_scroll_y == max(0, scroll.virtual_size.height - scroll.size.height)

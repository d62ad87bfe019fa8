"""The preset editor: new presets, and what a run was seen to take."""

import json
from pathlib import Path

from tests.app import scenes
from tests.app.driver import press, screen_text
from tests.app.editor_samples import TEXT, editor, on_top, said
from vramtui.app.editor.screen import Offers, Pick, QuestionDialog
from vramtui.app.ui.chooser import Ask
from vramtui.core.base.units import GIB
from vramtui.core.estimate.estimate import Ledger
from vramtui.core.runs.run import Run, StoredRun

CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 512,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "intermediate_size": 1024,
    "vocab_size": 1000,
}


def _run(number: int, preset: str = "tiny", **more: object) -> Run:
    fields: dict[str, object] = {
        "key": f"gpu01/{number}",
        "source": "watched",
        "host": "gpu01",
        "gpu_uuid": "GPU-0",
        "gpu_name": "NVIDIA A100-SXM4-80GB",
        "pid": number,
        "started_at": scenes.START - 1000 * number,
        "ended_at": scenes.START,
        "ending": "exited",
        "preset": preset,
        "method": "analytic",
        "predicted": Ledger(process=60 * GIB),
        "observed": Ledger(process=(50 + number) * GIB, reserved=49 * GIB),
    }
    return Run(**(fields | more))  # type: ignore[arg-type]  # fields of any type, checked by msgspec


async def test_from_a_models_file(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    async with editor(tmp_path) as (app, pilot, screen):
        await pilot.press("ctrl+n")
        assert on_top(app, Pick)
        await press(app, pilot, "enter", *"no.json", "enter")
        assert on_top(app, Ask)
        assert "no.json" in screen_text(app)
        await pilot.press(*(["backspace"] * 7))
        app.screen.query_one("Input").value = str(folder / "config.json")  # type: ignore[attr-defined]  # an Input
        await press(app, pilot, "enter")
        assert app.screen is screen
        assert screen.draft.path is None
        assert "hidden_size = 512" in screen.area.text
        assert screen.draft.is_changed
        await press(app, pilot, "ctrl+s")
        assert (tmp_path / "presets" / f"{screen.draft.name}.toml").read_text() == screen.area.text
        assert screen.draft.name in app.state.presets


async def test_a_new_one_is_a_copy_and_asks_about_what_is_unsaved(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "down", "enter")
        assert on_top(app, Ask)
        assert "is not a valid preset name" in await press(app, pilot, "end", "/", "enter")
        await press(app, pilot, "backspace", "enter")
        assert screen.draft.name == "tiny-copy"
        await press(app, pilot, "ctrl+s")
        assert (tmp_path / "presets" / "tiny-copy.toml").read_text() == TEXT
        assert app.state.panel_key == "tiny-copy"
    async with editor(tmp_path) as (app, pilot, screen):
        screen.open.put("name", "Mine")
        await pilot.press("ctrl+n")
        assert on_top(app, QuestionDialog)
        await press(app, pilot, "d")
        assert on_top(app, Pick)


async def test_from_a_process_what_is_offered_is_ticked_or_not(tmp_path: Path) -> None:
    line = "python train.py --model nobody/knows --per_device_train_batch_size 6 --bf16 --max_seq_length 512"
    sample = scenes.sample(scenes.gpu(0, scenes.process(77, 20 * GIB, line)))
    async with editor(tmp_path, samples=[sample]) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "end", "enter")
        window = app.screen
        assert isinstance(window, Offers)
        shown = screen_text(app)
        assert "run.batch_size = 6" in shown
        assert "from --per_device_train_batch_size 6" in shown
        offers = [offer.key for offer in window.offers]
        await press(app, pilot, *(["down"] * offers.index("run.batch_size")), "space", "ctrl+s")
        assert app.screen is screen
        assert screen.draft.name == "pid-77"
        assert "batch_size" not in screen.draft.text
        assert "sequence_length = 512" in screen.draft.text
        assert screen.draft.problems


async def test_the_chosen_processs_figures_go_into_measured(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "f5")
        assert on_top(app, QuestionDialog)
        assert "This run still goes on" in screen_text(app)
        await press(app, pilot, "y")
        assert f"[measured]\nprocess = {58 * GIB}\n" in screen.area.text
        assert "NVIDIA A100-SXM4-80GB in gpu01" in screen.area.text
        assert screen.draft.text.startswith(TEXT.rstrip())
        await press(app, pilot, "ctrl+z")
        assert screen.draft.text == TEXT


async def test_runs_of_the_history_are_offered_and_one_without_figures_gives_none(tmp_path: Path) -> None:
    async with editor(tmp_path, samples=[scenes.troubled()]) as (app, pilot, screen):
        await pilot.press("f5")
        assert "No run of tiny is known" in said(app)
        app.parts.history.model.take([StoredRun(1, _run(1)), StoredRun(2, _run(2)), StoredRun(3, _run(3, "another"))])
        await press(app, pilot, "f5")
        assert on_top(app, Pick)
        assert "pid 3 " not in screen_text(app)
        await press(app, pilot, "down", "enter")
        assert app.screen is screen
        assert f"[measured]\nreserved = {49 * GIB}\nprocess = {52 * GIB}\n" in screen.area.text
    async with editor(tmp_path, samples=[scenes.troubled()]) as (app, pilot, screen):
        app.parts.history.model.take([StoredRun(1, _run(1, observed=Ledger()))])
        await press(app, pilot, "f5")
        assert app.screen is screen
        assert "Nothing was measured of this run" in said(app)
        assert screen.draft.text == TEXT


async def test_another_kind_offers_to_take_out_what_it_does_not_have(tmp_path: Path) -> None:
    async with editor(tmp_path) as (app, pilot, screen):
        screen.form.go_to("run.kind")
        await press(app, pilot, "enter", "down", "enter")
        assert screen.draft.text == TEXT.replace('"train"', '"infer"')
        assert not on_top(app, QuestionDialog)  # an inference run has all of these keys
        screen.open.put("run.optimizer", "adamw")
        await press(app, pilot, "enter", "enter")
        assert on_top(app, QuestionDialog)
        assert "run.optimizer" in screen_text(app)
        await press(app, pilot, "y")
        assert screen.draft.text == TEXT.replace('"train"', '"infer"')


async def test_from_a_process_or_a_training_file_what_is_not_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "sft.yaml"
    path.write_text("model_name_or_path: nobody/knows\nper_device_train_batch_size: 6\nbf16: true\nmade_up: 1\n")
    async with editor(tmp_path) as (app, pilot, screen):
        await press(app, pilot, "ctrl+n", "down", "down", "enter")
        assert on_top(app, Ask)
        assert "none.yaml does not exist" in await press(app, pilot, *"none.yaml", "enter")
        app.screen.query_one("Input").value = str(path)  # type: ignore[attr-defined]  # an Input
        await press(app, pilot, "enter")
        assert on_top(app, Offers)
        shown = screen_text(app)
        assert "run.batch_size = 6" in shown
        assert "made_up." in shown.partition("Not used of ")[2]
        await press(app, pilot, "ctrl+s")
        assert app.screen is screen
        assert screen.draft.name == "sft"
        assert 'precision = "bf16-mixed"' in screen.draft.text
    line = "deepspeed train.py --deepspeed ds.json --per_device_train_batch_size 6"
    sample = scenes.sample(scenes.gpu(0, scenes.process(2**22 + 1, 20 * GIB, line)))
    async with editor(tmp_path, samples=[sample]) as (app, pilot, _):
        await press(app, pilot, "ctrl+n", "end", "enter")
        assert on_top(app, Offers)
        assert "ds.json is not read: the folder it was named from is not known." in screen_text(app)
